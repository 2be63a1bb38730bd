"""ACLs written without a broker: the same nodes, bytes and notifications as Kafka's own tool."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient

from krust.cli import main
from tests.peers import tools
from tests.peers import zookeeper as peer

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

ROOTS = ("kafka-acl", "kafka-acl-extended", "kafka-acl-changes", "kafka-acl-extended-changes")


class Change(NamedTuple):
    """One change, by the words of both commands."""

    kafka: str
    krust: str


CHANGES = (
    Change(
        "--add --allow-principal User:alice --operation Read --topic orders",
        "grant User:alice --operation read --topic orders",
    ),
    Change(
        "--add --allow-principal User:bob --allow-host 10.0.0.9 --operation All --topic orders",
        "grant User:bob --host 10.0.0.9 --operation all --topic orders",
    ),
    Change(
        "--add --allow-principal User:loader --producer --idempotent --transactional-id t "
        "--topic eu- --resource-pattern-type prefixed",
        "grant User:loader --producer --idempotent --transactional-id t --topic eu- --prefixed",
    ),
    Change(
        "--add --allow-principal User:billing --consumer --topic * --group billing",
        "grant User:billing --consumer --topic * --group billing",
    ),
    Change(
        "--add --deny-principal User:* --operation DescribeConfigs --cluster",
        "grant User:* --deny --operation describe-configs --cluster",
    ),
    Change(
        "--add --allow-principal User:CN=ann,O=x --operation CreateTokens --user-principal User:é",
        "grant User:CN=ann,O=x --operation CREATE_TOKENS --user-principal User:é",
    ),
    Change(
        "--add --allow-principal User:alice --operation Describe --delegation-token abc",
        "grant User:alice --operation describe --delegation-token abc",
    ),
    Change(
        "--add --allow-principal User:alice --operation Read --topic orders",
        "grant User:alice --operation read --topic orders",
    ),
    Change(
        "--remove --force --allow-principal User:bob --allow-host 10.0.0.9 --operation All "
        "--topic orders",
        "revoke User:bob --topic orders",
    ),
    Change(
        "--remove --force --allow-principal User:loader --operation Write --topic eu- "
        "--resource-pattern-type prefixed",
        "revoke User:loader --operation write --topic eu- --prefixed",
    ),
    Change(
        "--remove --force --allow-principal User:billing --consumer --topic * --group billing",
        "revoke User:billing --consumer --topic * --group billing",
    ),
)


@pytest.fixture(scope="module")
def run() -> Iterator[tools.Tools]:
    with tools.tools("3.9.1") as run:
        yield run


@pytest.fixture
def tree(zookeeper: peer.Ensemble) -> Iterator[KazooClient]:
    client = peer.reading_client(zookeeper.connect)
    client.start(peer.WAIT_S)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def chroots(tree: KazooClient) -> tuple[str, str]:
    """A place for Kafka's tool, and one for krust's."""
    both = tuple(f"/acls-{uuid.uuid4().hex}/{name}" for name in ("kafka", "krust"))
    return both[0], both[1]


def krust(*words: str) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["acl", *words])


def nodes(tree: KazooClient, chroot: str) -> dict[str, Any]:
    """Paths with what is in them; the order of ACLs in a node is that of a hash table in Kafka."""
    found: dict[str, Any] = {}
    waiting = [name for name in tree.get_children(chroot) if name in ROOTS]
    assert sorted(waiting) == sorted(ROOTS)
    while waiting:
        path = waiting.pop()
        data, stat = tree.get(f"{chroot}/{path}")
        children = tree.get_children(f"{chroot}/{path}")
        waiting += [f"{path}/{name}" for name in children]
        is_change = "acl_changes_" in path
        if data and not is_change:
            head, _, rest = data.partition(b"[")
            acls, _, tail = rest.rpartition(b"]")
            data = head, sorted(acls.replace(b"},{", b"}\n{").split(b"\n")), tail
        found[path] = data, stat.ephemeralOwner
    return found


def changes(found: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Nodes without notifications; and those, in any order: one command may change several."""
    kept = {path: has for path, has in found.items() if "acl_changes_" not in path}
    names = [path for path in found if "acl_changes_" in path]
    told = sorted((name.partition("/")[0], *found[name]) for name in names)
    return kept, told


def test_every_change_leaves_what_kafkas_tool_leaves(
    zookeeper: peer.Ensemble, tree: KazooClient, chroots: tuple[str, str], run: tools.Tools
) -> None:
    theirs, ours = chroots
    for change in CHANGES:
        at = f"zookeeper.connect={zookeeper.connect}{theirs}"
        code, text = run("kafka-acls", "--authorizer-properties", at, *change.kafka.split())
        assert code == 0, text
        krust(*change.krust.split(), "--zookeeper", f"{zookeeper.connect}{ours}")
        wanted, told = changes(nodes(tree, theirs))
        assert (change, *changes(nodes(tree, ours))) == (change, wanted, told)


def test_kafkas_tool_and_krusts_list_the_same(
    zookeeper: peer.Ensemble,
    chroots: tuple[str, str],
    run: tools.Tools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = f"{zookeeper.connect}{chroots[0]}"
    for number, change in enumerate(CHANGES):
        at = f"zookeeper.connect={place}"
        if number % 2:
            code, text = run("kafka-acls", "--authorizer-properties", at, *change.kafka.split())
            assert code == 0, text
        else:
            krust(*change.krust.split(), "--zookeeper", place)
        code, text = run("kafka-acls", "--authorizer-properties", at, "--list")
        assert code == 0, text
        capsys.readouterr()
        krust("list", "--json", "--zookeeper", place)
        rows = json.loads(capsys.readouterr().out)
        assert text.count("(principal=") == len(rows)
        for row in rows:
            words = f"(principal={row['principal']}, host={row['host']}, operation="
            assert f"{words}{_enum(row['operation'])}" in text, row
            assert f"name={row['name']}, patternType={_enum(row['pattern_type'])}" in text, row


def _enum(name: str) -> str:
    return "".join(f"_{each}" if each.isupper() else each for each in name)[1:].upper()


def test_a_list_of_a_zookeeper_creates_nothing_in_it(
    zookeeper: peer.Ensemble, tree: KazooClient, chroots: tuple[str, str], tmp_path: Path
) -> None:
    krust("list", "--zookeeper", f"{zookeeper.connect}{chroots[1]}")
    assert not tree.exists(f"{chroots[1]}/kafka-acl")
