"""The `kafka.*` options that source and sink pass to krust's client."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENT = frozenset(
    {
        "client.id",
        "enable.ssl.certificate.verification",
        "request.timeout.ms",
        "retry.backoff.ms",
        "sasl.jaas.config",
        "sasl.mechanism",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""`kafka.*` options of all krust clients, as in `krust.clients.options`, without importing it."""
CONSUMER = CLIENT | {
    "client.rack",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "isolation.level",
    "max.partition.fetch.bytes",
    "metadata.max.age.ms",
}
"""`kafka.*` options that a source passes to krust's client."""
PRODUCER = CLIENT | {
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "max.block.ms",
    "max.request.size",
    "transaction.timeout.ms",
}
"""`kafka.*` options that the sink passes on."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""What `kafka.security.protocol` may be."""
SECRET = re.compile(r"(sasl|ssl|security)\.")


def core_options(client: Mapping[str, str]) -> dict[str, object]:
    """Options as the native core takes them: without JAAS strings and sources of tokens, which a
    driver passes to tasks as text.
    """
    from krust.clients.options import renamed

    return renamed(client)


def common_options(client: Mapping[str, str]) -> dict[str, object]:
    """Those that all clients have."""
    return core_options({name: text for name, text in client.items() if name in CLIENT})
