"""The contract of a metadata store, run through every store there is.

A store joins by adding to STORES a function that yields a way to open sessions with one tree.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from krust.metadata.local import Tree
from krust.metadata.store import (
    Change,
    Check,
    Children,
    Create,
    Created,
    Delete,
    Done,
    Exists,
    Node,
    Operation,
    Read,
    Refusal,
    Result,
    SetData,
    Stat,
    Store,
    Watched,
)

Sessions = Callable[[], Store]


@contextmanager
def in_memory(folder: Path) -> Iterator[Sessions]:
    tree = Tree()
    yield tree.session
    tree.close()


@contextmanager
def in_sqlite(folder: Path) -> Iterator[Sessions]:
    tree = Tree(folder / "metadata.db")
    yield tree.session
    tree.close()


STORES = {"memory": in_memory, "sqlite": in_sqlite}


@pytest.fixture(params=STORES)
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sessions]:
    with STORES[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture
def store(sessions: Sessions) -> Store:
    return sessions()


def ask(store: Store, *operations: Operation) -> tuple[Result, ...]:
    """Submit one list and wait for its answer."""
    store.submit(operations, "asked")
    while True:
        for event in store.events():
            if isinstance(event, Done) and event.token == "asked":
                return event.results


def watched(store: Store) -> list[tuple[Change, str]]:
    return [(each.change, each.path) for each in store.events() if isinstance(each, Watched)]


def stat(store: Store, path: str) -> Stat:
    (result,) = ask(store, Exists(path))
    assert isinstance(result, Stat)
    return result


def test_a_node_holds_what_it_was_made_with(store: Store) -> None:
    (made,) = ask(store, Create("/a", b"one"))
    assert isinstance(made, Created)
    assert made.path == "/a"
    (node,) = ask(store, Read("/a"))
    assert isinstance(node, Node)
    assert (node.data, node.stat.version, node.stat.children) == (b"one", 0, 0)
    assert node.stat.czxid == node.stat.mzxid


def test_a_node_needs_its_parent(store: Store) -> None:
    assert ask(store, Create("/a/b")) == (Refusal.NO_NODE,)


@pytest.mark.parametrize("path", ["", "a", "/", "/a/", "//a", "/a/./b", "/a/../b", "/\0"])
def test_what_is_no_path_is_refused(store: Store, path: str) -> None:
    assert ask(store, Create(path)) == (Refusal.BAD_ARGUMENTS,)


def test_a_node_is_made_once(store: Store) -> None:
    ask(store, Create("/a", b"first"))
    assert ask(store, Create("/a", b"second")) == (Refusal.NODE_EXISTS,)
    (node,) = ask(store, Read("/a"))
    assert isinstance(node, Node)
    assert node.data == b"first"


def test_each_change_of_data_counts(store: Store) -> None:
    ask(store, Create("/a"))
    before = stat(store, "/a")
    (after,) = ask(store, SetData("/a", b"new", 0))
    assert isinstance(after, Stat)
    assert after.version == 1
    assert after.mzxid > before.mzxid
    assert after.czxid == before.czxid


def test_a_change_for_another_version_is_refused(store: Store) -> None:
    ask(store, Create("/a"))
    assert ask(store, SetData("/a", b"", 1)) == (Refusal.BAD_VERSION,)
    assert ask(store, Delete("/a", 7)) == (Refusal.BAD_VERSION,)
    assert ask(store, Check("/a", 0)) == (None,)


def test_only_a_childless_node_can_go(store: Store) -> None:
    ask(store, Create("/a"), Create("/a/b"))
    assert ask(store, Delete("/a")) == (Refusal.NOT_EMPTY,)
    assert ask(store, Delete("/a/b"), Delete("/a")) == (None, None)
    assert ask(store, Exists("/a")) == (Refusal.NO_NODE,)


def test_a_list_happens_as_a_whole_or_not_at_all(store: Store) -> None:
    ask(store, Create("/a", b"old"), Create("/gone"))
    results = ask(
        store,
        SetData("/a", b"new"),
        Create("/a/child"),
        Delete("/gone"),
        Check("/a", 99),
        Create("/later"),
    )
    rolled = Refusal.ROLLED_BACK
    assert results == (rolled, rolled, rolled, Refusal.BAD_VERSION, rolled)
    (node, gone, later) = ask(store, Read("/a"), Exists("/gone"), Exists("/later"))
    assert isinstance(node, Node)
    assert (node.data, node.stat.version, node.stat.cversion) == (b"old", 0, 0)
    assert isinstance(gone, Stat)
    assert later is Refusal.NO_NODE
    assert ask(store, Children("/")) == (("a", "gone"),)


def test_the_reason_of_a_refused_list_is_told(store: Store) -> None:
    store.submit([Create("/x"), Delete("/nowhere")], 1)
    (done,) = (each for each in store.events() if isinstance(each, Done))
    assert done.refused is Refusal.NO_NODE


def test_reads_are_answered_each_for_itself(store: Store) -> None:
    ask(store, Create("/a"))
    (there, missing) = ask(store, Exists("/a"), Read("/b"))
    assert isinstance(there, Stat)
    assert missing is Refusal.NO_NODE


def test_a_list_does_not_mix_reads_and_writes(store: Store) -> None:
    assert ask(store, Create("/a"), Read("/a")) == (Refusal.BAD_ARGUMENTS,) * 2
    assert ask(store, Exists("/a")) == (Refusal.NO_NODE,)


def test_children_are_sorted_and_counted(store: Store) -> None:
    ask(store, Create("/a"), *(Create(f"/a/{name}") for name in "cab"))
    assert ask(store, Children("/a")) == (("a", "b", "c"),)
    assert (stat(store, "/a").children, stat(store, "/a").cversion) == (3, 3)


def test_sequential_names_never_come_again(store: Store) -> None:
    ask(store, Create("/q"))
    (first,) = ask(store, Create("/q/n_", sequential=True))
    assert isinstance(first, Created)
    assert first.path == "/q/n_0000000000"
    ask(store, Delete(first.path))
    (second,) = ask(store, Create("/q/n_", sequential=True))
    assert isinstance(second, Created)
    assert second.path > first.path


def test_an_ephemeral_node_goes_with_its_session(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Create("/a"), Create("/a/e", ephemeral=True))
    assert stat(other, "/a/e").ephemeral
    assert ask(other, Exists("/a/e", watch=True)) != (Refusal.NO_NODE,)
    mine.close()
    assert (Change.DELETED, "/a/e") in watched(other)
    assert ask(other, Exists("/a/e"), Children("/a")) == (Refusal.NO_NODE, ())


def test_an_ephemeral_node_has_no_children(store: Store) -> None:
    ask(store, Create("/e", ephemeral=True))
    assert ask(store, Create("/e/c")) == (Refusal.NO_CHILDREN_FOR_EPHEMERALS,)


def test_a_closed_session_does_nothing(sessions: Sessions) -> None:
    store = sessions()
    store.close()
    assert ask(store, Create("/a")) == (Refusal.NO_SESSION,)


def test_a_watch_on_data_fires_once(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Create("/a"))
    ask(mine, Read("/a", watch=True))
    ask(other, SetData("/a", b"1"))
    ask(other, SetData("/a", b"2"))
    assert watched(mine) == [(Change.CHANGED, "/a")]


def test_a_watch_can_wait_for_a_node_to_come(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    assert ask(mine, Exists("/a", watch=True)) == (Refusal.NO_NODE,)
    ask(other, Create("/a"))
    assert watched(mine) == [(Change.CREATED, "/a")]


def test_a_read_of_nothing_sets_no_watch(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Read("/a", watch=True))
    ask(other, Create("/a"))
    assert watched(mine) == []


def test_a_watch_on_children_sees_them_come_and_go(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Create("/a"))
    ask(mine, Children("/a", watch=True))
    ask(other, SetData("/a", b"not seen"))
    assert watched(mine) == []
    ask(other, Create("/a/b"))
    assert watched(mine) == [(Change.CHILDREN, "/a")]


def test_a_watch_fires_before_a_later_answer(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Create("/a"))
    ask(mine, Read("/a", watch=True))
    ask(other, SetData("/a", b""))
    mine.submit([Exists("/a")], "later")
    kinds = [type(event) for event in mine.events()]
    assert kinds == [Watched, Done]


def test_a_refused_list_fires_no_watch(store: Store) -> None:
    ask(store, Create("/a"))
    ask(store, Read("/a", watch=True))
    ask(store, SetData("/a", b""), Check("/a", 5))
    assert watched(store) == []
