"""Every client handles Ctrl-C and forks, leaves no thread, and raises errors with a hint."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import krust
from krust import _krust
from krust.clients.membership import LOST
from krust.errors import ForkedError, KafkaError, UnreachableError
from tests.clients.conftest import create
from tests.clients.test_group import patient, until
from tests.proxy import behind, peer
from tests.waiting import is_blocked, is_readable
from tests.waiting import until as wait_until

PRODUCE = 0
Call = Callable[[], object]


class Closes(Protocol):
    def close(self) -> object: ...


WAITS = {
    "a poll": "c = krust.Consumer(bootstrap_servers={at!r}); c.assign([({topic!r}, 0)])\n"
    "c.poll(0); ready(); c.poll(600_000)",
    "a loop": "c = krust.Consumer(bootstrap_servers={at!r}); c.assign([({topic!r}, 0)])\n"
    "c.poll(0); ready(); next(iter(c))",
    "a member's poll": "c = krust.Consumer({topic!r}, bootstrap_servers={at!r}, group_id='g')\n"
    "while not c.assignment(): c.poll(50)\n"
    "ready(); c.poll(600_000)",
    "a delivery": "p = krust.Producer(bootstrap_servers={silent!r}, **long)\n"
    "d = p.send({topic!r}, b'x'); ready(); d.result()",
    "a flush": "p = krust.Producer(bootstrap_servers={silent!r}, **long)\n"
    "p.produce({topic!r}, b'x'); ready(); p.flush()",
    "a full buffer": "p = krust.Producer(bootstrap_servers={silent!r}, buffer_memory=1000,\n"
    "    **long)\n"
    "ready()\n"
    "while True: p.produce({topic!r}, bytes(100))",
    "a topic that does not come": "p = krust.Producer(bootstrap_servers={at!r},\n"
    "    allow_auto_create_topics=False, **long)\n"
    "ready(); p.produce('missing', b'x')",
    "an order": "a = krust.Admin(bootstrap_servers={deaf!r}, **patient); ready(); a.topics()",
    "a connection": "a = krust.Admin(bootstrap_servers={full!r}, **patient); ready(); a.topics()",
}
"""Each of these would last far longer than a test waits for its end."""
FRAME = """
import krust
patient = {"request_timeout_ms": 600_000}
long = {"delivery_timeout_ms": 600_000, "max_block_ms": 600_000}
def ready():
    print("ready", flush=True)
try:
    CODE
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A broker; one without answers to Produce; a port that says nothing; one with no room."""

    def answer(api: int, frame: bytes, connection: socket.socket) -> bool:
        return api == PRODUCE

    def swallow(connection: socket.socket) -> None:
        while connection.recv(4096):
            pass

    folder = tmp_path_factory.mktemp("manners")
    with (
        krust.Broker() as broker,
        behind(folder, answer) as silent,
        peer(swallow) as deaf,
        crowded() as full,
    ):
        for at in (broker.bootstrap, silent):
            create(at, "waits", 1)
        ways = {"silent": silent, "deaf": deaf, "full": full}
        yield {"at": broker.bootstrap, "topic": "waits", **ways}


@contextlib.contextmanager
def crowded() -> Iterator[str]:
    """A port where connecting takes for ever: nobody accepts, and the queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("what", WAITS)
def test_control_c_ends_a_wait_that_has_no_end(ways: dict[str, str], what: str) -> None:
    code = FRAME.replace("CODE", WAITS[what].format(**ways).replace("\n", "\n    "))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        try:
            assert run.stdout is not None
            assert run.stdout.readline() == b"ready\n"
            wait_until(lambda: is_blocked(run.pid))
            run.send_signal(signal.SIGINT)
            answer = run.stdout.readline() if is_readable(run.stdout) else b""
        finally:
            run.kill()  # a producer would see to it that its records arrive
        _, errors = run.communicate()
    assert answer == b"interrupted\n", errors.decode()


def admin(at: str) -> tuple[Closes, Call]:
    made = krust.Admin(bootstrap_servers=at)
    return made, made.topics


def consumer(at: str) -> tuple[Closes, Call]:
    made = krust.Consumer(bootstrap_servers=at)
    return made, made.poll


def member(at: str) -> tuple[Closes, Call]:
    made = krust.Consumer("waits", bootstrap_servers=at, group_id="forks")
    until(lambda: bool(made.assignment()), made)
    return made, made.poll


def producer(at: str) -> tuple[Closes, Call]:
    made = krust.Producer(bootstrap_servers=at)
    return made, lambda: made.produce("waits", b"x")


@pytest.mark.parametrize("make", [admin, consumer, member, producer])
def test_a_forked_child_gets_a_clear_error_and_does_not_disturb_the_parent(
    ways: dict[str, str], make: Callable[[str], tuple[Closes, Call]]
) -> None:
    made, call = make(ways["at"])
    call()
    child = os.fork()
    if child == 0:
        try:
            call()
        except ForkedError as error:
            os._exit(7 if "make one in this process" in str(error) else 8)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    call()
    made.close()


def ours() -> list[str]:
    """Threads of clients, native ones too."""
    names = [thread.name for thread in threading.enumerate()]
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            names.append((task / "comm").read_text().strip())
    return [
        name for name in names if name.startswith(("krust-sender", "krust-member", "krust-poll"))
    ]


def test_no_thread_is_left_behind(ways: dict[str, str]) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": ways["at"]}

    async def both() -> None:
        async with krust.AsyncProducer(**settings) as producer:
            await producer.send("waits", b"x")
        async with krust.AsyncConsumer("waits", group_id="a", **settings) as consumer:
            await consumer.poll(100)

    def use_all() -> None:
        with krust.Producer(**settings) as producer:
            producer.produce("waits", b"x")
            wait_until(ours)
        for protocol in ("classic", "consumer"):
            with krust.Consumer(
                "waits", group_id=protocol, group_protocol=protocol, **settings
            ) as consumer:
                until(lambda one=consumer: bool(one.assignment()), consumer)  # type: ignore[misc]
        with krust.Admin(**settings) as admin:
            admin.topics()
        asyncio.run(both())

    use_all()
    wait_until(lambda: not ours())  # a thread that was joined is there a moment longer


def test_a_refusal_has_its_error_code_and_whether_it_is_retriable(ways: dict[str, str]) -> None:
    with krust.Admin(bootstrap_servers=ways["at"]) as admin:
        with pytest.raises(KafkaError) as caught:
            admin.create_topic("waits", 1)
        error = caught.value
        assert (error.code, error.name, error.retriable) == (36, "TOPIC_ALREADY_EXISTS", False)
    assert _krust.error_info(14) == ("COORDINATOR_LOAD_IN_PROGRESS", True)


def test_a_silent_broker_is_named_with_a_hint() -> None:
    with (
        krust.Admin(bootstrap_servers="127.0.0.1:1") as admin,
        pytest.raises(UnreachableError, match="127") as caught,
    ):
        admin.topics()
    assert caught.value.retriable
    assert caught.value.hint


def _is_lost(consumer: krust.Consumer) -> bool:
    """Whether its thread has left the group for it."""
    return consumer._member is not None and consumer._member.state == LOST


def test_on_revoke_is_called_for_lost_partitions_without_on_lost(ways: dict[str, str]) -> None:
    heard: list[int] = []
    with krust.Consumer(
        bootstrap_servers=ways["at"], group_id="lost", heartbeat_interval_ms=50
    ) as consumer:
        consumer.subscribe(["waits"], on_revoke=lambda _, places: heard.append(len(places)))
        until(lambda: bool(consumer.assignment()), consumer)
        patient(consumer, 1)
        wait_until(lambda: _is_lost(consumer))
        patient(consumer, 600_000)
        until(lambda: bool(heard), consumer)
        assert heard == [1]
        until(lambda: bool(consumer.assignment()), consumer)
