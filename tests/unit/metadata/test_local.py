"""The embedded store, beyond the contract: it is durable and equals a plain dict."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krust.errors import ServerError
from krust.metadata.local import Tree
from krust.metadata.store import (
    Create,
    Delete,
    MultiResult,
    Node,
    Operation,
    Read,
    Refusal,
    SetData,
    Store,
)


def run(store: Store, *operations: Operation) -> MultiResult:
    store.submit(operations, None)
    (done,) = (event for event in store.events() if isinstance(event, MultiResult))
    return done


def test_a_tree_is_the_same_after_a_restart(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "db")
    store = tree.session()
    run(store, Create("/a", b"1"), Create("/a/b"), Create("/e", ephemeral=True))
    run(store, SetData("/a", b"2"))
    zxid = tree.zxid
    tree.close()
    again = Tree(tmp_path / "db")
    (node,) = run(again.session(), Read("/a")).results
    assert isinstance(node, Node)
    assert (node.data, node.stat.version, node.stat.children) == (b"2", 1, 1)
    assert run(again.session(), Read("/e")).refused is Refusal.NO_NODE
    assert again.zxid == zxid
    again.close()


def test_an_answered_change_survives_a_kill(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "db")
    run(tree.session(), Create("/a", b"answered"))
    with closing(sqlite3.connect(tmp_path / "db")) as other:
        assert other.execute("SELECT data FROM node WHERE path = '/a'").fetchone() == (b"answered",)
    tree.close()


def test_sequence_numbers_continue_after_a_restart(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "db")
    run(tree.session(), Create("/q"))
    run(tree.session(), Create("/q/n", sequential=True))
    run(tree.session(), Delete("/q/n0000000000"))
    tree.close()
    again = Tree(tmp_path / "db")
    run(again.session(), Create("/q/n", sequential=True))
    assert run(again.session(), Read("/q/n0000000000")).refused is Refusal.NO_NODE
    again.close()


def test_a_file_that_is_not_a_database_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"no database at all" * 100)
    with pytest.raises(ServerError, match="cannot be read"):
        Tree(tmp_path / "db")


def test_a_file_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    Tree(tmp_path / "db").close()
    with closing(sqlite3.connect(tmp_path / "db")) as file, file:
        file.execute("UPDATE meta SET value = 3 WHERE name = 'format'")
    with pytest.raises(ServerError, match="format 3"):
        Tree(tmp_path / "db")


def test_a_change_that_cannot_be_written_is_unknown_and_written_later(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "db")
    store = tree.session()
    run(store, Create("/before"))
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
        assert tree._saved is not None
        assert tree._saved._database is not None
        tree._saved._database.file.execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
        assert run(store, Create("/a")).results == (Refusal.UNKNOWN,)
        assert isinstance(run(store, Read("/before")).results[0], Node)
        assert run(store, Create("/a")).refused is Refusal.NODE_EXISTS
        other.execute("ROLLBACK")
    assert run(store, Create("/b")).refused is None
    tree.close()
    again = Tree(tmp_path / "db")
    assert all(
        isinstance(run(again.session(), Read(path)).results[0], Node) for path in ("/a", "/b")
    )
    again.close()


PATHS = st.sampled_from(["/a", "/b", "/a/a", "/a/b", "/a/a/a", "/b/a"])
WRITES = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=2), st.just(False), st.just(False)),
    st.builds(SetData, PATHS, st.binary(max_size=2), st.just(-1)),
    st.builds(Delete, PATHS, st.just(-1)),
)


def model_step(model: dict[str, bytes], operation: Operation) -> bool:
    """Do one write to a plain dict; False: it cannot be done."""
    path = operation.path
    parent = path.rpartition("/")[0]
    if isinstance(operation, Create):
        if path in model or (parent and parent not in model):
            return False
        model[path] = operation.data
    elif path not in model:
        return False
    elif isinstance(operation, SetData):
        model[path] = operation.data
    elif any(other.startswith(f"{path}/") for other in model):
        return False
    else:
        del model[path]
    return True


@given(st.lists(st.lists(WRITES, min_size=1, max_size=4), max_size=20))
def test_a_tree_equals_a_dict_after_random_operations(lists: list[list[Operation]]) -> None:
    store = Tree().session()
    model: dict[str, bytes] = {}
    for operations in lists:
        trial = dict(model)
        happens = all(model_step(trial, each) for each in operations)
        assert (run(store, *operations).refused is None) == happens
        model = trial if happens else model
    for path in ["/a", "/b", "/a/a", "/a/b", "/a/a/a", "/b/a"]:
        (result,) = run(store, Read(path)).results
        assert (result.data if isinstance(result, Node) else None) == model.get(path)
