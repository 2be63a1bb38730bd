"""The native core: the boundary between Python's decisions and the bytes that Rust moves.

Every call that can wait lets other threads run. Messages are dicts with Kafka's field names in
snake_case; topic ids are text of 22 characters ("A" * 22: none). Errors are `krust.errors`.

Of a client: a call that waits ends within 100 ms of Ctrl-C. What a broker refuses is KafkaError; no
broker, or no answer in time, UnreachableError; arguments that cannot be, ConfigError.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, final

from typing_extensions import disjoint_base

from krust.errors import KrustError
from krust.messages import Message, RequestContext

__all__ = [
    "COLUMNS",
    "EARLIEST",
    "LATEST",
    "AclQuestions",
    "ArrowBatch",
    "ArrowStream",
    "Client",
    "Consumer",
    "Delivered",
    "LogDump",
    "PrincipalRules",
    "Producer",
    "Record",
    "Sender",
    "Server",
    "ServerTls",
    "__version__",
    "decrypt",
    "encrypt",
    "error_info",
    "forked",
    "log_dir_verify",
    "log_requests",
    "log_verify",
    "logs",
    "offset_at",
    "partitions",
    "records",
    "scan",
    "served_apis",
]

__version__: str
COLUMNS: tuple[str, ...]
"""What can be known of a record, in the order of Spark's Kafka source; `scan` takes these names."""

LATEST: int
EARLIEST: int
"""Times for `Client.list_offsets`: the end of a partition, its start."""

_Headers = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]

def logs() -> list[tuple[int, str, str]]:
    """Take the core's log lines since the last call: level as `logging` counts, logger, text."""

def log_requests(wanted: bool) -> None:
    """Have each request be a line of `logs` at debug, or not any more. For the whole process."""

def encrypt(cipher: str, key: bytes, iv: bytes, text: bytes) -> bytes:
    """A text in AES. raises  ValueError: another cipher, a wrong length of key or IV

    cipher  AES/CBC/PKCS5Padding with an IV of 16 bytes, or AES/GCM/NoPadding with one of 12
    key     16, 24 or 32 bytes
    """

def decrypt(cipher: str, key: bytes, iv: bytes, encrypted: bytes) -> bytes | None:
    """What `encrypt` got; None: not with these. A wrong key may also give other bytes, by CBC."""

@final
class ServerTls:
    """The TLS of a listener (`ssl.*` by Kafka's names, files are read at once)."""

    def __new__(cls, settings: Mapping[str, str]) -> ServerTls:
        """Raises ConfigError: no usable key and certificate, an unknown name."""

    def replace(self, settings: Mapping[str, str]) -> None:
        """Use other settings for connections that begin from now on. raises as above."""

@final
class AclQuestions:
    """For which clients a user's class is asked for ACLs. One thread takes and answers them."""

    def take(self, timeout_ms: int) -> list[tuple[int, str, str, str]] | None:
        """The clients to ask for now; waits for the first. None: `close` was called.

        returns  (number of the question, user, address, listener)
        """

    def answer(self, number: int, rows: list[tuple[int, int, str, str, str, int, int]]) -> None:
        """A client's ACLs, as in a delta. raises  ConfigError: a number that ACLs do not have"""

    def refuse(self, number: int, retry_ms: int) -> None:
        """The class gave none: nothing is allowed. It is asked again after this time."""

    def close(self) -> None:
        """End the questions; `take` returns. Any thread may call it."""

@final
class PrincipalRules:
    """The rules by which the subjects of certificates become names; the first that matches counts.

    rules   (pattern, replacement, "" or "L" or "U"), or None, which is every subject itself
    raises  ConfigError: no pattern that krust has, a group that the pattern does not have
    """

    def __new__(cls, rules: list[tuple[str, str, str] | None]) -> PrincipalRules: ...
    def name(self, subject: str) -> str | None:
        """The name that a subject gets; None: no rule matches."""

@final
class Server:
    """The core of one broker: log directories, image, network threads.

    Order of calls: make it, `load`, `join`, `start`, `apply`, `listen`; then `events` and `answer`
    until `stop`. In a forked child every call raises ForkedError.
    """

    def __new__(cls, config: dict[str, Any]) -> Server:
        """Open the log directories. ServerError: in use, unwritable, of another cluster.

        config   node_id: int; cluster_id: str | None; log_dirs: [str]; temporary: bool (nothing is
                 synced); threads: int (0: by the processors); settings: {name: typed value}
        """

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the directories belong to, if they say so."""

    @property
    def connections(self) -> int:
        """How many connections are open."""

    def join(self, cluster_id: str) -> None:
        """Make the directories belong to a cluster. ServerError: they belong to another."""

    def load(self) -> list[dict[str, Any]]:
        """What partitions lie in the directories.

        returns   dicts of topic, partition, topic_id (None: unknown), leader_epoch (the last one in
                  the log, -1: none), clean (whether the last stop was), kind (live, delete, future
                  or stray)
        """

    def start(self) -> None:
        """Start the threads that sync, expire and checkpoint logs. Before the first `apply`."""

    def apply(self, delta: Message) -> list[tuple[str, int, str]]:
        """Bring a change to the image; make and delete logs. What failed: topic, partition, why.

        delta   version: int, above the last; and where they changed: cluster_id, controller_id,
                brokers: [{id, rack, endpoints: [(listener, host, port)]}], settings: {name: value},
                topics: {name: None (gone) | {id, internal, config: {name: typed value},
                partitions: [{partition, leader, leader_epoch, isr, replicas, partition_epoch}]}},
                by rising number: those that changed, all of a topic that is new or has another
                id; broker_epoch: this broker's registration; quotas: all of them, as
                [(entity, values)], entity a dict of "user", "client_id" and "ip" to a name or None
                (the default), values {name as Kafka's configs have it: float}; scram: all that log
                in by SCRAM, as [(user, mechanism, (salt, stored_key, server_key, iterations))];
                tokens: delegation tokens that changed, as [(id, (owner, HMAC, when it expires, in
                milliseconds) or None)]; acls: all of them, as [(resource type, pattern type, name,
                principal, host, operation, permission)] with Kafka's numbers
        """

    def recovered_ids(self) -> tuple[int, list[tuple[str, int, int]]]:
        """What the logs that `apply` opened prove: the first producer id that none of them has
        named; topic, partition and newest leader epoch of those where that is above the delta's, or
        the same while `leader-epoch-checkpoint` does not have it. Each is returned once.
        """

    def recovery_progress(self) -> tuple[int, int, int, int]:
        """How far the opening of logs is, while `apply` does it: logs opened, of how many; bytes
        checked, of how many. From any thread, at any time.
        """

    def cancel_start(self) -> None:
        """Have `apply` soon end with a ServerError, now or the next time, whatever logs are not
        open; the next start recovers them. From any thread.
        """

    def set_inter_broker_security(
        self,
        tls: Mapping[str, str] | None,
        login: tuple[str, str, str] | None,
        tokens: Callable[[], tuple[str, list[tuple[str, str]]]] | None = None,
    ) -> None:
        """Secure new connections to other brokers. raises  ConfigError: as those of clients

        tls     `ssl.*` by Kafka's names; None: plain text
        login   mechanism, user and password; None: no login
        tokens  returns a token of OAUTHBEARER and its extensions; called at each login, on the
                thread of the connection, so it must not wait. None: another mechanism
        """

    def set_logins(
        self,
        listeners: Mapping[
            str,
            tuple[
                list[tuple[str, int]],
                dict[str, str],
                tuple[str | None, list[str], int, str] | None,
            ],
        ],
    ) -> None:
        """Ask the clients of these listeners to log in by SASL, from the next connection on.

        listeners   by name: (mechanism, milliseconds that a login lasts or 0) in the order in which
                    clients see them; users of PLAIN with their passwords; and what OAUTHBEARER asks
                    of tokens: issuer or None, audiences or none, clock skew in milliseconds, the
                    claim with the user's name
        """

    def set_token_keys(self, listener: str, keys: bytes) -> int:
        """Check a listener's tokens of OAUTHBEARER with these keys, from the next login on. Returns
        how many of them can be used. raises  ConfigError: they are no JSON web key set, or none can

        keys    a set of public keys in JSON (RFC 7517)
        """

    @property
    def missing_token_keys(self) -> int:
        """How many tokens of OAUTHBEARER had a key that is in no set, since the start."""

    def set_principal_rules(self, listeners: Mapping[str, PrincipalRules]) -> None:
        """Name the clients of these listeners by their certificates, from the next connection on.
        Of other listeners without a login, the name is the certificate's subject.
        """

    def set_authorizer(self, super_users: list[str], allow_everyone: bool) -> None:
        """Allow clients only what ACLs allow them. Call it once, before listeners open.

        super_users     principals that may do everything, such as `User:admin`
        allow_everyone  whether everyone may use a resource that no ACL is for
        raises          ConfigError: a principal is no user
        """

    def set_authorizer_class(
        self, super_users: list[str], allow_everyone: bool, times: tuple[int, int]
    ) -> AclQuestions:
        """The same, but a user's class gives the ACLs of each client, when it is asked.

        times  after how long it is asked again, and how long a call may take, in milliseconds
        """

    @property
    def failed_logins(self) -> int:
        """How many logins have failed since the start."""

    def listen(
        self, listeners: list[tuple[str, str, int]], tls: Mapping[str, ServerTls]
    ) -> list[tuple[str, str, int]]:
        """Accept connections at (name, host, port); what was bound. ServerError: it cannot be.

        listeners   host "localhost" is 127.0.0.1 and ::1, "" every address; port 0 a free one
        tls         of the listeners that are encrypted, by their names
        """

    def events(self, timeout_ms: int) -> list[tuple[int, str, int, Message, RequestContext]] | None:
        """All requests that wait for a decision; waits for the first. None: it has stopped.

        returns   (ticket, API's name, version, request, client: {id, host, listener, connection: a
                  number never used twice}); with ticket 0 notifications, which get no answer:
                  SessionExpired {group_id, members: [member_id]}, GroupsLoaded {partition, groups:
                  [{group_id, value: dict | None}], records: [[group_id, kind, key, value]]},
                  OffsetsExpired {group_id}. groups: classic ones, and each that `reload_groups`
                  named; records: what lives of consumer groups, in the log's order, keys without
                  the group; of a group with a record of kind 3 a row has to be published, whatever
                  it says
        """

    def wakeup(self) -> None:
        """Make `events` return at once, now or the next time. From any thread."""

    def answer(self, ticket: int, response: Message) -> None:
        """Answer an event. ValueError, TypeError: that is no response of its API."""

    def apply_group_outcome(
        self,
        records: Sequence[
            tuple[str, Message | str | Sequence[tuple[int, Message, Message | None]] | None]
        ],
        snapshots: Sequence[tuple[str, Message | None]],
        replies: Sequence[tuple[int, Message, Sequence[str]]],
    ) -> list[str]:
        """Append records, then publish snapshots, then send replies once the records are committed.

        records   (group, its metadata as a classic one, None: tombstone of that, or "drop_offsets":
                  tombstones of all that it committed, or [(kind, key, value or None: tombstone)] of
                  a consumer group: Kafka's kinds 3-8 and 16, keys without the group); those of one
                  group are one batch
        snapshots (group, None: gone, or {state, generation, protocol_type, since_ms, subscribed,
                  members: {member_id: {instance_id, session_timeout_ms, timed, connection}}});
                  of a consumer group {type: "consumer", state, epoch, since_ms, subscribed,
                  heartbeat_interval_ms, members} whose members have also {epoch,
                  has_current_assignment}, or {classic: True, epoch, rejoin} where they speak the
                  classic protocol
        replies   (ticket, response, the groups whose logs it waits for; none: it waits until all
                  records of the call are appended or have failed)
        returns   the groups whose append failed. Their snapshots are not published, and the tickets
                  of all replies that wait for one of them stay open
        raises    ValueError, TypeError: an argument is malformed; the message says where. Nothing
                  was done
        """

    def has_offsets(self, group_id: str) -> bool:
        """Whether a group has committed an offset that is kept."""

    def groups_with_offsets(self) -> list[str]:
        """The groups that have committed an offset that is kept."""

    def match_topics(self, pattern: str) -> list[str]:
        """Return the topics, sorted, whose whole name matches a pattern; internal ones too.

        pattern   RE2's syntax; the time is linear in its length
        raises    ValueError: it is none, or too large
        """

    def segments(
        self, topics: Sequence[str]
    ) -> list[tuple[str, str, int, int, list[tuple[int, int, int, int]]]]:
        """The segments of the partitions of these topics that live here, whose disk works.

        returns   (log directory, topic, partition, high watermark, segments oldest first: (base
                  offset, next offset, bytes, largest timestamp in ms))
        """

    def disk_space(self, directory: str) -> tuple[int, int]:
        """Free and total bytes of a log directory's file system. ServerError: it cannot be read."""

    def drop_segments(self, topic: str, partition: int, below: int) -> int:
        """Drop whole segments below an offset; how many went.

        It never drops the active one or one above the high watermark. ServerError: the disk failed.
        """

    def log_dirs(self) -> list[tuple[str, bool, list[tuple[str, int, bool]]]]:
        """The log directories and what lies in them.

        returns   (path, whether it is online, (topic, partition, whether it is a copy on its way))
        """

    def place_replica(self, topic: str, partition: int, directory: str) -> None:
        """Have a replica's log move to another log directory, in the background.

        A replica that is not here is made there when it comes. Where the log lies already, a move
        that is under way ends. ServerError: there is no such directory, or it is offline.
        """

    def lags(self, group_id: str, topics: Sequence[str]) -> list[tuple[str, int, int]]:
        """How many records a group has still to read: (topic, partition, records).

        Only of partitions that live here and that it has committed an offset of.
        """

    def reload_groups(self, group_ids: Sequence[str]) -> None:
        """Read groups again. The notification GroupsLoaded names each, None: it has no record.

        A group whose partition is not here is not named.
        """

    def memory(self) -> tuple[int, int, int, int]:
        """The memory that requests cost, read buffers apart.

        returns   limit, leased now, most leased at once (all bytes), leases refused
        """

    def reset_memory_peak(self) -> None:
        """Measure the most that is leased from now on."""

    def take_longest_work(self) -> int:
        """The most work that a network thread did before it let others go first, in bytes of
        requests, answers and what was inflated; the next call measures from now on.
        """

    def pause(self) -> None:
        """Answer nobody until `resume`; connections stay. Nothing leaves when this returns."""

    def resume(self) -> None:
        """Go on after `pause`."""

    def cut_off(self, brokers: set[int]) -> None:
        """Connect to none of these brokers; the set replaces the one before. Any thread."""

    def stop(self) -> None:
        """Close connections, logs and directories. Nothing but `stop` works after it."""

@final
class Client:
    """Any API of Kafka's by name, over one connection a broker.

    bootstrap  "host:port,host:port"
    options    client properties: client.id, request.timeout.ms, retry.backoff.ms,
               socket.connection.setup.timeout.ms, security.protocol (PLAINTEXT)
    """

    def __new__(cls, bootstrap: str, options: dict[str, object] | None = None) -> Client: ...
    def request(
        self,
        api: str,
        body: dict[str, Any],
        version: int | None = None,
        *,
        broker: int | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the answer, at `version` or the newest both sides know.

        Missing fields have Kafka's defaults. What only the controller answers goes there by itself.
        """

    def versions(self, broker: int | None = None) -> list[tuple[int, str | None, int, int]]:
        """(key, name, first version, last version) of each API the broker serves."""

    def list_offsets(
        self, moments: Sequence[tuple[str, int, int]], *, read_committed: bool = False
    ) -> list[tuple[str, int, int, int, int]]:
        """Offsets by time.

        moments  (topic, partition, time): milliseconds, LATEST or EARLIEST
        returns  (topic, partition, time asked, offset, time of the record); -1: none
        """

    def end(self) -> None:
        """From any thread: calls that wait end with KeyboardInterrupt, now and from now on."""

    def close(self) -> None:
        """End the connections, once a call that runs is over; later ones raise ConfigError."""

@final
class Producer:
    """Records into batches; nothing is sent between calls.

    options  those of Client, and acks, batch.size, buffer.memory, compression.type,
             compression.level, delivery.timeout.ms, enable.idempotence, linger.ms,
             max.request.size, allow.auto.create.topics, transactional.id,
             transaction.timeout.ms
    """

    def __new__(cls, bootstrap: str, options: dict[str, object] | None = None) -> Producer: ...
    def send(
        self,
        topic: str,
        records: Sequence[
            tuple[
                bytes | None,
                bytes | None,
                list[tuple[str, bytes | None]],
                int | None,
                int | None,
            ]
        ],
    ) -> None:
        """Add records: (key, value, headers, partition or by key, timestamp in ms or now)."""

    def send_block(
        self,
        topic: str,
        block: bytes,
        fields: Sequence[tuple[str, bytes]],
        *,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
        empty_is_null: bool,
        limit: int | None,
    ) -> tuple[int, int]:
        """Cut a block into records and add them, at most `limit`: (records, bytes they took).

        fields  letter (k, v, or one that is passed over) and the literal that ends it, in order
        key     of records whose fields have none; headers and partition are those of all
        """

    def repeat(self, topic: str, value: bytes, count: int, *, partition: int | None = None) -> None:
        """Add the same value `count` times, without a key."""

    def poll(self) -> None:
        """Send what has waited `linger.ms`, take what answers are here; waits for nothing."""

    def flush(self) -> None:
        """Send all, and wait until each batch is acknowledged or has failed."""

    def begin_transaction(self) -> None:
        """Begin a transaction; claims the `transactional.id` first, if that is not done."""

    def commit_transaction(self) -> None:
        """Send all, and commit."""

    def abort_transaction(self) -> None:
        """Drop what is not sent, and abort."""

    def delivered(self) -> list[tuple[str, int, int, int, KrustError | None]]:
        """(topic, partition, base offset, records, error) of each batch since the last call."""

@final
class Delivered:
    """Where a record was written; `offset` is -1 where it was not, or the broker did not say."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...

@disjoint_base
class Sender:
    """Records into batches, sent by a thread of its own that never meets the interpreter.

    options  those of Producer; max.block.ms: how long a topic may take to be known; and
             metadata.max.age.ms: when it is looked up again, for partitions it has grown
    """

    def __new__(cls, bootstrap: str, options: dict[str, object] | None = None) -> Self: ...
    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int | None = None,
        on_delivery: Callable[[KrustError | None, Delivered], object] | None = None,
        timestamp_ms: int | None = None,
        headers: _Headers | None = None,
    ) -> None:
        """Add a record; waits while the topic is looked up or the buffer is full.

        partition    None or -1: by the key (Kafka's murmur2), without a key one a batch
        on_delivery  called with (error, where) by `serve`, `drain`, and a `produce` that waits
        headers      pairs or a dict; text is written as UTF-8, as in key and value
        raises       KafkaError: no such topic or partition; UnreachableError: max.block.ms is over
        """

    def try_produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int | None = None,
        on_delivery: Callable[[KrustError | None, Delivered], object] | None = None,
        timestamp_ms: int | None = None,
        headers: _Headers | None = None,
    ) -> bool:
        """Add a record if that needs no waiting; False: try again when `fileno` is readable."""

    def append(self, table: object, *, columns: dict[str, str], topic: str | None = None) -> int:
        """Add a record for each row of an Arrow table; how many. Waits as `produce` does.

        table    any object with `__arrow_c_stream__` or `__arrow_c_array__`
        columns  role -> column: key, value (binary or text), headers (list of {key, value}, map),
                 partition (null, -1: by the key), timestamp (or milliseconds; null: now), topic
        topic    where all go, whatever the column `topic` says
        raises   ConfigError: a column is missing, of another type, or a row cannot be a record;
                 the rows before it are on their way. OSError: the table's own failure
        """

    def serve(self) -> int:
        """Call what waits for deliveries; how many batches there was news of."""

    def drain(self, timeout_ms: int) -> int:
        """Send all, wait for the answers, `serve`; how many batches are left after the time."""

    def take_failures(self) -> tuple[KrustError, int] | None:
        """The first failure since the last call and how many records it and others cost.

        Only records without `on_delivery` count.
        """

    def init_transactions(self) -> None:
        """Claim the `transactional.id`: fence and end what an earlier producer left open.

        `begin_transaction` does it too. Does nothing if it is done.
        """

    def begin_transaction(self) -> None:
        """Begin a transaction."""

    def add_offsets(
        self,
        group: tuple[str, int, str, str | None],
        offsets: Sequence[tuple[str, int, int]],
    ) -> None:
        """Commit offsets of a group when the transaction commits.

        group    group id, generation, member id, instance id
        offsets  topic, partition, offset of the next record to read
        """

    def end_transaction(self, commit: bool, timeout_ms: int) -> None:
        """Commit or abort; calls no callback. The records may take `timeout_ms`."""

    def hand_over(
        self, timeout_ms: int
    ) -> tuple[tuple[int, int, bool], list[tuple[str, int, int, int, int]]]:
        """Deliver the records and leave the transaction open: another process ends it.

        returns  producer id, epoch, whether it is version 2 (EndTxn 5); and where its records are:
                 topic, partition, first offset, last offset, number of records
        """

    def in_transaction(self) -> bool:
        """Whether a transaction is open, or its end is unfinished."""

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""

    def held_bytes(self) -> int:
        """Bytes of records that are not delivered."""

    def fileno(self) -> int:
        """A descriptor that is readable when there is news: deliveries, a topic, room.

        raises  ConfigError: it has ended
        """

    def end(self) -> None:
        """Stop the thread and end the connections; what is not delivered is lost.

        Nothing else works after it.
        """

@final
class Record:
    """A record that was read. timestamp_type: 0 the producer's time, 1 the broker's, -1 none."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...

@final
class Consumer:
    """Reads assigned partitions, from all their leaders at once.

    options  those of Client, and fetch.min.bytes, fetch.max.wait.ms, fetch.max.bytes,
             max.partition.fetch.bytes, isolation.level, krust.report.out.of.range (true:
             `out_of_range` lists partitions whose offset is out of range; each waits for `seek`)
    """

    def __new__(cls, bootstrap: str, options: dict[str, object] | None = None) -> Consumer: ...
    def assign(
        self, assignments: Sequence[tuple[str, int, int, int | None]], *, keep: bool = False
    ) -> None:
        """Read these: (topic, partition, first offset, first offset not wanted or None).

        keep  go on reading what was assigned before, too
        """

    def unassign(self, positions: Sequence[tuple[str, int]]) -> None:
        """Read these no more; what was fetched of them is dropped."""

    def seek(self, topic: str, partition: int, offset: int) -> bool:
        """Go on from another offset; False: that partition is not assigned."""

    def pause(self, positions: Sequence[tuple[str, int, int]]) -> None:
        """Fetch nothing of (topic, partition, offset to go on from) until `resume`."""

    def resume(self, positions: Sequence[tuple[str, int]]) -> None:
        """Fetch these again."""

    def poll(
        self, timeout_ms: int, limit: int = 1000
    ) -> tuple[list[Record], list[tuple[str, int, int]]]:
        """Up to `limit` records, waiting for the first; where each partition of them goes on.

        A position may move without a record: gaps of compaction or transactions are skipped.
        """

    def poll_arrow(
        self,
        timeout_ms: int,
        columns: Sequence[str],
        batch_rows: int = 65536,
        batch_bytes: int = 8388608,
    ) -> tuple[ArrowBatch, list[tuple[str, int, int]]]:
        """What has come as Arrow columns, waiting for the first; where each partition goes on.

        See `scan` about columns and sizes.
        """

    def count(self, timeout_ms: int) -> tuple[int, int]:
        """Walk what comes without giving it out: records, bytes of their batches."""

    def done(self) -> bool:
        """Whether every partition has reached its end, and all was given out."""

    def positions(self) -> list[tuple[str, int, int, int]]:
        """(topic, partition, next offset fetched, high watermark or -1)."""

    def out_of_range(self) -> list[tuple[str, int, int]]:
        """Partitions whose offset is out of range: (topic, partition, offset)."""

    def close(self) -> None:
        """End the connections, and fetch sessions without waiting for an answer.

        Later calls raise ConfigError.
        """

def records(topic: str, partition: int, first: int, fetched: bytes) -> list[Record]:
    """The records from offset `first` on in what a broker answered to a Fetch.

    What was cut at the end is left out. KafkaError (2): what is there is no batch.
    """

@final
class ArrowBatch:
    """One batch of records by the Arrow PyCapsule interface; may be read any number of times."""

    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...

@final
class ArrowStream:
    """Batches of records by the Arrow PyCapsule interface, read once, as the reader asks for them.

    A reader is pyarrow, polars, duckdb, Spark ... whatever knows `__arrow_c_stream__`. It sees a
    failure as an error of its own; `failure` is what is behind it.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def failure(self) -> BaseException | None:
        """Why the stream ended early, if it did: a KrustError, or KeyboardInterrupt."""

    def positions(self) -> list[tuple[str, int, int]]:
        """(topic, partition, next offset) of each range, behind the batches that were read."""

    def skipped(self) -> list[tuple[str, int, int, int]]:
        """(topic, partition, from, up to) of offsets that were gone, with lost="skip"."""

def scan(
    ranges: Sequence[tuple[str, int, int, int]],
    columns: Sequence[str],
    *,
    bootstrap: str | None = None,
    options: dict[str, object] | None = None,
    data_dirs: Sequence[str | Path] | None = None,
    batch_rows: int = 65536,
    batch_bytes: int = 8388608,
    lost: str = "fail",
) -> ArrowStream:
    """Offsets of partitions as Arrow columns; nothing is fetched before the stream is read.

    ranges       (topic, partition, first offset, first offset not wanted): one a partition
    columns      of key, value, topic, partition, offset, timestamp, timestampType, headers: any, in
                 any order; those of Spark's Kafka source
    bootstrap    brokers to read from, with `options`: those of Consumer, and
                 default.api.timeout.ms (60000): how long to wait where nothing comes
    data_dirs    log directories to read from instead, of a live broker or none; of `options` only
                 isolation.level holds
    batch_rows   a batch is closed at so many records, or at `batch_bytes` of keys, values, headers
    lost         offsets that are gone: "fail", or "skip" them (and topics that are gone)
    raises       ConfigError
    """

def partitions(
    data_dirs: Sequence[str | Path], topic: str, *, read_committed: bool = False
) -> list[tuple[int, int, int]]:
    """(partition, first offset, next offset) of each partition in log directories.

    read_committed  the next offset is that of the first open transaction, where there is one
    raises          KafkaError: no such topic there (3), damaged files, an unreadable directory
    """

def offset_at(
    data_dirs: Sequence[str | Path], topic: str, partition: int, timestamp_ms: int
) -> int:
    """The first offset whose record is not older than a time, in log directories; -1: none."""

@final
class LogDump:
    """The batches of one `.log` file, read without a broker."""

    def __new__(cls, path: str | Path) -> LogDump: ...
    def read(self, limit: int, *, records: bool = False) -> list[dict[str, Any]]:
        """The next batches as dicts; empty at the end.

        `problem` says what is wrong with one. With `records`, each has `records`:
        (offset, timestamp in ms, key, value, headers).
        """

def log_verify(directory: str | Path) -> list[tuple[str, int, str, str]]:
    """What is wrong in a partition's directory: (file, position in bytes, what, what to do)."""

def log_dir_verify(directory: str | Path) -> list[tuple[str, int, str, str]]:
    """What is wrong with a log directory's own files: as `log_verify`."""

def forked() -> None:
    """Tell the module that this process is a child made by fork: clients made before refuse."""

def served_apis() -> list[
    tuple[
        int,
        str,
        int,
        int,
        Literal["client", "broker", "controller", "administrator"],
        Literal["network", "policy"],
    ]
]:
    """The API table: key, Kafka's name, oldest and newest version, who may send it, where it is
    handled. What a broker or the controller sends is served on the brokers' own listener only.
    """

def error_info(code: int) -> tuple[str, bool]:
    """Kafka's name of an error code, and whether the same request may succeed later."""
