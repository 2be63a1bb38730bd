"""Listeners with TLS, and the clients that use them: those of other projects, and krust's own."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import krust
from krust import Broker
from krust.errors import ConfigError, UnreachableError
from tests.certificates import Authority
from tests.foreign import copying
from tests.foreign.copying import RECORDS, WAIT_MS, WAIT_S
from tests.peers import kafka, tools
from tests.waiting import until


class Secured(NamedTuple):
    """A broker with one listener for each way to secure it, and what clients of it need."""

    at: dict[str, str]
    """the addresses, by the names of the listeners"""
    authority: Authority
    stranger: Authority
    """another authority, which nobody trusts"""
    client: Path
    """a client's key and certificate"""


class Identity(NamedTuple):
    """What a client shows and trusts."""

    trusted: Path
    pem: Path | None = None
    key: Path | None = None
    chain: Path | None = None


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = Authority(folder / "ours"), Authority(folder / "theirs", "stranger")
    hosts = ("IP:127.0.0.1", "DNS:localhost")
    server = authority.certify("server", *hosts)
    expired = authority.certify("expired", *hosts, days=-1)
    named = authority.certify("named", "DNS:another.example")
    rsa = authority.certify("rsa", *hosts, rsa=True)
    client = authority.certify("client", "DNS:client")
    stranger.certify("client", "DNS:client")
    names: dict[str, dict[str, object]] = {
        "SSL": {},
        "ASKED": {"ssl.client.auth": "requested"},
        "MUTUAL": {"ssl.client.auth": "required"},
        "OLDER": {"ssl.enabled.protocols": "TLSv1.2", "ssl.keystore.location": rsa},
        "EXPIRED": {"ssl.keystore.location": expired},
        "NAMED": {"ssl.keystore.location": named},
    }
    settings: dict[str, object] = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in (*names, "PLAINTEXT")),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,"
        + ",".join(f"{name}:SSL" for name in names),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": server,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
    }
    for name, own in names.items():
        settings |= {f"listener.name.{name.lower()}.{key}": value for key, value in own.items()}
    with Broker(config=settings) as broker:
        yield Secured(dict(broker.listeners), authority, stranger, client)


def identities(secured: Secured) -> dict[str, Identity]:
    trusted = secured.authority.certificate
    ours, theirs = secured.authority, secured.stranger
    return {
        "none": Identity(trusted),
        "ours": Identity(trusted, secured.client, ours.key("client"), ours.chain("client")),
        "strangers": Identity(trusted, None, theirs.key("client"), theirs.chain("client")),
    }


Client = Callable[[str, Identity, str], list[bytes]]
"""Writes RECORDS to a topic of a broker and returns what it reads of it; raises if it cannot"""


def librdkafka(at: str, identity: Identity) -> dict[str, object]:
    settings: dict[str, object] = {
        "bootstrap.servers": at,
        "security.protocol": "SSL",
        "ssl.ca.location": str(identity.trusted),
    }
    if identity.key is not None:
        settings |= {"ssl.key.location": str(identity.key)}
        settings |= {"ssl.certificate.location": str(identity.chain)}
    return settings


def confluent(at: str, identity: Identity, topic: str) -> list[bytes]:
    return copying.confluent(librdkafka(at, identity), topic)


def kafka_python(at: str, identity: Identity, topic: str) -> list[bytes]:
    settings = {
        "bootstrap_servers": at,
        "security_protocol": "SSL",
        "ssl_cafile": str(identity.trusted),
        "ssl_keyfile": identity.key and str(identity.key),
        "ssl_certfile": identity.chain and str(identity.chain),
    }
    return copying.kafka_python(settings, topic)


def aiokafka(at: str, identity: Identity, topic: str) -> list[bytes]:
    context = ssl.create_default_context(cafile=str(identity.trusted))
    if identity.key is not None and identity.chain is not None:
        context.load_cert_chain(identity.chain, identity.key)
    settings = {"bootstrap_servers": at, "security_protocol": "SSL", "ssl_context": context}
    return copying.aiokafka(settings, topic)


def kcat(at: str, identity: Identity, topic: str) -> list[bytes]:
    return copying.kcat(librdkafka(at, identity), topic)


def own(at: str, identity: Identity, topic: str) -> list[bytes]:
    settings: dict[str, object] = {
        "bootstrap.servers": at,
        "security.protocol": "SSL",
        "ssl.truststore.location": str(identity.trusted),
    }
    if identity.pem is not None:
        settings["ssl.keystore.location"] = str(identity.pem)
    elif identity.key is not None:
        settings |= {"ssl.key.location": str(identity.key)}
        settings |= {"ssl.certificate.location": str(identity.chain)}
    return copying.own(settings, topic)


CLIENTS: dict[str, Client] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kcat": kcat,
    "krust": own,
}
ACCEPTED = [
    ("SSL", "none"),
    ("ASKED", "none"),
    ("ASKED", "ours"),
    ("MUTUAL", "ours"),
    ("OLDER", "none"),
]
REFUSED = [
    ("MUTUAL", "none"),
    ("MUTUAL", "strangers"),
    ("EXPIRED", "none"),
    ("NAMED", "none"),
    ("PLAINTEXT", "none"),
]


@pytest.mark.parametrize(("listener", "shown"), ACCEPTED)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_reads_back_what_it_wrote_through_tls(
    secured: Secured, client: str, listener: str, shown: str
) -> None:
    topic = f"{client}-{listener}-{shown}"
    assert CLIENTS[client](secured.at[listener], identities(secured)[shown], topic) == RECORDS


@pytest.mark.parametrize(("listener", "shown"), REFUSED)
@pytest.mark.parametrize("client", ["confluent-kafka", "krust"])
def test_no_session_is_made_without_the_right_certificates(
    secured: Secured, client: str, listener: str, shown: str
) -> None:
    with pytest.raises(Exception, match=r"(?i)ssl|tls|certificate|closed|disconnect|transport"):
        CLIENTS[client](secured.at[listener], identities(secured)[shown], "never")


@pytest.mark.java
@pytest.mark.parametrize("version", kafka.VERSIONS)
def test_the_tools_of_kafka_use_a_tls_listener_with_client_certificates(
    secured: Secured, tmp_path: Path, version: str
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={secured.authority.certificate}\n"
        f"ssl.keystore.location={secured.client}\n"
    )
    config = ("--command-config", str(properties))
    with tools.tools(version) as run:
        at = ("--bootstrap-server", secured.at["MUTUAL"], *config)
        topic = f"java-{version}".replace(".", "-")
        code, said = run("kafka-topics", *at, "--create", "--topic", topic)
        assert (code, f"Created topic {topic}." in said) == (0, True), said
        assert topic in run("kafka-topics", *at, "--list")[1].splitlines()


def test_a_client_of_plain_text_is_told_that_the_listener_has_tls(secured: Secured) -> None:
    client = krust.Producer(bootstrap_servers=secured.at["SSL"], delivery_timeout_ms=2_000)
    with client, pytest.raises(krust.KrustError, match=r"security\.protocol=SSL"):
        client.send("never", b"x").result(WAIT_MS)


def test_an_authority_that_the_client_does_not_know_is_named_as_the_cause(secured: Secured) -> None:
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(secured.stranger.certificate),
    }
    with pytest.raises(UnreachableError, match="UnknownIssuer") as caught:
        krust.Admin({"bootstrap.servers": secured.at["SSL"], **settings}).topics()
    assert "ssl.truststore.location" in str(caught.value.hint)


def test_a_client_that_checks_no_name_takes_a_certificate_of_another_host(secured: Secured) -> None:
    settings = {
        "bootstrap.servers": secured.at["NAMED"],
        "security.protocol": "SSL",
        "ssl.truststore.location": str(secured.authority.certificate),
        "ssl.endpoint.identification.algorithm": "",
    }
    with krust.Producer(settings) as producer:
        assert producer.send("unnamed", b"x").result(WAIT_MS).offset == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_offered(secured: Secured, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(secured.authority.certificate))
    context.minimum_version = context.maximum_version = version
    host, _, port = secured.at["SSL"].rpartition(":")
    with (
        socket.create_connection((host, int(port)), WAIT_S) as stream,
        context.wrap_socket(stream, server_hostname="localhost") as session,
    ):
        assert session.version() == version.name.replace("_", ".")


@pytest.fixture
def own_file(secured: Secured, tmp_path: Path) -> Iterator[tuple[Broker, Path]]:
    """A broker with a file of its own for key and certificate, which the test replaces."""
    file = tmp_path / "broker.pem"
    file.write_text(secured.authority.certify("first", "DNS:localhost").read_text())
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(file),
    }
    with Broker(config=settings) as broker:
        yield broker, file


NAMES = ("first", "second", "other", "stored")
PASSWORD = "open-sesame"


def shown_by(broker: Broker, authority: Authority) -> str:
    """The name in the certificate that a broker shows."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    host, _, port = broker.bootstrap.rpartition(":")
    with (
        socket.create_connection((host, int(port)), WAIT_S) as stream,
        context.wrap_socket(stream, server_hostname="localhost") as session,
    ):
        encoded = session.getpeercert(binary_form=True)
    assert encoded is not None
    return next(name for name in NAMES if f"\x0c{chr(len(name))}{name}".encode() in encoded)


def test_a_certificate_that_is_replaced_is_used_without_a_restart(
    secured: Secured, own_file: tuple[Broker, Path]
) -> None:
    broker, file = own_file
    assert shown_by(broker, secured.authority) == "first"
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(secured.authority.certificate)}
    settings["ssl.endpoint.identification.algorithm"] = "none"
    with krust.Producer({"bootstrap.servers": broker.bootstrap, **settings}) as producer:
        producer.send("kept", b"before").result(WAIT_MS)
        second = file.with_name("second.pem")
        second.write_text(secured.authority.certify("second", "DNS:localhost").read_text())
        second.rename(file)
        assert until(lambda: shown_by(broker, secured.authority) == "second")
        assert producer.send("kept", b"after").result(WAIT_MS).offset == 1


def test_a_certificate_that_cannot_be_used_leaves_the_one_in_use(
    secured: Secured, own_file: tuple[Broker, Path], caplog: pytest.LogCaptureFixture
) -> None:
    broker, file = own_file
    file.write_text("half a key")
    assert until(lambda: "listener SSL keeps its certificate" in caplog.text)
    assert shown_by(broker, secured.authority) == "first"


def test_another_certificate_is_named_by_incremental_alter_configs(
    secured: Secured, own_file: tuple[Broker, Path]
) -> None:
    broker, _ = own_file
    other = secured.authority.certify("other", "DNS:localhost")
    name_store(secured, broker, str(other))
    assert until(lambda: shown_by(broker, secured.authority) == "other")


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "cannot be read"), ("half a key", "is neither PEM nor PKCS12 nor JKS")],
)
def test_a_store_that_cannot_be_used_is_refused_and_not_stored(
    secured: Secured,
    own_file: tuple[Broker, Path],
    tmp_path: Path,
    content: str | None,
    why: str,
) -> None:
    broker, file = own_file
    bad = tmp_path / "bad.pem"
    if content is not None:
        bad.write_text(content)
    with pytest.raises(KafkaException, match=why) as refused:
        name_store(secured, broker, str(bad))
    assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST
    name_store(secured, broker, str(file))
    assert shown_by(broker, secured.authority) == "first"


def name_store(secured: Secured, broker: Broker, path: str) -> None:
    """Have a broker use another store on its listener. KafkaException: it refuses"""
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(secured.authority.certificate)}
    settings["ssl.endpoint.identification.algorithm"] = "none"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **settings})
    change = ConfigEntry(
        "listener.name.ssl.ssl.keystore.location",
        path,
        incremental_operation=AlterConfigOpType.SET,
    )
    node = ConfigResource(
        ConfigResource.Type.BROKER, str(broker.node_id), incremental_configs=[change]
    )
    admin.incremental_alter_configs([node])[node].result(WAIT_S)


def stores(authority: Authority, folder: Path) -> dict[str, dict[str, str]]:
    """The settings of the same key and certificate in every format."""
    authority.certify("stored", "DNS:localhost")
    key, chain = authority.key("stored"), authority.chain("stored")
    return {
        "pem": {"ssl.keystore.location": str(authority.certify("first", "DNS:localhost"))},
        "texts": {
            "ssl.keystore.key": key.read_text(),
            "ssl.keystore.certificate.chain": chain.read_text().replace("\n", "\\n"),
        },
        "encrypted": {
            "ssl.keystore.location": str(authority.encrypted("stored", PASSWORD)),
            "ssl.key.password": PASSWORD,
        },
        "pkcs12": {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(authority.pkcs12("stored", PASSWORD)),
            "ssl.keystore.password": PASSWORD,
        },
    }


@pytest.mark.parametrize("form", ["pem", "texts", "encrypted", "pkcs12"])
def test_a_key_is_read_in_every_format(secured: Secured, tmp_path: Path, form: str) -> None:
    settings = stores(secured.authority, tmp_path)[form]
    with Broker(config={"listeners": "SSL://127.0.0.1:0", **settings}) as broker:
        assert shown_by(broker, secured.authority) in NAMES


@pytest.mark.parametrize("form", ["encrypted", "pkcs12"])
def test_a_wrong_password_is_said_and_not_shown(
    secured: Secured, tmp_path: Path, form: str
) -> None:
    settings = stores(secured.authority, tmp_path)[form]
    wrong = {name: text.replace(PASSWORD, "not-this-one") for name, text in settings.items()}
    with pytest.raises(ConfigError, match="password") as caught:
        Broker(config={"listeners": "SSL://127.0.0.1:0", **wrong}).start()
    assert "not-this-one" not in str(caught.value)


CLIENT = "a-clients-secret"


@pytest.fixture(scope="module")
def made_by_keytool(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with stores of one key and its chain, whose key has a password of its own in JKS,
    and with truststores of three certificates.
    """
    folder = tmp_path_factory.mktemp("keytool")
    secured.authority.certify("stored", "DNS:localhost")
    source = ["-srckeystore", str(secured.authority.pkcs12("stored", PASSWORD))]
    source += ["-srcstorepass", PASSWORD, "-srcalias", "1"]
    for kind in ("PKCS12", "JKS"):
        made = ("-destkeystore", f"key.{kind}", "-deststoretype", kind, "-deststorepass", PASSWORD)
        own = ("-destkeypass", PASSWORD if kind == "PKCS12" else CLIENT)
        keytool(folder, "-importkeystore", *source, *made, *own)
    store = ("-keystore", "trust.JKS", "-storetype", "JKS", "-storepass", PASSWORD)
    for alias, file in {
        "stranger": secured.stranger.certificate,
        "authority": secured.authority.certificate,
        "other": secured.stranger.chain("client"),
    }.items():
        keytool(folder, "-importcert", "-noprompt", "-alias", alias, "-file", str(file), *store)
    copied = ("-srckeystore", "trust.JKS", "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    keytool(
        folder,
        "-importkeystore",
        *copied,
        "-destkeystore",
        "trust.PKCS12",
        "-deststoretype",
        "PKCS12",
    )
    (folder / "key.JCEKS").write_bytes(b"\xce\xce\xce\xce\0\0\0\2\0\0\0\0")
    return folder


def stored(folder: Path, kind: str, side: str = "key") -> dict[str, str]:
    """The settings of a store that keytool made."""
    prefix = {"key": "ssl.keystore", "trust": "ssl.truststore"}[side]
    found = {f"{prefix}.location": str(folder / f"{side}.{kind}"), f"{prefix}.password": PASSWORD}
    if side == "key" and kind == "JKS":
        found["ssl.key.password"] = CLIENT
    return found


@pytest.mark.java
@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_brokers_and_clients_use_the_stores_that_keytool_made(
    secured: Secured, made_by_keytool: Path, kind: str
) -> None:
    """A broker that asks for certificates shows one and checks one, both of stores, and so does
    the client.
    """
    both = stored(made_by_keytool, kind) | stored(made_by_keytool, kind, "trust")
    listener = {"listeners": "SSL://127.0.0.1:0", "ssl.client.auth": "required"}
    with Broker(config={**listener, **both}) as broker:
        client = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SSL",
            "ssl.endpoint.identification.algorithm": "",
        }
        with krust.Producer({**client, **both}) as producer:
            assert producer.send("stored", b"x").result(WAIT_MS).offset == 0
    with Broker(config={**listener, **both, "ssl.client.auth": "none"}) as broker:
        assert shown_by(broker, secured.authority) == "stored"


@pytest.mark.java
@pytest.mark.parametrize(
    ("kind", "wrong", "match"),
    [
        ("JKS", {"ssl.keystore.password": "not-this-one"}, "its password is wrong"),
        ("JKS", {"ssl.key.password": "not-this-one"}, r"set ssl\.key\.password"),
        ("JKS", {"ssl.key.password": ""}, r"set ssl\.key\.password"),
        ("PKCS12", {"ssl.keystore.password": "not-this-one"}, "password"),
        ("JCEKS", {}, "JCEKS of Java 8; convert it: keytool -importkeystore"),
    ],
)
def test_a_store_that_cannot_be_opened_prevents_the_start_with_the_cause(
    made_by_keytool: Path, kind: str, wrong: dict[str, str], match: str
) -> None:
    settings = {"listeners": "SSL://127.0.0.1:0", **stored(made_by_keytool, kind), **wrong}
    with pytest.raises(ConfigError, match=match) as caught:
        Broker(config=settings).start()
    assert "not-this-one" not in str(caught.value)


def test_a_store_of_more_than_16_mib_is_refused_and_one_of_that_size_is_read(
    tmp_path: Path,
) -> None:
    for more, match in ((0, "is neither PEM nor"), (1, "has more than 16777216 bytes")):
        (tmp_path / "large").write_bytes(bytes((16 << 20) + more))
        settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": tmp_path / "large"}
        with pytest.raises(ConfigError, match=match):
            Broker(config=settings).start()


def keytool(folder: Path, *words: str) -> None:
    subprocess.run(["keytool", *words], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({}, "listener SSL: TLS needs a key and a certificate"),
        ({"ssl.keystore.location": "/nowhere.pem"}, "ssl.keystore.location = /nowhere.pem cannot"),
        ({"ssl.keystore.location": __file__}, "is neither PEM nor PKCS12 nor JKS"),
        ({"ssl.keystore.key": "-----BEGIN"}, "ssl.keystore.certificate.chain is not"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.2, TLSv1.3"),
        ({"ssl.client.auth": "perhaps"}, "required, requested, none"),
    ],
)
def test_a_broker_without_usable_keys_does_not_start_and_says_why(
    settings: dict[str, str], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        Broker(config={"listeners": "SSL://127.0.0.1:0", **settings}).start()
