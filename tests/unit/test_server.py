"""`krust.Broker` from start to close, in a test or a program."""

import asyncio
import gc
import multiprocessing
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import krust
from krust._krust import Client
from krust.cli.exits import Exit
from krust.controller.changes import Changes
from krust.coordinator.assignors.even import Sticky
from krust.errors import Code, ConfigError, ForkedError, KafkaError, ServerError
from krust.runtime.broker import Runtime
from krust.runtime.metadata import FILE as METADATA
from krust.runtime.metadata import JOURNAL
from tests.leftovers import nothing_left
from tests.serving import environment
from tests.waiting import is_readable, until


def test_a_broker_listens_while_its_block_lasts() -> None:
    with krust.Broker() as broker:
        host, port = broker.bootstrap.split(":")
        socket.create_connection((host, int(port)), timeout=60).close()
        assert broker.client_config() == {"bootstrap.servers": broker.bootstrap}
        assert broker.kwargs() == {"bootstrap_servers": broker.bootstrap}
        assert len(broker.cluster_id) == 22
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=60)


def test_a_temporary_directory_is_removed_with_its_broker() -> None:
    with krust.Broker() as broker:
        broker.create_topic("a")
        folder = broker.data_dir
        assert folder.is_dir()
    assert not folder.exists()


def test_topics_and_cluster_outlive_a_restart(tmp_path: Path) -> None:
    with krust.Broker(tmp_path, config={"num.partitions": 2}) as broker:
        broker.create_topic("a", 3, {"retention.ms": 5000, "preallocate": True})
        broker.create_topic("b")
        cluster_id = broker.cluster_id
    with krust.Broker(tmp_path) as broker:
        assert broker.topics() == ["a", "b"]
        assert broker.cluster_id == cluster_id
        broker.delete_topic("a")
    with krust.Broker(tmp_path) as broker:
        assert broker.topics() == ["b"]


def set_dynamic(broker: krust.Broker, name: str, value: str) -> int:
    """Set it for all brokers; the code of the answer."""
    change = {"name": name, "config_operation": 0, "value": value}
    asked = {"resource_type": 4, "resource_name": "", "configs": [change]}
    client = Client(broker.bootstrap)
    answer = client.request("IncrementalAlterConfigs", {"resources": [asked]})
    client.close()
    return int(answer["responses"][0]["error_code"])


def ask(connection: socket.socket) -> None:
    """Send ApiVersions."""
    connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))


def test_a_limit_of_connections_holds_from_its_change_on(tmp_path: Path) -> None:
    def connect() -> socket.socket:
        host, port = broker.bootstrap.rsplit(":", 1)
        return socket.create_connection((host, int(port)), 30)

    with krust.Broker(tmp_path) as broker:
        assert set_dynamic(broker, "num.network.threads", "2") == Code.INVALID_REQUEST
        with connect():
            assert set_dynamic(broker, "max.connections.per.ip", "1") == Code.NONE
            with connect() as second:
                assert second.recv(1) == b""
    with krust.Broker(tmp_path) as broker, connect(), connect() as second:
        assert second.recv(1) == b""


def test_limits_of_a_listener_and_of_an_address_hold_from_their_change_on(tmp_path: Path) -> None:
    def connect() -> socket.socket:
        host, port = broker.bootstrap.rsplit(":", 1)
        return socket.create_connection((host, int(port)), 30)

    overrides, own = "max.connections.per.ip.overrides", "listener.name.plaintext.max.connections"
    with krust.Broker(tmp_path) as broker:
        assert set_dynamic(broker, overrides, "127.0.0.1") == Code.INVALID_CONFIG
        assert set_dynamic(broker, own, "-1") == Code.INVALID_CONFIG
        assert set_dynamic(broker, overrides, "127.0.0.1:1,10.0.0.1:7") == Code.NONE
        with connect() as first, connect() as second:
            assert second.recv(1) == b""
            ask(first)
            assert is_readable(first)
        assert set_dynamic(broker, overrides, "") == Code.NONE
        assert set_dynamic(broker, own, "1") == Code.NONE
        with connect() as first, connect() as second:
            ask(first)
            assert is_readable(first)
            ask(second)
            assert not is_readable(second, 0)
            first.close()
            assert is_readable(second)


def test_the_broker_refuses_to_start_with_a_limit_that_keeps_all_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nobody could connect"):
        krust.Broker(tmp_path, config={"max.connections.per.ip": 0})
    allowed = {"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "127.0.0.1:9"}
    with krust.Broker(tmp_path, config=allowed) as broker:
        broker.create_topic("a")
        assert set_dynamic(broker, "max.connections", "8") == Code.NONE


def test_settings_that_were_changed_while_it_ran_reach_the_core_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with krust.Broker(tmp_path) as broker:
        assert set_dynamic(broker, "log.cleaner.threads", "2") == Code.NONE
    applied = []
    apply = Runtime._apply

    def noted(runtime: Runtime, changes: Changes, cluster_id: str | None = None) -> None:
        applied.append(changes.brokers)
        apply(runtime, changes, cluster_id)

    monkeypatch.setattr(Runtime, "_apply", noted)
    with krust.Broker(tmp_path):
        assert applied[0]


def test_a_refused_topic_is_a_kafka_error() -> None:
    with krust.Broker() as broker:
        broker.create_topic("a")
        with pytest.raises(KafkaError, match="already exists") as caught:
            broker.create_topic("a")
        assert (caught.value.code, caught.value.name) == (36, "TOPIC_ALREADY_EXISTS")
        with pytest.raises(KafkaError) as caught:
            broker.delete_topic("b")
        assert caught.value.code == 3


def test_a_stopped_broker_raises() -> None:
    broker = krust.Broker()
    broker.stop()
    broker.stop()
    with pytest.raises(ServerError, match="stopped") as caught:
        broker.create_topic("a")
    assert caught.value.hint
    broker.close()
    with pytest.raises(ServerError, match="closed"):
        broker.start()


@pytest.mark.parametrize("stop", [krust.Broker.stop, krust.Broker.kill])
def test_a_restarted_broker_has_its_data_and_its_port(
    stop: Callable[[krust.Broker], None],
) -> None:
    with krust.Broker() as broker:
        broker.create_topic("orders", partitions=2)
        with krust.Producer(**broker.kwargs()) as producer:
            producer.produce("orders", b"first", partition=1)
        with krust.Consumer(**broker.kwargs(group_id="billing")) as consumer:
            consumer.commit({("orders", 1): 1})
        bootstrap, cluster_id = broker.bootstrap, broker.cluster_id
        for _ in range(2):
            stop(broker)
            assert broker.start() is broker
        assert broker.start() is broker, "one that runs runs on"
        assert (broker.bootstrap, broker.cluster_id) == (bootstrap, cluster_id)
        with krust.Producer(**broker.kwargs()) as producer:
            producer.produce("orders", b"second", partition=0)
        assert [record.value for record in broker.records("orders")] == [b"second", b"first"]
        with krust.Admin(**broker.kwargs()) as admin:
            assert admin.committed("billing", "orders", 2) == {("orders", 1): 1}


def test_a_start_on_a_taken_port_is_an_error_and_can_be_retried() -> None:
    with krust.Broker() as broker:
        host, port = broker.bootstrap.split(":")
        broker.stop()
        with socket.create_server((host, int(port))), pytest.raises(ServerError, match=port):
            broker.start()
        broker.start()
        assert broker.bootstrap == f"{host}:{port}"


def test_a_temporary_directory_is_removed_with_a_forgotten_broker() -> None:
    broker = krust.Broker()
    folder = broker.data_dir
    broker.stop()
    assert folder.exists()
    del broker
    gc.collect()
    assert not folder.exists()


def test_a_given_directory_stays_when_its_broker_is_closed(tmp_path: Path) -> None:
    with krust.Broker(tmp_path) as broker:
        broker.create_topic("a")
    with krust.Broker(tmp_path) as broker:
        assert broker.topics() == ["a"]


def test_client_config_and_kwargs_accept_more_settings() -> None:
    with krust.Broker() as broker:
        at = broker.bootstrap
        assert broker.client_config(group_id="g", **{"linger.ms": 5}) == {
            "bootstrap.servers": at,
            "group.id": "g",
            "linger.ms": 5,
        }
        assert broker.kwargs(group_id="g") == {"bootstrap_servers": at, "group_id": "g"}


def test_a_topic_of_a_broker_is_read_whole() -> None:
    with krust.Broker() as broker:
        broker.create_topic("orders", partitions=2)
        assert broker.records("orders") == []
        with krust.Producer(**broker.kwargs()) as producer:
            for number in range(20_001):
                producer.produce("orders", b"%d" % number, partition=number % 2)
        records = broker.records("orders")
        places = [(record.partition, record.offset) for record in records]
        assert places == sorted(places)
        assert {int(record.value or b"") for record in records} == set(range(20_001))
        with pytest.raises(KafkaError) as caught:
            broker.records("returns")
        assert caught.value.name == "UNKNOWN_TOPIC_OR_PARTITION"
        assert caught.value.retriable


def test_a_broker_is_closed_at_the_end_of_its_async_block() -> None:
    async def run() -> Path:
        async with krust.Broker() as broker:
            async with krust.AsyncProducer(**broker.kwargs()) as producer:
                assert (await producer.send("orders", b"x")).offset == 0
            return broker.data_dir

    with nothing_left():
        assert not asyncio.run(run()).exists()


def test_a_broker_ended_by_a_bug_raises_and_leaves_no_resource(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    krust.Broker().stop()
    with nothing_left(), krust.Broker() as broker:
        assert broker.failure is None
        ended, folder = threading.Event(), broker.data_dir
        broker.on_failure = ended.set
        monkeypatch.setattr(Runtime, "decide", lambda *_: 1 // 0)
        with pytest.raises(ServerError, match="ended by a bug: ZeroDivisionError") as caught:
            broker.create_topic("a")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert caught.value.hint
        assert ended.wait(60)
        with pytest.raises(ServerError, match="ended by a bug"):
            assert broker.bootstrap
        assert str(broker.failure) == str(caught.value)
        assert not folder.exists()


def test_a_bug_right_after_the_start_is_reported_as_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runtime, "turn", lambda _: 1 // 0)
    for _ in range(20):
        with (
            pytest.raises(ServerError, match="ended by a bug: ZeroDivisionError"),
            krust.Broker() as broker,
        ):
            until(broker.topics)


def test_a_bug_in_the_start_is_reported_as_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runtime, "wait_for_leaders", lambda *_: 1 // 0)
    with (
        nothing_left(),
        pytest.raises(ServerError, match="ended by a bug: ZeroDivisionError") as caught,
    ):
        krust.Broker()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


PLANTED = """
import sys
from krust.cli import main
from krust.runtime.broker import Runtime

def turn(self):
    raise RuntimeError("planted")

Runtime.turn = turn
main(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ["serve --ready-file {}/ready", "dev -n 2"])
def test_a_command_whose_broker_was_ended_by_a_bug_fails_with_a_message(
    tmp_path: Path, command: str
) -> None:
    words = [*command.format(tmp_path).split(), "--port", "0", "--data-dir", str(tmp_path / "d")]
    run = subprocess.run(
        [sys.executable, "-c", PLANTED, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
    )
    assert run.returncode == Exit.FAILED, run.stderr
    assert "error: the broker ended by a bug: RuntimeError: planted" in run.stderr
    assert "Traceback" in run.stderr
    assert not (tmp_path / "ready").exists()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with krust.Broker(tmp_path), pytest.raises(ServerError) as caught:
        krust.Broker(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.hint


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with krust.Broker() as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        with pytest.raises(ServerError, match="in use") as caught:
            krust.Broker(tmp_path, port=port)
    assert caught.value.hint
    krust.Broker(tmp_path).stop()


def test_a_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServerError) as caught:
        krust.Broker(tmp_path / "file")
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_another_clusters_directory_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        krust.Broker(tmp_path / name).stop()
    for name in (METADATA, JOURNAL):
        shutil.copy(tmp_path / "one" / name, tmp_path / "two" / name)
    with pytest.raises(ServerError, match="belongs to cluster"):
        krust.Broker(tmp_path / "two")


def test_another_brokers_directory_is_refused(tmp_path: Path) -> None:
    krust.Broker(tmp_path, config={"broker.id": 5}).stop()
    with krust.Broker(tmp_path) as broker:
        assert broker.node_id == 5
    with pytest.raises(ServerError, match=r"belongs to broker 5"):
        krust.Broker(tmp_path, config={"broker.id": 6})


def test_a_bad_setting_starts_nothing() -> None:
    with nothing_left(), pytest.raises(ConfigError, match=r"num\.partitions"):
        krust.Broker(config={"num.partitions": 0})


def test_many_starts_leave_no_thread_file_or_descriptor() -> None:
    krust.Broker().stop()
    stopped = []
    with nothing_left():
        for assignors in ({}, {"g": Sticky}) * 10:
            with krust.Broker(assignors=assignors) as broker:
                broker.create_topic("a")
            stopped.append(broker)


def _try_in_child(broker: krust.Broker, answer: Connection) -> None:
    try:
        broker.create_topic("child")
    except ForkedError:
        answer.send("refused")
    broker.stop()
    answer.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_and_harms_no_broker() -> None:
    with krust.Broker() as broker:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        child = context.Process(target=_try_in_child, args=(broker, theirs))
        child.start()
        assert ours.poll(60)
        assert ours.recv() == "refused"
        child.join()
        assert child.exitcode == 0
        broker.create_topic("parent")
        assert broker.data_dir.is_dir()


def test_a_program_that_never_stops_its_broker_still_exits_cleanly(tmp_path: Path) -> None:
    program = f"import krust; b = krust.Broker({str(tmp_path)!r}); b.create_topic('a')"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with krust.Broker(tmp_path) as broker:
        assert broker.topics() == ["a"]


class OnlyA:
    """Everybody may do everything with topics that begin with `a`."""

    name = "only_a"

    def __init__(self) -> None:
        self.seen: set[krust.AclClient] = set()

    def acls(self, client: krust.AclClient) -> list[krust.ClientAcl]:
        self.seen.add(client)
        return [krust.ClientAcl.allow("topic", "a*", "all")]


def test_an_authorizer_object_says_what_clients_may_do() -> None:
    own = OnlyA()
    with krust.Broker(authorizer=own) as broker:
        with krust.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("apples", b"x").result()
            with pytest.raises(KafkaError) as caught:
                producer.send("pears", b"x").result()
            assert caught.value.name == "TOPIC_AUTHORIZATION_FAILED"
        assert broker.topics() == ["apples"]
    assert own.seen == {krust.AclClient("ANONYMOUS", "127.0.0.1", "PLAINTEXT")}
    with pytest.raises(ConfigError, match="no authorizer"):
        krust.Broker(authorizer=int)  # type: ignore[arg-type]


class OfThePolicyThread:
    """The state of a broker, which fails when any but its policy thread reads it."""

    def __init__(self, state: Any, policy: int) -> None:
        self._state, self._policy = state, policy

    def __getattr__(self, name: str) -> Any:
        assert threading.get_ident() == self._policy, f"another thread reads {name}"
        return getattr(self._state, name)


def test_threads_of_the_program_read_a_copy_of_the_state() -> None:
    with krust.Broker() as broker:
        broker.create_topic("t", partitions=2)
        core = broker._core
        assert core is not None
        assert broker._thread is not None
        guarded: Any = OfThePolicyThread(core.state, broker._thread.ident or 0)
        core.state = guarded
        assert broker.topics() == ["t"]
        assert broker.leader("t", 1) == broker.node_id == broker.controller_id
        assert broker.leader("t", 2) is None
        assert broker.known_brokers() == {broker.node_id}
        assert broker.cluster_id
        assert broker.records("t") == []
        broker.create_topic("u")
        assert broker.topics() == ["t", "u"]
