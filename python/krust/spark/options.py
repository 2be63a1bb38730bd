"""The table of options of `format("krust")`, and the meaning of a user's options.

Names, defaults and precedence are those of Spark's Kafka connector, so a job changes only its
format. krust adds options of its own. Options that krust does not need are accepted without effect.
Options that krust cannot follow are refused. An unknown name gives a warning. A name that is almost
right is an error, because the job would read something else. Pure: no pyspark, no network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from krust.decode import options as decoding
from krust.errors import ConfigError
from krust.spark import plan
from krust.spark.client_options import CONSUMER, PRODUCER, PROTOCOLS, SECRET
from krust.spark.errors import LOG, OptionError
from krust.spark.files import StagingTarget, local_path
from krust.spark.option_values import OptionTexts, wrong
from krust.spark.plan import EARLIEST, LATEST, ReadBound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BATCH, STREAM, SINK = "batch", "stream", "sink"
READ, ALL = (BATCH, STREAM), (BATCH, STREAM, SINK)
SAME, OURS, IDLE, REFUSED = "same", "krust", "ignored", "refused"


@dataclass(frozen=True)
class Option:
    """A row of the table.

    used     by batch reads, stream reads, the sink
    fate     SAME as the official connector; OURS; IDLE: accepted, without effect; REFUSED
    default  as text; "": none
    """

    name: str
    used: tuple[str, ...]
    fate: str
    default: str
    meaning: str


def _rows(used: tuple[str, ...], fate: str, *rows: tuple[str, str, str]) -> list[Option]:
    return [Option(name, used, fate, default, meaning) for name, default, meaning in rows]


_START = '`earliest`, `latest` (streams), `{"orders":{"0":23,"1":-2}}` (-2 earliest, -1 latest)'
_NOT_SUPPORTED = "krust does not have it yet; leave it out"

OPTIONS = (
    *_rows(
        ALL,
        SAME,
        ("kafka.bootstrap.servers", "", "`host:port,host:port`; required"),
    ),
    *_rows(
        READ,
        SAME,
        (
            "subscribe",
            "",
            "topics, separated by commas; exactly one of this and the next two is required",
        ),
        (
            "subscribePattern",
            "",
            "a regular expression; topics whose name contains a match are read",
        ),
        ("assign", "", 'partitions: `{"orders":[0,1]}`'),
        ("startingOffsets", "latest (batch: earliest)", _START),
        ("startingTimestamp", "", "milliseconds, for all partitions; wins over the next two"),
        ("startingOffsetsByTimestamp", "", "JSON of milliseconds; wins over `startingOffsets`"),
        (
            "startingOffsetsByTimestampStrategy",
            "error",
            "if no record is that late: `error`, or `latest`",
        ),
        ("failOnDataLoss", "true", "`false`: lost records give a warning, and the query continues"),
        ("minPartitions", "", "the approximate number of tasks; large partitions are divided"),
        ("maxRecordsPerPartition", "", "the most offsets that one task reads"),
        ("includeHeaders", "false", "adds the column `headers`"),
        ("fetchOffset.numRetries", "3", "how often a failed request for offsets is repeated"),
        ("fetchOffset.retryIntervalMs", "1000", "the pause between two of these requests"),
    ),
    *_rows(
        (BATCH,),
        SAME,
        ("endingOffsets", "latest", "`latest`, or JSON (-1 latest)"),
        (
            "endingTimestamp",
            "",
            "milliseconds, for all partitions; if no record is that late: the end",
        ),
        ("endingOffsetsByTimestamp", "", "JSON of milliseconds"),
    ),
    *_rows(
        (STREAM,),
        SAME,
        ("maxOffsetsPerTrigger", "", "the most offsets of a micro-batch, divided by backlog"),
        ("minOffsetsPerTrigger", "", "a micro-batch waits until there are this many offsets"),
        ("maxTriggerDelay", "15m", "the longest such wait"),
    ),
    *_rows((SINK,), SAME, ("topic", "", "the topic of all rows; wins over the column `topic`")),
    *_rows(
        ALL,
        OURS,
        ("bootstrap.servers", "", "`kafka.bootstrap.servers` under the name that clients use"),
    ),
    *_rows(
        READ,
        OURS,
        (
            "logDir",
            "",
            "log directories, separated by commas; krust reads their segment files, not brokers",
        ),
        ("maxBytesPerPartition", "", "the approximate bytes that one task reads"),
        (
            "materialize",
            "",
            "`parquet`: tasks write files below `path` and return one row per file",
        ),
        ("fileMegabytes", "256", "with `materialize`: a file is closed at this size"),
        ("fileCompression", "zstd", "with `materialize`: `zstd snappy gzip lz4 none`"),
        ("fileJob", "", "with `materialize`: the name of the writer; default: the query"),
        *((name, "", "with `materialize`: see docs/pipelines.md") for name in decoding.OPTIONS),
    ),
    *_rows(
        (BATCH,),
        OURS,
        (
            "filterPushdown",
            "false",
            "filters decide what is read; `krust.spark.register` enables it",
        ),
    ),
    *_rows(
        (STREAM,),
        OURS,
        ("maxBytesPerTrigger", "", "the approximate bytes of a micro-batch"),
        ("groupId", "", "the offsets read are committed to this group, for tools that show lag"),
    ),
    *_rows(
        (SINK,),
        OURS,
        ("compression", "none", "`none gzip snappy lz4 zstd`, as `kafka.compression.type`"),
        ("keepTimestamp", "false", "`true`: the column `timestamp` becomes the record's time"),
        ("keepPartition", "true", "`false`: the column `partition` is ignored"),
        ("partitioner", "murmur2", "by the key, as Java's clients do"),
        ("exactlyOnce", "false", "`true`: rows are written in transactions; see Exactly once"),
        ("jobId", "", "with `exactlyOnce`, names a batch write; a second one writes nothing"),
    ),
    *_rows(
        READ,
        IDLE,
        ("groupIdPrefix", "", "the source is no member of a group"),
        (
            "kafka.group.id",
            "",
            "the source is no member of a group; `groupId` is for tools that show lag",
        ),
        ("kafkaConsumer.pollTimeoutMs", "", "`kafka.request.timeout.ms` limits the wait"),
    ),
    *_rows(
        ALL,
        IDLE,
        ("checkpointLocation", "", "Spark's own"),
        ("queryName", "", "Spark's own"),
        ("path", "", "Spark's own"),
    ),
    *_rows(
        READ,
        REFUSED,
        ("kafka.auto.offset.reset", "", "write `startingOffsets`"),
        ("kafka.enable.auto.commit", "", "offsets are in the checkpoint; write `groupId`"),
        ("kafka.key.deserializer", "", "`key` is binary; decode the column"),
        ("kafka.value.deserializer", "", "`value` is binary; decode the column"),
        ("rows", "records", _NOT_SUPPORTED),
        ("view", "", _NOT_SUPPORTED),
    ),
    *_rows(ALL, REFUSED, ("kafka.interceptor.classes", "", "krust does not run interceptors")),
    *_rows(
        (SINK,),
        REFUSED,
        ("kafka.key.serializer", "", "`key` is binary or string; encode the column"),
        ("kafka.value.serializer", "", "`value` is binary or string; encode the column"),
        (
            "kafka.transactional.id",
            "",
            "`exactlyOnce` derives it from the query or `jobId`",
        ),
    ),
)
_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_MODES = {BATCH: "a batch read", STREAM: "a stream", SINK: "a write"}

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class ChosenTopics:
    """The topics to read: one of the three."""

    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None
    assign: tuple[plan.TopicPartition, ...] | None = None


@dataclass(frozen=True)
class SourceOptions:
    """The options of a source. Pickled, and sent to every task."""

    bootstrap: str
    client: dict[str, str]
    topics: ChosenTopics
    starting: ReadBound
    ending: ReadBound
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records: int | None
    max_bytes: int | None
    headers: bool
    retries: int
    retry_ms: int
    filter_pushdown: bool
    group_id: str | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    max_delay_ms: int
    target: StagingTarget | None = None
    file_job: str | None = None
    log_dirs: tuple[str, ...] = ()

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are skipped."""
        return self.client.get("isolation.level") == "read_committed"


@dataclass(frozen=True)
class SinkOptions:
    """The options of the sink. Pickled, and sent to every task."""

    bootstrap: str
    client: dict[str, str]
    topic: str | None
    keep_timestamp: bool
    keep_partition: bool
    exactly_once: bool = False
    job_id: str | None = None


def headers_wanted(given: Mapping[str, str]) -> bool:
    """`includeHeaders`, after a check of the options that batches and streams share.

    raises  OptionError: brokers or topics are missing or invalid
    """
    texts = OptionTexts(given)
    if not texts.listed("logDir"):
        _bootstrap(texts)
    _topics(texts)
    return texts.switch("includeHeaders", False)


def source(given: Mapping[str, str], mode: str) -> SourceOptions:
    """Parse the options of a read; `mode` BATCH or STREAM. OptionError: an invalid one."""
    texts = OptionTexts(given)
    _check_names(texts, mode)
    client = _client(texts, CONSUMER)
    level = client.get("isolation.level", "read_committed").lower()
    if level not in ("read_committed", "read_uncommitted"):
        raise wrong("kafka.isolation.level", level, "read_committed")
    strategy = texts.choice("startingOffsetsByTimestampStrategy", "error", "latest")
    starting = _bound(texts, "starting", EARLIEST if mode == BATCH else LATEST, strategy)
    ending = _bound(texts, "ending", LATEST, "latest")
    if mode == BATCH:
        _check_bounds(starting, ending)
    retry_ms = texts.count("fetchOffset.retryIntervalMs", least=0)
    log_dirs = tuple(str(_folder(one)) for one in texts.listed("logDir"))
    found = SourceOptions(
        bootstrap="" if log_dirs and not texts.get("groupId") else _bootstrap(texts),
        client=client,
        topics=_topics(texts),
        starting=starting,
        ending=ending,
        fail_on_data_loss=texts.switch("failOnDataLoss", True),
        min_partitions=texts.count("minPartitions"),
        max_records=texts.count("maxRecordsPerPartition"),
        max_bytes=texts.count("maxBytesPerPartition"),
        headers=texts.switch("includeHeaders", False),
        retries=texts.count("fetchOffset.numRetries") or 3,
        retry_ms=1000 if retry_ms is None else retry_ms,
        filter_pushdown=texts.switch("filterPushdown", False),
        group_id=texts.get("groupId"),
        max_offsets_per_trigger=texts.count("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=texts.count("minOffsetsPerTrigger"),
        max_bytes_per_trigger=texts.count("maxBytesPerTrigger"),
        max_delay_ms=texts.duration_ms("maxTriggerDelay", 900_000),
        target=_target(texts),
        file_job=texts.get("fileJob"),
        log_dirs=log_dirs,
    )
    least, most = found.min_offsets_per_trigger, found.max_offsets_per_trigger
    if mode == STREAM and least is not None and most is not None and least > most:
        wanted = f"'maxOffsetsPerTrigger' ({most}) or less"
        raise wrong("minOffsetsPerTrigger", str(least), str(most), wanted)
    return found


def materializes(given: Mapping[str, str]) -> bool:
    """Whether tasks write files and return manifest rows. OptionError: `materialize` is invalid."""
    texts = OptionTexts(given)
    return texts.get("materialize") is not None and bool(texts.choice("materialize", "parquet"))


def _target(texts: OptionTexts) -> StagingTarget | None:
    given = dict(texts)
    decodes = next((name for name in decoding.OPTIONS if name.lower() in given), None)
    if not materializes(given):
        if decodes is not None:
            raise OptionError(
                "KRUST_UNSUPPORTED_OPTION",
                f"Option '{decodes}' is not supported without 'materialize'. Write "
                '.option("materialize", "parquet"), or decode the column `value`.',
            )
        return None
    try:
        return StagingTarget.of(given)
    except ConfigError as error:
        hint = f" {error.hint[0].upper()}{error.hint[1:]}." if error.hint else ""
        raise OptionError("KRUST_INVALID_OPTION", f"{error}.{hint}") from error


def sink(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a write. OptionError: an invalid one."""
    texts = OptionTexts(given)
    _check_names(texts, SINK)
    texts.choice("partitioner", "murmur2")
    client = _client(texts, PRODUCER)
    codec = texts.get("compression")
    if codec is not None:
        client["compression.type"] = texts.choice("compression", *CODECS)
    job_id = texts.get("jobId")
    if job_id is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", job_id):
        wanted = "1 to 200 letters, digits, '.', '_' or '-'"
        raise wrong("jobId", job_id, "orders-2026-11-26", wanted)
    return SinkOptions(
        bootstrap=_bootstrap(texts),
        client=client,
        topic=texts.get("topic"),
        keep_timestamp=texts.switch("keepTimestamp", False),
        keep_partition=texts.switch("keepPartition", True),
        exactly_once=texts.switch("exactlyOnce", False),
        job_id=job_id,
    )


def python_pattern(pattern: str) -> str:
    r"""A Java pattern for Python: converts named groups and \Q..\E; the rest is the same."""
    pattern = re.sub(r"\\Q(.*?)(?:\\E|$)", lambda part: re.escape(part[1]), pattern)
    pattern = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern)
    return pattern.replace(r"\z", r"\Z")


def _check_names(texts: OptionTexts, mode: str) -> None:
    """Check the names of options. OptionError: one is refused, or almost right."""
    for name, value in texts:
        option = _BY_NAME.get(name)
        if option is None and not name.startswith("kafka."):
            _check_unknown(name, mode)
        elif option is not None and option.fate == REFUSED:
            if mode in option.used and value.lower() != option.default:
                raise OptionError(
                    "KRUST_UNSUPPORTED_OPTION",
                    f"Option '{option.name}' is not supported: {option.meaning}.",
                )
        elif option is not None and mode not in option.used:
            if mode == STREAM and option.name.startswith("ending"):
                raise OptionError(
                    "KRUST_UNSUPPORTED_OPTION",
                    f"Option '{option.name}' is not supported: a stream has no end. "
                    "Leave it out, or read a batch: spark.read in place of spark.readStream.",
                )
            LOG.warning("Option '%s' has no effect on %s.", option.name, _MODES[mode])
        elif option is not None and option.name == "kafka.group.id":
            LOG.warning(
                "Option 'kafka.group.id' has no effect: the source joins no group. For tools of "
                'lag write .option("groupId", "%s").',
                value,
            )


def _check_unknown(name: str, mode: str) -> None:
    from difflib import get_close_matches

    usable = [key for key, option in _BY_NAME.items() if mode in option.used]
    near = get_close_matches(name, usable, 1, 0.8)
    if near:
        raise OptionError(
            "KRUST_UNKNOWN_OPTION",
            f"There is no option '{name}'. Write '{_BY_NAME[near[0]].name}', if that is meant.",
        )
    LOG.warning("There is no option '%s'; it has no effect.", name)


def _bootstrap(texts: OptionTexts) -> str:
    servers = texts.get("kafka.bootstrap.servers") or texts.get("bootstrap.servers")
    if not servers:
        raise OptionError(
            "KRUST_MISSING_OPTION",
            "Option 'kafka.bootstrap.servers' is needed: which brokers to ask. "
            'Write e.g. .option("kafka.bootstrap.servers", "localhost:9092").',
        )
    return servers


def _folder(text: str) -> Path:
    """A folder of `logDir`."""
    try:
        path = local_path(text)
    except ConfigError:
        path = None
    if path is None or not path.is_dir():
        raise OptionError(
            "KRUST_INVALID_OPTION",
            f"Option 'logDir': '{text}' does not exist on this machine. Name a log directory that "
            "the driver and the executors see at the same path, e.g. "
            '.option("logDir", "/var/lib/kafka").',
        )
    return path


def _client(texts: OptionTexts, known: frozenset[str]) -> dict[str, str]:
    """The options of krust's client. Others give a warning, or an error if dropping is unsafe."""
    found: dict[str, str] = {}
    for name, value in texts:
        key = name.removeprefix("kafka.")
        if key == name or name in _BY_NAME:
            continue
        if key in known:
            found[key] = value
        elif SECRET.match(key):
            raise OptionError(
                "KRUST_UNSUPPORTED_OPTION",
                f"Option '{name}' is not supported: krust's client has TLS, and logins by PLAIN, "
                "SCRAM and OAUTHBEARER with 'kafka.sasl.jaas.config', 'kafka.sasl.username' or "
                "'kafka.sasl.oauthbearer.token.endpoint.url'. Leave it out.",
            )
        else:
            LOG.warning("Option '%s' has no effect: krust's client has no '%s'.", name, key)
    protocol = found.get("security.protocol", "PLAINTEXT")
    if protocol.upper() not in PROTOCOLS:
        raise wrong("kafka.security.protocol", protocol, "SASL_SSL", f"one of {PROTOCOLS}")
    return found


_THREE = ("subscribe", "subscribePattern", "assign")


def _topics(texts: OptionTexts) -> ChosenTopics:
    given = [name for name in _THREE if texts.get(name) is not None]
    if len(given) != 1:
        raise OptionError(
            "KRUST_INVALID_OPTION" if given else "KRUST_MISSING_OPTION",
            f"{'Only one' if given else 'One'} of the options {', '.join(map(repr, _THREE))} has "
            f"to say what is read{'; given: ' + ', '.join(given) if given else ''}. "
            'Write e.g. .option("subscribe", "orders").',
        )
    text = texts.get(given[0]) or ""
    if given == ["subscribe"]:
        names = texts.listed("subscribe")
        if not names:
            raise wrong("subscribe", text, "orders,payments", "the names of topics")
        return ChosenTopics(subscribe=tuple(sorted(set(names))))
    if given == ["assign"]:
        places = texts.json("assign", plan.parse_places, '{"orders":[0,1]}')
        if not places:
            raise wrong("assign", text, '{"orders":[0,1]}', "partitions")
        return ChosenTopics(assign=tuple(places))
    try:
        if not text:
            raise re.error("it is empty")
        re.compile(python_pattern(text))
    except re.error as error:
        wanted = f"a regular expression ({error})"
        raise wrong("subscribePattern", text, "orders-.*", wanted) from None
    return ChosenTopics(pattern=text)


def _bound(texts: OptionTexts, which: str, default: int, strategy: str) -> ReadBound:
    """The start or end: one time, times of partitions, or offsets; the first given one."""
    or_end = strategy == "latest"
    name = f"{which}Timestamp"
    if texts.get(name) is not None:
        return ReadBound(time=texts.count(name, least=0), or_end=or_end)
    name = f"{which}OffsetsByTimestamp"
    if texts.get(name) is not None:
        example = '{"orders":{"0":1767225600000}}'
        times = texts.json(name, plan.parse_offsets, example)
        if any(time < 0 for time in times.values()):
            raise wrong(name, texts.get(name) or "", example, "milliseconds since 1970")
        return ReadBound(times=times, or_end=or_end)
    name = f"{which}Offsets"
    text = texts.get(name)
    if text is None:
        return ReadBound(everywhere=default)
    if text.lower() in ("earliest", "latest"):
        return ReadBound(everywhere=EARLIEST if text.lower() == "earliest" else LATEST)
    example = '{"orders":{"0":23,"1":-2}}'
    offsets = texts.json(name, plan.parse_offsets, example)
    if any(offset < EARLIEST for offset in offsets.values()):
        raise wrong(name, text, example, "offsets from 0 up, -1 (latest) or -2 (earliest)")
    return ReadBound(offsets=offsets)


def _check_bounds(starting: ReadBound, ending: ReadBound) -> None:
    """Check that a batch does not start at the end or end at the start, and that both bounds name
    the same partitions.
    """
    if starting == ReadBound(everywhere=LATEST) or LATEST in (starting.offsets or {}).values():
        raise OptionError(
            "KRUST_INVALID_OPTION",
            "Option 'startingOffsets': a batch cannot start at 'latest'. Write "
            '.option("startingOffsets", "earliest"), or JSON such as {"orders":{"0":23}}.',
        )
    if ending == ReadBound(everywhere=EARLIEST) or EARLIEST in (ending.offsets or {}).values():
        raise OptionError(
            "KRUST_INVALID_OPTION",
            "Option 'endingOffsets': a batch cannot end at 'earliest'. Write "
            '.option("endingOffsets", "latest"), or JSON such as {"orders":{"0":50}}.',
        )
    for first, last, what in (
        (starting.offsets, ending.offsets, "offset"),
        (starting.times, ending.times, "timestamp"),
    ):
        if first is None or last is None:
            continue
        if set(first) != set(last):
            raise OptionError(
                "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET",
                f"The starting and the ending {what}s must name the same partitions. Starting: "
                f"{plan.names(first)}. Ending: {plan.names(last)}.",
            )
        for place in sorted(first):
            if first[place] > last[place] >= 0:
                raise OptionError(
                    "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
                    f"Partition {plan.names([place])} starts at {what} {first[place]}, behind its "
                    f"end, {last[place]}.",
                )
