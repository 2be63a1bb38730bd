"""`krust cluster export` and `import`: settings and quotas go both ways, and what somebody else set
is not replaced unasked. A tree in memory is the ZooKeeper."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import krust
from krust.cli import main
from krust.config import Config
from krust.metadata.contents import EntityConfig
from krust.metadata.local import Tree
from krust.metadata.store import Create, Delete, MultiResult, Node, Read, SetData, Write
from krust.runtime import transfer
from krust.runtime.offline_store import OpenStore
from tests.adopted import unpack

JSON = ("--output", "json")
SETTINGS, QUOTA = "/config/topics/{}", "/config/clients/shop"
RETENTION = EntityConfig({"retention.ms": "86400000"}).encode()
RATE = EntityConfig({"producer_byte_rate": "1024"}).encode()


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


class Other:
    """What the ZooKeeper has."""

    def __init__(self) -> None:
        self.tree = Tree()

    def __getitem__(self, path: str) -> bytes | None:
        store = self.tree.session()
        store.submit([Read(path)], 0)
        (done,) = store.events()
        node = done.results[0] if isinstance(done, MultiResult) else None
        return node.data if isinstance(node, Node) else None

    def do(self, *operations: Write) -> None:
        store = self.tree.session()
        store.submit(operations, 0)
        (done,) = store.events()
        assert isinstance(done, MultiResult)
        assert done.refused is None


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Other:
    made = Other()

    @contextmanager
    def opened(config: Config) -> Iterator[OpenStore]:
        yield OpenStore(made.tree.session(), "the ZooKeeper", threading.Event())

    monkeypatch.setattr(transfer, "open_zookeeper", opened)
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    def ran(folder: Path, *args: str) -> Ran:
        with pytest.raises(SystemExit) as left:
            main(["cluster", *args, "--zookeeper", "zk:2181", "--data-dir", str(folder)])
        code = left.value.code
        return Ran(code if isinstance(code, int) else 0, *capsys.readouterr())

    return ran


def served(folder: Path, *topics: str) -> None:
    with krust.Broker(folder) as broker:
        for topic in topics:
            broker.create_topic(topic, 1, {"retention.ms": 86_400_000})


def config(folder: Path, topic: str) -> dict[str, str]:
    with krust.Broker(folder) as broker:
        return dict(broker._running().state.topics[topic].config)


def test_settings_and_quotas_survive_an_export_and_import(
    tmp_path: Path, other: Other, run: Any
) -> None:
    served(tmp_path / "data", "orders")
    assert run(tmp_path / "data", "export").code == 0
    assert EntityConfig.decode(other[SETTINGS.format("orders")] or b"").config == {
        "retention.ms": "86400000"
    }
    other.do(
        Create(QUOTA, RATE), SetData(SETTINGS.format("orders"), RETENTION.replace(b"86", b"5"))
    )
    taken = run(tmp_path / "data", "import", *JSON).json
    assert (taken["changed"], taken["set_by_others"]) == (1, 0)
    assert config(tmp_path / "data", "orders")["retention.ms"] == "5400000"
    other.do(SetData("/brokers", b""))
    given = run(tmp_path / "data", "export")
    assert given.code == 0, given.err
    assert other[QUOTA] == RATE
    other.do(Delete(QUOTA))
    assert run(tmp_path / "data", "import").code == 0
    assert run(tmp_path / "data", "export").code == 0
    assert other[QUOTA] is None


@pytest.fixture
def taken_over(tmp_path: Path, other: Other, run: Any) -> Path:
    """A Kafka's directory that krust served without asking its ZooKeeper, which has settings and a
    quota."""
    folder = unpack("kafka-3.9.1-clean", tmp_path / "kafka")
    with krust.Broker(folder) as broker:
        topic = broker.topics()[0]
    (tmp_path / "topic").write_text(topic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "_write", lambda *args: None)  # Kafka wrote all of it
        assert run(folder, "export").code == 0
    other.do(SetData(SETTINGS.format(topic), RETENTION), Create(QUOTA, RATE))
    return folder


def test_an_export_over_foreign_settings_is_refused_and_names_them(
    tmp_path: Path, other: Other, run: Any, taken_over: Path
) -> None:
    topic = (tmp_path / "topic").read_text()
    shown = run(taken_over, "export", "--dry-run")
    assert shown.code == 0
    for words in (f"settings of topic {topic}", "retention.ms=86400000", "producer_byte_rate=1024"):
        assert words in shown.out
    listed = run(taken_over, "export", "--dry-run", *JSON).json
    assert listed["set_by_others"] == 2
    assert {
        "subject": "quotas of client shop",
        "there": "producer_byte_rate=1024",
        "becomes": "producer_byte_rate=(removed)",
        "set_by_others": True,
    } in listed["differences"]
    refused = run(taken_over, "export")
    assert refused.code != 0
    assert f"settings of topic {topic}: retention.ms=86400000 ->" in refused.err
    assert "--keep" in refused.err
    assert other[QUOTA] == RATE
    assert other[SETTINGS.format(topic)] == RETENTION


def test_an_export_that_keeps_leaves_settings_and_quotas(
    tmp_path: Path, other: Other, run: Any, taken_over: Path
) -> None:
    topic = (tmp_path / "topic").read_text()
    epoch = other["/controller_epoch"]
    krust.Broker(taken_over).stop()
    for _ in range(2):
        done = run(taken_over, "export", "--keep", *JSON).json
        assert done["kept"] == 2
        assert other[QUOTA] == RATE
        assert other[SETTINGS.format(topic)] == RETENTION
    assert other["/controller_epoch"] != epoch
    assert run(taken_over, "export").code != 0, "what was kept is still not this side's"
    assert run(taken_over, "export", "--replace").code == 0
    assert other[QUOTA] is None


def test_an_import_replaces_assumed_settings(
    tmp_path: Path, other: Other, run: Any, taken_over: Path
) -> None:
    topic = (tmp_path / "topic").read_text()
    done = run(taken_over, "import")
    assert done.code == 0, done.err
    assert config(taken_over, topic) == {"retention.ms": "86400000"}


def test_an_import_restores_lost_metadata(tmp_path: Path, other: Other, run: Any) -> None:
    served(tmp_path / "data", "orders")
    assert run(tmp_path / "data", "export").code == 0
    for each in (tmp_path / "data").glob("krust-metadata.*"):
        each.write_bytes(b"garbage")
    assert run(tmp_path / "data", "import").code == 0
    assert config(tmp_path / "data", "orders")["retention.ms"] == "86400000"


def test_topics_elsewhere_are_named_as_users_name_them(
    tmp_path: Path, other: Other, run: Any
) -> None:
    served(tmp_path / "data", "orders")
    assert run(tmp_path / "data", "export").code == 0
    for name in ("__consumer_offsets", "billing"):
        other.do(Create(f"/brokers/topics/{name}", b'{"version":1,"partitions":{"0":[7]}}'))
    refused = run(tmp_path / "data", "import")
    assert "other brokers than 0: billing, __consumer_offsets" in refused.err
