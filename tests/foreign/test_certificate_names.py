"""Clients are named by their certificates, on krust as on Kafka: ACLs and quotas are for the names
that Java gives to odd subjects, and for those that the rules of a listener make.
"""

from __future__ import annotations

import functools
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from krust import Acl, Admin, Broker, jaas
from krust.errors import KrustError
from tests.certificates import UNKNOWN, Authority
from tests.peers import kafka
from tests.peers.absent import AbsentError
from tests.peers.on_demand import OF_KAFKA
from tests.ports import free_ports
from tests.serving import ServedBroker
from tests.three_brokers import Command
from tests.waiting import WAIT_S, until

UTF8, BMP, T61 = "utf8only", "MASK:0x800", "MASK:0x4"
SUBJECTS = {
    "plain": (UTF8, "/C=DE/O=krust/OU=dev/CN=alice", "CN=alice,OU=dev,O=krust,C=DE"),
    "escapes": (UTF8, r"/CN=a,b\+c\"d\\e<f>g;h=i#j\/k", r"CN=a\,b\+c\"d\\e\<f\>g\;h\=i\#j/k"),
    "hash": (UTF8, "/CN=#lead", r"CN=\#lead"),
    "spaces": (UTF8, "/CN=  two  sp ", r"CN=\ \ two  sp\ "),
    "several": (UTF8, "/O=krust/CN=b+OU=a+UID=u", "CN=b+OU=a+UID=u,O=krust"),
    "unicode": (UTF8, "/CN=Jürgen Ω 😀", "CN=Jürgen Ω 😀"),
    "email": (
        UTF8,
        "/CN=x/emailAddress=a@b.c",
        "1.2.840.113549.1.9.1=#16056140622e63,CN=x",
    ),
    "serial": (UTF8, "/serialNumber=1+CN=b", "CN=b+2.5.4.5=#130131"),
    "domain": (UTF8, "/DC=com/DC=example/CN=x", "CN=x,DC=example,DC=com"),
    "places": (UTF8, "/ST=s/L=l/street=r/title=t", "2.5.4.12=#0c0174,STREET=r,L=l,ST=s"),
    "unknown": (UTF8, "/unknown=v/CN=x", f"CN=x,{UNKNOWN}=#0c0176"),
    "wide": (BMP, "/CN=al", r"CN=\00a\00l"),
    "latin": (T61, "/CN=Jürgen", "CN=J\ufffdrgen"),
    "nobody": (UTF8, "/", ""),
    "mapped": (UTF8, "/O=x/CN=svc-billing", "CN=svc-billing,O=x"),
}
"""By the topic that each may see: how its strings are encoded, what openssl is asked, the name."""
RULES = r"RULE:^CN=svc-(\w+?),.*$/$1/U,RULE:^CN=(alice),OU=(\w+),.*$/$2\/$1\,$3/L"
MAPPED = {"mapped": "BILLING", "plain": "dev/alice,$3"}
"""The names that these rules give; no other subject has one."""
SEEN_BY_NOBODY = "hidden"
CARL = "carl"
CARLS_LOGIN = f'{jaas.PLAIN} required user_{CARL}="{CARL}";'
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": CARL,
    "sasl.password": CARL,
}
METADATA = 3


class Guarded(NamedTuple):
    """A broker that obeys ACLs; who comes through plain text may do everything."""

    open: str
    """the addresses: of plain text, of certificates, of certificates whose names are mapped, of
    certificates for who has one, and of logins"""
    named: str
    mapped: str
    asked: str
    logins: str
    authority: Authority
    is_kafka: bool

    def settings(self, at: str, shown: str | None) -> dict[str, object]:
        """Those of a client that shows a certificate, and of one that also logs in as Carl."""
        own = {} if shown is None else {"ssl.keystore.location": str(self.pem(shown))}
        return {
            "bootstrap.servers": at,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self.authority.certificate),
            "request.timeout.ms": 5_000,
            **own,
            **(LOGIN if at == self.logins else {}),
        }

    def pem(self, shown: str) -> Path:
        return self.authority.chain(shown).with_suffix(".pem")

    def sees(self, at: str, shown: str | None) -> set[str]:
        """The topics that a client sees."""
        with Admin(self.settings(at, shown)) as admin:
            return set(admin.topics())

    def allow(self, user: str, topic: str, operation: str = "Describe") -> None:
        with Admin(bootstrap_servers=self.open) as admin:
            admin.create_acls(
                [
                    Acl(
                        principal=f"User:{user}",
                        operation=operation,
                        resource_type="Topic",
                        name=topic,
                    )
                ]
            )


@pytest.fixture(
    scope="module",
    params=["krust", pytest.param("3.9.1", marks=OF_KAFKA)],
)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp(f"names-{request.param}")
    authority = Authority(folder / "authority")
    named, mapped, asked, logins = (f"127.0.0.1:{port}" for port in free_ports(4))
    others = named, mapped, asked, logins
    settings: dict[str, object] = {
        "listeners": f"PLAINTEXT://{{bootstrap}},NAMED://{named},MAPPED://{mapped},"
        f"ASKED://{asked},LOGINS://{logins}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NAMED:SSL,MAPPED:SSL,ASKED:SSL,"
        "LOGINS:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ssl.client.auth": "required",
        "listener.name.asked.ssl.client.auth": "requested",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.logins.plain.sasl.jaas.config": CARLS_LOGIN,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.certify("server", "IP:127.0.0.1")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mapped.ssl.principal.mapping.rules": RULES,
    }
    for topic, (strings, subject, _) in SUBJECTS.items():
        authority.certify(topic, subject=subject, strings=strings)
    is_kafka = request.param != "krust"
    if is_kafka:
        rules = "listener.name.mapped.ssl.principal.mapping.rules"
        settings[rules] = RULES.replace("\\", "\\\\")
        try:
            with kafka.running(request.param, folder / "kafka", settings) as place:
                yield prepared(Guarded(place, *others, authority, is_kafka))
        except AbsentError as error:
            pytest.skip(str(error))
        return
    listeners = str(settings["listeners"]).replace("{bootstrap}", "127.0.0.1:0")
    settings["listeners"] = listeners
    with ServedBroker(folder / "data", "--prod", port=None, options=settings) as broker:
        yield prepared(Guarded(broker.bootstrap, *others, authority, is_kafka))


def prepared(guarded: Guarded) -> Guarded:
    """The topics, each for one name."""
    with Admin(bootstrap_servers=guarded.open) as admin:
        for topic in (*SUBJECTS, SEEN_BY_NOBODY, CARL):
            admin.create_topic(topic)
    for topic, (_, _, name) in SUBJECTS.items():
        if name:
            guarded.allow(name, topic)
    for topic, name in MAPPED.items():
        guarded.allow(name, topic)
    guarded.allow(CARL, CARL)
    until(lambda: len(acls(guarded)) == len(SUBJECTS) + len(MAPPED))
    return guarded


def acls(guarded: Guarded) -> list[Acl]:
    with Admin(bootstrap_servers=guarded.open) as admin:
        return admin.describe_acls()


@pytest.mark.parametrize("shown", [topic for topic, row in SUBJECTS.items() if row[2]])
def test_an_acl_for_the_subject_as_java_writes_it_is_for_the_client(
    guarded: Guarded, shown: str
) -> None:
    assert until(lambda: guarded.sees(guarded.named, shown)) == {shown}


def test_a_client_without_a_subject_is_allowed_nothing(guarded: Guarded) -> None:
    assert guarded.sees(guarded.named, "nobody") == set()


def test_the_first_rule_that_matches_names_the_client(guarded: Guarded) -> None:
    for shown in MAPPED:
        assert until(functools.partial(guarded.sees, guarded.mapped, shown)) == {shown}


def test_a_client_that_is_asked_for_a_certificate_and_has_none_is_anonymous(
    guarded: Guarded,
) -> None:
    assert guarded.sees(guarded.asked, None) == {*SUBJECTS, SEEN_BY_NOBODY, CARL}
    assert until(lambda: guarded.sees(guarded.asked, "plain")) == {"plain"}


def test_a_login_names_the_client_whatever_its_certificate_says(guarded: Guarded) -> None:
    assert until(lambda: guarded.sees(guarded.logins, "plain")) == {CARL}


@pytest.mark.parametrize("shown", ["hash", "nobody"])
def test_a_client_that_no_rule_names_gets_no_answer(guarded: Guarded, shown: str) -> None:
    with pytest.raises(KrustError):
        guarded.sees(guarded.mapped, shown)


def test_a_client_that_no_rule_names_is_logged_without_a_line_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.certify("server", "IP:127.0.0.1")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.principal.mapping.rules": "RULE:^CN=known$/x/",
    }
    client = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.keystore.location": str(authority.certify("odd", subject="/CN=a\nb")),
        "request.timeout.ms": 1_000,
    }
    with Broker(config=settings) as broker:
        with pytest.raises(KrustError):
            Admin({"bootstrap.servers": broker.bootstrap, **client}).topics()
        wanted = 'no rule of ssl.principal.mapping.rules matches its subject "CN=a\\nb"'
        # Not caplog.text: PySpark's logger, once imported, writes that as JSON.
        assert until(lambda: any(wanted in message for message in caplog.messages))


def test_a_session_that_is_resumed_keeps_the_name(guarded: Guarded) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=str(guarded.authority.certificate))
        context.load_cert_chain(guarded.pem("plain"))
        context.minimum_version = context.maximum_version = version
        session: ssl.SSLSession | None = None
        for is_resumed in (False, True):
            answer, was_resumed, session = metadata(context, guarded.named, session)
            # Kafka may have its client do a whole handshake; the name is the same.
            assert was_resumed == is_resumed or guarded.is_kafka
            assert b"plain" in answer
            assert SEEN_BY_NOBODY.encode() not in answer


def metadata(
    context: ssl.SSLContext, at: str, session: ssl.SSLSession | None
) -> tuple[bytes, bool, ssl.SSLSession | None]:
    """What a broker answers about all topics; whether it resumed the session; that of now."""
    host, _, port = at.rpartition(":")
    with (
        socket.create_connection((host, int(port)), WAIT_S) as stream,
        context.wrap_socket(stream, server_hostname=host, session=session) as secured,
    ):
        request = struct.pack(">hhihi", METADATA, 1, 7, -1, -1)
        secured.sendall(struct.pack(">i", len(request)) + request)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            piece = secured.recv(65_536)
            assert piece, "the broker closed the connection"
            answer += piece
        return answer, bool(secured.session_reused), secured.session


def test_clients_of_other_projects_write_by_the_acls_for_their_certificates(
    guarded: Guarded,
) -> None:
    from confluent_kafka import KafkaError as LibrdkafkaError
    from confluent_kafka import Producer
    from kafka import KafkaProducer
    from kafka.errors import TopicAuthorizationFailedError

    guarded.allow(SUBJECTS["plain"][2], "plain", "Write")
    until(lambda: any(acl.operation == "Write" for acl in acls(guarded)))
    trusted = str(guarded.authority.certificate)
    failed: dict[str, LibrdkafkaError | None] = {}
    for shown in ("plain", "several"):
        files = guarded.authority.key(shown), guarded.authority.chain(shown)
        settings = {"bootstrap.servers": guarded.named, "security.protocol": "SSL"}
        settings |= {"ssl.ca.location": trusted, "ssl.endpoint.identification.algorithm": "none"}
        settings |= {"ssl.key.location": str(files[0]), "ssl.certificate.location": str(files[1])}
        producer = Producer(settings)

        def note(error: LibrdkafkaError | None, _: object, shown: str = shown) -> None:
            failed[shown] = error

        producer.produce("plain", b"x", on_delivery=note)
        assert producer.flush(WAIT_S) == 0
        with_python = KafkaProducer(
            bootstrap_servers=guarded.named,
            security_protocol="SSL",
            ssl_cafile=trusted,
            ssl_keyfile=str(files[0]),
            ssl_certfile=str(files[1]),
            enable_idempotence=False,
        )
        try:
            if shown == "plain":
                assert with_python.send("plain", b"x").get(WAIT_S).offset == 1
            else:
                with pytest.raises(TopicAuthorizationFailedError):
                    with_python.send("plain", b"x").get(WAIT_S)
        finally:
            with_python.close(0)
    assert failed["plain"] is None
    refused = failed["several"]
    assert refused is not None
    assert refused.code() == LibrdkafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_quota_of_the_user_throttles_the_certificates_client(guarded: Guarded) -> None:
    from confluent_kafka import Producer

    user, topic = SUBJECTS["escapes"][2], "escapes"
    guarded.allow(user, topic, "Write")
    Command(guarded.open).ok("quotas", "set", "producer_byte_rate=1000", "--user", user)
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": guarded.named,
            "security.protocol": "SSL",
            "ssl.ca.location": str(guarded.authority.certificate),
            "ssl.endpoint.identification.algorithm": "none",
            "ssl.key.location": str(guarded.authority.key(topic)),
            "ssl.certificate.location": str(guarded.authority.chain(topic)),
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )

    def is_throttled() -> bool:
        producer.produce(topic, b"x" * 5_000)
        producer.poll(0.1)
        return bool(throttled)

    assert until(is_throttled)
    producer.purge()
    Command(guarded.open).ok("quotas", "delete", "producer_byte_rate", "--user", user)
