"""Bad requests to every group API get a clear code or a closed connection, within bounded memory.
Members of other groups are not affected, neither then nor after a restart."""

from __future__ import annotations

import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krust._krust import Client
from krust.errors import Code
from tests.coordinated import ready
from tests.faults import malformed
from tests.faults.malformed import Answer, frame
from tests.ports import free_port
from tests.serving import ServedBroker
from tests.waiting import is_readable

SEED = 20260102
KEYS = {8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69}
WAITING = {11, 14}
"""JoinGroup and SyncGroup may wait for other members."""
JOINING = {11, 14, 68}
EACH = 40
GROWTH_LIMIT = 64 << 20
PATIENCE_S = 60.0
MEMBERS = 12
"""How many ids of earlier answers the requests repeat."""
CODES = {*range(134)}
GROUPS = [f"bad-{n}" for n in range(12)] + ["served-1", "served-2", "", "ü", "z" * 300]
ASSIGNOR = "krust.group.server.assignor"


def names() -> dict[str, list[Any]]:
    """Values of fields that pass the first checks."""
    members = ["", "", "", "m", "n"]
    texts = ["t", "u", "", "no such", "a/b"]
    blobs = [malformed.subscription, b"", b"\0\0", b"\xff" * 40]
    return {
        "group_id": GROUPS,
        "groups": GROUPS,
        "groups_names": GROUPS,
        "group_ids": GROUPS,
        "key": GROUPS,
        "coordinator_keys": GROUPS,
        "member_id": members,
        "group_instance_id": ["instance", "other"],
        "instance_id": ["instance", "other"],
        "protocol_type": [*["consumer"] * 6, "connect", ""],
        "name": [*texts, *["range"] * 6],
        "protocol_name": ["range", "roundrobin", ""],
        "metadata": blobs,
        "assignment": blobs,
        "subscribed_topic_names": texts,
        "subscribed_topic_regex": ["t.*", "(", "a{9999}", "(((a{99}){99}){99})", "", "\\Qt\\E"],
        "server_assignor": ["range", "uniform", "nobody"],
        "member_epoch": [0, 0, 0, 1, 2, -1, -2, -3, 2**31 - 1],
        "generation_id": [-1, 0, 1, 1, 1, 2, 2, 2**31 - 1],
        "generation_id_or_member_epoch": [-1, -1, 0, 1, 2, 2**31 - 1],
        "session_timeout_ms": [6000, 6000, 8000, 10_000, -1, 2**31 - 1],
        "rebalance_timeout_ms": [0, 100, 1000, -1, 2**31 - 1],
        "partition_index": [0, 1, -1, 9, 2**31 - 1],
        "partition_indexes": [0, 1, -1, 9, 2**31 - 1],
        "partitions": [0, 1, -1, 9, 2**31 - 1],
        "topic_partitions": [0],
        "committed_metadata": ["", "x" * 4096, "x" * 4097, "ü" * 5000],
        "key_type": [0, 0, 1, 2, -1],
    }


class Witness:
    """A classic member and a member of a consumer group, who keep their partitions."""

    def __init__(self, bootstrap: str) -> None:
        self.client = Client(bootstrap)
        ready(self.client, "classic", "consumers")
        join = {
            "group_id": "classic",
            "session_timeout_ms": 600_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        joined = self.client.request("JoinGroup", join, 3)
        assert joined["error_code"] == Code.NONE
        self.me = {"group_id": "classic", "member_id": joined["member_id"]}
        self.me |= {"generation_id": joined["generation_id"]}
        given = [{"member_id": joined["member_id"], "assignment": b"all"}]
        synced = self.client.request("SyncGroup", {**self.me, "assignments": given}, 3)
        assert synced["assignment"] == b"all"
        hello = {
            "group_id": "consumers",
            "member_id": "mine",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        }
        answer = self.client.request("ConsumerGroupHeartbeat", hello)
        assert answer["error_code"] == Code.NONE
        self.owned = answer["assignment"]["topic_partitions"]
        assert sorted(self.owned[0]["partitions"]) == [0, 1]
        self.epoch = answer["member_epoch"]
        self.offset = 0

    def looks(self) -> None:
        """Nothing has changed."""
        self.offset += 1
        assert self.client.request("Heartbeat", self.me, 3)["error_code"] == Code.NONE
        beat = {"group_id": "consumers", "member_id": "mine", "member_epoch": self.epoch}
        answer = self.client.request("ConsumerGroupHeartbeat", beat)
        assert (answer["error_code"], answer["assignment"]) == (Code.NONE, None)
        topics = [{"name": "t", "partition_indexes": [0]}]
        partition = {"partition_index": 0, "committed_offset": self.offset}
        commit = {
            "group_id": "consumers",
            "member_id": "mine",
            "generation_id_or_member_epoch": self.epoch,
            "topics": [{"name": "t", "partitions": [partition]}],
        }
        done = self.client.request("OffsetCommit", commit, 9)
        assert done["topics"][0]["partitions"][0]["error_code"] == Code.NONE
        ask = {"groups": [{"group_id": "consumers", "topics": topics}]}
        found = self.client.request("OffsetFetch", ask, 8)["groups"][0]["topics"][0]
        assert found["partitions"][0]["committed_offset"] == self.offset


class Vandal:
    """Sends requests and reads any answers; the broker closes its connections or they stay open."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def send(self, data: bytes, patience_s: float) -> bytes | None:
        """The answer; b"": the connection was closed; None: nothing yet, and no more waiting."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, PATIENCE_S)
        try:
            self._socket.sendall(data)
            if not is_readable(self._socket, patience_s):
                self.close()
                return None
            size = self._exactly(4)
            answer = self._exactly(struct.unpack(">i", size)[0]) if size else b""
        except ConnectionError:
            answer = b""
        if not answer:
            self.close()
        return answer

    def _exactly(self, size: int) -> bytes:
        found = b""
        assert self._socket is not None
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            if not piece:
                return b""
            found += piece
        return found

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    options: dict[str, object] = {ASSIGNOR: "served-*=uniform"}
    with ServedBroker(tmp_path / "data", options=options, port=free_port()) as served:
        topics = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in "tu"]
        Client(served.bootstrap).request("CreateTopics", {"topics": topics})
        yield served


def test_bad_group_requests_do_not_affect_other_members(
    broker: ServedBroker, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    witness, vandal = Witness(broker.bootstrap), Vandal(broker.address)
    witness.looks()
    before = broker.resident_bytes()
    seen: Counter[str] = Counter()
    heard: list[str] = []
    known, values = malformed.apis(KEYS), names()
    requests = malformed.requests(known, chance, values, EACH, JOINING)
    for number, (api, version, data, whole) in enumerate(requests, 1):
        patience_s = 0.05 if api["key"] in WAITING else PATIENCE_S
        answer = vandal.send(frame(api, version, number, data), patience_s)
        what = f"{api['name']} v{version} {data[:200]!r}"
        if answer:
            read = Answer(api, version, answer)
            assert read.number == number, what
            assert set(read.codes) <= CODES, f"{what}: {read.codes}"
            heard += [each for each in read.members if each not in values["member_id"]]
            values["member_id"] = [*names()["member_id"], *heard[-MEMBERS:]]
            seen["answered"] += 1
            seen.update(f"code {code}" for code in read.codes)
        elif answer is None:
            assert api["key"] in WAITING, f"no answer to {what}"
            seen["waits"] += 1
        else:
            assert not whole, f"{what} is whole"
            seen["closed"] += 1
        if number % 100 == 0:
            witness.looks()
    vandal.close()
    witness.looks()
    assert seen["answered"] > 300, seen
    assert seen["closed"] > 100, seen
    assert len([word for word in seen if word.startswith("code")]) > 12, seen
    assert broker.resident_bytes() - before < GROWTH_LIMIT
    questions: dict[str, dict[str, Any]] = {
        "DescribeGroups": {"groups": GROUPS},
        "ConsumerGroupDescribe": {"group_ids": GROUPS},
        "ListGroups": {},
    }
    for question, body in questions.items():
        described = str(witness.client.request(question, body))
        assert "'error_code': -1" not in described, described
    broker.stop()
    log = broker.stderr()
    assert "Traceback" not in log, log
    assert "panic" not in log.lower(), log
    with ServedBroker(tmp_path / "data", port=broker.address[1]) as again:
        witness.client = Client(again.bootstrap)
        ready(witness.client, "classic", "consumers")
        witness.looks()
        assert "no sense" not in again.stderr(), again.stderr()
        assert "Traceback" not in again.stderr(), again.stderr()
