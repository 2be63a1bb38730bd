"""The controller's state: all that it has read of the znode tree, and the types of decisions.

A decision is a generator that decides one request. It yields lists of store operations (each
list is a transaction), is resumed with their answers, changes the state only after a transaction
has succeeded, and returns the response. It reads no clock and no random source; the runtime hands
both in by Request and state. Only what encrypts passwords has random bytes of its own.
Threads: the policy thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from typing import NamedTuple as GenericNamedTuple

from krust import authorizer
from krust.config import converted
from krust.controller.changes import Changes
from krust.controller.delegation_tokens import DelegationTokens
from krust.controller.offline_replicas import OfflineReplicas
from krust.controller.pace import PAUSE
from krust.controller.quotas import Buckets
from krust.controller.returned_brokers import ReturnedBrokers
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.contents import PartitionState
from krust.metadata.store import (
    ANY,
    LARGEST,
    Check,
    Create,
    MultiResult,
    Operation,
    Refusal,
    SetData,
    size,
)
from krust.named_tuple import NamedTuple
from krust.password_encoder import PasswordEncoder
from krust.settings import BROKER, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from krust.config import Config
    from krust.controller.acl_nodes import AclEntry
    from krust.controller.acls import AclBinding, ResourcePattern
    from krust.controller.delegation_tokens import DelegationToken
    from krust.controller.entities import LiveBroker, Partition, Topic, TopicDeletion
    from krust.controller.quotas import QuotaOwner, QuotaTable
    from krust.controller.scram import ScramCredential
    from krust.listeners import SettingLookup
    from krust.messages import RequestContext
    from krust.settings import Values

ReqT = TypeVar("ReqT")
RespT = TypeVar("RespT")

Transactions = list[list[Operation]]
Decision = Generator[Transactions, list[MultiResult], RespT]
"""Yields transactions, is sent their answers, returns a response."""
Steps = Generator[Transactions, list[MultiResult], None]
"""The same, without a response."""

INTERNAL = ("__consumer_offsets", "__transaction_state")

NO_TOPIC_ID = "A" * 22
"""16 zero bytes"""

_INFO, _WARNING = 20, 30
"""`logging.INFO`, `logging.WARNING`"""

NO_NODE_VERSION = -2
"""a version that no node has: a Check of it always fails (-1 would match any version)"""


class RefusedError(Exception):
    """One item of a request is refused, with Kafka's code and a message for the caller."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


LOG_BROKER_SETTINGS = (
    "krust.flush.mode",
    "krust.partition.producers.max",
    "producer.id.expiration.ms",
)
"""Settings of the broker that each log needs."""


def refused_code(reason: Refusal) -> Code:
    """The code for a client whose write the store refused.

    NOT_CONTROLLER if nothing was written, so that the client asks again; REQUEST_TIMED_OUT if the
    outcome is unknown.
    """
    if reason in (Refusal.BAD_VERSION, Refusal.NOT_APPLIED):
        return Code.NOT_CONTROLLER
    return Code.REQUEST_TIMED_OUT if reason is Refusal.UNKNOWN else Code.UNKNOWN_SERVER_ERROR


def chunks(fence: Check, operations: list[Operation], *other: Operation) -> list[list[Operation]]:
    """Split operations into transactions of legal size. Each starts with the epoch check, and has
    the other checks too.
    """
    found: list[list[Operation]] = [[fence, *other]]
    room = LARGEST // 2
    for each in operations:
        need = size([each])
        if need > room and len(found[-1]) > 1 + len(other):
            found.append([fence, *other])
            room = LARGEST // 2
        found[-1].append(each)
        room -= need
    return found


def write_all(
    planned: list[list[list[Operation]]],
) -> Generator[Transactions, list[MultiResult], list[Refusal | None]]:
    """Write lists of transactions. Returns for each list the reason of its failure, or None."""
    refused: list[Refusal | None] = [None] * len(planned)
    step = 0
    while True:
        going = [
            index
            for index, transactions in enumerate(planned)
            if refused[index] is None and step < len(transactions)
        ]
        if not going:
            return refused
        answers = yield [planned[index][step] for index in going]
        for index, done in zip(going, answers, strict=True):
            refused[index] = done.refused
        step += 1
        if any(step < len(planned[index]) for index in going):
            yield PAUSE


def flattened(name: str) -> str:
    """A topic's name as metrics show it: `.` and `_` become the same character."""
    return name.replace(".", "_")


class Request(GenericNamedTuple, Generic[ReqT]):
    """A request for a decision. `ReqT` is the TypedDict of its message."""

    api: str
    version: int
    message: ReqT
    client: RequestContext
    now_ms: int


class BrokerRequest(NamedTuple):
    """A request of the controller to another broker, or of a broker to the controller.

    The sender picks the version, and hands this same object back with the answer.
    """

    broker: int
    api: str
    message: Any
    """the TypedDict of the API, with the fields of the newest version"""


class ConfigEntity:
    """The dynamic settings of one broker, or of all.

    version  the version of its znode; -1: there is no znode
    sealed   passwords that cannot be decoded, as they are stored
    """

    def __init__(
        self,
        config: dict[str, str] | None = None,
        version: int = -1,
        sealed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.config = {} if config is None else config
        self.version, self.sealed = version, sealed


class FinalizedFeatures(NamedTuple):
    """The cluster's finalized features (KIP-584)."""

    transaction_version: int = 0
    """the level of `transaction.version`"""
    epoch: int = -1
    """-1: they were not read yet"""


class JobRequests:
    """What decisions leave to the controller's jobs."""

    def __init__(self) -> None:
        self.outdated: set[str] = set()
        """topics that have to be read again"""
        self.wanted: set[str] = set()
        """jobs to run"""


class ControllerState:
    """The cluster, as far as this broker has read it."""

    knows_topics = False
    """a controller has named the topics to this process, or this is one that has read them"""
    is_new_cluster = False
    """this start gave the cluster its id"""
    unreported_failure = False
    """whether the controller has still to hear which replicas of this broker are on failed disks"""
    shared = False
    """others use the tree too"""
    has_authorizer: bool
    """ACLs are read, obeyed and changed"""
    acls: dict[ResourcePattern, frozenset[AclEntry]]
    """who may do what; empty without an authorizer"""
    passwords: PasswordEncoder | None
    """encrypts the passwords among stored settings; None: none is stored"""
    tokens: DelegationTokens
    """by which clients log in as others; none without a key in the settings"""

    check_listeners: Callable[[SettingLookup], None] = staticmethod(lambda _: None)
    """ConfigError: this broker's listeners cannot use the settings"""

    def __init__(self, config: Config, new_id: Callable[[], str], node_id: int) -> None:
        self.config, self.passwords = config, PasswordEncoder.of(config.text)
        """what this broker was started with"""
        self.new_id = new_id
        """a new random topic id, 22 characters"""
        self.node_id = node_id
        self.session = 0
        """of the store: who made an ephemeral node"""
        self.broker_epoch = -1
        """the czxid of this broker's registration"""
        self.kept_epoch = -1
        """no record of this broker is lost since the registration with this epoch"""
        self.cluster_id = ""
        self.is_controller = False
        """this broker is the controller"""
        self.term = 0
        """counts how often this broker became the controller, and resigned"""
        self.controller_id = -1
        """who is; -1: nobody, as far as is known"""
        self.controller_epoch = 0
        """the latest heard of: what an older controller says is refused"""
        self.epoch_version = NO_NODE_VERSION
        """of `/controller_epoch`, while this broker is the controller"""
        self.last_control_connection: tuple[int, int] = (-1, 0)
        """the epoch of the controller heard last, and the number of its connection"""
        self.brokers: dict[int, LiveBroker] = {}
        """those that are alive, by number"""
        self.brokers_version = ANY
        """of `/brokers/ids` when they were read"""
        self.keeping_elr: set[int] = set()
        """those among them that follow KIP-966: all but Kafkas"""
        self.registrations: dict[int, int] = {}
        """each broker's last epoch in this term, or the zxid since which it must have kept all"""
        self.for_jobs = JobRequests()
        """what decisions leave to the controller's jobs"""
        self.risks: Counter[str] = Counter()
        """how many elections may have cost acknowledged records, by `leaders.Risk`"""
        self.topics: dict[str, Topic] = {}
        self.names: dict[str, str] = {}
        """topic id -> name"""
        self.flat: dict[str, str] = {}
        """name as metrics show it -> name"""
        self.logs_on_disk: set[tuple[str, int]] = set()
        """partitions on disk here that no controller has named yet"""
        self.damaged: set[str] = set()
        """topics that are in the tree and cannot be read"""
        self.deletions: dict[str, TopicDeletion] = {}
        """topics on their way out, whose names are taken until they are gone"""
        self.leaving: set[int] = set()
        """brokers that said that they will stop"""
        self.returned = ReturnedBrokers()
        self.offline = OfflineReplicas()
        """replicas on failed disks"""
        self.placed = 0
        """how many partitions were placed: the next one goes to the next broker"""
        self.own, self.everywhere = ConfigEntity(), ConfigEntity()
        """dynamic settings of this broker, and of all brokers"""
        self.groups: dict[str, ConfigEntity] = {}
        """dynamic settings of single groups, which need not exist"""
        self.quotas: QuotaTable = {}
        """what users, clients and addresses may use"""
        self.credentials: dict[str, dict[str, ScramCredential]] = {}
        """what proves who users are, by mechanism"""
        self.has_authorizer, self.acls = authorizer.is_configured(config.text), {}
        self.tokens = DelegationTokens(config.text)
        self.buckets = Buckets()
        """how much of it changes of topics have used here"""
        self.features = FinalizedFeatures()
        self.changes = Changes()
        self._defaults: Values = {}

    def fence(self) -> Check:
        """The check that fails a transaction if this broker is not the controller.

        The version is that of this broker's own election, not one that was read later. So no
        decision of an earlier term writes with the epoch of the next controller.
        """
        return Check(znodes.CONTROLLER_EPOCH, self.epoch_version)

    def same_brokers(self) -> Check:
        """The check that fails a transaction if a krust was registered since the last read.

        So a state names no replica that has lost records since it was in the ISR, and the next
        controller sees in the zxid of the state which registrations the writer knew.
        """
        return Check(znodes.BROKERS, self.brokers_version)

    def write_of(self, name: str, index: int, partition: Partition) -> Operation:
        """The write that makes a partition's state equal to `partition`, version included."""
        fields = (
            self.controller_epoch,
            partition.leader,
            partition.leader_epoch,
            partition.isr,
            partition.elr,
            partition.lossy,
        )
        data, path = PartitionState(*fields).encode(), znodes.state(name, index)
        if partition.version == 0:
            return Create(path, data)
        return SetData(path, data, partition.version - 1)

    def become_controller(self, epoch: int, version: int) -> None:
        """Note a won election. `is_controller` becomes true when the whole tree has been read."""
        self.term += 1
        self.controller_id, self.controller_epoch = self.node_id, epoch
        self.epoch_version = version
        self.changes.controller = True

    def serve_as_controller(self) -> None:
        """Decide requests from now on, as the controller."""
        self.is_controller = self.knows_topics = self.changes.controller = True

    def set_controller(self, controller_id: int, epoch: int = 0) -> None:
        """Another broker is the controller (-1: unknown). If this broker was, it resigns."""
        if self.is_controller or self.epoch_version != NO_NODE_VERSION:
            self.is_controller, self.epoch_version = False, NO_NODE_VERSION
            self.term += 1
            self.deletions.clear()
            self.leaving.clear()
            self.registrations.clear()
            self.returned.clear()
        if self.controller_id != controller_id:
            self.controller_id, self.changes.controller = controller_id, True
        self.controller_epoch = max(self.controller_epoch, epoch)

    @property
    def knows_leaders(self) -> bool:
        """Whether this broker knows the leaders: the controller sent them, or it is the controller.

        A new controller adds itself to the brokers before it reads the topics.
        """
        return self.is_controller or (self.knows_topics and self.node_id in self.brokers)

    def put(self, topic: Topic) -> None:
        """Add or replace a topic."""
        self.topics[topic.name] = topic
        self.names[topic.id] = topic.name
        self.flat[flattened(topic.name)] = topic.name
        self.changes.topics[topic.name] = topic

    def add_created(self, topic: Topic) -> None:
        """Add a created topic, unless it was read or deleted in the meantime."""
        if topic.name not in self.topics and topic.name not in self.deletions:
            self.put(topic)

    def drop(self, name: str) -> None:
        """Remove a topic."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self.names.pop(topic.id, None)
        self.flat.pop(flattened(name), None)
        self.changes.topics[name] = None

    def current_topic(self, name: str, topic_id: str) -> Topic | None:
        """The topic with this name and id; None: it was deleted or replaced in the meantime."""
        topic = self.topics.get(name)
        return topic if topic is not None and topic.id == topic_id else None

    def merge_topic(self, topic: Topic) -> None:
        """Merge a topic that was read. Newer partitions and settings in the state stay."""
        now = self.current_topic(topic.name, topic.id)
        if now is not None:
            first, second = (now, topic) if now.version > topic.version else (topic, now)
            parts = zip(topic.partitions, now.partitions, first.partitions, strict=False)
            kept = tuple(
                (old if old.version > new.version else new).assigned_as(assigned)
                for new, old, assigned in parts
            )
            topic = first._replace(partitions=kept + first.partitions[len(kept) :])
            if second.config_version > first.config_version:
                config, version = second.config, second.config_version
                topic = topic._replace(config=config, config_version=version)
        if now != topic:
            self.put(topic)

    def lose_topic(self, name: str, why: str) -> None:
        """Stop serving a topic that left the tree without a deletion. Its files stay."""
        topic = self.topics[name]
        self.fault(znodes.topic(name), why)
        self.drop(name)
        self.changes.strays |= {(name, index) for index in range(len(topic.partitions))}

    def update_partitions(self, topic: Topic, moved: Mapping[int, Partition]) -> None:
        """Apply written partitions of a topic. Newer partitions in the state stay.

        The replicas stay too: a reassignment may have been written since these were decided.
        """
        now = self.current_topic(topic.name, topic.id)
        if now is None:
            return
        partitions = list(now.partitions)
        for index, partition in moved.items():
            if index < len(partitions) and partitions[index].version < partition.version:
                partitions[index] = partition.assigned_as(partitions[index])
        self.put(now._replace(partitions=tuple(partitions)))

    def add_broker(self, broker: int, live: LiveBroker) -> None:
        """Add a live broker, or replace its registration."""
        if self.brokers.get(broker) != live:
            self.brokers[broker] = live
            self.changes.live = True
        (self.keeping_elr.discard if live.kept_epoch is None else self.keeping_elr.add)(broker)

    def must_have_kept_since(self, broker: int, zxid: int) -> None:
        """A dead broker was in an ISR of that time: it may lead if it lost nothing since."""
        self.registrations[broker] = min(self.registrations.get(broker, zxid), zxid)

    def remove_broker(self, broker: int) -> None:
        """Remove a broker that is no longer alive."""
        self.keeping_elr.discard(broker)
        if self.brokers.pop(broker, None) is not None:
            self.changes.live = True

    def fault(self, path: str, why: object) -> None:
        """Log that a znode is ignored."""
        self.changes.faults.append((path, str(why)))

    def note(self, text: str) -> None:
        """Log what has happened."""
        self.changes.lines.append((_INFO, text))

    def warn(self, text: str) -> None:
        """Log a warning for the operator."""
        self.changes.lines.append((_WARNING, text))

    def take_changes(self) -> Changes:
        """The changes since the last call."""
        changes, self.changes = self.changes, Changes()
        return changes

    def broker_text(self, name: str) -> str | None:
        """The effective broker setting: of this broker, of all brokers, static, default."""
        return self.layered_text(name, self.own.config, self.everywhere.config)

    def layered_text(self, name: str, *dynamic: Mapping[str, str]) -> str | None:
        """A broker setting: of the first of these that has it, static, default."""
        found = next((each for each in dynamic if name in each), None)
        return self.config.text(name) if found is None else found[name]

    def topic_text(self, topic: Topic | None, name: str) -> str | None:
        """The effective topic setting, in its own unit."""
        if topic is not None and name in topic.config:
            return topic.config[name]
        for synonym in TOPIC[name].synonyms:
            text = self.broker_text(synonym)
            if text is not None:
                return converted(name, synonym, text)
        return TOPIC[name].default

    def topic_values(self, topic: Topic) -> Values:
        """All settings that a topic's log needs, typed, by name."""
        config = topic.config.items()
        own = {name: TOPIC[name].parse(text) for name, text in config if name in TOPIC}
        return self.topic_defaults() | own

    def topic_defaults(self) -> Values:
        """The same for a topic without settings; cached until a broker setting changes."""
        if not self._defaults:
            self._defaults = {
                name: setting.parse(self.topic_text(None, name)) for name, setting in TOPIC.items()
            }
            for name in LOG_BROKER_SETTINGS:
                self._defaults[name] = BROKER[name].parse(self.broker_text(name))
        return self._defaults

    def brokers_changed(self) -> None:
        """Note a changed broker setting, which may change the defaults of topics."""
        self._defaults = {}
        self.changes.brokers = True

    def set_features(self, features: FinalizedFeatures) -> None:
        """Set the finalized features."""
        if self.features != features:
            self.features, self.changes.brokers = features, True

    def set_group_config(self, group: str, entity: ConfigEntity | None) -> None:
        """Set the settings of a group; None: it has none."""
        before = self.groups.pop(group, None)
        if entity is not None:
            self.groups[group] = entity
        if (before and before.config) != (entity and entity.config):
            self.changes.groups.add(group)

    def set_quotas(self, owner: QuotaOwner, values: dict[str, float]) -> None:
        """Set the quotas of an entity; empty: it has none."""
        if self.quotas.get(owner, {}) == values:
            return
        self.quotas.pop(owner, None)
        if values:
            self.quotas[owner] = values
        self.changes.quotas = True

    def set_credentials(self, user: str, credentials: dict[str, ScramCredential]) -> None:
        """Set the SCRAM credentials of a user; empty: there are none."""
        if self.credentials.get(user, {}) == credentials:
            return
        self.credentials.pop(user, None)
        if credentials:
            self.credentials[user] = credentials
        self.changes.credentials = True

    def set_token(self, token_id: str, token: DelegationToken | None) -> None:
        """Set a delegation token; None: there is none."""
        if self.tokens.set(token_id, token):
            self.changes.tokens.add(token_id)

    def set_acls(self, pattern: ResourcePattern, entries: frozenset[AclEntry]) -> None:
        """Set the ACLs of a resource pattern; empty: there are none."""
        if self.acls.get(pattern, frozenset()) == entries:
            return
        self.acls.pop(pattern, None)
        if entries:
            self.acls[pattern] = entries
        self.changes.acls = True

    def acl_bindings(self) -> Iterator[AclBinding]:
        """All ACLs."""
        return (each.of(pattern) for pattern, entries in self.acls.items() for each in entries)

    def whole(self, name: str) -> int:
        """The effective broker setting as an integer."""
        value = BROKER[name].parse(self.broker_text(name))
        if not isinstance(value, int):
            raise TypeError(f"{name} is no number")
        return value
