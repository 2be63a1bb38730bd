"""The exceptions of krust. The class tells whose fault it is, `exit` is the exit code of a command.

    KrustError                 any error that krust raises on purpose
    ├── ConfigError            a setting that does not exist or cannot be so             exit 2
    ├── ServerError            the broker cannot start, or no longer runs                exit 3
    │   └── ForkedError        a broker or client used in a child of the process that made it
    ├── UnreachableError       no broker answers, or not in time (retriable)             exit 4
    └── KafkaError             a broker refused: `code` and `name` are Kafka's           exit 1, 5-7
        └── TransactionError               a transaction cannot be committed
            ├── AbortableTransactionError  abort it; its work can be done again
            └── FatalTransactionError      this producer cannot have transactions any more
                └── ProducerFencedError    another producer has its transactional.id

Every error has `.code` (Kafka's number, or None), `.retriable`, `.hint` (a line with what to do, or
None) and `.exit`. `str(error)` is one line: what happened, and why. For several invalid settings it
has a line each.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self


class Code(IntEnum):
    """Kafka's error codes; the same table as `rust/src/protocol/error.rs`."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


class KrustError(Exception):
    """Any error that krust raises on purpose."""

    code: int | None = None
    """Kafka's error code; None: it has none."""
    retriable: bool = False
    """Whether the same call may succeed later."""
    exit: int | None = 1
    """The exit code of a command; None: it follows from Kafka's name of the code."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        """What to do, in one line. A traceback shows it too."""
        if hint:
            self.add_note(hint)


class ConfigError(KrustError):
    """A setting does not exist, or its value is invalid."""

    exit = 2
    problems: tuple[ConfigError, ...] = ()
    """For several invalid settings: an error of each."""

    @classmethod
    def all_of(cls, problems: Iterable[ConfigError]) -> ConfigError:
        """One error for several, with a hint for each. A single error is returned unchanged."""
        found = tuple(problems)
        if len(found) == 1:
            return found[0]
        lines = (f"\n  {each}\n    {each.hint}" for each in found)
        error = cls(f"{len(found)} settings cannot be used:{''.join(lines)}")
        error.problems = found
        return error

    @classmethod
    def choice(cls, name: str, allowed: Iterable[str], value: str) -> Self:
        """The value of a setting is not one of the allowed values."""
        *others, last = allowed
        listed = f"{', '.join(others)} or {last}" if others else last
        return cls(f"{name} must be {listed}, not {value!r}")


class ServerError(KrustError):
    """The broker cannot start, or no longer runs; or its metadata cannot be moved."""

    exit = 3


class ForkedError(ServerError):
    """A broker or client was used in a child of the process that made it."""


class UnreachableError(KrustError):
    """No broker answers in time."""

    retriable = True
    exit = 4


class KafkaError(KrustError):
    """A broker refused. `name` is Kafka's name of the code."""

    exit = None

    def __init__(
        self,
        message: str,
        *,
        code: int = Code.UNKNOWN_SERVER_ERROR,
        name: str = "UNKNOWN_SERVER_ERROR",
        retriable: bool = False,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.name = name
        self.retriable = retriable


class TransactionError(KafkaError):
    """A transaction cannot be committed. `code` is that of the reason."""


class AbortableTransactionError(TransactionError):
    """The transaction has to be aborted. Its work can be done again in a new transaction.

    Examples: a record was not delivered in time, or the group has rebalanced before the commit of
    its offsets.
    """


class FatalTransactionError(TransactionError):
    """The producer cannot have transactions any more. Close it, and make a new one."""


class ProducerFencedError(FatalTransactionError):
    """The producer lost its `transactional.id`.

    Another producer uses it, or the coordinator aborted a transaction that took longer than
    `transaction.timeout.ms`. Nothing that this producer sends takes effect.
    """
