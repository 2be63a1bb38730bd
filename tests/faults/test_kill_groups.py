"""kill -9 under groups: acknowledged commits stay, and members keep their partitions.

KRUST_CRASH_ROUNDS says how often (10). Commits come from raw sockets with many requests on their
way, so that some are half done at each crash; members are real clients, as processes.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections import deque
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from krust._krust import Client
from tests.coordinated import ready
from tests.foreign.members import PARTITIONS as SHARED
from tests.foreign.members import Member, fill, make, members, wait_until
from tests.ports import free_port
from tests.serving import ServedBroker
from tests.waiting import WAIT_S

ROUNDS = int(os.environ.get("KRUST_CRASH_ROUNDS", "10"))
GROUPS, PARTITIONS, WINDOW = 12, 4, 32
TOPIC = "read"
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
LOADING = (14, 15, 16)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def frame(key: int, version: int, correlation: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", key, version, correlation) + text("kill") + body
    return struct.pack(">i", len(head)) + head


def commit(group: str, partition: int, offset: int, correlation: int) -> bytes:
    """OffsetCommit v2 of a consumer without membership; the metadata repeats the offset."""
    one = struct.pack(">iiq", 1, partition, offset) + text(str(offset))
    member = struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    body = text(group) + member + struct.pack(">i", 1) + text(TOPIC) + one
    return frame(OFFSET_COMMIT, 2, correlation, body)


def receive(stream: socket.socket) -> bytes:
    """A reply behind its length."""
    found = b""
    wanted = 4
    while len(found) < wanted:
        more = stream.recv(wanted - len(found))
        if not more:
            raise ConnectionError("closed")
        found += more
        if wanted == 4 and len(found) == 4:
            found, wanted = b"", struct.unpack(">i", found)[0]
    return found


class Committer(threading.Thread):
    """Commits rising offsets of one group, in turn on each partition, until it is asked to end.

    acked   the newest offset of each partition that was acknowledged
    sent    the newest that was sent: what a broker may know
    """

    def __init__(self, address: tuple[str, int], group: str) -> None:
        super().__init__(daemon=True)
        self.address, self.group = address, group
        self.acked, self.sent = [0] * PARTITIONS, [0] * PARTITIONS
        self.refused: list[int] = []
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.is_set():
            try:
                with socket.create_connection(self.address, timeout=WAIT_S) as stream:
                    self._commit(stream)
            except OSError:
                time.sleep(0.005)

    def _commit(self, stream: socket.socket) -> None:
        flying: deque[tuple[int, int]] = deque()
        number = 0
        while not self.ends.is_set():
            while len(flying) < WINDOW:
                number += 1
                partition = number % PARTITIONS
                self.sent[partition] += 1
                flying.append((partition, self.sent[partition]))
                stream.sendall(commit(self.group, partition, self.sent[partition], number))
            reply = receive(stream)
            partition, offset = flying.popleft()
            answered, error = struct.unpack(">ih", reply[-6:])
            assert answered == partition
            if error == 0:
                self.acked[partition] = offset
            elif error not in LOADING:
                self.refused.append(error)

    def stored(self, stream: socket.socket) -> list[int]:
        """The committed offsets by OffsetFetch v1, once the group is loaded."""
        asked = struct.pack(f">i{PARTITIONS}i", PARTITIONS, *range(PARTITIONS))
        body = text(self.group) + struct.pack(">i", 1) + text(TOPIC) + asked
        while True:
            stream.sendall(frame(OFFSET_FETCH, 1, 7, body))
            reply = receive(stream)
            at, found = 4 + 4 + 2 + len(TOPIC) + 4, []
            for _ in range(PARTITIONS):
                _, offset, size = struct.unpack_from(">iqh", reply, at)
                metadata = reply[at + 14 : at + 14 + size].decode()
                (error,) = struct.unpack_from(">h", reply, at + 14 + size)
                at += 16 + size
                found.append((offset, metadata, error))
            if not any(error for _, _, error in found):
                assert all(text == str(offset) for offset, text, _ in found if offset >= 0)
                return [offset for offset, _, _ in found]
            assert {error for _, _, error in found} <= set(LOADING)


def until_committed(committers: list[Committer], more: int) -> None:
    def count() -> int:
        return sum(sum(each.acked) for each in committers)

    goal = count() + more
    wait_until(f"{more} more commits", lambda: count() >= goal)


@pytest.mark.timeout(max(300, ROUNDS * 20))
def test_no_acknowledged_commit_is_lost_or_goes_back(tmp_path: Path) -> None:
    chance = random.Random(20260107)
    broker = ServedBroker(tmp_path / "data", port=free_port())
    address = broker.address
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT_S)
    with socket.create_connection(address) as stream:  # the topic of offsets is made at first use
        stream.sendall(frame(FIND_COORDINATOR, 0, 7, text("group-0")))
        receive(stream)
    committers = [Committer(address, f"group-{number}") for number in range(GROUPS)]
    for each in committers:
        each.start()
    slowest = 0.0
    try:
        for _ in range(ROUNDS):
            until_committed(committers, more=chance.randrange(2000, 8000))
            broker.kill()
            floor = [list(each.acked) for each in committers]
            began = time.monotonic()
            broker = ServedBroker(tmp_path / "data", port=address[1])
            with socket.create_connection(address) as stream:
                for each, least in zip(committers, floor, strict=True):
                    found = each.stored(stream)
                    assert all(map(int.__ge__, found, least)), (each.group, least, found)
                    assert all(map(int.__le__, found, each.sent)), (each.group, each.sent, found)
            slowest = max(slowest, time.monotonic() - began)
        for each in committers:
            each.ends.set()
            each.join(WAIT_S)
            assert not each.refused, each.refused[:5]
        with socket.create_connection(address) as stream:
            for each in committers:
                assert all(map(int.__ge__, each.stored(stream), each.acked))
        assert broker.stop() == 0
    finally:
        for each in committers:
            each.ends.set()
        if broker.process.poll() is None:
            broker.kill()
    print(f"{ROUNDS} kills, commits known again after {slowest:.2f} s at most")


def owners(bootstrap: str, group: str) -> dict[str, set[int]]:
    """Member id -> its partitions, as the broker describes them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group], request_timeout=WAIT_S)[group].result(
        WAIT_S
    )
    return {
        each.member_id: {place.partition for place in each.assignment.topic_partitions}
        for each in described.members
    }


def until_read(group_members: list[Member], wanted: int) -> None:
    def count() -> int:
        return sum(
            len(offsets) for each in group_members for offsets in each.offsets("committed").values()
        )

    wait_until(f"{wanted} records are read and committed", lambda: count() >= wanted)


def last_generation(member: Member) -> int:
    """The generation of the last assignment that a member received."""
    return int([report["generation"] for report in member.reports if "assigned" in report][-1])


@pytest.mark.timeout(max(300, ROUNDS * 20))
@pytest.mark.parametrize("kind", ["confluent-range", "confluent-cooperative", "kafka-python"])
def test_members_keep_their_partitions_through_crashes(tmp_path: Path, kind: str) -> None:
    broker = ServedBroker(tmp_path / "data", port=free_port())
    bootstrap, port = broker.bootstrap, broker.address[1]
    make(bootstrap, "shared")
    group_members = [Member(kind, bootstrap, "g", "shared") for _ in range(3)]
    try:
        with members(*group_members):
            wait_until(
                "each has two", lambda: [len(each.owned()) for each in group_members] == [2, 2, 2]
            )
            wait_until(
                "the broker knows",
                lambda: sorted(map(len, owners(bootstrap, "g").values())) == [2, 2, 2],
            )
            # The last generation of a cooperative group assigns nothing new to some members.
            wait_until(
                "all know the last generation",
                lambda: len({last_generation(each) for each in group_members}) == 1,
            )
            before = owners(bootstrap, "g")
            counts = [len(each.reports) for each in group_members]
            for number in range(max(ROUNDS // 3, 2)):
                broker.kill()
                broker = ServedBroker(tmp_path / "data", port=port)
                ready(Client(bootstrap), "g")
                assert owners(bootstrap, "g") == before
                fill(bootstrap, "shared", number, 1)
                until_read(group_members, SHARED * (number + 1))
            assert owners(bootstrap, "g") == before
            news = [
                report
                for each, seen in zip(group_members, counts, strict=True)
                for report in each.reports[seen:]
            ]
            assert not [report for report in news if "revoked" in report or "assigned" in report], (
                news
            )
            for each in group_members:
                for offsets in each.offsets("record").values():
                    assert offsets == list(range(len(offsets))), "read twice, or not at all"
                each.leave()
    finally:
        broker.kill()
