"""The meaning of Kafka's settings for krust: whether a file is Kafka's, what each key stands for.

A file is Kafka's if it is a Java properties file without keys of krust. In such a file a key that
krust does not know or does not use is listed and has no effect. Security is the exception: a file
that asks for encryption, authentication or authorisation that krust does not have is an error.
This module knows such keys.
Pure text: no settings table, no files.
A key that no rule here knows is listed as unknown. Not promised: that it is harmless.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

STRICT, WARN = "strict", "warn"
MODES = (STRICT, WARN)
"""strict: a setting that krust does not use is an error; warn: it is listed and has no effect."""

CONTROLLER_LISTENERS = "controller.listener.names"

_SECURITY = (
    r"(ssl|sasl|security|delegation\.token|password\.encoder|zookeeper\.ssl|listener\.name|opa|"
    r"ldap|ranger)\."
    r"|authorizer\.|allow\.everyone\.if\.no\.acl\.found$|super\.users$|principal\.builder\.class$"
    r"|connections\.max\.reauth\.ms$|connection\.failed\.authentication\.delay\.ms$"
)
"""Keys of Kafka's brokers, and of common authorizers."""

_SECURITY_PART = (
    r"(^|\.)(ssl|sasl|acls?|auth|authorizer|authentication|access\.rule|rbac|mds|keystore"
    r"|truststore|jaas|kerberos|ldap|oauth|oauthbearer|super\.users)(\.|$)"
)
"""Keys of other plug-ins."""

_REPORTERS = (
    r"confluent\.(metrics|telemetry|monitoring|balancer|support|license|cluster\.link)\b"
    r"|(kafka\.)?metrics?\.|cruise\.control\.|.*\.metrics\.reporter\."
)
"""Keys of clients inside a Kafka broker that krust does not have: they protect no data here."""

_MEANINGS = {
    "process.roles": "krust has no KRaft: this broker keeps its own metadata, in its data "
    "directory, or in a ZooKeeper (zookeeper.connect)",
    "controller.quorum.voters": "there is no KRaft quorum: this broker joins other brokers "
    "through a ZooKeeper only (zookeeper.connect)",
    "controller.quorum.bootstrap.servers": "there is no KRaft quorum: this broker joins other "
    "brokers through a ZooKeeper only (zookeeper.connect)",
    CONTROLLER_LISTENERS: "there is no KRaft controller: the listeners of these names stay closed",
    "zookeeper.metadata.migration.enable": "there is no KRaft to migrate to",
    "create.topic.policy.class.name": "Java classes are not loaded: every valid topic is created",
    "alter.config.policy.class.name": "Java classes are not loaded: every valid change is made",
    "client.quota.callback.class": "Java classes are not loaded: krust computes quotas itself",
    "group.share.enable": "there are no share groups",
    "remote.log.storage.system.enable": "there is no tiered storage: all segments stay on disk",
    "port": "Kafka 3.0 removed it; listeners=PLAINTEXT://:PORT says it",
    "host.name": "Kafka 3.0 removed it; listeners=PLAINTEXT://HOST:PORT says it",
    "advertised.host.name": "Kafka 3.0 removed it; advertised.listeners says it",
    "advertised.port": "Kafka 3.0 removed it; advertised.listeners says it",
    "quota.producer.default": "Kafka 3.0 removed it; krust quotas set gives quotas",
    "quota.consumer.default": "Kafka 3.0 removed it; krust quotas set gives quotas",
    "config.providers": "values are taken as they stand; no provider is asked",
}
"""Keys that need more explanation than the table of settings has."""

_FAMILIES = (
    ("confluent.", "a setting of Confluent Server; krust has nothing of it"),
    ("config.providers.", "values are taken as they stand; no provider is asked"),
    ("log4j.", "a setting of Java's logging; --log-level says how much krust logs"),
    ("log4j2.", "a setting of Java's logging; --log-level says how much krust logs"),
    ("share.coordinator.", "there are no share groups"),
    ("group.share.", "there are no share groups"),
    ("controller.", "there is no KRaft controller"),
    ("rlmm.", "there is no tiered storage"),
    ("rsm.", "there is no tiered storage"),
    ("remote.log.", "there is no tiered storage"),
    ("cruise.control.", "a setting of Cruise Control's Java reporter, which is not loaded"),
    ("group.streams.", "Streams groups of the new protocol are not offered"),
    ("java.", "a property of Java"),
    ("transaction.two.phase.commit.", "there is no two-phase commit of transactions"),
)

_LAUNCHER = """
HOME VERSION DEBUG OPTS HEAP_OPTS JMX_OPTS JMX_PORT JMX_HOSTNAME JVM_PERFORMANCE_OPTS GC_LOG_OPTS
LOG4J_OPTS LOG4J_LOGGERS LOG4J_ROOT_LOGLEVEL LOG4J_CMD_OPTS TOOLS_LOG4J_LOGLEVEL JMX_AGENT_OPTS
DATA_DIR CONF_DIR USER GROUP DIR MODE CLASSPATH BASE_DIR MOUNTED_CONF_DIR INITSCRIPTS_DIR
"""
LAUNCHER = frozenset(f"KAFKA_{name}" for name in _LAUNCHER.split())
"""Variables of Kafka's start scripts and images, for Java and the shell. They are not listed."""


def is_kafkas(suffix: str, names: Iterable[str]) -> bool:
    """Whether a file with these settings was written for Kafka."""
    return suffix != ".toml" and not any(name.startswith("krust.") for name in names)


def is_security(name: str) -> bool:
    """Whether a setting asks for encryption, authentication or authorisation."""
    if re.match(_SECURITY, name):
        return True
    return not re.match(_REPORTERS, name) and bool(re.search(_SECURITY_PART, name))


def meaning(name: str) -> str | None:
    """Why krust does not use a setting; None: it is unknown."""
    known = _MEANINGS.get(name)
    if known is not None:
        return known
    return next((text for prefix, text in _FAMILIES if name.startswith(prefix)), None)


def refers_to_provider(value: str, providers: str) -> bool:
    """Whether a value comes from a provider, as `${file:/etc/secrets:password}`."""
    names = [re.escape(each.strip()) for each in providers.split(",") if each.strip()]
    return bool(names) and re.search(rf"\$\{{({'|'.join(names)}):", value) is not None


def without(listeners: str, names: str) -> str:
    """A list of listeners without those of KRaft's controllers."""
    gone = {name.strip().upper() for name in names.split(",")}
    kept = (
        each
        for each in listeners.split(",")
        if each.partition("://")[0].strip().upper() not in gone
    )
    return ",".join(kept)
