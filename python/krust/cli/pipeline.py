"""`krust pipeline`: writes topics to tables with Spark, as a file describes.

`check`, `list` and `status` need no Spark. docs/pipelines.md describes the file.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krust.cli import options as shared
from krust.cli import output, session
from krust.cli.exits import Exit
from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from krust.cli.options import Options
    from krust.spark.recipe import Pipeline
TRIES = 4
"""How often Spark tries a task: its default, except on one machine."""
FILE = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


@click.group(no_args_is_help=True)
def command() -> None:
    """Write topics to tables, exactly once, with Spark."""


@command.command(no_args_is_help=True)
@FILE
@click.option("--local", "cores", is_flag=False, flag_value="*", metavar="[N]",
              help="Spark on this machine, with N cores. [all cores]")  # fmt: skip
@click.option("--spark", "master", metavar="MASTER", help="A cluster: spark://host:7077, yarn, ..")
@click.option("--once", is_flag=True, help="Read to the current end, then stop.")
@shared.client
@click.pass_obj
def run(options: Options, /, file: Path, cores: str | None, master: str | None, once: bool) -> None:
    """Run FILE: read all existing records, then new ones, until Ctrl-C.

    Each micro-batch is in the table exactly once, after any crash. A new run continues where the
    last one ended.
    """
    if cores and master:
        raise click.UsageError("--local and --spark say different places")
    if cores and cores != "*" and not cores.isdecimal():
        raise click.UsageError(f"--local {cores}: a number of cores is wanted")
    from krust.cli import progress
    from krust.spark import launch
    from krust.spark.flow import Flow

    made = _read(options, file)
    _first_problem(made)
    place = made.checkpoint_path
    session.note(options, f"{made.name}  {_source(made)} -> {made.sink} {made.place}")
    shown = progress.Progress(options, made)
    shown.say("starting Spark ..")
    at = launch.session(master or f"local[{cores or '*'},{TRIES}]", place)
    with at as running, Flow(running.spark, made) as flow:
        try:
            shown.follow(flow, "backfill", running.interrupted, once=True)
            if not once:
                shown.follow(flow, "tail", running.interrupted, once=False)
        finally:
            output.one(options, shown.result(flow))


@command.command(no_args_is_help=True)
@FILE
@click.option("--sample", type=click.IntRange(0), default=100, show_default=True,
              help="Newest records of each partition to decode.")  # fmt: skip
@shared.client
@click.pass_obj
def check(options: Options, file: Path, sample: int) -> None:
    """Check whether FILE could run: brokers, topics, schemas, the table. Exit 9: it could not.

    A transformation is tried without records, for which Spark starts on this machine.
    """
    made = _read(options, file)
    rows: list[dict[str, object]] = []
    for name, look in _checks(made, sample, tries=True):
        try:
            found = look()
            result, detail = found if isinstance(found, tuple) else ("ok", found)
            rows.append({"check": name, "result": result, "detail": detail})
        except Exception as error:
            hint = getattr(error, "hint", None)
            detail = f"{error}" + (f" ({hint})" if hint else "")
            rows.append({"check": name, "result": "PROBLEM", "detail": detail})
    output.rows(options, ("check", "result", "detail"), rows)
    if any(row["result"] == "PROBLEM" for row in rows):
        session.sys_exit(Exit.PROBLEMS)


@command.command("list")
@click.argument("folder", metavar="[FOLDER]", default=".", type=click.Path(path_type=Path))
@shared.client
@click.pass_obj
def list_(options: Options, folder: Path) -> None:
    """List the pipelines whose files are in FOLDER."""
    rows = [_listed(options, path) for path in _files(folder)]
    output.rows(options, ("name", "source", "sink", "place", "state", "file"), rows)


@command.command(no_args_is_help=True)
@FILE
@shared.client
@click.pass_obj
def status(options: Options, file: Path) -> None:
    """Show the progress of FILE's pipeline, and its table."""
    from krust.spark import positions

    made = _read(options, file)
    fields, reached = _status_fields(made)
    partitions: list[dict[str, object]] = [
        {
            "topic": lag.topic,
            "partition": lag.partition,
            "start": lag.start,
            "reached": lag.reached,
            "end": lag.end,
            "lag": lag.records,
        }
        for lag in positions.lags(positions.Position(made, options.timeout_ms), reached)
    ]
    fields["lag"] = sum(int(str(one["lag"])) for one in partitions)
    if options.output in ("table", "wide"):
        output.one(options, fields)
        click.echo()
        output.table(("topic", "partition", "start", "reached", "end", "lag"), partitions)
    elif options.output == "csv":
        output.rows(options, ("topic", "partition", "start", "reached", "end", "lag"), partitions)
    else:
        output.one(options, {**fields, "partitions": partitions})


@command.command(no_args_is_help=True)
@FILE
@shared.client
@click.pass_obj
def compact(options: Options, file: Path) -> None:
    """Merge the small files of FILE's table, and remove old orphans. Needs no Spark."""
    made = _read(options, file)
    if made.sink == "topic":
        raise click.UsageError(f"{file}: the sink is a topic, which has no files")
    from krust.spark import pipeline

    gone, new = pipeline.compact(
        made.sink, made.place, file_bytes=made.file_mb << 20, catalog=made.catalog
    )
    output.one(options, {"files_gone": gone, "files_new": new})


def _read(options: Options, file: Path) -> Pipeline:
    """The file. `-b` and `-X` of the command line win over it."""
    import dataclasses

    from krust.cli.options import Options as Defaults
    from krust.spark import recipe

    made = recipe.read(file, bootstrap=options.bootstrap)
    if options.bootstrap != Defaults().bootstrap:
        made = dataclasses.replace(made, bootstrap=options.bootstrap)
    more = {f"kafka.{name}": value for name, value in options.properties.items()}
    return dataclasses.replace(made, source_options=dict(made.source_options) | more)


def _source(made: Pipeline) -> str:
    return f"{','.join(made.topics)} on {made.bootstrap}"


def _first_problem(made: Pipeline) -> None:
    """Raise the first problem before Spark, which takes seconds to start."""
    from krust.spark.flow import Checkpoint

    Checkpoint(made.checkpoint_path).refuse_running()
    for _, look in _checks(made, 0):
        look()


def _checks(
    made: Pipeline, sample: int, *, tries: bool = False
) -> Iterator[tuple[str, Callable[[], str | tuple[str, str]]]]:
    """The checks: a name, and a function that returns a text or raises the problem.

    tries  whether Spark checks the transformation; a run does that anyway
    """
    written: list[Any] = []  # the columns of the table
    from krust.spark import launch, positions
    from krust.spark.tables import KINDS

    def spark() -> str:
        lacking = launch.missing()
        if lacking:
            from krust.errors import ConfigError

            raise ConfigError(f"Spark needs {lacking}", hint="pip install '.[spark,tables]'")
        return "pyspark and Java are here"

    def source() -> str:
        places = positions.Position(made).spans()
        topics = ", ".join(sorted({topic for topic, _ in places}))
        return f"{counted(len(places), 'partition')} of {topics}"

    def decode() -> str:
        from krust.decode import options as decoding

        columns = decoding.decoder(made.decode).schema.names
        return f"{counted(len(columns), 'column')}: {', '.join(columns)}"

    def transform() -> str:
        written.append(_transformed(made))
        return f"{counted(len(written[0]), 'column')}: {', '.join(written[0].names)}"

    def table() -> str:
        from krust.spark import recipe
        from krust.spark.flow import direct_schema

        there = recipe.existing_table(made)
        columns = written or ([] if made.transforms else [direct_schema(made)])
        if there is not None and columns:
            there.refuse_changed(columns[0])
        fields, _ = _status_fields(made)
        if fields["rows"] is None:
            return "is made when the pipeline first runs"
        return f"{counted(fields['rows'], 'row')} in {counted(fields['files'], 'file')}"

    yield "spark", spark
    yield "source", source
    if made.decode:
        yield "decode", decode
    if made.decode and sample:
        from krust.cli import sampling

        yield "values", lambda: sampling.decoded(made, sample)
    if made.transforms and tries:
        yield "transform", transform
    if made.sink in KINDS:
        yield "table", table


def _transformed(made: Pipeline) -> Any:
    """The columns of the transformation's result, from a Spark on this machine."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from krust.spark import launch
    from krust.spark.flow import transformed_columns

    with (
        TemporaryDirectory(prefix="krust-check-") as folder,
        launch.session("local[1]", Path(folder)) as running,
    ):
        return transformed_columns(running.spark, made)


def _status_fields(made: Pipeline) -> tuple[dict[str, Any], Any]:
    """The status of a pipeline without its brokers, and the offsets that it has reached."""
    from krust.spark import recipe
    from krust.spark.flow import Checkpoint
    from krust.spark.tables import KINDS

    checkpoint = Checkpoint(made.checkpoint_path)
    pid = checkpoint.running()
    fields: dict[str, Any] = {
        "name": made.name,
        "sink": made.sink,
        "place": made.place,
        "state": "stopped" if pid is None else f"running (process {pid})",
        "rows": None,
        "files": None,
        "bytes": None,
        "batch": None,
        "committed": None,
    }
    if made.sink not in KINDS:
        return fields, checkpoint.reached()
    table = recipe.existing_table(made)
    if table is None:
        return fields, {}
    found = table.state(made.name)
    fields |= {"rows": found.rows, "files": found.files, "bytes": found.bytes}
    if found.time_ms > 0:
        ago = max(0, round(time.time() - found.time_ms / 1000))
        fields |= {"batch": found.batch, "committed": f"{ago} s ago"}
    return fields, found.offsets


def _files(folder: Path) -> list[Path]:
    found = [*folder.glob("*.toml"), *folder.glob("*/*.toml")]
    return sorted(path for path in found if _is_pipeline(path))


def _is_pipeline(path: Path) -> bool:
    import tomllib

    try:
        tree = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError):
        return False
    return isinstance(tree.get("source"), dict) and isinstance(tree.get("sink"), dict)


def _listed(options: Options, path: Path) -> dict[str, object]:
    from krust.errors import KrustError
    from krust.spark.flow import Checkpoint

    try:
        made = _read(options, path)
    except KrustError as error:
        return {"name": path.stem, "state": f"broken: {error}", "file": str(path)}
    running = Checkpoint(made.checkpoint_path).running()
    return {
        "name": made.name,
        "source": ",".join(made.topics),
        "sink": made.sink,
        "place": made.place,
        "state": "stopped" if running is None else f"running (process {running})",
        "file": str(path),
    }
