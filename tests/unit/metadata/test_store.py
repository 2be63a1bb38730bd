"""The contract of a metadata store, run through every store there is.

A store joins by adding to STORES a function that yields a way to open sessions with one tree.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

import pytest

from krust.metadata.local import Tree
from krust.metadata.shared import SharedTree
from krust.metadata.store import (
    LARGEST,
    Change,
    Check,
    Children,
    Create,
    Created,
    Delete,
    Exists,
    MultiResult,
    Node,
    Operation,
    Read,
    Refusal,
    Result,
    SetData,
    Stat,
    Store,
    StoreEvent,
    WatchFired,
)

Sessions = Callable[[], Store]

WAIT_S = 60.0


@contextmanager
def in_memory(request: pytest.FixtureRequest, folder: Path) -> Iterator[Sessions]:
    tree = Tree()
    yield tree.session
    tree.close()


@contextmanager
def in_sqlite(request: pytest.FixtureRequest, folder: Path) -> Iterator[Sessions]:
    tree = Tree(folder / "metadata.db")
    yield tree.session
    tree.close()


@contextmanager
def in_threads(request: pytest.FixtureRequest, folder: Path) -> Iterator[Sessions]:
    tree = SharedTree()
    yield tree.session
    tree.close()


@contextmanager
def in_zookeeper(request: pytest.FixtureRequest, folder: Path) -> Iterator[Sessions]:
    server = request.getfixturevalue("zookeeper")
    from krust.metadata.ensemble import Ensemble
    from krust.metadata.zookeeper import open_store

    connect = f"{server.connect}/contract/{uuid.uuid4().hex}"
    opened: list[Store] = []

    def session() -> Store:
        opened.append(open_store(Ensemble(connect, session_timeout_ms=60_000)))
        return opened[-1]

    yield session
    for each in opened:
        each.close()


STORES = {
    "memory": in_memory,
    "sqlite": in_sqlite,
    "threads": in_threads,
    "zookeeper": in_zookeeper,
}


@pytest.fixture(
    params=["memory", "sqlite", "threads", pytest.param("zookeeper", marks=pytest.mark.java)],
)
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sessions]:
    with STORES[request.param](request, tmp_path) as opened:
        yield opened


@pytest.fixture
def store(sessions: Sessions) -> Store:
    return sessions()


_SEEN: WeakKeyDictionary[Store, list[StoreEvent]] = WeakKeyDictionary()


def events(store: Store, *operations: Operation) -> tuple[list[StoreEvent], MultiResult]:
    """Submit one list and wait for its answer; what came before it, and the answer."""
    seen = _SEEN.setdefault(store, [])
    token = object()
    store.submit(operations, token)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for event in store.events():
            seen.append(event)
        for event in seen:
            if isinstance(event, MultiResult) and event.token is token:
                place = seen.index(event)
                del seen[place]
                return seen[:place], event
        time.sleep(0.001)
    raise TimeoutError("no answer")


def ask(store: Store, *operations: Operation) -> tuple[Result, ...]:
    """Submit one list and wait for its answer; other events stay for `watched`."""
    return events(store, *operations)[1].results


def watched(store: Store) -> list[tuple[Change, str]]:
    """The watches that have fired up to now."""
    before, _ = events(store, Exists("/"))
    _SEEN[store] = _SEEN[store][len(before) :]
    return [(each.change, each.path) for each in before if isinstance(each, WatchFired)]


def stat(store: Store, path: str) -> Stat:
    (result,) = ask(store, Exists(path))
    assert isinstance(result, Stat)
    return result


def test_a_node_keeps_the_data_it_was_created_with(store: Store) -> None:
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
def test_an_invalid_path_is_refused(store: Store, path: str) -> None:
    assert ask(store, Create(path)) == (Refusal.BAD_ARGUMENTS,)


def test_a_node_is_created_once(store: Store) -> None:
    ask(store, Create("/a", b"first"))
    assert ask(store, Create("/a", b"second")) == (Refusal.NODE_EXISTS,)
    (node,) = ask(store, Read("/a"))
    assert isinstance(node, Node)
    assert node.data == b"first"


def test_each_change_of_data_increments_the_version(store: Store) -> None:
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


def test_only_a_node_without_children_can_be_deleted(store: Store) -> None:
    ask(store, Create("/a"), Create("/a/b"))
    assert ask(store, Delete("/a")) == (Refusal.NOT_EMPTY,)
    assert ask(store, Delete("/a/b"), Delete("/a")) == (None, None)
    assert ask(store, Exists("/a")) == (Refusal.NO_NODE,)


def test_a_multi_is_applied_entirely_or_not_at_all(store: Store) -> None:
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


def test_a_refused_multi_names_the_failed_operation(store: Store) -> None:
    _, done = events(store, Create("/x"), Delete("/nowhere"))
    assert done.refused is Refusal.NO_NODE


def test_each_read_of_a_list_has_its_own_result(store: Store) -> None:
    ask(store, Create("/a"))
    (there, missing) = ask(store, Exists("/a"), Read("/b"))
    assert isinstance(there, Stat)
    assert missing is Refusal.NO_NODE


def test_a_multi_refuses_a_mix_of_reads_and_writes(store: Store) -> None:
    assert ask(store, Create("/a"), Read("/a")) == (Refusal.BAD_ARGUMENTS,) * 2
    assert ask(store, Exists("/a")) == (Refusal.NO_NODE,)


def test_an_invalid_path_is_refused_before_any_other_check(store: Store) -> None:
    assert ask(store, Delete("/nowhere"), SetData("a", b"")) == (Refusal.BAD_ARGUMENTS,) * 2
    assert ask(store, Exists("/"), Read("/a//b")) == (Refusal.BAD_ARGUMENTS,) * 2


@pytest.mark.parametrize("letter", ["\0", "\n", "\x7f", "\x80", "\ud800", "\ue000", "\uffff"])
def test_characters_that_paths_may_not_contain_are_refused(store: Store, letter: str) -> None:
    assert ask(store, Create(f"/a{letter}")) == (Refusal.BAD_ARGUMENTS,)


@pytest.mark.parametrize("name", ["a b", "é", "漢字", "%20", "...", "<default>", "__x"])
def test_characters_that_paths_may_contain_are_kept(store: Store, name: str) -> None:
    (made,) = ask(store, Create(f"/{name}", b"1"))
    assert isinstance(made, Created)
    assert made.path == f"/{name}"
    assert ask(store, Children("/")) == ((name,),)


def test_the_root_can_be_read_and_set_but_not_created_or_deleted(store: Store) -> None:
    (before,) = ask(store, Read("/"))
    assert isinstance(before, Node)
    assert ask(store, Create("/")) == (Refusal.BAD_ARGUMENTS,)
    assert ask(store, Delete("/")) == (Refusal.BAD_ARGUMENTS,)
    (after,) = ask(store, SetData("/", b"set"))
    assert isinstance(after, Stat)
    assert after.version == before.stat.version + 1


def test_a_multi_that_is_too_large_is_refused_alone(store: Store) -> None:
    assert ask(store, Create("/a", b"x" * LARGEST)) == (Refusal.TOO_LARGE,)
    assert not isinstance(ask(store, Create("/a", b"x" * (LARGEST - 200)))[0], Refusal)
    many = [Create(f"/n{number}") for number in range(LARGEST // 100)]
    assert set(ask(store, *many)) == {Refusal.TOO_LARGE}


def test_an_empty_multi_is_answered(store: Store) -> None:
    assert ask(store) == ()


def test_children_are_sorted_and_counted(store: Store) -> None:
    ask(store, Create("/a"), *(Create(f"/a/{name}") for name in "cab"))
    assert ask(store, Children("/a")) == (("a", "b", "c"),)
    assert (stat(store, "/a").children, stat(store, "/a").cversion) == (3, 3)


def test_a_sequential_node_needs_no_name_of_its_own(store: Store) -> None:
    made = ask(store, Create("/q"), Create("/q/", sequential=True), Create("/q/b", sequential=True))
    assert [each.path for each in made if isinstance(each, Created)] == [
        "/q",
        "/q/0000000000",
        "/q/b0000000001",
    ]


def test_sequential_names_are_never_reused(store: Store) -> None:
    ask(store, Create("/q"))
    (first,) = ask(store, Create("/q/n_", sequential=True))
    assert isinstance(first, Created)
    assert first.path == "/q/n_0000000000"
    ask(store, Delete(first.path))
    (second,) = ask(store, Create("/q/n_", sequential=True))
    assert isinstance(second, Created)
    assert second.path > first.path


def test_an_ephemeral_node_is_deleted_with_its_session(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Create("/a"), Create("/a/e", ephemeral=True))
    assert stat(other, "/a/e").ephemeral
    assert ask(other, Exists("/a/e", watch=True)) != (Refusal.NO_NODE,)
    mine.close()
    assert (Change.DELETED, "/a/e") in watched(other)
    assert ask(other, Exists("/a/e"), Children("/a")) == (Refusal.NO_NODE, ())


def test_an_ephemeral_node_names_its_session(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    assert 0 not in (mine.session, other.session)
    assert mine.session != other.session
    ask(mine, Create("/p"), Create("/e", ephemeral=True))
    assert (stat(other, "/e").owner, stat(other, "/p").owner) == (mine.session, 0)


def test_a_node_created_and_set_in_one_multi_returns_its_zxid(store: Store) -> None:
    made, set_to = ask(store, Create("/e", b"1", ephemeral=True), SetData("/e", b"1"))
    assert isinstance(made, Created)
    assert isinstance(set_to, Stat)
    assert set_to == stat(store, "/e")
    assert made.zxid in (0, set_to.czxid)


def test_an_ephemeral_node_has_no_children(store: Store) -> None:
    ask(store, Create("/e", ephemeral=True))
    assert ask(store, Create("/e/c")) == (Refusal.NO_CHILDREN_FOR_EPHEMERALS,)


def test_a_closed_session_refuses_operations(sessions: Sessions) -> None:
    store = sessions()
    store.close()
    assert ask(store, Create("/a")) == (Refusal.NOT_APPLIED,)


def test_a_watch_on_data_fires_once(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Create("/a"))
    ask(mine, Read("/a", watch=True))
    ask(other, SetData("/a", b"1"))
    ask(other, SetData("/a", b"2"))
    assert watched(mine) == [(Change.CHANGED, "/a")]


def test_a_watch_on_a_missing_node_fires_when_it_is_created(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    assert ask(mine, Exists("/a", watch=True)) == (Refusal.NO_NODE,)
    ask(other, Create("/a"))
    assert watched(mine) == [(Change.CREATED, "/a")]


def test_a_read_of_a_missing_node_sets_no_watch(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Read("/a", watch=True))
    ask(other, Create("/a"))
    assert watched(mine) == []


def test_a_watch_on_children_fires_when_they_are_created_and_deleted(sessions: Sessions) -> None:
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
    before, _ = events(mine, Exists("/a"))
    assert [type(event) for event in before] == [WatchFired]


def test_a_refused_multi_fires_no_watch(store: Store) -> None:
    ask(store, Create("/a"))
    ask(store, Read("/a", watch=True))
    ask(store, SetData("/a", b""), Check("/a", 5))
    assert watched(store) == []


def test_each_watch_of_a_node_fires_when_it_is_deleted(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Create("/a"))
    ask(mine, Read("/a", watch=True), Children("/a", watch=True), Exists("/a", watch=True))
    ask(other, Delete("/a"))
    assert watched(mine) == [(Change.DELETED, "/a")] * 2
    ask(other, Create("/a"))
    assert watched(mine) == []


def test_a_watch_set_twice_fires_once(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Create("/a"))
    ask(mine, Read("/a", watch=True))
    ask(mine, Exists("/a", watch=True))
    ask(other, SetData("/a", b"1"))
    assert watched(mine) == [(Change.CHANGED, "/a")]


def test_a_watch_fires_for_changes_of_its_own_session(store: Store) -> None:
    ask(store, Create("/a"))
    ask(store, Read("/a", watch=True), Children("/a", watch=True))
    ask(store, SetData("/a", b"1"), Create("/a/b"))
    assert sorted(watched(store), key=str) == sorted(
        [(Change.CHANGED, "/a"), (Change.CHILDREN, "/a")], key=str
    )


def test_a_watch_fires_after_the_answer_that_set_it(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Create("/a", b"0"))
    fired, data = 0, b"0"
    for number in range(1, 41):
        if fired < number:
            mine.submit([Read("/a", watch=True), Exists("/"), Exists("/x")], number)
        other.submit([SetData("/a", str(number).encode())], None)
        before, _ = events(mine, Exists("/"))
        _SEEN[mine] = _SEEN[mine][len(before) :]
        for event in before:
            if isinstance(event, WatchFired):
                fired += 1
                assert event == WatchFired(Change.CHANGED, "/a")
            elif isinstance(event, MultiResult):
                assert isinstance(event.results[0], Node)
                data = event.results[0].data
        ask(other, Exists("/"))
    assert int(data) > 0
    assert 0 < fired <= 40


def test_no_change_is_lost_between_two_watches(sessions: Sessions) -> None:
    mine, other = sessions(), sessions()
    ask(mine, Create("/a", b"0"))
    mine.submit([Read("/a", watch=True)], "read")
    for number in range(1, 101):
        other.submit([SetData("/a", str(number).encode())], number)
    latest, deadline = b"0", time.monotonic() + WAIT_S
    while latest != b"100" and time.monotonic() < deadline:
        other.events()
        for event in mine.events():
            if isinstance(event, WatchFired):
                mine.submit([Read("/a", watch=True)], "read")
            elif isinstance(event, MultiResult) and isinstance(event.results[0], Node):
                assert int(event.results[0].data) >= int(latest)
                latest = event.results[0].data
    assert latest == b"100"


def test_multis_are_answered_in_the_order_of_their_submission(store: Store) -> None:
    ask(store, Create("/a"))
    for number in range(100):
        store.submit([SetData("/a", b"", number)], number)
    _, done = events(store, Exists("/a"))
    answered = [each for each in _SEEN[store] if isinstance(each, MultiResult)]
    assert [each.token for each in answered] == list(range(100))
    assert all(each.refused is None for each in answered)
    assert isinstance(done.results[0], Stat)
    assert done.results[0].version == 100
