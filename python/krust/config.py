"""Settings of a broker: where each value comes from, and which one holds.

Weakest first: default < mode < a file < environment `KAFKA_*`, `KAFKA_CFG_*` < `KRUST_*` < options.
Files are Java's `server.properties` or TOML with Kafka's names as quoted keys (`"num.partitions" =
3`); bare tables would split `broker.id` in two. The table of settings itself is `settings.py`.

`Config` is what holds: immutable, picklable, plain text by name as Kafka keeps it, typed on demand.
Not promised: nothing here is dynamic; what a running broker was told later lies in its store.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from krust.errors import ConfigError
from krust.settings import BROKER, TOPIC, Setting, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_EQUAL = {"node.id": "broker.id"}
"""A setting that only names another one anew."""

_DEV = {"group.initial.rebalance.delay.ms": "0"}
_PROD = {"krust.group.evict.on.disconnect": "false"}
_MODES = {"dev": _DEV, "prod": _PROD}
"""What a mode changes; prod changes no default of Kafka's."""

ASSIGNORS = "krust.group.server.assignor"
RETENTION = "krust.retention.policy"
MOST_PLUG_INS = 16
"""Each may cost a process."""

_MS = {"hours": 3_600_000, "minutes": 60_000, "ms": 1}

_UNSET = {"", "null"}


class Source(NamedTuple):
    """Where a value comes from."""

    kind: str
    """default, mode, file, environment or option"""
    place: str
    """the file, the variable, the option"""


class Setup(NamedTuple):
    """Text of a setting and its source."""

    text: str
    source: Source


class Lookup(Protocol):
    """Text of a setting by its name; None: unset."""

    def __call__(self, name: str, /) -> str | None:
        """Look one up."""


class Config:
    """The settings that hold: `config["num.partitions"]` is 1, typed."""

    def __init__(self, setups: Mapping[str, Setup] | None = None, notices: Iterable[str] = ()):
        self._setups = dict(setups or {})
        self.notices = list(notices)
        """Lines to log once: settings that do nothing here, variables that nobody knows."""
        self._settle()

    def __getitem__(self, name: str) -> Value:
        return _parsed(_setting(name), self.text(name))

    def __repr__(self) -> str:
        return f"Config({ {name: setup.text for name, setup in self.given().items()} })"

    def text(self, name: str) -> str | None:
        """The value as text; None: unset."""
        setup = self._setups.get(name)
        return setup.text if setup else _setting(name).default

    def whole(self, name: str) -> int:
        """The value of a setting that is a number."""
        value = self[name]
        if not isinstance(value, int):
            raise ConfigError(f"{name} is not set", hint=f"set {name} to a number")
        return value

    def true(self, name: str) -> bool:
        """The value of a setting that is yes or no."""
        return self[name] is True

    def source(self, name: str) -> Source:
        """Where the value comes from."""
        setup = self._setups.get(name)
        return setup.source if setup else Source("default", "")

    def given(self) -> dict[str, Setup]:
        """All that is not a default, by name."""
        return dict(self._setups)

    @property
    def mode(self) -> str:
        """`dev` or `prod`."""
        return str(self.text("krust.mode"))

    def log_dirs(self) -> list[Path]:
        """Where the log lies, the first holds what is the broker's; at least one."""
        text = self.text("log.dirs") or self.text("log.dir") or ""
        dirs = [Path(each.strip()) for each in text.split(",") if each.strip()]
        if not dirs:
            raise ConfigError("log.dirs names no directory", hint="name one, or leave it out")
        return dirs

    def topic_default(self, name: str) -> str | None:
        """What a topic setting is where the topic says nothing: by the broker's own settings."""
        return topic_default(name, self.text)

    def _settle(self) -> None:
        """Check every value, let the modes weigh in, and note what is ignored."""
        for name, setup in list(self._setups.items()):
            setting = _setting(name)
            if setup.text in _UNSET and setting.default is None:
                del self._setups[name]
                continue
            _parsed(setting, setup.text)
            _accept(setting, setup, self.notices)
            other = _EQUAL.get(name)
            if other is not None:
                self._setups.setdefault(other, setup)
        self._choose_mode()
        _check_listeners(self)
        rules(ASSIGNORS, self.text(ASSIGNORS) or "")
        rules(RETENTION, self.text(RETENTION) or "")

    def _choose_mode(self) -> None:
        """Settle `krust.mode`, and what it changes where nobody said otherwise."""
        if self.text("krust.mode") == "auto":
            addresses = listeners(str(self.text("listeners")))
            mode = "dev" if all(_is_loopback(host) for _, host, _ in addresses) else "prod"
            self._setups["krust.mode"] = Setup(mode, Source("mode", "by the listeners"))
        for name, text in _MODES[self.mode].items():
            self._setups.setdefault(name, Setup(text, Source("mode", self.mode)))


def load(
    *,
    files: Iterable[Path] = (),
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    reserved: Iterable[str] = (),
) -> Config:
    """The settings from files (the later wins), environment and options (`-o k=v`, arguments).

    environ   variables to look through; those in `reserved` belong to somebody else
    options   by Kafka's name; True, 3 and ["a"] are taken for their text
    raises    ConfigError: unknown setting, bad value, unreadable file
    """
    notices: list[str] = []
    setups: dict[str, Setup] = {}
    for path in files:
        setups |= read_file(path)
    setups |= _from_environment(environ or {}, set(reserved), notices)
    for name, value in (options or {}).items():
        _setting(name)
        text = _text(value)
        if text is not None:
            setups[name] = Setup(text, Source("option", name))
    return Config(setups, notices)


def read_file(path: Path) -> dict[str, Setup]:
    """What a `.toml` or a Java properties file sets; every key is known."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read {path}: {reason}", hint="name a readable file") from None
    pairs = _toml(text, path) if path.suffix == ".toml" else properties(text)
    source = Source("file", str(path))
    for name in pairs:
        _setting(name, f" ({path})")
    return {name: Setup(value, source) for name, value in pairs.items()}


def properties(text: str) -> dict[str, str]:
    """A Java properties file: `#` `!` comment, `=` `:` or a blank part, a backslash continues."""
    pairs: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending = line[:-1]
            continue
        pending = ""
        name, value = _split(line)
        pairs[_unescape(name)] = _unescape(value).rstrip()
    if pending:
        name, value = _split(pending)
        pairs[_unescape(name)] = _unescape(value).rstrip()
    return pairs


def _split(line: str) -> tuple[str, str]:
    """Key and value: parted by the first `=`, `:` or blank that no backslash hides."""
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return line[:end], rest


def _unescape(text: str) -> str:
    r"""Java's escapes: \t \n \r \f \uXXXX; any other character stands for itself."""
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        code = text[at]
        at += 1
        digits = text[at : at + 4]
        if code == "u" and len(digits) == 4 and all(d in "0123456789abcdefABCDEF" for d in digits):
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append({"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(code, code))
    return "".join(out)


def _toml(text: str, path: Path) -> dict[str, str]:
    """TOML with Kafka's names as quoted keys."""
    import tomllib

    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="mend that line") from None
    pairs: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            raise ConfigError(
                f'{path}: "{name}" is a table, but settings are quoted keys',
                hint=f'write "{name}.{next(iter(value), "...")}" = ... with the quotes',
            )
        pairs[name] = _text(value) or ""
    return pairs


def _text(value: object) -> str | None:
    """A value as Kafka writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def _from_environment(
    environ: Mapping[str, str], reserved: set[str], notices: list[str]
) -> dict[str, Setup]:
    """`KAFKA_*`, then `KAFKA_CFG_*`, then `KRUST_*`; unknown `KAFKA_*` get one notice together."""
    setups: dict[str, Setup] = {}
    strangers: list[str] = []
    for prefix in ("KAFKA_", "KAFKA_CFG_", "KRUST_"):
        for variable, value in sorted(environ.items()):
            longer = prefix == "KAFKA_" and variable.startswith("KAFKA_CFG_")
            if longer or variable in reserved or not variable.startswith(prefix):
                continue
            name = variable_name(variable[len(prefix) :])
            if prefix == "KRUST_" and f"krust.{name}" in BROKER:
                name = f"krust.{name}"
            if name in BROKER:
                setups[name] = Setup(value, Source("environment", variable))
            elif prefix == "KRUST_":
                _setting(name, f" (variable {variable})")
            else:
                strangers.append(variable)
    if strangers:
        named = ", ".join(strangers)
        notices.append(f"ignored environment variables that are no Kafka settings: {named}")
    return setups


def variable_name(rest: str) -> str:
    """A variable's rest as a setting: `_` is `.`, `__` is `_`, `___` is `-` (Apache's image)."""
    marked = rest.replace("___", "\0").replace("__", "\1").replace("_", ".")
    return marked.replace("\0", "-").replace("\1", "_").lower()


def _setting(name: str, where: str = "") -> Setting:
    """The row of a setting; ConfigError with what was probably meant."""
    setting = BROKER.get(name)
    if setting is None:
        raise unknown(name, BROKER, where)
    return setting


def unknown(name: str, table: Mapping[str, Setting], where: str = "") -> ConfigError:
    """The error for a name that the table does not have."""
    from difflib import get_close_matches

    near = get_close_matches(name, table, 1)
    hint = f"did you mean {near[0]}?" if near else None
    if hint is None and name in TOPIC and table is BROKER:
        hint = f"{name} is a topic's setting; for all topics set {TOPIC[name].synonyms[0]}"
    return ConfigError(
        f"unknown setting {name}{where}", hint=hint or "krust config explain lists all"
    )


def _parsed(setting: Setting, text: str | None) -> Value:
    """The typed value; ConfigError names setting and value."""
    try:
        return setting.parse(text)
    except ValueError as error:
        shown = "(hidden)" if setting.sensitive else repr(text)
        raise ConfigError(
            f"{setting.name} = {shown}: {error}", hint=f"default: {setting.default}"
        ) from None


def _accept(setting: Setting, setup: Setup, notices: list[str]) -> None:
    """Refuse or note a setting that does nothing here."""
    if setting.support == "yes" or setup.source.kind == "mode" or setup.text == setting.default:
        return
    where = setup.source.place or setup.source.kind
    if setting.support == "ignored":
        notices.append(f"{setting.name} does nothing here ({where})")
    else:
        raise ConfigError(
            f"{setting.name} cannot be set here ({where}): {setting.doc}",
            hint=f"take {setting.name} out",
        )


def listeners(text: str) -> list[tuple[str, str, int]]:
    """`A://:9092,B://[::1]:9093` as (name, host, port); host "" is every interface."""
    found: list[tuple[str, str, int]] = []
    for item in text.split(","):
        name, slashes, address = item.strip().partition("://")
        host, colon, port = address.rpartition(":")
        if not (name and slashes and colon and port.isdecimal() and int(port) < 65536):
            raise ConfigError(
                f"{item.strip()!r} is no listener",
                hint="write NAME://host:port, as PLAINTEXT://:9092",
            )
        found.append((name.upper(), host.removeprefix("[").removesuffix("]"), int(port)))
    if len({name for name, _, _ in found}) < len(found):
        raise ConfigError(
            f"two listeners of one name in {text!r}",
            hint="give each a name of its own, and map it in listener.security.protocol.map",
        )
    return found


def inter_broker_listener(config: Config) -> str:
    """The listener that brokers use among each other: as named, or as Kafka names it by its
    security, or else the first.
    """
    named = config.text("inter.broker.listener.name")
    if named:
        return named.upper()
    known = [name for name, _, _ in listeners(str(config.text("listeners")))]
    wanted = config.text("security.inter.broker.protocol")
    return wanted if wanted in known else known[0]


def _check_listeners(config: Config) -> None:
    """Refuse a listener whose security this broker does not offer."""
    pairs = (
        item.partition(":")
        for item in str(config.text("listener.security.protocol.map")).split(",")
    )
    protocols = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
    named = listeners(str(config.text("listeners")))
    for name, _, _ in named:
        protocol = protocols.get(name)
        if protocol != "PLAINTEXT":
            what = f"stands for {protocol}" if protocol else "stands for no protocol"
            raise ConfigError(
                f"listener {name} {what}; only PLAINTEXT is offered",
                hint=f"map it: listener.security.protocol.map={name}:PLAINTEXT",
            )
    between = config.text("security.inter.broker.protocol")
    if between != "PLAINTEXT":
        raise ConfigError(
            f"security.inter.broker.protocol is {between}; only PLAINTEXT is offered",
            hint="leave it out",
        )
    if inter_broker_listener(config) not in {name for name, _, _ in named}:
        raise ConfigError(
            f"inter.broker.listener.name is {inter_broker_listener(config)}, which listeners does "
            "not have",
            hint="name one of the listeners",
        )
    advertised = config.text("advertised.listeners")
    if advertised:
        known = {name for name, _, _ in named}
        for name, host, _ in listeners(advertised):
            if name not in known:
                raise ConfigError(
                    f"advertised.listeners names {name}, which listeners does not have",
                    hint=f"add {name} to listeners, or take it out",
                )
            if host in ("", "0.0.0.0", "::"):  # noqa: S104 (compared, not bound)
                raise ConfigError(
                    f"advertised.listeners tells clients to use {host or 'no host'}, no address",
                    hint="name the host that clients reach",
                )


def rules(setting: str, text: str) -> list[tuple[str, str]]:
    """`orders-*=uniform, billing=my.module:Class` as (pattern of names, plug-in)."""
    found: list[tuple[str, str]] = []
    for item in filter(None, map(str.strip, text.split(","))):
        pattern, equals, name = (part.strip() for part in item.partition("="))
        module, colon, attribute = name.partition(":")
        if not (pattern and equals and module and (attribute or not colon)):
            raise ConfigError(
                f"{setting} = {item!r} is no pattern of names and a plug-in for them",
                hint="write PATTERN=NAME or PATTERN=module:Class",
            )
        found.append((pattern, name))
    if len({name for _, name in found}) > MOST_PLUG_INS:
        hint = f"{MOST_PLUG_INS} are possible"
        raise ConfigError(f"{setting} names {len(found)} plug-ins", hint=hint)
    return found


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def topic_default(name: str, broker: Lookup) -> str | None:
    """The default of a topic setting by the broker's: the first synonym that is set, in its unit.

    broker   text of a broker setting by name; None: unset
    """
    setting = TOPIC[name]
    for synonym in setting.synonyms:
        text = broker(synonym)
        if text is not None:
            return converted(name, synonym, text)
    return setting.default


def converted(name: str, synonym: str, text: str) -> str:
    """A synonym's text in the unit of the topic setting (hours and minutes become ms)."""
    factor = _MS.get(synonym.rpartition(".")[2], 1)
    if not name.endswith(".ms") or factor == 1:
        return text
    return str(int(text) * factor if int(text) >= 0 else -1)


def parse_topic(name: str, text: str) -> Value:
    """The typed value of a topic setting; ConfigError: unknown or impossible."""
    setting = TOPIC.get(name)
    if setting is None:
        raise unknown(name, TOPIC)
    return _parsed(setting, text)
