"""The outcome reported for a multi is true although its answer was lost and others wrote."""

from hypothesis import given
from hypothesis import strategies as st

from krust.metadata.local import LocalStore, Tree
from krust.metadata.store import (
    Check,
    Create,
    Created,
    Delete,
    MultiResult,
    Operation,
    Read,
    Refusal,
    Result,
    SetData,
    Write,
)
from krust.metadata.unknown_writes import UnansweredWrites, find_answer

PATHS = st.sampled_from(["/a", "/b", "/c", "/a/a", "/a/b", "/b/a"])
OUR_DATA = st.sampled_from([b"mine", b"own"])
WRITES = st.one_of(
    st.builds(Create, PATHS, OUR_DATA, st.booleans(), st.just(False)),
    st.builds(SetData, PATHS, OUR_DATA, st.integers(-1, 3)),
    st.builds(Delete, PATHS, st.integers(-1, 3)),
    st.builds(Check, PATHS, st.integers(0, 3)),
)
OTHERS = st.one_of(
    st.builds(Create, PATHS, st.just(b"other"), st.booleans(), st.just(False)),
    st.builds(SetData, PATHS, st.just(b"other"), st.just(-1)),
)


def run(store: LocalStore, *operations: Operation) -> MultiResult:
    store.submit(operations, None)
    (done,) = (each for each in store.events() if isinstance(each, MultiResult))
    return done


def read(store: LocalStore, operations: list[Write]) -> dict[str, Result]:
    paths = list(dict.fromkeys(each.path for each in operations))
    return dict(zip(paths, run(store, *map(Read, paths)).results, strict=True))


@given(
    st.lists(st.one_of(WRITES, OTHERS), max_size=6),
    st.lists(WRITES, min_size=1, max_size=4),
    st.lists(OTHERS, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_no_reported_outcome_contradicts_the_tree(
    first: list[Operation], lost: list[Write], after: list[Operation], sent: bool, expired: bool
) -> None:
    tree = Tree()
    writer, other = tree.session(), tree.session()
    for operation in first:
        run(other, operation)
    before, session = tree.zxid, writer.session
    answered = run(writer, *lost) if sent else None
    happened = answered is not None and answered.refused is None
    for operation in after:
        run(other, operation)
    if expired:
        writer.close()
    outcome = find_answer(
        UnansweredWrites(lost, before, 0 if expired else session), read(other, lost)
    )
    deleted = any(isinstance(each, Delete) for each in lost)
    if not any(isinstance(each, Refusal) for each in outcome):
        # A node that no longer exists counts as deleted, by any client.
        assert happened or deleted
        assert len(outcome) == len(lost)
    elif outcome[0] is Refusal.NOT_APPLIED:
        assert not happened or all(isinstance(each, Check) for each in lost)
    else:
        assert set(outcome) == {Refusal.UNKNOWN}


@given(st.lists(WRITES, max_size=6), st.lists(WRITES, min_size=1, max_size=4))
def test_the_outcome_for_nodes_unchanged_since_is_known(
    first: list[Operation], lost: list[Write]
) -> None:
    tree = Tree()
    writer = tree.session()
    for operation in first:
        run(writer, operation)
    before = tree.zxid
    answered = run(writer, *lost)
    if answered.refused is not None or all(isinstance(each, Check) for each in lost):
        return
    paths = [each.path for each in lost]
    if len(set(paths)) < len(paths):
        return  # what one step did, a later one may have hidden
    outcome = find_answer(UnansweredWrites(lost, before, writer.session), read(writer, lost))
    for reported, was in zip(outcome, answered.results, strict=True):
        assert reported == was or isinstance(was, Created)
        assert not isinstance(reported, Refusal)


def test_an_expired_session_leaves_the_outcome_unknown() -> None:
    made = Create("/e", b"", ephemeral=True)
    assert find_answer(UnansweredWrites([made], 5, 0), {"/e": Refusal.NO_NODE}) == (
        Refusal.UNKNOWN,
    )


def test_unreadable_nodes_leave_the_outcome_unknown() -> None:
    lost = UnansweredWrites([SetData("/a", b"x", 3)], 5, 1)
    assert find_answer(lost, {"/a": Refusal.NOT_ALLOWED}) == (Refusal.UNKNOWN,)


def test_checks_alone_change_nothing() -> None:
    assert find_answer(UnansweredWrites([Check("/a", 1)], 5, 1), {}) == (Refusal.NOT_APPLIED,)
