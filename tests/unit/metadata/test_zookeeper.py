"""The store in ZooKeeper, beyond the contract: lost connections and lost answers."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kazoo.client import KazooClient

from krust.errors import ConfigError, ServerError
from krust.metadata.ensemble import Ensemble
from krust.metadata.local import Tree
from krust.metadata.store import (
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
    SessionChanged,
    SessionState,
    SetData,
    Stat,
    StoreEvent,
    WatchFired,
)
from krust.metadata.zookeeper import ZooKeeperStore, end_session, open_store
from tests.peers import zookeeper as peer
from tests.peers.cutting import Cutter, cutter

pytestmark = pytest.mark.java

WAIT_S = 60.0
CONNECTED, SUSPENDED, OVERDUE, EXPIRED = (
    SessionState.CONNECTED,
    SessionState.SUSPENDED,
    SessionState.OVERDUE,
    SessionState.EXPIRED,
)


class Party:
    """A store with somebody who waits for its events."""

    def __init__(
        self,
        connect: str,
        session_ms: int = peer.LONG_MS,
        *,
        digest: str | None = None,
        sasl: str | None = None,
        protect: bool = False,
    ) -> None:
        self._woken = threading.Event()
        ensemble = Ensemble(connect, session_ms, digest=digest, sasl=sasl, protect=protect)
        self.store = open_store(ensemble, self._woken.set)
        self.seen: list[StoreEvent] = []

    def close(self) -> None:
        self.store.close()

    def until(self, wanted: Callable[[StoreEvent], bool]) -> StoreEvent:
        """Wait for an event; it and all before it are gone from `seen` then."""
        deadline = time.monotonic() + WAIT_S
        while True:
            for place, each in enumerate(self.seen):
                if wanted(each):
                    del self.seen[: place + 1]
                    return each
            assert time.monotonic() < deadline, f"no such event, only {self.seen}"
            self._woken.wait(min(self.store.due_s(), 0.1))
            self._woken.clear()
            self.seen += self.store.events()

    def ask(self, *operations: Operation) -> tuple[Result, ...]:
        return self.answer(self.submit(*operations))

    def submit(self, *operations: Operation) -> object:
        token = object()
        self.store.submit(operations, token)
        return token

    def answer(self, token: object) -> tuple[Result, ...]:
        done = self.until(lambda each: isinstance(each, MultiResult) and each.token is token)
        assert isinstance(done, MultiResult)
        return done.results

    def turns(self, state: SessionState) -> None:
        self.until(lambda each: each == SessionChanged(state))


@pytest.fixture
def chroot() -> str:
    return f"/store/{uuid.uuid4().hex}"


@pytest.fixture
def other(zookeeper: peer.Ensemble, chroot: str) -> Iterator[Party]:
    """Somebody with an undisturbed connection."""
    with closing(Party(zookeeper.connect + chroot)) as party:
        yield party


@pytest.fixture
def cut(zookeeper: peer.Ensemble) -> Iterator[tuple[Cutter, str]]:
    with cutter(zookeeper.connect) as made:
        yield made


@pytest.fixture
def mine(cut: tuple[Cutter, str], other: Party, chroot: str) -> Iterator[Party]:
    """A party behind the cutter."""
    with closing(Party(cut[1] + chroot)) as party:
        yield party


def data(party: Party, path: str) -> bytes | None:
    (result,) = party.ask(Read(path))
    return result.data if isinstance(result, Node) else None


def test_a_missing_chroot_is_created(zookeeper: peer.Ensemble) -> None:
    name = uuid.uuid4().hex
    with closing(Party(f"{zookeeper.connect}/{name}/a/b")) as inside:
        inside.ask(Create("/x", b"1"))
        with closing(Party(zookeeper.connect)) as outside:
            assert data(outside, f"/{name}/a/b/x") == b"1"
    with closing(Party(f"{zookeeper.connect}/{name}/a/b/")) as again:
        assert again.ask(Children("/")) == (("x",),)


@pytest.mark.parametrize("connect", ["", "/a", "h:1/a//b", "h:1/a/../b"])
def test_an_invalid_connect_string_is_an_error(connect: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        open_store(Ensemble(connect))


@pytest.mark.parametrize("at", ["request", "answer"])
def test_a_chroot_is_created_although_the_connection_is_lost(
    cut: tuple[Cutter, str], chroot: str, at: str
) -> None:
    cutter, address = cut
    cutter.at = at
    with closing(Party(address + chroot)) as party:
        assert cutter.at is None
        party.turns(CONNECTED)
        assert party.ask(Exists("/")) != (Refusal.NO_NODE,)


def test_a_store_waits_for_a_client_that_reports_its_session_late(
    zookeeper: peer.Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_state_change = KazooClient._make_state_change

    def slowly(client: KazooClient, state: str) -> None:
        time.sleep(0.05)  # the client's thread is slow: the subject of this test
        make_state_change(client, state)

    monkeypatch.setattr(KazooClient, "_make_state_change", slowly)
    with closing(Party(zookeeper.connect)) as party:
        assert party.store.session == party.store.credentials.session
        assert party.store.events() == []


def test_an_unreachable_zookeeper_is_one_clear_error() -> None:
    with pytest.raises(ServerError, match="no ZooKeeper answers at 127"):
        open_store(Ensemble("127.0.0.1:1", connection_timeout_ms=300))


def test_a_lost_connection_removes_the_watches(
    mine: Party, other: Party, cut: tuple[Cutter, str]
) -> None:
    mine.ask(Create("/a"), Create("/e", ephemeral=True))
    mine.ask(Read("/a", watch=True), Children("/", watch=True))
    session = mine.store.session
    cut[0].open = False
    cut[0].drop()
    mine.turns(SUSPENDED)
    assert mine.ask(Read("/a")) == (Refusal.NOT_APPLIED,)
    assert mine.ask(SetData("/a", b"")) == (Refusal.NOT_APPLIED,)
    other.ask(SetData("/a", b"1"))
    cut[0].open = True
    mine.turns(CONNECTED)
    assert mine.store.session == session
    (node,) = mine.ask(Read("/a", watch=True))
    assert isinstance(node, Node)
    assert node.data == b"1"
    assert not any(isinstance(each, WatchFired) for each in mine.seen)
    other.ask(SetData("/a", b"2"))
    mine.until(lambda each: each == WatchFired(Change.CHANGED, "/a"))
    (stat,) = mine.ask(Exists("/e"))
    assert isinstance(stat, Stat)
    assert stat.owner == session


def test_a_server_that_accepts_and_never_answers_does_not_cost_the_session(
    mine: Party, cut: tuple[Cutter, str]
) -> None:
    """As ZooKeeper does to those that come while it starts."""
    session = mine.store.session
    cut[0].silent = True
    cut[0].drop()
    mine.turns(SUSPENDED)
    mine.turns(CONNECTED)
    assert mine.store.session == session
    assert not cut[0].silent


LISTS: list[tuple[Operation, ...]] = [
    (Create("/new", b"1"),),
    (Create("/new", b"1", ephemeral=True),),
    (SetData("/old", b"1", 0),),
    (SetData("/old", b"1"),),
    (Delete("/old", 0),),
    (Check("/old", 0), Create("/new", b"1", ephemeral=True), SetData("/new", b"1")),
    (Check("/old", 0), SetData("/other", b"1", 0), Create("/other/n", sequential=True)),
    (Delete("/old"), Create("/new", b"1")),
]


@pytest.mark.parametrize("operations", LISTS, ids=range(len(LISTS)))
def test_a_multi_that_was_applied_is_confirmed_although_its_answer_was_lost(
    mine: Party, cut: tuple[Cutter, str], operations: tuple[Operation, ...]
) -> None:
    mine.ask(Create("/old"), Create("/other"))
    cut[0].at = "answer"
    token = mine.submit(*operations)
    mine.turns(SUSPENDED)
    mine.turns(CONNECTED)
    results = mine.answer(token)
    for operation, result in zip(operations, results, strict=True):
        assert not isinstance(result, Refusal)
        if isinstance(operation, Create):
            assert isinstance(result, Created)
            assert operation.sequential or result.path == operation.path
        elif isinstance(operation, SetData):
            assert mine.ask(Exists(operation.path)) == (result,)
        else:
            assert result is None


@pytest.mark.parametrize("operations", LISTS, ids=range(len(LISTS)))
def test_a_multi_that_was_not_applied_is_reported_as_failed(
    mine: Party, cut: tuple[Cutter, str], operations: tuple[Operation, ...]
) -> None:
    mine.ask(Create("/old"), Create("/other"))
    cut[0].at = "request"
    results = mine.ask(*operations)
    assert results == (Refusal.NOT_APPLIED,) * len(operations)
    assert not any(isinstance(each, Refusal) for each in mine.ask(*operations))


def test_an_outcome_that_the_tree_does_not_show_is_unknown(
    mine: Party, other: Party, cut: tuple[Cutter, str]
) -> None:
    mine.ask(Create("/old"))
    cut[0].at = "answer"
    cut[0].open = False
    token = mine.submit(SetData("/old", b"1"))
    mine.turns(SUSPENDED)
    other.ask(SetData("/old", b"2"))
    cut[0].open = True
    assert mine.answer(token) == (Refusal.UNKNOWN,)


def test_an_ephemeral_node_of_another_session_is_not_mistaken_for_ours(
    mine: Party, other: Party, cut: tuple[Cutter, str]
) -> None:
    cut[0].at = "request"
    cut[0].open = False
    token = mine.submit(Create("/e", b"same", ephemeral=True))
    mine.turns(SUSPENDED)
    other.ask(Create("/e", b"same", ephemeral=True))
    cut[0].open = True
    assert mine.answer(token) == (Refusal.NOT_APPLIED,)


def test_a_counter_is_exact_although_answers_are_lost(mine: Party, cut: tuple[Cutter, str]) -> None:
    mine.ask(Create("/n", b"0"))
    version, choice = 0, Random(4711)
    while version < 40:
        cut[0].at = choice.choice([None, None, "request", "answer"])
        (result,) = mine.ask(SetData("/n", str(version + 1).encode(), version))
        assert result is not Refusal.UNKNOWN
        if isinstance(result, Stat):
            version += 1
            assert result.version == version
        else:
            assert result is Refusal.NOT_APPLIED
    assert data(mine, "/n") == b"40"


def test_an_expired_session_is_replaced(zookeeper: peer.Ensemble, mine: Party) -> None:
    mine.ask(Create("/e", ephemeral=True), Create("/p"))
    before = mine.store.session
    assert end_session(Ensemble(zookeeper.connect), mine.store.credentials)
    mine.turns(EXPIRED)
    assert mine.ask(Exists("/p")) == (Refusal.NOT_APPLIED,)
    mine.turns(CONNECTED)
    assert mine.store.session not in (0, before)
    (gone, there) = mine.ask(Exists("/e"), Exists("/p"))
    assert gone is Refusal.NO_NODE
    assert isinstance(there, Stat)


def test_a_multi_in_flight_at_the_end_of_the_session_gets_an_outcome(
    zookeeper: peer.Ensemble, mine: Party, cut: tuple[Cutter, str]
) -> None:
    mine.ask(Create("/old"))
    credentials = mine.store.credentials
    cut[0].open = False
    cut[0].at = "answer"
    known = mine.submit(Create("/p", b"1"))
    mine.turns(SUSPENDED)
    assert end_session(Ensemble(zookeeper.connect), credentials)
    cut[0].open = True
    mine.turns(EXPIRED)
    mine.turns(CONNECTED)
    (made,) = mine.answer(known)
    assert isinstance(made, Created)


def test_an_expired_session_is_not_closed_twice(zookeeper: peer.Ensemble) -> None:
    party = Party(zookeeper.connect)
    credentials = party.store.credentials
    party.close()
    assert not end_session(Ensemble(zookeeper.connect), credentials)


def test_the_session_timeout_is_the_one_that_the_server_grants(zookeeper: peer.Ensemble) -> None:
    with closing(Party(zookeeper.connect, session_ms=2 * peer.MOST_MS)) as party:
        assert party.store.timeout_s == pytest.approx(peer.MOST_MS / 1000)


def test_a_suspended_server_is_overdue_and_recovers(tmp_path: Path) -> None:
    with peer.running(tmp_path) as ensemble, closing(Party(ensemble.connect, 1000)) as party:
        party.ask(Create("/a"), Create("/e", ephemeral=True))
        session = party.store.session
        ensemble.leader.pause()
        began = time.monotonic()
        party.turns(OVERDUE)
        assert time.monotonic() - began > 0.7
        assert party.ask(Create("/b")) == (Refusal.NOT_APPLIED,)
        ensemble.leader.resume()
        party.turns(CONNECTED)
        if party.store.session == session:
            (stat,) = party.ask(Exists("/e"))
            assert isinstance(stat, Stat)


def test_a_store_that_is_not_polled_is_overdue_at_the_next_poll(
    zookeeper: peer.Ensemble,
) -> None:
    times = [0.0]
    ensemble = Ensemble(zookeeper.connect, session_timeout_ms=peer.LONG_MS)
    store = open_store(ensemble, clock=lambda: times[0])
    session_s = peer.LONG_MS / 1000
    with closing(store):
        times[0] = 0.9 * session_s
        assert SessionChanged(OVERDUE) not in store.events()
        times[0] = 2 * session_s
        assert store.events()[:1] == [SessionChanged(OVERDUE)]


def test_a_restarted_server_keeps_the_session(tmp_path: Path) -> None:
    with peer.running(tmp_path) as ensemble, closing(Party(ensemble.connect)) as party:
        party.ask(Create("/e", ephemeral=True))
        session = party.store.session
        ensemble.leader.kill()
        party.turns(SUSPENDED)
        ensemble.leader.start()
        party.turns(CONNECTED)
        assert party.store.session == session
        (stat,) = party.ask(Exists("/e"))
        assert isinstance(stat, Stat)
        assert stat.owner == session


def test_an_ensemble_serves_without_its_former_leader(tmp_path: Path) -> None:
    with peer.running(tmp_path, 3) as ensemble, closing(Party(ensemble.connect)) as party:
        party.ask(Create("/n"))
        session = party.store.session
        leader, said = ensemble.leader, 0
        asked = {party.submit(Create(f"/n/{number}")): number for number in range(50)}
        leader.kill()
        done = {token: party.answer(token)[0] for token in asked}
        deadline = time.monotonic() + WAIT_S
        while party.ask(Exists("/n")) == (Refusal.NOT_APPLIED,):
            assert time.monotonic() < deadline
        (names,) = party.ask(Children("/n"))
        assert isinstance(names, tuple)
        for token, result in done.items():
            there = str(asked[token]) in names
            assert there == isinstance(result, Created) or result is Refusal.UNKNOWN
            said += result is not Refusal.UNKNOWN
        assert said == 50
        assert party.store.session == session


def test_a_malformed_answer_ends_the_session_and_not_the_store(
    mine: Party, cut: tuple[Cutter, str]
) -> None:
    mine.ask(Create("/a"))
    cut[0].garble = True
    mine.submit(Exists("/a"))
    mine.turns(CONNECTED)
    assert isinstance(mine.ask(Exists("/a"))[0], Stat)


def test_protected_nodes_belong_to_their_creator(zookeeper: peer.Ensemble, chroot: str) -> None:
    connect = zookeeper.connect + chroot
    with (
        closing(Party(connect, digest="krust:secret", protect=True)) as owner,
        closing(Party(connect)) as guest,
    ):
        owner.ask(Create("/config"), Create("/config/users", b"1"), Create("/consumers"))
        owner.ask(Create("/brokers", b"2"))
        assert guest.ask(SetData("/brokers", b"")) == (Refusal.NOT_ALLOWED,)
        assert guest.ask(Read("/config/users")) == (Refusal.NOT_ALLOWED,)
        assert data(guest, "/brokers") == b"2"
        assert isinstance(guest.ask(Create("/consumers/g"))[0], Created)
        assert data(owner, "/config/users") == b"1"
        with closing(Party(connect, digest="krust:wrong")) as wrong:
            assert wrong.ask(Read("/config/users")) == (Refusal.NOT_ALLOWED,)


def test_a_zookeeper_with_sasl_accepts_the_right_password_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = tmp_path / "users"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    users.write_text(f'Server {{ {module} required user_krust="canary-4711"; }};')
    wanted = "enforce.auth.enabled=true", "enforce.auth.schemes=sasl"
    provider = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    login = f"-Djava.security.auth.login.config={users}"
    with peer.running(tmp_path, 1, *wanted, provider, java=[login]) as asking:
        with closing(Party(asking.connect, sasl="krust:canary-4711", protect=True)) as owner:
            owner.ask(Create("/brokers", b"2"))
            assert data(owner, "/brokers") == b"2"
            before = owner.store.credentials
            asking.servers[0].kill()
            owner.turns(SUSPENDED)
            asking.servers[0].launch(login)
            owner.turns(CONNECTED)
            assert owner.store.credentials == before
            owner.ask(SetData("/brokers", b"3"))
            assert data(owner, "/brokers") == b"3"
        for wrong in ("krust:wrong", None):
            with pytest.raises(ServerError, match="refuses us"):
                Party(asking.connect, sasl=wrong)
        with pytest.raises(ConfigError, match="has no colon"):
            Party(asking.connect, sasl="krust")
    assert "canary-4711" not in caplog.text


def test_no_secret_is_logged(zookeeper: peer.Ensemble, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with closing(Party(zookeeper.connect, digest="krust:canary-4711")) as party:
        party.ask(Exists("/"))
        password = party.store.credentials.password.hex()
    assert "canary-4711" not in caplog.text
    assert password not in caplog.text


def test_a_plain_client_sees_the_same_tree(zookeeper: peer.Ensemble, chroot: str) -> None:
    client = KazooClient(zookeeper.connect)
    client.start()
    try:
        with closing(Party(zookeeper.connect + chroot)) as party:
            party.ask(Create("/a", b"1"))
            assert client.get(f"{chroot}/a")[0] == b"1"
            party.ask(Exists("/b", watch=True))
            client.create(f"{chroot}/b", None)
            party.until(lambda each: each == WatchFired(Change.CREATED, "/b"))
            assert data(party, "/b") == b""
    finally:
        client.stop()
        client.close()


PATHS = st.sampled_from(["/a", "/b", "/a/a", "/a/b", "/a/a/a", "/b/a"])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=2), st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, st.binary(max_size=2), st.integers(-1, 2)),
    st.builds(Delete, PATHS, st.integers(-1, 2)),
    st.builds(Check, PATHS, st.integers(0, 2)),
)
READS = st.builds(Read, PATHS) | st.builds(Children, PATHS)


def plain(result: Result) -> object:
    """A result without the numbers that differ from tree to tree."""
    if isinstance(result, Created):
        return result.path
    if isinstance(result, Node):
        return (result.data, plain(result.stat))
    if isinstance(result, Stat):
        return (result.version, result.cversion, result.ephemeral, result.children)
    return result


MADE_TWICE: list[list[Operation]] = [
    [Create("/a")],
    [Delete("/a")],
    [Create("/a")],
    [Create("/a", sequential=True)],
]
"""the number of a sequential node counts what was made, and not what was deleted"""


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(lists=MADE_TWICE)
@given(
    lists=st.lists(
        st.lists(OPERATIONS, min_size=1, max_size=4) | st.lists(READS, min_size=1, max_size=4),
        min_size=10,
        max_size=25,
    )
)
def test_zookeeper_and_the_embedded_store_behave_alike(
    zookeeper: peer.Ensemble, lists: list[list[Operation]]
) -> None:
    local = Tree().session()
    with closing(Party(f"{zookeeper.connect}/{uuid.uuid4().hex}")) as party:
        store: ZooKeeperStore = party.store
        assert store.session
        for operations in lists:
            local.submit(operations, None)
            (done,) = (each for each in local.events() if isinstance(each, MultiResult))
            theirs = [plain(each) for each in party.ask(*operations)]
            assert theirs == [plain(each) for each in done.results], operations
