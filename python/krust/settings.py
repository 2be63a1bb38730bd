"""THE table of settings: Kafka's keys with 3.9's types, defaults and limits, and krust's own.

Format of a row: two lines. `name  type  default  valid  support  change`, two blanks between, then
a line of documentation.

default   `null`: none; `""`: empty; `max`: the largest number of the type
valid     `*`: anything of the type; `a|b`: these words; `1..`, `0..1`: an inclusive range;
          `1..9|-1`: a range and one word more
support   yes: acts; ignored: accepted, with one log line that it has no effect;
          refused: any value but the default is an error, for it would mislead
change    Kafka's update mode. read-only: by restart; per-broker: dynamic, for one broker or for a
          listener of it; cluster-wide: dynamic, for all brokers or for one (topic settings are
          always dynamic)

Where krust differs from 3.9: `message.timestamp.after.max.ms` is one hour and
`num.recovery.threads.per.data.dir` 2 (as in Kafka 4), `listeners` is loopback, `log.dir` is
`krust-data`, `password.encoder.iterations` is at most a million. Only a restart changes
`num.recovery.threads.per.data.dir`, `num.network.threads`, `listeners`, `advertised.listeners`,
their protocols, and all of `sasl.*` but JAAS strings.
Sources: kafka.apache.org/39/documentation, sections "Broker Configs" and "Topic Configs"; KIP-226
for what is dynamic.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX = {"int": 2**31 - 1, "long": 2**63 - 1, "short": 2**15 - 1}
_DOUBLE_MAX = "1.7976931348623157E308"

Value = None | bool | int | float | str | list[str]
"""What a setting's text becomes."""
Values = dict[str, Value]
"""typed values by the names of their settings"""


class Type(IntEnum):
    """The type of a setting, with the number DescribeConfigs gives it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Setting(NamedTuple):
    """One row of the table."""

    name: str
    type: Type
    default: str | None
    valid: str
    support: str
    """yes, ignored or refused"""
    change: str
    """read-only, per-broker, cluster-wide or topic"""
    doc: str
    synonyms: tuple[str, ...] = ()
    """topic settings: the broker's settings that give the default, the strongest first"""

    @property
    def sensitive(self) -> bool:
        """Whether the value is never shown."""
        return self.type is Type.PASSWORD

    @property
    def dynamic(self) -> bool:
        """Whether a running broker takes a change."""
        return self.change != "read-only"

    def parse(self, text: str | None) -> Value:
        """The typed value of `text`; ValueError says in one line what is wrong."""
        if text is None:
            return None
        value = _PARSERS[self.type](text.strip())
        if self.valid != "*":
            for each in value if isinstance(value, list) else (value,):
                if not _allowed(self.valid, each):
                    raise ValueError(f"must be {_describe_valid(self.valid)}")
        return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _whole(text: str, largest: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("must be a whole number")
    value = int(text) if len(text) < 32 else largest + 1
    if not -largest - 1 <= value <= largest:
        raise ValueError(f"must be a whole number of at most {largest}")
    return value


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


_PARSERS: dict[Type, Callable[[str], Value]] = {
    Type.BOOLEAN: _boolean,
    Type.STRING: str,
    Type.INT: lambda text: _whole(text, _MAX["int"]),
    Type.SHORT: lambda text: _whole(text, _MAX["short"]),
    Type.LONG: lambda text: _whole(text, _MAX["long"]),
    Type.DOUBLE: _double,
    Type.LIST: _list,
    Type.CLASS: str,
    Type.PASSWORD: str,
}


def _allowed(valid: str, value: Value) -> bool:
    """Whether one of the alternatives of `valid` (words and ranges) holds the value."""
    for alternative in valid.split("|"):
        low, dots, high = alternative.partition("..")
        if not dots:
            if str(value).lower() == alternative.lower():
                return True
        elif (
            isinstance(value, int | float)
            and value >= float(low)
            and (not high or value <= float(high))
        ):
            return True
    return False


def _describe_valid(valid: str) -> str:
    """`1..` as "at least 1", `a|b` as "one of a, b"."""
    first, *more = valid.split("|")
    low, dots, high = first.partition("..")
    if not dots:
        return "one of " + ", ".join([first, *more])
    words = f"{low} to {high}" if high else f"at least {low}"
    return " or ".join([words, *more])


def _rows(table: str, synonyms: dict[str, tuple[str, ...]]) -> dict[str, Setting]:
    """Read a table."""
    lines = table.splitlines()
    settings = {}
    for head, doc in zip(lines[::2], lines[1::2], strict=True):
        name, type_name, default, valid, support, *change = head.split("  ")
        value: str | None = default
        if default == "null":
            value = None
        elif default == '""':
            value = ""
        elif default == "max":
            value = str(_MAX.get(type_name, _DOUBLE_MAX))
        settings[name] = Setting(
            name,
            Type[type_name.upper()],
            value,
            valid,
            support,
            change[0] if change else "topic",
            doc.strip(),
            synonyms.get(name, ()),
        )
    return settings


_SYNONYMS: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.downconversion.enable": ("log.message.downconversion.enable",),
    "message.format.version": ("log.message.format.version",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.difference.max.ms": ("log.message.timestamp.difference.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""Topic setting -> the broker's settings that give its default, the strongest first."""

_BROKER = """\
advertised.listeners  string  null  *  yes  read-only
    Addresses that clients get; unset, each client gets the address it connected to.
allow.everyone.if.no.acl.found  boolean  false  *  yes  read-only
    Whether everyone may use a resource that has no ACL.
alter.config.policy.class.name  class  null  *  refused  read-only
    A Java class that approves changes of settings.
alter.log.dirs.replication.quota.window.num  int  11  1..  ignored  read-only
    Samples kept for the quota on moves between log directories.
alter.log.dirs.replication.quota.window.size.seconds  int  1  1..  ignored  read-only
    Length of each such sample.
authorizer.class.name  string  ""  *  yes  read-only
    Kafka's three classes: stored ACLs; module:Class: a class gives ACLs. Empty: all is allowed.
auto.create.topics.enable  boolean  true  *  yes  read-only
    Whether asking for the metadata of a missing topic creates it.
auto.include.jmx.reporter  boolean  true  *  ignored  read-only
    Whether JMX reports metrics; there is no JMX.
auto.leader.rebalance.enable  boolean  true  *  yes  read-only
    Whether leadership goes back to preferred replicas by itself.
background.threads  int  10  1..  ignored  cluster-wide
    Threads for background work.
broker.heartbeat.interval.ms  int  2000  *  ignored  read-only
    Time between heartbeats to a KRaft controller.
broker.id  int  -1  *  yes  read-only
    The number of this broker; -1: its directory's, or in a ZooKeeper a new one, otherwise 0.
broker.id.generation.enable  boolean  true  *  yes  read-only
    Whether a broker in a ZooKeeper that has no number is given one.
broker.rack  string  null  *  yes  read-only
    The rack or zone of this broker.
broker.session.timeout.ms  int  9000  *  ignored  read-only
    How long a KRaft broker may be silent.
client.quota.callback.class  class  null  *  refused  read-only
    A Java class that computes client quotas.
compression.gzip.level  int  -1  1..9|-1  ignored  cluster-wide
    Level used where the broker itself compresses with gzip.
compression.lz4.level  int  9  1..17  ignored  cluster-wide
    Level used where the broker itself compresses with lz4.
compression.type  string  producer  uncompressed|zstd|lz4|snappy|gzip|producer  yes  cluster-wide
    Codec of stored batches; `producer` keeps what the producer chose.
compression.zstd.level  int  3  -131072..22  ignored  cluster-wide
    Level used where the broker itself compresses with zstd.
connection.failed.authentication.delay.ms  int  100  0..  yes  read-only
    Delay before a failed login is answered.
connections.max.idle.ms  long  600000  *  yes  read-only
    Idle connections are closed after this time.
connections.max.reauth.ms  long  0  *  yes  read-only
    How long a SASL session lasts before it must authenticate again.
control.plane.listener.name  string  null  *  ignored  read-only
    The listener between controller and brokers.
controlled.shutdown.enable  boolean  true  *  yes  read-only
    Whether leadership is moved away before the broker stops.
controlled.shutdown.max.retries  int  3  *  yes  read-only
    How often a controlled shutdown is tried.
controlled.shutdown.retry.backoff.ms  long  5000  *  yes  read-only
    Pause between these tries.
controller.listener.names  string  null  *  refused  read-only
    Listeners of a KRaft controller.
controller.quorum.append.linger.ms  int  25  *  ignored  read-only
    How long a KRaft leader collects records before it writes.
controller.quorum.bootstrap.servers  list  ""  *  refused  read-only
    Where a KRaft quorum is found; krust is no part of one.
controller.quorum.election.backoff.max.ms  int  1000  *  ignored  read-only
    Longest pause between KRaft elections.
controller.quorum.election.timeout.ms  int  1000  *  ignored  read-only
    How long a KRaft voter waits before a new election.
controller.quorum.fetch.timeout.ms  int  2000  *  ignored  read-only
    How long a KRaft voter waits for its leader.
controller.quorum.request.timeout.ms  int  2000  *  ignored  read-only
    Time limit of requests within the KRaft quorum.
controller.quorum.retry.backoff.ms  int  20  *  ignored  read-only
    Pause before such a request is repeated.
controller.quorum.voters  list  ""  *  refused  read-only
    The voters of a KRaft quorum; krust is no part of one.
controller.quota.window.num  int  11  1..  yes  read-only
    Windows whose changes of topics may come at once, under controller_mutation_rate.
controller.quota.window.size.seconds  int  1  1..  yes  read-only
    Length of each such sample.
controller.socket.timeout.ms  int  30000  *  ignored  read-only
    Time limit of the controller's requests to brokers.
create.topic.policy.class.name  class  null  *  refused  read-only
    A Java class that approves new topics.
default.replication.factor  int  1  *  yes  read-only
    Replicas of a topic that is created without a number.
delegation.token.expiry.check.interval.ms  long  3600000  1..  yes  read-only
    How often the controller deletes expired delegation tokens. Nobody logs in by one before.
delegation.token.expiry.time.ms  long  86400000  1..  yes  read-only
    How long a delegation token is valid before it must be renewed.
delegation.token.master.key  password  null  *  yes  read-only
    Old name of delegation.token.secret.key.
delegation.token.max.lifetime.ms  long  604800000  1..  yes  read-only
    How long a delegation token can be renewed.
delegation.token.secret.key  password  null  *  yes  read-only
    Key of delegation tokens, the same on all brokers; without it there are none.
delete.records.purgatory.purge.interval.requests  int  1  *  ignored  read-only
    Purge interval of delayed DeleteRecords requests, counted in requests.
delete.topic.enable  boolean  true  *  yes  read-only
    Whether topics can be deleted.
early.start.listeners  string  null  *  ignored  read-only
    Listeners that open before the broker is ready.
eligible.leader.replicas.enable  boolean  false  *  ignored  read-only
    Eligible leader replicas (KIP-966): krust always keeps them.
fetch.max.bytes  int  57671680  1024..  yes  read-only
    The most bytes one Fetch answer holds, whatever the client asks.
fetch.purgatory.purge.interval.requests  int  1000  *  ignored  read-only
    Purge interval of delayed Fetch requests, counted in requests.
follower.replication.throttled.rate  long  max  0..  yes  cluster-wide
    Bytes a second that throttled followers of this broker may fetch.
group.consumer.assignors  list  uniform,range  *  yes  read-only
    Assignors offered to KIP-848 consumer groups, the default first: names or module:Class.
group.consumer.heartbeat.interval.ms  int  5000  1..  yes  read-only
    Heartbeat interval given to KIP-848 members.
group.consumer.max.heartbeat.interval.ms  int  15000  1..  yes  read-only
    Upper bound of that interval where one group has its own.
group.consumer.max.session.timeout.ms  int  60000  1..  yes  read-only
    Upper bound of a KIP-848 member's session timeout where one group has its own.
group.consumer.max.size  int  max  1..  yes  read-only
    Most members of a KIP-848 group.
group.consumer.migration.policy  string  \
bidirectional  DISABLED|DOWNGRADE|UPGRADE|BIDIRECTIONAL  yes  read-only
    Whether classic groups and KIP-848 groups turn into each other.
group.consumer.min.heartbeat.interval.ms  int  5000  1..  yes  read-only
    Lower bound of the KIP-848 heartbeat interval where one group has its own.
group.consumer.min.session.timeout.ms  int  45000  1..  yes  read-only
    Lower bound of a KIP-848 member's session timeout where one group has its own.
group.consumer.session.timeout.ms  int  45000  1..  yes  read-only
    How long a KIP-848 member may be silent.
group.coordinator.append.linger.ms  int  10  0..  ignored  read-only
    How long the coordinator collects records before it writes.
group.coordinator.new.enable  boolean  false  *  ignored  read-only
    Which of Kafka's two coordinators runs; krust has one.
group.coordinator.rebalance.protocols  list  classic,consumer  \
classic|consumer|share|streams|unknown  yes  read-only
    Rebalance protocols that groups may use.
group.coordinator.threads  int  1  1..  ignored  read-only
    Threads of the group coordinator.
group.initial.rebalance.delay.ms  int  3000  *  yes  read-only
    How long a new group waits for more members, 3 ms at least; 0 in dev mode.
group.max.session.timeout.ms  int  1800000  *  yes  read-only
    Longest session timeout a member may ask for.
group.max.size  int  max  1..  yes  read-only
    Most members of a classic group.
group.min.session.timeout.ms  int  6000  *  yes  read-only
    Shortest session timeout a member may ask for.
group.share.delivery.count.limit  int  5  2..10  ignored  read-only
    How often a share group delivers one record.
group.share.enable  boolean  false  *  refused  read-only
    Share groups (KIP-932).
group.share.heartbeat.interval.ms  int  5000  1..  ignored  read-only
    Heartbeat interval given to members of share groups.
group.share.max.groups  short  10  1..100  ignored  read-only
    Most share groups.
group.share.max.heartbeat.interval.ms  int  15000  1..  ignored  read-only
    Upper bound of the share heartbeat interval.
group.share.max.record.lock.duration.ms  int  60000  30000..3600000  ignored  read-only
    Longest time a share group locks a record.
group.share.max.session.timeout.ms  int  60000  1..  ignored  read-only
    Upper bound of a share member's session timeout.
group.share.max.size  short  200  10..1000  ignored  read-only
    Most members of a share group.
group.share.min.heartbeat.interval.ms  int  5000  1..  ignored  read-only
    Lower bound of the share heartbeat interval.
group.share.min.record.lock.duration.ms  int  15000  1000..30000  ignored  read-only
    Shortest time a share group locks a record.
group.share.min.session.timeout.ms  int  45000  1..  ignored  read-only
    Lower bound of a share member's session timeout.
group.share.partition.max.record.locks  int  200  100..10000  ignored  read-only
    Most records a share group locks in one partition.
group.share.record.lock.duration.ms  int  30000  1000..60000  ignored  read-only
    How long a share group locks a record.
group.share.session.timeout.ms  int  45000  1..  ignored  read-only
    How long a member of a share group may be silent.
initial.broker.registration.timeout.ms  int  60000  *  ignored  read-only
    How long a KRaft broker tries to register.
inter.broker.listener.name  string  null  *  yes  read-only
    The listener that brokers use among each other.
inter.broker.protocol.version  string  3.9-IV0  *  ignored  read-only
    Which version brokers speak among each other.
kafka.metrics.polling.interval.secs  int  10  1..  ignored  read-only
    Interval of the old metrics reporters.
kafka.metrics.reporters  list  ""  *  ignored  read-only
    Java classes that report metrics, the old way.
leader.imbalance.check.interval.seconds  long  300  1..  yes  read-only
    Time between checks of the balance of leaders.
leader.imbalance.per.broker.percentage  int  10  *  yes  read-only
    Imbalance of leaders that is put right.
leader.replication.throttled.rate  long  max  0..  yes  cluster-wide
    Bytes a second that throttled leaders of this broker may send to followers.
listener.security.protocol.map  string  \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT  *  yes  read-only
    Which security protocol each listener name stands for.
listeners  string  PLAINTEXT://localhost:9092  *  yes  read-only
    Addresses to listen on; Kafka's own default is every interface, krust's is loopback.
log.cleaner.backoff.ms  long  15000  0..  yes  cluster-wide
    Pause of the cleaner when there is nothing to clean.
log.cleaner.dedupe.buffer.size  long  134217728  *  yes  cluster-wide
    Memory of the cleaner's key table.
log.cleaner.delete.retention.ms  long  86400000  0..  yes  cluster-wide
    How long tombstones stay in a compacted topic.
log.cleaner.enable  boolean  true  *  yes  read-only
    Whether compacted topics are cleaned.
log.cleaner.io.buffer.load.factor  double  0.9  *  yes  cluster-wide
    How full the cleaner's key table may get.
log.cleaner.io.buffer.size  int  524288  0..  yes  cluster-wide
    Memory of the cleaner's buffers.
log.cleaner.io.max.bytes.per.second  double  max  *  yes  cluster-wide
    Bytes that the cleaner may read and write in a second.
log.cleaner.max.compaction.lag.ms  long  max  1..  yes  cluster-wide
    How long a record may stay uncompacted.
log.cleaner.min.cleanable.ratio  double  0.5  0..1  yes  cluster-wide
    Share of dirty bytes from which a log is cleaned.
log.cleaner.min.compaction.lag.ms  long  0  0..  yes  cluster-wide
    How long a record stays uncompacted at least.
log.cleaner.threads  int  1  0..  yes  cluster-wide
    Threads that clean.
log.cleanup.policy  list  delete  compact|delete  yes  cluster-wide
    What happens to old records: `delete`, `compact`, or both.
log.dir  string  krust-data  *  yes  read-only
    The log directory, if log.dirs is not set (Kafka's own default: /tmp/kafka-logs).
log.dir.failure.timeout.ms  long  30000  1..  ignored  read-only
    How long a KRaft broker with a failed directory keeps running.
log.dirs  string  null  *  yes  read-only
    The log directories, separated by commas.
log.flush.interval.messages  long  max  1..  yes  cluster-wide
    Messages after which a partition is flushed to disk.
log.flush.interval.ms  long  null  *  yes  cluster-wide
    Time after which a partition is flushed to disk.
log.flush.offset.checkpoint.interval.ms  int  60000  0..  yes  read-only
    Time between writes of the recovery points.
log.flush.scheduler.interval.ms  long  max  *  yes  read-only
    Time between checks for logs that must be flushed.
log.flush.start.offset.checkpoint.interval.ms  int  60000  0..  ignored  read-only
    Time between writes of the log start offsets; here all checkpoints are written together.
log.index.interval.bytes  int  4096  0..  yes  cluster-wide
    Bytes of log between two entries of its index.
log.index.size.max.bytes  int  10485760  4..  yes  cluster-wide
    Largest size of an index file.
log.initial.task.delay.ms  long  30000  0..  ignored  read-only
    Delay of background work after the start.
log.local.retention.bytes  long  -2  -2..  ignored  cluster-wide
    Bytes kept locally of a tiered partition.
log.local.retention.ms  long  -2  -2..  ignored  cluster-wide
    Time records of a tiered partition are kept locally.
log.message.downconversion.enable  boolean  true  *  ignored  cluster-wide
    Whether old clients get batches converted to their format.
log.message.format.version  string  3.0-IV1  *  ignored  read-only
    Format of stored messages; always the newest.
log.message.timestamp.after.max.ms  long  3600000  0..  yes  cluster-wide
    How far a timestamp may lie in the future (default of Kafka 4).
log.message.timestamp.before.max.ms  long  max  0..  yes  cluster-wide
    How far a timestamp may lie in the past.
log.message.timestamp.difference.max.ms  long  max  0..  ignored  cluster-wide
    Old name of the two limits before and after.
log.message.timestamp.type  string  CreateTime  CreateTime|LogAppendTime  yes  cluster-wide
    Whether records keep the producer's timestamp or get the time of the append.
log.preallocate  boolean  false  *  yes  cluster-wide
    Whether a new segment gets its disk space at once.
log.retention.bytes  long  -1  *  yes  cluster-wide
    Bytes kept of a partition; -1 is no limit.
log.retention.check.interval.ms  long  300000  1..  yes  read-only
    Time between checks for segments that may go.
log.retention.hours  int  168  *  yes  read-only
    Hours that records are kept, if neither minutes nor ms are set.
log.retention.minutes  int  null  *  yes  read-only
    Minutes that records are kept, if ms are not set.
log.retention.ms  long  null  *  yes  cluster-wide
    Milliseconds that records are kept; -1 is for ever.
log.roll.hours  int  168  1..  yes  read-only
    Hours after which a new segment begins, if ms are not set.
log.roll.jitter.hours  int  0  0..  yes  read-only
    Random hours taken off that time, if ms are not set.
log.roll.jitter.ms  long  null  *  yes  cluster-wide
    Random milliseconds taken off that time.
log.roll.ms  long  null  *  yes  cluster-wide
    Milliseconds after which a new segment begins.
log.segment.bytes  int  1073741824  14..  yes  cluster-wide
    Largest size of a segment.
log.segment.delete.delay.ms  long  60000  0..  yes  cluster-wide
    How long deleted files stay before they are unlinked.
max.connection.creation.rate  int  max  0..  yes  cluster-wide
    Most new connections in a second; further ones wait (KIP-612). A listener may have its own.
max.connections  int  max  0..  yes  cluster-wide
    Most connections at a time (KIP-402); further ones wait. A listener may have its own.
max.connections.per.ip  int  max  0..  yes  cluster-wide
    Most connections at a time from one address; further ones are closed.
max.connections.per.ip.overrides  string  ""  *  yes  cluster-wide
    Other such limits for single addresses: `host:count,...`.
max.incremental.fetch.session.cache.slots  int  1000  0..  yes  read-only
    Most fetch sessions kept (KIP-227).
max.request.partition.size.limit  int  2000  1..  yes  read-only
    Most partitions in one DescribeTopicPartitions answer.
message.max.bytes  int  1048588  0..  yes  cluster-wide
    Largest batch that is taken, compressed.
metadata.log.dir  string  null  *  ignored  read-only
    Where a KRaft broker keeps its metadata log.
metadata.log.max.record.bytes.between.snapshots  long  20971520  1..  ignored  read-only
    Bytes of KRaft metadata between snapshots.
metadata.log.max.snapshot.interval.ms  long  3600000  0..  ignored  read-only
    Time between KRaft snapshots.
metadata.log.segment.bytes  int  1073741824  12..  ignored  read-only
    Largest segment of the KRaft metadata log.
metadata.log.segment.min.bytes  int  8388608  12..  ignored  read-only
    Smallest segment of the KRaft metadata log.
metadata.log.segment.ms  long  604800000  *  ignored  read-only
    Time after which the KRaft metadata log begins a new segment.
metadata.max.idle.interval.ms  int  500  0..  ignored  read-only
    How often an idle KRaft controller writes a record.
metadata.max.retention.bytes  long  104857600  *  ignored  read-only
    Bytes kept of the KRaft metadata log.
metadata.max.retention.ms  long  604800000  *  ignored  read-only
    Time the KRaft metadata log is kept.
metric.reporters  list  ""  *  ignored  cluster-wide
    Java classes that report metrics.
metrics.num.samples  int  2  1..  ignored  read-only
    Samples kept for a metric.
metrics.recording.level  string  INFO  *  ignored  read-only
    Level of detail of metrics.
metrics.sample.window.ms  long  30000  1..  ignored  read-only
    Length of such a sample.
min.insync.replicas  int  1  1..  yes  cluster-wide
    In-sync replicas that acks=all needs.
node.id  int  -1  *  yes  read-only
    The number of this broker, in KRaft's words; the same as broker.id.
num.io.threads  int  8  1..  ignored  cluster-wide
    Kafka's request handlers; krust answers on the network threads.
num.network.threads  int  3  1..  yes  read-only
    Network threads, at most one a processor; unset, krust suits the machine.
num.partitions  int  1  1..  yes  read-only
    Partitions of a topic that is created without a number.
num.recovery.threads.per.data.dir  int  2  1..  yes  read-only
    Threads for each log directory that open and recover logs at the start (2 as in Kafka 4).
num.replica.alter.log.dirs.threads  int  null  *  ignored  read-only
    Threads that move replicas between log directories.
num.replica.fetchers  int  1  *  yes  cluster-wide
    Threads that copy partitions from their leaders, for each leader.
offset.metadata.max.bytes  int  4096  *  yes  read-only
    Largest metadata a member commits with an offset.
offsets.commit.required.acks  short  -1  *  ignored  read-only
    Acks that a commit of offsets waits for.
offsets.commit.timeout.ms  int  5000  1..  yes  read-only
    Time limit of that wait.
offsets.load.buffer.size  int  5242880  1..  ignored  read-only
    Bytes read at a time when offsets are loaded.
offsets.retention.check.interval.ms  long  600000  1..  yes  read-only
    Time between checks for expired offsets.
offsets.retention.minutes  int  10080  1..  yes  read-only
    How long the offsets of an empty group are kept.
offsets.topic.compression.codec  int  0  *  ignored  read-only
    Codec of `__consumer_offsets`.
offsets.topic.num.partitions  int  50  1..  yes  read-only
    Partitions of `__consumer_offsets`.
offsets.topic.replication.factor  short  3  1..  yes  read-only
    Replicas of `__consumer_offsets`; without ZooKeeper at most one a broker.
offsets.topic.segment.bytes  int  104857600  1..  yes  read-only
    Largest segment of `__consumer_offsets`.
password.encoder.cipher.algorithm  string  AES/CBC/PKCS5Padding  \
AES/CBC/PKCS5Padding|AES/GCM/NoPadding  yes  read-only
    How passwords among the stored settings of a broker are encrypted.
password.encoder.iterations  int  4096  1024..1000000  yes  read-only
    Iterations that make its key.
password.encoder.key.length  int  128  128|192|256  yes  read-only
    Bits of its key.
password.encoder.keyfactory.algorithm  string  null  \
PBKDF2WithHmacSHA1|PBKDF2WithHmacSHA224|PBKDF2WithHmacSHA256|\
PBKDF2WithHmacSHA384|PBKDF2WithHmacSHA512  yes  read-only
    How its key is made of the secret; null: PBKDF2WithHmacSHA512.
password.encoder.old.secret  password  null  *  yes  read-only
    The secret before a change: at its start the broker encrypts by the new one.
password.encoder.secret  password  null  *  yes  read-only
    The secret of that encryption; null: no password is stored.
principal.builder.class  class  \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder  *  refused  per-broker
    A Java class that names principals.
process.roles  list  ""  broker|controller  refused  read-only
    KRaft's roles; krust is no KRaft node, so setting any is refused.
producer.id.expiration.check.interval.ms  int  600000  1..  ignored  read-only
    Time between checks for expired producers.
producer.id.expiration.ms  int  86400000  1..  yes  cluster-wide
    How long a partition remembers an idle producer.
producer.purgatory.purge.interval.requests  int  1000  *  ignored  read-only
    Purge interval of delayed Produce requests, counted in requests.
queued.max.request.bytes  long  -1  *  yes  read-only
    Most bytes of requests that wait.
queued.max.requests  int  500  1..  ignored  read-only
    Most requests that wait.
quota.window.num  int  11  1..  yes  read-only
    Samples kept for client quotas.
quota.window.size.seconds  int  1  1..  yes  read-only
    Length of each such sample.
remote.fetch.max.wait.ms  int  500  1..  ignored  cluster-wide
    Longest wait for a read from remote storage.
remote.log.index.file.cache.total.size.bytes  long  1073741824  1..  ignored  cluster-wide
    Size of the cache of remote indexes.
remote.log.manager.copier.thread.pool.size  int  -1  *  ignored  read-only
    Threads that copy to remote storage.
remote.log.manager.copy.max.bytes.per.second  long  max  1..  ignored  cluster-wide
    Most bytes copied to remote storage in a second.
remote.log.manager.copy.quota.window.num  int  11  1..  ignored  read-only
    Samples kept for that limit.
remote.log.manager.copy.quota.window.size.seconds  int  1  1..  ignored  read-only
    Length of each such sample.
remote.log.manager.expiration.thread.pool.size  int  -1  *  ignored  read-only
    Threads that delete from remote storage.
remote.log.manager.fetch.max.bytes.per.second  long  max  1..  ignored  cluster-wide
    Most bytes read from remote storage in a second.
remote.log.manager.fetch.quota.window.num  int  11  1..  ignored  read-only
    Samples kept for that limit.
remote.log.manager.fetch.quota.window.size.seconds  int  1  1..  ignored  read-only
    Length of each such sample.
remote.log.manager.task.interval.ms  long  30000  1..  ignored  read-only
    Time between the tasks of tiered storage.
remote.log.manager.task.retry.backoff.max.ms  long  30000  1..  ignored  read-only
    Longest pause before such a task is repeated.
remote.log.manager.task.retry.backoff.ms  long  500  1..  ignored  read-only
    First pause before such a task is repeated.
remote.log.manager.task.retry.jitter  double  0.2  *  ignored  read-only
    Randomness of these pauses.
remote.log.manager.thread.pool.size  int  10  1..  ignored  read-only
    Threads of tiered storage.
remote.log.metadata.custom.metadata.max.bytes  int  128  0..  ignored  read-only
    Largest metadata of a storage plug-in.
remote.log.metadata.manager.class.name  string  \
org.apache.kafka.server.log.remote.metadata.storage.\
TopicBasedRemoteLogMetadataManager  *  ignored  read-only
    A Java class that keeps remote metadata.
remote.log.metadata.manager.class.path  string  null  *  ignored  read-only
    Where that class is found.
remote.log.metadata.manager.impl.prefix  string  rlmm.config.  *  ignored  read-only
    Prefix of that class's settings.
remote.log.metadata.manager.listener.name  string  null  *  ignored  read-only
    The listener that class uses.
remote.log.reader.max.pending.tasks  int  100  1..  ignored  read-only
    Most remote reads that wait.
remote.log.reader.threads  int  10  1..  ignored  read-only
    Threads that read from remote storage.
remote.log.storage.manager.class.name  string  null  *  ignored  read-only
    A Java class that is the remote storage.
remote.log.storage.manager.class.path  string  null  *  ignored  read-only
    Where that class is found.
remote.log.storage.manager.impl.prefix  string  rsm.config.  *  ignored  read-only
    Prefix of that class's settings.
remote.log.storage.system.enable  boolean  false  *  refused  read-only
    Tiered storage (KIP-405); there is none, so enabling it is refused.
replica.fetch.backoff.ms  int  1000  0..  yes  read-only
    Longest pause of a fetcher after an error; the first is 20 ms, and each is twice the one before.
replica.fetch.max.bytes  int  1048576  0..  yes  read-only
    Bytes a fetcher asks for, for each partition.
replica.fetch.min.bytes  int  1  *  yes  read-only
    Least bytes a fetcher waits for.
replica.fetch.response.max.bytes  int  10485760  0..  yes  read-only
    Bytes a fetcher asks for altogether.
replica.fetch.wait.max.ms  int  500  *  yes  read-only
    Longest wait of a fetcher.
replica.high.watermark.checkpoint.interval.ms  long  5000  *  yes  read-only
    Time between writes of the high watermarks to the log directories.
replica.lag.time.max.ms  long  30000  *  yes  read-only
    How long a replica may lag behind and stay in sync.
replica.selector.class  string  null  *  yes  read-only
    Who chooses the replica that a consumer with a client.rack reads: Kafka's class, or a plug-in.
replica.socket.receive.buffer.bytes  int  65536  *  ignored  read-only
    Receive buffer of a fetcher's socket.
replica.socket.timeout.ms  int  30000  *  yes  read-only
    Time limit of a fetcher's requests.
replication.quota.window.num  int  11  1..  yes  read-only
    Samples kept for replication quotas.
replication.quota.window.size.seconds  int  1  1..  yes  read-only
    Length of each such sample.
request.timeout.ms  int  30000  *  yes  read-only
    Time limit of the broker's own requests.
reserved.broker.max.id  int  1000  0..  yes  read-only
    Largest number a broker may set itself.
sasl.client.callback.handler.class  class  null  *  ignored  read-only
    A Java class for SASL clients.
sasl.enabled.mechanisms  list  GSSAPI  *  yes  read-only
    SASL mechanisms offered.
sasl.jaas.config  password  null  *  yes  per-broker
    The users of PLAIN, and how the broker itself logs in: listener.name.NAME.MECHANISM. in front.
sasl.kerberos.kinit.cmd  string  /usr/bin/kinit  *  ignored  per-broker
    Path of kinit.
sasl.kerberos.min.time.before.relogin  long  60000  *  ignored  per-broker
    Least time between Kerberos log-ins.
sasl.kerberos.principal.to.local.rules  list  DEFAULT  *  ignored  per-broker
    How Kerberos principals become names.
sasl.kerberos.service.name  string  null  *  ignored  per-broker
    Kerberos service name.
sasl.kerberos.ticket.renew.jitter  double  0.05  *  ignored  per-broker
    Randomness of ticket renewals.
sasl.kerberos.ticket.renew.window.factor  double  0.8  *  ignored  per-broker
    When a ticket is renewed.
sasl.login.callback.handler.class  class  null  *  ignored  read-only
    A Java class for SASL log-ins.
sasl.login.class  class  null  *  ignored  read-only
    A Java class for SASL log-ins.
sasl.login.connect.timeout.ms  int  null  *  ignored  read-only
    Time limit to reach an OAuth provider.
sasl.login.read.timeout.ms  int  null  *  ignored  read-only
    Time limit of an OAuth provider's answer.
sasl.login.refresh.buffer.seconds  short  300  *  ignored  per-broker
    How long before expiry a credential is refreshed.
sasl.login.refresh.min.period.seconds  short  60  *  ignored  per-broker
    Least time between refreshes.
sasl.login.refresh.window.factor  double  0.8  *  ignored  per-broker
    When a credential is refreshed.
sasl.login.refresh.window.jitter  double  0.05  *  ignored  per-broker
    Randomness of these refreshes.
sasl.login.retry.backoff.max.ms  long  10000  0..  yes  read-only
    Longest pause between requests for an OAuth token.
sasl.login.retry.backoff.ms  long  100  0..  yes  read-only
    First pause between requests for an OAuth token.
sasl.mechanism.controller.protocol  string  GSSAPI  *  ignored  read-only
    SASL mechanism to KRaft controllers.
sasl.mechanism.inter.broker.protocol  string  GSSAPI  *  yes  read-only
    SASL mechanism between brokers.
sasl.oauthbearer.clock.skew.seconds  int  30  0..  yes  read-only
    Clock difference an OAuth token may show.
sasl.oauthbearer.expected.audience  list  null  *  yes  read-only
    Audiences; an OAuth token must name one of them. Unset: any.
sasl.oauthbearer.expected.issuer  string  null  *  yes  read-only
    Issuer an OAuth token must name. Unset: any.
sasl.oauthbearer.jwks.endpoint.refresh.ms  long  3600000  0..  yes  read-only
    Time between reads of the OAuth keys; a file is read when it changes.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms  long  10000  0..  yes  read-only
    Longest pause between tries to read them.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms  long  100  0..  yes  read-only
    First pause between tries to read them.
sasl.oauthbearer.jwks.endpoint.url  string  null  *  yes  read-only
    Where the OAuth keys are: an address that krust.sasl.oauthbearer.allowed.urls names.
sasl.oauthbearer.scope.claim.name  string  scope  *  ignored  read-only
    OAuth claim that holds the scope.
sasl.oauthbearer.sub.claim.name  string  sub  *  yes  read-only
    OAuth claim that holds the user's name.
sasl.oauthbearer.token.endpoint.url  string  null  *  yes  read-only
    Issuer that grants the tokens by which brokers log in at each other.
sasl.server.callback.handler.class  class  null  *  ignored  read-only
    A Java class for SASL servers.
sasl.server.max.receive.size  int  524288  *  yes  read-only
    Largest SASL message.
security.inter.broker.protocol  string  \
PLAINTEXT  PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL  yes  read-only
    Security protocol between brokers.
security.providers  string  null  *  ignored  read-only
    Java classes that are security providers.
server.max.startup.time.ms  long  max  0..  ignored  read-only
    Time limit of the start.
socket.connection.setup.timeout.max.ms  long  30000  *  ignored  read-only
    Longest time for a connection to be made.
socket.connection.setup.timeout.ms  long  10000  *  ignored  read-only
    First time limit for a connection to be made.
socket.listen.backlog.size  int  50  1..  ignored  read-only
    Length of the queue of connections not accepted yet.
socket.receive.buffer.bytes  int  102400  *  ignored  read-only
    SO_RCVBUF of accepted sockets; -1 leaves the system's.
socket.request.max.bytes  int  104857600  1..  yes  read-only
    Largest request; a longer one closes the connection unread.
socket.send.buffer.bytes  int  102400  *  ignored  read-only
    SO_SNDBUF of accepted sockets; -1 leaves the system's.
ssl.allow.dn.changes  boolean  false  *  ignored  read-only
    Whether a new certificate may name another subject.
ssl.allow.san.changes  boolean  false  *  ignored  read-only
    Whether a new certificate may name other hosts.
ssl.cipher.suites  list  ""  *  yes  per-broker
    TLS cipher suites that are offered, by their IANA names; empty: all of rustls.
ssl.client.auth  string  none  required|requested|none  yes  per-broker
    Whether TLS clients have to show a certificate.
ssl.enabled.protocols  list  TLSv1.2,TLSv1.3  TLSv1.2|TLSv1.3  yes  per-broker
    TLS versions that are offered.
ssl.endpoint.identification.algorithm  string  https  *  yes  read-only
    How the certificate of another broker is checked: https: with its host name; empty: without.
ssl.engine.factory.class  class  null  *  ignored  per-broker
    A Java class that makes TLS engines.
ssl.key.password  password  null  *  yes  per-broker
    Password of the private key.
ssl.keymanager.algorithm  string  SunX509  *  ignored  per-broker
    Java's key manager.
ssl.keystore.certificate.chain  password  null  *  yes  per-broker
    Certificate chain as PEM.
ssl.keystore.key  password  null  *  yes  per-broker
    Private key as PEM.
ssl.keystore.location  string  null  *  yes  per-broker
    File with key and certificate.
ssl.keystore.password  password  null  *  yes  per-broker
    Password of that file.
ssl.keystore.type  string  JKS  JKS|PKCS12|PEM  yes  per-broker
    Format of that file.
ssl.principal.mapping.rules  string  DEFAULT  *  yes  read-only
    How the subjects of clients' certificates become users: DEFAULT, RULE:PATTERN/REPLACEMENT/[LU].
ssl.protocol  string  TLSv1.3  *  ignored  per-broker
    Newest TLS version.
ssl.provider  string  null  *  ignored  per-broker
    Java's TLS provider.
ssl.secure.random.implementation  string  null  *  ignored  per-broker
    Java's random source.
ssl.trustmanager.algorithm  string  PKIX  *  ignored  per-broker
    Java's trust manager.
ssl.truststore.certificates  password  null  *  yes  per-broker
    Trusted certificates as PEM.
ssl.truststore.location  string  null  *  yes  per-broker
    File with trusted certificates.
ssl.truststore.password  password  null  *  yes  per-broker
    Password of that file.
ssl.truststore.type  string  JKS  JKS|PKCS12|PEM  yes  per-broker
    Format of that file.
super.users  string  ""  *  yes  read-only
    Principals that may do everything, whatever ACLs say: User:NAME;User:NAME.
telemetry.max.bytes  int  1048576  1..  ignored  read-only
    Largest metrics report of a client (KIP-714).
transaction.abort.timed.out.transaction.cleanup.interval.ms  int  10000  1..  yes  read-only
    Time between checks for transactions that timed out.
transaction.max.timeout.ms  int  900000  1..  yes  read-only
    Longest time limit of a transaction.
transaction.partition.verification.enable  boolean  true  *  yes  cluster-wide
    Whether partitions are verified to belong to a transaction.
transaction.remove.expired.transaction.cleanup.interval.ms  int  3600000  1..  yes  read-only
    Time between checks for expired transactional ids.
transaction.state.log.load.buffer.size  int  5242880  1..  ignored  read-only
    Bytes read at a time when transactions are loaded.
transaction.state.log.min.isr  int  2  1..  yes  read-only
    min.insync.replicas of `__transaction_state`; without ZooKeeper at most one a broker.
transaction.state.log.num.partitions  int  50  1..  yes  read-only
    Partitions of `__transaction_state`.
transaction.state.log.replication.factor  short  3  1..  yes  read-only
    Replicas of `__transaction_state`; without ZooKeeper at most one a broker.
transaction.state.log.segment.bytes  int  104857600  1..  yes  read-only
    Largest segment of `__transaction_state`.
transactional.id.expiration.ms  int  604800000  1..  yes  read-only
    How long an idle transactional id is remembered.
unclean.leader.election.enable  boolean  false  *  yes  cluster-wide
    Whether a replica that is not in sync may lead, and so lose records.
unclean.leader.election.interval.ms  long  300000  1..  ignored  read-only
    Time between checks for partitions without a leader.
unstable.api.versions.enable  boolean  false  *  ignored  read-only
    Whether unfinished API versions are offered.
unstable.feature.versions.enable  boolean  false  *  ignored  read-only
    Whether unfinished feature versions are offered.
zookeeper.clientCnxnSocket  string  null  *  ignored  read-only
    Java's ZooKeeper socket class.
zookeeper.connect  string  null  *  yes  read-only
    ZooKeeper's addresses and chroot; unset, the metadata is in the data directory.
zookeeper.connection.timeout.ms  int  null  *  yes  read-only
    Time limit to reach ZooKeeper; unset, as long as a session.
zookeeper.max.in.flight.requests  int  10  1..  ignored  read-only
    Most ZooKeeper requests in flight.
zookeeper.metadata.migration.enable  boolean  false  *  refused  read-only
    Migration to KRaft; krust has none, so enabling it is refused.
zookeeper.metadata.migration.min.batch.size  int  200  1..  ignored  read-only
    Batch size of that migration.
zookeeper.session.timeout.ms  int  18000  *  yes  read-only
    How long ZooKeeper keeps the session of a silent broker.
zookeeper.set.acl  boolean  false  *  yes  read-only
    Whether znodes are made with ACLs.
zookeeper.ssl.cipher.suites  list  null  *  ignored  read-only
    TLS cipher suites to ZooKeeper.
zookeeper.ssl.client.enable  boolean  false  *  yes  read-only
    TLS to ZooKeeper.
zookeeper.ssl.crl.enable  boolean  false  *  ignored  read-only
    Revocation lists for ZooKeeper's certificate.
zookeeper.ssl.enabled.protocols  list  null  *  ignored  read-only
    TLS versions to ZooKeeper.
zookeeper.ssl.endpoint.identification.algorithm  string  HTTPS  *  yes  read-only
    Whether ZooKeeper's host name is checked against its certificate; empty: it is not.
zookeeper.ssl.keystore.location  string  null  *  yes  read-only
    PEM file with the key and the certificates shown to ZooKeeper.
zookeeper.ssl.keystore.password  password  null  *  yes  read-only
    Password of that file.
zookeeper.ssl.keystore.type  string  null  *  yes  read-only
    Format of that file.
zookeeper.ssl.ocsp.enable  boolean  false  *  ignored  read-only
    OCSP for ZooKeeper's certificate.
zookeeper.ssl.protocol  string  TLSv1.2  *  ignored  read-only
    TLS version to ZooKeeper.
zookeeper.ssl.truststore.location  string  null  *  yes  read-only
    PEM file with certificates trusted for ZooKeeper.
zookeeper.ssl.truststore.password  password  null  *  ignored  read-only
    Password of that file.
zookeeper.ssl.truststore.type  string  null  *  yes  read-only
    Format of that file.
"""

_KRUST = """\
krust.authorizer.cache.ms  int  500  50..60000  yes  read-only
    How long after its last call an authorizer in Python is asked again for a connected client.
krust.authorizer.timeout.ms  int  1000  1..60000  yes  read-only
    How long an authorizer in Python may take for a client; then nothing is allowed to it.
krust.boot.id.path  string  /proc/sys/kernel/random/boot_id  *  yes  read-only
    A file that is another when the machine may have lost what was not synced.
krust.disk.reserve.bytes  long  268435456  0..  yes  read-only
    krust warns of a log directory with less free space; 0: never.
krust.fetch.converted.memory.bytes  long  67108864  1048576..  yes  read-only
    Most memory of answers converted for old consumers, all together, until they are sent.
krust.fetch.session.cache.max.partitions  int  200000  0..  yes  read-only
    Most partitions of all fetch sessions together; beyond that clients fetch without one.
krust.fetch.session.max.partitions  int  50000  0..  yes  read-only
    Most partitions of one fetch session.
krust.flush.mode  string  async  async|ack  yes  read-only
    ack: records are flushed to disk before they are acknowledged (group commit).
krust.group.assignor.timeout.ms  int  50  1..5000  yes  read-only
    Deadline of a user's assignor; large groups have more (20 us a member and partition).
krust.group.connection.grace.ms  long  500  0..  yes  read-only
    How long a dynamic member has to speak again after its connection closed.
krust.group.evict.on.disconnect  boolean  true  *  yes  read-only
    Whether a dynamic member leaves its group when its connection closes; false in prod mode.
krust.group.load.wait.ms  int  10000  0..  yes  read-only
    How long after the start requests on groups wait while groups are read; then: error 14.
krust.group.metadata.max.bytes  long  16777216  65536..  yes  read-only
    Limit for metadata, assignments and subscriptions of a group; further joins get error 81.
krust.group.metadata.memory.bytes  long  50331648  65536..  yes  read-only
    The same limit, for all groups together.
krust.group.server.assignor  list  ""  *  yes  read-only
    Groups in which krust assigns, not the leader: PATTERN=NAME or PATTERN=module:Class, and so on.
krust.index.cache.bytes  long  33554432  0..  yes  read-only
    Memory for the indexes of sealed segments, of all logs together.
krust.inter.broker.listeners  list  ""  *  yes  read-only
    Listeners that serve brokers, while inter.broker.listener.name changes broker by broker.
krust.login.memory.bytes  long  67108864  1048576..  yes  read-only
    Most memory of all connections together that have not logged in yet.
krust.mode  string  auto  auto|dev|prod  yes  read-only
    auto: dev while every listener is loopback, else prod.
krust.partition.producers.max  int  100000  1000..  yes  read-only
    Most idempotent producers that a partition remembers; it forgets the one idle for longest.
krust.policy.request.memory.bytes  long  8388608  65536..  yes  read-only
    Most memory for the parts of one request that changes or describes the cluster or a group.
krust.policy.response.max.bytes  long  67108864  65536..  yes  read-only
    Largest answer to one request that describes topics, brokers or groups.
krust.policy.timeout.ms  long  300000  1000..  yes  read-only
    How long a decision may take beyond its request's own time-out until it is given up.
krust.replica.selector.timeout.ms  int  1000  1..60000  yes  read-only
    How long a replica selector of your own may take for at most 200 partitions.
krust.request.memory.bytes  long  268435456  1048576..  yes  read-only
    Most memory of all requests together, once they are read, and of their answers.
krust.retention.policy  list  ""  *  yes  read-only
    Topics whose old segments a policy deletes: PATTERN=NAME or PATTERN=module:Class, and so on.
krust.retention.timeout.ms  int  5000  1..60000  yes  read-only
    How long a retention policy of your own may take.
krust.sasl.oauthbearer.allowed.urls  list  ""  *  yes  read-only
    Addresses that the broker may have OAuth keys and tokens from, each as a whole.
krust.threads  int  0  0..  yes  read-only
    Network threads; 0 takes num.network.threads where that is set, else suits the machine.
krust.worker.threads  int  2  1..64  yes  read-only
    Threads for what would keep a network thread too long: conversion, validation of large batches.
krust.zookeeper.digest  password  null  *  yes  read-only
    `user:password` that the broker shows to ZooKeeper, for nodes with access lists.
krust.zookeeper.sasl  password  null  *  yes  read-only
    `user:password` of SASL DIGEST-MD5, where ZooKeeper asks for it; needs the extra `sasl`.
"""

_TOPIC = """\
cleanup.policy  list  delete  compact|delete  yes
    What happens to old records: `delete`, `compact`, or both.
compression.gzip.level  int  -1  1..9|-1  ignored
    Level used where the broker itself compresses with gzip.
compression.lz4.level  int  9  1..17  ignored
    Level used where the broker itself compresses with lz4.
compression.type  string  producer  uncompressed|zstd|lz4|snappy|gzip|producer  yes
    Codec of stored batches; `producer` keeps what the producer chose.
compression.zstd.level  int  3  -131072..22  ignored
    Level used where the broker itself compresses with zstd.
delete.retention.ms  long  86400000  0..  yes
    How long tombstones stay in a compacted topic.
file.delete.delay.ms  long  60000  0..  yes
    How long deleted files stay before they are unlinked.
flush.messages  long  max  1..  yes
    Messages after which the log is flushed; a power cut loses fewer acknowledged ones than that.
flush.ms  long  max  0..  yes
    Time after which the log is flushed to disk.
follower.replication.throttled.replicas  list  ""  *  yes
    Replicas that are throttled as followers: `*`, or `partition:broker` with commas between.
index.interval.bytes  int  4096  0..  yes
    Bytes of log between two entries of its index.
krust.validate.compressed  string  full  full|header  yes
    Whether compressed batches are validated wholly, or by their header for producers you trust.
leader.replication.throttled.replicas  list  ""  *  yes
    Replicas that are throttled as leaders: `*`, or `partition:broker` with commas between.
krust.retention.policy  string  ""  *  yes
    The policy that says which segments go; empty: the one that the broker's setting names, if any.
local.retention.bytes  long  -2  -2..  ignored
    Bytes kept locally of a tiered partition.
local.retention.ms  long  -2  -2..  ignored
    Time records of a tiered partition are kept locally.
max.compaction.lag.ms  long  max  1..  yes
    How long a record may stay uncompacted.
max.message.bytes  int  1048588  0..  yes
    Largest batch that is taken, compressed.
message.downconversion.enable  boolean  true  *  ignored
    Whether old clients get batches converted to their format.
message.format.version  string  3.0-IV1  *  ignored
    Format of stored messages; always the newest.
message.timestamp.after.max.ms  long  3600000  0..  yes
    How far a timestamp may lie in the future (default of Kafka 4).
message.timestamp.before.max.ms  long  max  0..  yes
    How far a timestamp may lie in the past.
message.timestamp.difference.max.ms  long  max  0..  ignored
    Old name of the two limits before and after.
message.timestamp.type  string  CreateTime  CreateTime|LogAppendTime  yes
    Whether records keep the producer's timestamp or get the time of the append.
min.cleanable.dirty.ratio  double  0.5  0..1  yes
    Share of dirty bytes from which the log is cleaned.
min.compaction.lag.ms  long  0  0..  yes
    How long a record stays uncompacted at least.
min.insync.replicas  int  1  1..  yes
    In-sync replicas that acks=all needs.
preallocate  boolean  false  *  yes
    Whether a new segment gets its disk space at once.
remote.log.copy.disable  boolean  false  *  ignored
    Whether a tiered topic is no longer copied.
remote.log.delete.on.disable  boolean  false  *  ignored
    Whether remote data goes when tiering is disabled.
remote.storage.enable  boolean  false  *  refused
    Tiered storage (KIP-405); there is none, so enabling it is refused.
retention.bytes  long  -1  *  yes
    Bytes kept of each partition; -1 is no limit.
retention.ms  long  604800000  -1..  yes
    Milliseconds that records are kept; -1 is for ever.
segment.bytes  int  1073741824  14..  yes
    Largest size of a segment.
segment.index.bytes  int  10485760  4..  yes
    Largest size of an index file.
segment.jitter.ms  long  0  0..  yes
    Random milliseconds taken off segment.ms.
segment.ms  long  604800000  1..  yes
    Milliseconds after which a new segment begins.
unclean.leader.election.enable  boolean  false  *  yes
    Whether a replica that is not in sync may lead, and so lose records.
"""

BROKER: dict[str, Setting] = _rows(_BROKER, {}) | _rows(_KRUST, {})
"""The broker's settings by name: Kafka's in order of the alphabet, then krust's."""

TOPIC: dict[str, Setting] = _rows(_TOPIC, _SYNONYMS)
"""The settings of a topic by name."""
