"""The table of the clients' settings: each is a key with the type of its value.

Keys are Kafka's with `_` for `.`, as keywords: `linger_ms` is linger.ms. Editors complete them,
type checkers know them, and `options` reads from here which settings a client has. The value None
counts as not given. Numbers may be texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.coordinator.assignors.assignor import Assignor

    _Strategy = str | Assignor | type[Assignor]


class CommonSettings(TypedDict, total=False):
    """Settings of every client."""

    bootstrap_servers: str | Sequence[str]
    client_id: str | None
    enable_ssl_certificate_verification: bool
    request_timeout_ms: int
    retry_backoff_ms: int
    sasl_jaas_config: str | None
    sasl_mechanism: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_config: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_token: object
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_password: str | None
    sasl_username: str | None
    security_protocol: str
    socket_connection_setup_timeout_ms: int
    ssl_certificate_location: str | None
    ssl_cipher_suites: str | None
    ssl_enabled_protocols: str | None
    ssl_endpoint_identification_algorithm: str | None
    ssl_key_location: str | None
    ssl_key_password: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str | None


class ProducerSettings(CommonSettings, total=False):
    """Settings of `krust.Producer` and `krust.AsyncProducer`."""

    acks: int | str
    allow_auto_create_topics: bool
    batch_size: int
    buffer_memory: int
    compression_level: int
    compression_type: str
    delivery_timeout_ms: int
    enable_idempotence: bool
    linger_ms: int
    max_block_ms: int
    max_request_size: int
    metadata_max_age_ms: int
    transaction_timeout_ms: int
    transactional_id: str | None


class FetchSettings(CommonSettings, total=False):
    """Settings of all clients that read records."""

    client_rack: str | None
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    isolation_level: str
    max_partition_fetch_bytes: int
    metadata_max_age_ms: int


class ScanSettings(CommonSettings, total=False):
    """Settings of `krust.scan` with brokers, beside its parameters."""

    client_rack: str | None
    default_api_timeout_ms: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    max_partition_fetch_bytes: int
    metadata_max_age_ms: int


class ConsumerSettings(FetchSettings, total=False):
    """Settings of `krust.Consumer` and `krust.AsyncConsumer`."""

    auto_commit_interval_ms: int
    auto_offset_reset: str
    default_api_timeout_ms: int
    enable_auto_commit: bool
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    partition_assignment_strategy: _Strategy | Sequence[_Strategy]
    session_timeout_ms: int


def keys(settings: type) -> frozenset[str]:
    """The settings by Kafka's keys."""
    return frozenset(name.replace("_", ".") for name in settings.__annotations__)
