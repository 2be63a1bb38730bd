"""`krust serve`: runs a broker until a signal, or the end of its parent, stops it.

Promised: a failed start writes one line and exits with 3. The ready file appears complete, when
clients can connect. The first SIGINT, SIGTERM or SIGHUP stops the broker cleanly (exit 0), a second
one ends the process at once.
Threads: the main thread, which owns the signals.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import select
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krust import config as settings
from krust import foreign
from krust.cli import options
from krust.cli.recovering import RecoveryProgress, StoppedEarly
from krust.errors import ConfigError, KrustError, ServerError
from krust.listeners import addresses, listeners
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krust.cli.options import Options
    from krust.config import Config
    from krust.server import Broker

FILES = (Path("/etc/krust/krust.toml"), Path("krust.toml"))
"""Files that are read if they exist. `--config` replaces the second one."""

DIRECT = {
    "data_dir": "log.dirs",
    "node_id": "broker.id",
    "threads": "krust.threads",
    "flush": "krust.flush.mode",
    "mode": "krust.mode",
    "advertise": "advertised.listeners",
    "zookeeper": "zookeeper.connect",
}
"""Flags that are short names of settings."""

VARIABLES = {
    "KRUST_HOST",
    "KRUST_PORT",
    "KRUST_CONFIG",
    "KRUST_CONFIG_MODE",
    "KRUST_DATA_DIR",
    "KRUST_LOG_LEVEL",
    "KRUST_READY_FILE",
    "KRUST_BOOTSTRAP",
}
"""Variables of flags, which are not settings."""

LEVELS = ("debug", "info", "warning", "error")


@click.command(short_help="Run a broker.")
@click.option("--host", envvar="KRUST_HOST", show_envvar=True, help="Address to listen on.")
@click.option(
    *("--port", "port"),
    type=click.IntRange(0, 65535),
    envvar="KRUST_PORT",
    show_envvar=True,
    help="Port to listen on; 0: a free one. [9092]",
)
@click.option(
    *("--data-dir", "data_dir"),
    envvar="KRUST_DATA_DIR",
    show_envvar=True,
    help="The log directory. [krust-data]",
)
@click.option("--node-id", type=int, help="Id of this broker (KRUST_NODE_ID).")
@click.option(
    "--zookeeper",
    metavar="HOSTS[/CHROOT]",
    help="The ZooKeeper with the metadata. Without it, the metadata is in the data directory.",
)
@click.option(
    *("--config", "file"),
    type=click.Path(path_type=Path),
    envvar="KRUST_CONFIG",
    show_envvar=True,
    help="server.properties, or TOML with Kafka's names as quoted keys.",
)
@click.option(
    "--config-mode",
    type=click.Choice(foreign.MODES),
    envvar="KRUST_CONFIG_MODE",
    show_envvar=True,
    help="Whether an unknown setting, in a file or in KAFKA_*, is an error (strict) or a line in "
    "the log (warn). [warn for Kafka's own properties files and KAFKA_*, else strict]",
)
@click.option(
    *("-o", "--set", "pairs"),
    multiple=True,
    type=options.KeyValue(),
    help="A setting by Kafka's name; repeatable (KRUST_NUM_PARTITIONS=3 in the environment).",
)
@click.option("--advertise", metavar="HOST:PORT", help="The address that clients connect to.")
@click.option("--threads", type=click.IntRange(0), help="Network threads (KRUST_THREADS).")
@click.option("--flush", type=click.Choice(["async", "ack"]), help="When records reach the disk.")
@click.option(
    "--dev",
    "mode",
    flag_value="dev",
    help="Settings for one machine. [if only loopback addresses are bound]",
)
@click.option("--prod", "mode", flag_value="prod", help="Kafka's defaults, unchanged.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    envvar="KRUST_LOG_LEVEL",
    show_envvar=True,
    help="Lowest level of log lines to write.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    envvar="KRUST_READY_FILE",
    show_envvar=True,
    help="Write one JSON object here when clients can connect.",
)
@click.option("--ready-fd", type=int, help="Write it to an open descriptor.")
@click.option("--exit-on-stdin-close", is_flag=True, help="Stop when standard input ends.")
@click.option(
    "--adopt",
    is_flag=True,
    help="Start although the metadata is damaged or missing, with what the directories show.",
)
@click.option("--check", is_flag=True, help="Check whether the broker could start, and exit.")
@click.option("--print-config", is_flag=True, help="Print the settings that hold, and exit.")
@options.general
@click.pass_obj
def command(
    talk: Options,
    /,
    *,
    ready_file: Path | None,
    ready_fd: int | None,
    exit_on_stdin_close: bool,
    adopt: bool,
    check: bool,
    print_config: bool,
    log_level: str,
    **flags: Any,
) -> None:
    """Run a Kafka broker in the foreground. Ctrl-C stops it cleanly; twice: at once."""
    if check:
        _check(flags)
        return
    config = configure(**flags)
    if print_config:
        _print(config)
    else:
        log_to_stderr(log_level)
        for notice in config.notices:
            logging.getLogger("krust.config").warning(notice)
        ready = ReadyReport(ready_file, ready_fd)
        _run(config, ready, stdin_too=exit_on_stdin_close, quiet=talk.quiet, adopt=adopt)


class ReadyReport(NamedTuple):
    """Where to report that clients can connect."""

    file: Path | None
    descriptor: int | None

    def tell(self, fields: dict[str, object]) -> None:
        """Write one JSON object at once."""
        line = json.dumps(fields) + "\n"
        if self.file is not None:
            draft = self.file.with_name(f"{self.file.name}.{os.getpid()}")
            try:
                draft.write_text(line)
                draft.replace(self.file)
            except OSError as error:
                text = f"cannot write --ready-file {self.file}: {error.strerror}"
                raise ServerError(text) from None
        if self.descriptor is not None:
            try:
                with os.fdopen(self.descriptor, "w") as pipe:
                    pipe.write(line)
            except OSError as error:
                text = f"cannot write --ready-fd {self.descriptor}: {error.strerror}"
                raise ServerError(text) from None

    def __enter__(self) -> ReadyReport:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the file, because clients can no longer connect."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)


def _run(config: Config, ready: ReadyReport, *, stdin_too: bool, quiet: bool, adopt: bool) -> None:
    """Serve until asked to stop."""
    began = time.monotonic()
    with ready, stops(stdin_too=stdin_too) as asked:
        watch = RecoveryProgress(asked.early, quiet=quiet)
        try:
            with _started(config, watch, adopt=adopt) as broker:
                watch.end()
                fields = {
                    "bootstrap": broker.bootstrap,
                    "pid": os.getpid(),
                    "cluster_id": broker.cluster_id,
                    "data_dir": str(broker.data_dir),
                }
                ready.tell(fields)
                if not quiet:
                    _banner(broker, config, (time.monotonic() - began) * 1000)
                broker.on_failure = asked.end
                reason = asked() if broker.failure is None else ""
                stopping = time.monotonic()
                broker.stop()
        except StoppedEarly as stopped:
            if not quiet:
                click.echo(f"{stopped}: stopped before it was ready", err=True)
            return
    if broker.failure is not None:
        raise broker.failure
    if not quiet:
        took_ms = (time.monotonic() - stopping) * 1000
        click.echo(f"{reason}: stopped in {took_ms:.0f} ms, all logs are closed", err=True)


def configure(
    *,
    host: str | None = None,
    port: int | None = None,
    file: Path | None = None,
    config_mode: str | None = None,
    problems: list[KrustError] | None = None,
    pairs: tuple[tuple[str, str], ...] = (),
    **direct: object,
) -> Config:
    """The settings of files, environment, flags and `-o`, from weak to strong.

    problems  a list that gets the problems, instead of an error
    """
    places = [FILES[0], file or FILES[1]]
    files = [place for place in places if place == file or place.exists()]
    given: dict[str, object] = {
        DIRECT[name]: value for name, value in direct.items() if value is not None
    }
    if "advertised.listeners" in given:
        given["advertised.listeners"] = f"PLAINTEXT://{given['advertised.listeners']}"
    given |= dict(pairs)

    def load() -> Config:
        return settings.load(
            files=files,
            environ=os.environ,
            options=given,
            reserved=frozenset(VARIABLES),
            mode=config_mode,
            problems=problems,
        )

    if host is None and port is None:
        return load()
    if "listeners" in dict(pairs):
        raise ConfigError(
            "--host or --port beside -o listeners=..", hint="say it in one of the two ways"
        )
    named = addresses(str(load().text("listeners")))
    if problems is not None:
        problems.clear()  # the next pass finds them again
    if len(named) != 1:
        raise ConfigError(
            f"--host and --port cannot stand for {len(named)} listeners",
            hint="use -o listeners=..",
        )
    name, old_host, old_port = named[0]
    where = old_host if host is None else host
    where = f"[{where}]" if ":" in where else where
    given["listeners"] = f"{name}://{where}:{old_port if port is None else port}"
    return load()


@contextmanager
def _started(config: Config, watch: RecoveryProgress, *, adopt: bool) -> Iterator[Broker]:
    """A running broker. A failed start is one ServerError."""
    from krust.server import Broker

    try:
        broker = Broker(config=config, watch=watch, adopt=adopt).start()
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        raise ServerError(f"cannot start: {error.strerror or error}{place}") from error
    gc.freeze()  # later collections skip the objects of the start and so take less time
    try:
        yield broker
    finally:
        broker.stop()


class StopRequest:
    """Waits for a reason to stop."""

    def __init__(self, pipe: tuple[int, int], *, stdin_too: bool) -> None:
        self._reader, self._writer = pipe
        self._stdin_too = stdin_too

    def __call__(self) -> str:
        """Wait. Returns the reason in a word; "": `end` was called."""
        while (reason := self._look(None)) is None:
            pass
        return reason

    def early(self) -> str | None:
        """The reason, without waiting; None: there is none yet."""
        return self._look(0)

    def _look(self, timeout_ms: int | None) -> str | None:
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        if self._stdin_too:
            poll.register(sys.stdin, select.POLLIN | select.POLLHUP)
        ready = {handle for handle, _ in poll.poll(timeout_ms)}
        if self._reader in ready:
            number = os.read(self._reader, 1)[0]
            return signal.Signals(number).name if number else ""
        if ready and not os.read(sys.stdin.fileno(), 65536):
            return "end of standard input"
        return None

    def end(self) -> None:
        """Make the call return. Any thread may call it inside `stops`."""
        os.write(self._writer, b"\0")


@contextmanager
def stops(*, stdin_too: bool = False) -> Iterator[StopRequest]:
    """Handle signals, and yield the object that waits for a reason to stop.

    After the first signal the default handlers are restored, so a second signal ends the process
    even if Python cannot run.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    ours = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ours.append(signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in ours}

    def first(number: int, frame: object) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)

    for number in ours:
        signal.signal(number, first)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    previous_hook = sys.unraisablehook

    def tell(what: sys.UnraisableHookArgs) -> None:
        """Ignore the error of a signal that arrived with the first one and lost its handler."""
        if not (what.object is None and isinstance(what.exc_value, OSError)):
            previous_hook(what)

    sys.unraisablehook = tell
    try:
        yield StopRequest((reader, writer), stdin_too=stdin_too)
    finally:
        sys.unraisablehook = previous_hook
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _banner(broker: Broker, config: Config, took_ms: float) -> None:
    """Write the listeners, the data directory, how to connect and how to stop."""
    from krust import __version__

    space = os.statvfs(broker.data_dir)
    free_gb = space.f_bavail * space.f_frsize / 1e9
    zookeeper = config.text("zookeeper.connect")
    place = f"in the cluster of the ZooKeeper {zookeeper}" if zookeeper else "alone"
    dirs = ", ".join(map(str, config.log_dirs()))
    at = broker.bootstrap
    click.echo(
        f"krust {__version__} is ready in {took_ms:.0f} ms: broker {broker.node_id}, {place}\n"
        f"  listens   {_shown_listeners(broker, config)}\n"
        f"  data      {dirs} ({free_gb:.1f} GB free), {_FLUSHES[str(config.text(_FLUSH))]}\n"
        f"  mode      {', '.join(_mode(config))}\n"
        f"  connect   bootstrap.servers={at}\n"
        f"            krust produce -b {at} hello\n"
        "  stop      Ctrl-C; twice: at once",
        err=True,
    )


_FLUSH = "krust.flush.mode"
_FLUSHES = {
    "async": "records are flushed in the background, as Kafka's are",
    "ack": "records are flushed before they are acknowledged",
}


def _shown_listeners(broker: Broker, config: Config) -> str:
    """The addresses, each with how it is secured, and with its name if there are several."""
    secured = {
        each.name: f"{'TLS' if each.is_encrypted else 'no encryption'}, "
        f"{'logins' if each.has_logins else 'no passwords'}"
        for each in listeners(config.text)
    }
    found = [(name, address, secured[name]) for name, address in broker.listeners]
    if len(found) == 1:
        return f"{found[0][1]} ({found[0][2]})"
    return ", ".join(f"{address} ({name}, {security})" for name, address, security in found)


def _mode(config: Config) -> Iterator[str]:
    """The mode, and what it means for groups."""
    delay_ms = config.whole("group.initial.rebalance.delay.ms")
    yield f"{config.mode}: a new group waits {delay_ms} ms for more members"
    if config.true("krust.group.evict.on.disconnect"):
        grace_ms = config.whole("krust.group.connection.grace.ms")
        yield f"a member leaves {grace_ms} ms after its connection closes"
    else:
        yield "a member leaves when its session ends"
    if assignors := config.text(settings.ASSIGNORS):
        yield f"krust assigns in {assignors}"


def _print(config: Config) -> None:
    """Print the settings as a properties file, with the source of those that are not defaults."""
    from krust.listeners import base_name
    from krust.settings import BROKER

    given = config.given()
    of_listeners = {name: BROKER[base] for name in given if (base := base_name(name))}
    for name, setting in sorted({**BROKER, **of_listeners}.items()):
        if setting.support != "yes":
            continue
        if name in given:
            kind, place, _ = given[name].source
            click.echo(f"# {kind}: {place}")
        text = "(hidden)" if setting.sensitive else config.text(name)
        click.echo(f"{name}={'' if text is None else text}")


def _check(flags: dict[str, Any]) -> None:
    """Print each problem with what to do. Exit 2: a setting is invalid; 3: another problem."""
    from krust.cli.checking import problems

    found: list[KrustError] = []
    config = configure(problems=found, **flags)
    for notice in config.notices:
        click.echo(f"note: {notice}", err=True)
    found += problems(config)
    for each in found:
        click.echo(f"error: {each}", err=True)
        click.echo(f"  {each.hint}", err=True)
    if found:
        sys.exit(min(each.exit or ServerError.exit for each in found))
    click.echo("ok")


def log_to_stderr(level: str) -> None:
    """Write log lines of at least this level to standard error."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
