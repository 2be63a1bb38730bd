"""What went wrong at other brokers, tried on krust's (`docs/security-record.md`), by the ids.

A broker with logins, asked over raw sockets: before the login, with false logins, by a user whom no
ACL allows anything.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import krust
from krust import Admin, jaas
from krust.controller import scram
from tests.attack.wire import Connection
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

SECRET = "open sesame"
LOGIN_FRAME_BYTES = 524_288
GROWTH_LIMIT = 64 << 20
API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
UNSUPPORTED_MECHANISM, FAILED, CLUSTER_DENIED = 33, 58, 31
SHA512 = "SCRAM-SHA-512"
ITERATIONS = 8192


def credential(user: str, mechanism: str = SHA512) -> dict[str, object]:
    salt = hashlib.sha256(user.encode()).digest()
    salted = scram.salted_password(mechanism, SECRET, salt, ITERATIONS)
    parts = {"iterations": ITERATIONS, "salt": salt, "salted_password": salted}
    return {"name": user, "mechanism": scram.MECHANISMS[mechanism], **parts}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    users = f'{jaas.PLAIN} required user_alice="{SECRET}" user_root="{SECRET}";'
    options: dict[str, object] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": f"PLAIN,{SHA512}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
        "connection.failed.authentication.delay.ms": 0,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:root",
    }
    folder = tmp_path_factory.mktemp("record")
    with ServedBroker(folder / "data", port=None, options=options) as served:
        with Admin(login(served, "root")) as admin:
            made = {"deletions": [], "upsertions": [credential("alice"), credential("bob")]}
            answer = admin.request("AlterUserScramCredentials", made)
            assert [each["error_code"] for each in answer["results"]] == [0, 0]
        yield served


def login(broker: ServedBroker, user: str) -> dict[str, object]:
    """The settings of a client."""
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": SECRET,
    }


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def versions() -> bytes:
    """An ApiVersions request, which is answered before a login too."""
    return frame(struct.pack(">hhih", API_VERSIONS, 0, 1, -1))


class Stranger(Connection):
    """A client that logs in by hand."""

    def __init__(self, broker: ServedBroker) -> None:
        super().__init__(broker.address, WAIT_S)

    def begin(self, mechanism: str, version: int = 1) -> int:
        """The error of SaslHandshake."""
        name = mechanism.encode()
        reply = self.ask(HANDSHAKE, version, struct.pack(">h", len(name)) + name)
        return int(struct.unpack_from(">h", reply)[0])

    def token(self, token: bytes) -> tuple[int, str, bytes]:
        """The answer to a token: error, message, the broker's token."""
        reply = self.ask(AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        error, size = struct.unpack_from(">hh", reply)
        at = 4 + max(size, 0)
        message = reply[4:at].decode()
        return error, message, reply[at + 4 :]

    def is_closed(self) -> bool:
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionResetError:
            pass
        return True


@pytest.fixture
def stranger(broker: ServedBroker) -> Iterator[Stranger]:
    with Stranger(broker) as connection:
        yield connection


def test_cve_2022_34917_frames_before_the_login_are_short_and_take_no_memory(
    broker: ServedBroker,
) -> None:
    before = broker.resident_bytes()
    waiting = []
    for _ in range(400):
        one = Stranger(broker)
        begun = struct.pack(">ihhi", LOGIN_FRAME_BYTES, AUTHENTICATE, 0, 1)
        one.socket.sendall(versions() + begun)
        one.reply()
        waiting.append(one)
    assert broker.resident_bytes() - before < GROWTH_LIMIT
    for one in waiting:
        one.close()
    for length in (LOGIN_FRAME_BYTES + 1, 100 << 20, 2**31 - 1, -1, -(2**31)):
        for version in (None, 0, 1):  # without a mechanism, before a token alone, before a request
            with Stranger(broker) as one:
                assert version is None or one.begin("PLAIN", version) == 0
                one.socket.sendall(struct.pack(">i", length))
                assert one.is_closed()
    assert broker.resident_bytes() - before < GROWTH_LIMIT


@pytest.mark.parametrize("stated", [2**31 - 1, 1 << 24, -2])
def test_cve_2022_34917_lengths_within_a_login_are_checked(
    broker: ServedBroker, stranger: Stranger, stated: int
) -> None:
    before = broker.resident_bytes()
    assert stranger.begin("PLAIN") == 0
    body = struct.pack(">hhih", AUTHENTICATE, 0, 1, -1) + struct.pack(">i", stated) + b"\0a\0b"
    stranger.socket.sendall(frame(body))
    assert stranger.is_closed()
    assert broker.resident_bytes() - before < GROWTH_LIMIT


def test_cve_2022_34917_a_user_may_send_longer_frames(
    broker: ServedBroker, stranger: Stranger
) -> None:
    assert stranger.begin("PLAIN") == 0
    assert stranger.token(f"\0alice\0{SECRET}".encode())[0] == 0
    stranger.socket.sendall(struct.pack(">ihhi", 2 * LOGIN_FRAME_BYTES, 3, 0, 1))
    stranger.socket.sendall(bytes(2 * LOGIN_FRAME_BYTES - 8))
    assert len(stranger.reply()) > 8


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


@pytest.mark.parametrize("at", ["header", "body"])
@pytest.mark.parametrize("count", [200_000, 8_000_000])
def test_cve_2026_111115_millions_of_tags_take_no_memory(
    broker: ServedBroker, stranger: Stranger, at: str, count: int
) -> None:
    if count > 200_000:
        assert stranger.begin("PLAIN") == 0
        assert stranger.token(f"\0alice\0{SECRET}".encode())[0] == 0
    before = broker.resident_bytes()
    tags = varint(count) + b"\x05\x00" * count
    head = struct.pack(">hhih", API_VERSIONS, 3, 1, -1)
    named = b"\x02a\x02b"
    body = head + tags + named + b"\0" if at == "header" else head + b"\0" + named + tags
    stranger.socket.sendall(frame(body))
    assert stranger.is_closed()
    assert broker.resident_bytes() - before < GROWTH_LIMIT


def test_cve_2026_111073_a_broker_that_takes_no_telemetry_inflates_none(
    broker: ServedBroker, stranger: Stranger
) -> None:
    stranger.socket.sendall(versions())
    reply = stranger.reply()
    (count,) = struct.unpack_from(">i", reply, 2)
    keys = {struct.unpack_from(">h", reply, 6 + 6 * number)[0] for number in range(count)}
    assert {API_VERSIONS, HANDSHAKE, AUTHENTICATE} <= keys
    assert not keys & {71, 72}, "GetTelemetrySubscriptions, PushTelemetry"


NOBODY_ELSE = {
    "PLAIN": f"root\0alice\0{SECRET}".encode(),
    "PLAIN of a longer name": f"alice2\0alice\0{SECRET}".encode(),
    "PLAIN of a shorter name": f"a\0alice\0{SECRET}".encode(),
    SHA512: b"n,a=root,n=alice,r=nonce",
    f"{SHA512} quoted": b"n,a=r=6Fot,n=alice,r=nonce",
}


@pytest.mark.parametrize("what", NOBODY_ELSE)
def test_cve_2017_12610_nobody_logs_in_for_somebody_else(stranger: Stranger, what: str) -> None:
    assert stranger.begin(what.partition(" ")[0]) == 0
    error, message, token = stranger.token(NOBODY_ELSE[what])
    assert (error, token) == (FAILED, b"")
    assert SECRET not in message
    assert stranger.is_closed()


def test_cve_2017_12610_a_user_may_name_itself(broker: ServedBroker) -> None:
    with Stranger(broker) as plain:
        assert plain.begin("PLAIN") == 0
        assert plain.token(f"alice\0alice\0{SECRET}".encode())[0] == 0
    with Stranger(broker) as salted:
        assert salted.begin(SHA512) == 0
        assert salted.token(b"n,a=alice,n=alice,r=nonce")[0] == 0


def final(first: str, challenge: bytes, *, nonce: str | None = None, header: bytes = b"n,,") -> str:
    """The last message of alice, signed with her password whatever its nonce and header are."""
    answer = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salt, iterations = base64.b64decode(answer["s"]), int(answer["i"])
    salted = scram.salted_password(SHA512, SECRET, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha512")
    bound = base64.b64encode(header).decode()
    unsigned = f"c={bound},r={answer['r'] if nonce is None else nonce}"
    said = f"{first},{challenge.decode()},{unsigned}".encode()
    signature = hmac.digest(hashlib.sha512(client_key).digest(), said, "sha512")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return f"{unsigned},p={base64.b64encode(proof).decode()}"


FIRST = "n=alice,r=mine"


def challenged(stranger: Stranger, user: str = "alice") -> bytes:
    """The broker's first message of SCRAM."""
    assert stranger.begin(SHA512) == 0
    error, _, challenge = stranger.token(f"n,,n={user},r=mine".encode())
    assert error == 0
    return challenge


def test_cve_2024_56128_a_login_by_hand_works(stranger: Stranger) -> None:
    challenge = challenged(stranger)
    error, _, last = stranger.token(final(FIRST, challenge).encode())
    assert (error, last[:2]) == (0, b"v=")


def test_cve_2017_12610_a_users_password_is_no_delegation_token(stranger: Stranger) -> None:
    first = f"{FIRST},tokenauth=true"
    assert stranger.begin(SHA512) == 0
    error, _, challenge = stranger.token(f"n,,{first}".encode())
    assert error == 0, "as for a token that there is"
    error, message, token = stranger.token(final(first, challenge).encode())
    assert (error, token) == (FAILED, b"")
    assert SECRET not in message
    assert stranger.is_closed()


@pytest.mark.parametrize("what", ["replayed", "the client's alone", "cut", "longer", "empty"])
def test_cve_2024_56128_a_nonce_that_is_signed_but_not_the_brokers_is_refused(
    broker: ServedBroker, stranger: Stranger, what: str
) -> None:
    challenge = challenged(stranger)
    own = challenge.decode().split(",")[0].removeprefix("r=")
    with Stranger(broker) as other:
        theirs = challenged(other).decode().split(",")[0].removeprefix("r=")
    assert own != theirs
    nonces = {
        "replayed": theirs,
        "the client's alone": "mine",
        "cut": own[:-1],
        "longer": own + "x",
        "empty": "",
    }
    error, message, token = stranger.token(final(FIRST, challenge, nonce=nonces[what]).encode())
    assert (error, token) == (FAILED, b"")
    assert "invalid credentials" in message
    assert stranger.is_closed()


def test_cve_2024_56128_a_last_message_with_another_header_is_refused(stranger: Stranger) -> None:
    challenge = challenged(stranger)
    assert stranger.token(final(FIRST, challenge, header=b"y,,").encode())[0] == FAILED


def test_cve_2021_38153_an_unknown_user_is_challenged_and_refused_like_a_known_one(
    broker: ServedBroker,
) -> None:
    def login_of(user: str) -> tuple[dict[str, str], str]:
        with Stranger(broker) as one:
            challenge = challenged(one, user)
            parts = dict(part.split("=", 1) for part in challenge.decode().split(","))
            last = final(f"n={user},r=mine", challenge).replace("p=", "p=AAAA", 1)
            error, message, token = one.token(last.encode())
            assert (error, token) == (FAILED, b"")
            return parts, message

    known, refusal = login_of("alice")
    for user in ("eve", "alice2", "root"):
        unknown, other = login_of(user)
        assert other == refusal
        assert unknown["i"] == known["i"]
        salts = [base64.b64decode(each["s"]) for each in (known, unknown)]
        assert len(salts[0]) == len(salts[1])
        assert salts[0] != salts[1]
        assert login_of(user)[0]["s"] == unknown["s"], "the same each time"


def test_cve_2021_38153_by_plain_an_unknown_user_is_refused_like_a_known_one(
    broker: ServedBroker,
) -> None:
    answers = set()
    for user, password in (("alice", "wrong"), ("alice", SECRET + "x"), ("eve", SECRET)):
        with Stranger(broker) as one:
            assert one.begin("PLAIN") == 0
            answers.add(one.token(f"\0{user}\0{password}".encode()))
    assert len(answers) == 1


TRANSACTIONS: dict[str, dict[str, object]] = {
    "InitProducerId": {"transactional_id": "x", "transaction_timeout_ms": 1000},
    "AddPartitionsToTxn": {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
    },
    "AddOffsetsToTxn": {"transactional_id": "x", "group_id": "g"},
    "EndTxn": {"transactional_id": "x", "committed": True},
    "TxnOffsetCommit": {
        "transactional_id": "x",
        "group_id": "g",
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
    },
    "WriteTxnMarkers": {
        "markers": [
            {
                "producer_id": 1,
                "producer_epoch": 0,
                "transaction_result": True,
                "topics": [{"name": "t", "partition_indexes": [0]}],
            }
        ]
    },
    "DescribeTransactions": {"transactional_ids": ["x"]},
    "DescribeProducers": {"topics": [{"name": "t", "partition_indexes": [0]}]},
}
DENIED = {29, 30, CLUSTER_DENIED, 53}


def errors(answer: object) -> list[int]:
    """Every error code in an answer."""
    if isinstance(answer, list):
        return [code for each in answer for code in errors(each)]
    if not isinstance(answer, dict):
        return []
    found = [value for key, value in answer.items() if key.endswith("error_code")]
    return found + [code for value in answer.values() for code in errors(value)]


@pytest.mark.parametrize("api", TRANSACTIONS)
def test_cve_2023_50976_no_api_of_transactions_forgets_the_acls(
    broker: ServedBroker, api: str
) -> None:
    version = 3 if api == "AddPartitionsToTxn" else None
    with Admin(login(broker, "root")) as root:
        if "t" not in root.topics():
            root.create_topic("t", 1)
    with Admin(login(broker, "alice")) as alice:
        found = [code for code in errors(alice.request(api, TRANSACTIONS[api], version)) if code]
        assert found
        assert set(found) <= DENIED, found
        assert errors(alice.request("ListTransactions", {})) == [0]
        assert alice.request("ListTransactions", {})["transaction_states"] == []


LOOPBACK = {"0100007F", "00000000000000000000000001000000"}
"""127.0.0.1 and ::1, as Linux writes them"""


def listening(pid: int) -> set[int]:
    """The ports on which a process listens."""
    inodes = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(each.readlink()).removeprefix("socket:[").removesuffix("]"))
        except FileNotFoundError:
            continue
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        for line in lines:
            local, state, inode = (line.split()[nth] for nth in (1, 3, 9))
            if inode in inodes and (state == "0A" or table.startswith("udp")):
                found.add(int(local.rpartition(":")[2], 16))
    return found


def test_cve_2026_82266_a_broker_listens_on_its_listeners_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("JMX_PORT", "KAFKA_JMX_PORT"):  # Kafka's scripts open a port without a login
        monkeypatch.setenv(name, "0")
    settings: dict[str, object] = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        "auto.include.jmx.reporter": True,
        "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
    }
    before = listening(os.getpid())
    with krust.Broker(config=settings) as broker:
        broker.create_topic("t", 1)
        ports = {int(at.rpartition(":")[2]) for _, at in broker.listeners}
        assert len(ports) == 2
        assert listening(os.getpid()) - before == ports


def test_cve_2026_82266_a_broker_without_settings_is_reached_from_its_machine_alone(
    tmp_path: Path,
) -> None:
    with ServedBroker(tmp_path / "data", port=0) as served:
        found = set()
        for table in ("tcp", "tcp6"):
            lines = Path(f"/proc/{served.pid}/net/{table}").read_text().splitlines()[1:]
            for line in lines:
                local, state = (line.split()[nth] for nth in (1, 3))
                address, _, port = local.partition(":")
                if state == "0A" and int(port, 16) == served.address[1]:
                    found.add(address)
        assert found <= LOOPBACK
        assert found
