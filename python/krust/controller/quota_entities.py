"""The nodes of users, clients and addresses in the tree: reads and writes of quotas and passwords.

Paths under /config: `users/U`, `users/U/clients/C`, `clients/C`, `ips/A`. Names are URL-encoded;
`<default>` stands for all others. A user's node also holds its SCRAM credentials.
A node that cannot be read, or whose name Kafka does not use, is logged, and its quotas have no
effect. As in Kafka 3.9, the node of an entity without settings is deleted unless it has children;
then its parent nodes without settings are deleted too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import quotas, scram, store_reads
from krust.controller.pace import PAUSE
from krust.metadata import znodes
from krust.metadata.contents import ConfigChange, EntityConfig
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Children, Create, Delete, Exists, Node, Read, Refusal, SetData
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator

    from krust.controller.quotas import QuotaOwner
    from krust.controller.scram import ScramCredential
    from krust.controller.state import ControllerState, Steps, Transactions
    from krust.metadata.store import MultiResult, Operation, Result

_CLIENTS = "clients"
_BATCH = 500
"""so many nodes are read in one slice"""


class EntityNode(NamedTuple):
    """An entity's node, with its parents and children."""

    owner: QuotaOwner
    config: dict[str, str]
    version: int
    """-1: there is no such node"""
    children: tuple[str, ...]
    missing: tuple[str, ...]
    """nodes above it that there are not, parents first"""
    alone: tuple[str, ...]
    """nodes above it that are there for its sake only, children first"""

    @property
    def path(self) -> str:
        """In the tree."""
        return f"{znodes.CONFIG}/{quotas.path(self.owner)}"


def load(state: ControllerState) -> Steps:
    """Read all quotas and credentials. ServerError: the store is not available."""
    before, known = dict(state.quotas), dict(state.credentials)
    found: dict[QuotaOwner, dict[str, float]] = {}
    users: dict[str, dict[str, ScramCredential]] = {}
    hidden: list[str] = []
    for place, node in (yield from read_owner_nodes(hidden=hidden)).items():
        owner = quotas.owner_at(place)
        if owner is None:
            state.fault(f"{znodes.CONFIG}/{place}", "no owner is named like that")
        else:
            found[owner] = _quotas(state, owner, node)
            user = user_of(owner)
            if user is not None:
                users[user] = _credentials(state, owner, node)
    for place in hidden:
        state.fault(f"{znodes.CONFIG}/{place}", Refusal.NOT_ALLOWED.value)
    for owner in before.keys() | found.keys():
        if state.quotas.get(owner) is before.get(owner):  # nobody has read it since
            state.set_quotas(owner, found.get(owner, {}))
    for user in known.keys() | users.keys():
        if state.credentials.get(user) is known.get(user):
            state.set_credentials(user, users.get(user, {}))


def reread(state: ControllerState, *owners: QuotaOwner) -> Steps:
    """Read these entities again. ServerError: the store is not available."""
    paths = [f"{znodes.CONFIG}/{quotas.path(owner)}" for owner in owners]
    answers = yield [[Read(path)] for path in paths]
    for owner, path, done in zip(owners, paths, answers, strict=True):
        node = _node(path, done.results[0])
        state.set_quotas(owner, _quotas(state, owner, node))
        user = user_of(owner)
        if user is not None:
            state.set_credentials(user, _credentials(state, owner, node))


def user_of(owner: QuotaOwner | None) -> str | None:
    """The user that an entity is; None: it is another one, or stands for all users."""
    if owner is None or len(owner) != 1 or owner[0][0] != quotas.USER:
        return None
    return owner[0][1]


def read_owner_nodes(
    *kinds: str, hidden: list[str] | None = None
) -> Generator[Transactions, list[MultiResult], dict[str, Node]]:
    """Read every owner's node, by its path; or those of some kinds, without their children.

    hidden   gets the paths that this broker is not allowed to read
    raises   ServerError: the tree cannot be read now
    """
    folders = kinds or tuple(quotas.KINDS.values())
    (done,) = yield [[Children(f"{znodes.CONFIG}/{folder}") for folder in folders]]
    places = []
    for folder, result in zip(folders, done.results, strict=True):
        if result is Refusal.NOT_ALLOWED and hidden is not None:
            hidden.append(folder)
        places += [f"{folder}/{name}" for name in _children(folder, result)]
    found = yield from _read(places)
    above = [] if kinds else [place for place in places if place.startswith("users/")]
    if above:
        answers = yield [[Children(f"{znodes.CONFIG}/{place}/{_CLIENTS}")] for place in above]
        below = []
        for place, done in zip(above, answers, strict=True):
            names = _children(f"{place}/{_CLIENTS}", done.results[0])
            below += [f"{place}/{_CLIENTS}/{name}" for name in names]
        found |= yield from _read(below)
    return found


def read_entity(owner: QuotaOwner) -> Generator[Transactions, list[MultiResult], EntityNode]:
    """Read an owner's node and the nodes around it, before a write.

    raises  ServerError: the tree cannot be read now; BadZnodeError: the node is broken
    """
    parts = quotas.path(owner).split("/")
    up = ["/".join([znodes.CONFIG, *parts[:count]]) for count in range(1, len(parts))]
    path = "/".join([znodes.CONFIG, *parts])
    asked: list[Operation] = [Read(path), Children(path)]
    asked += [each(above) for above in up for each in (Exists, Read, Children)]
    (done,) = yield [asked]
    node = _node(path, done.results[0])
    config = dict(EntityConfig.decode(node.data).config) if node is not None else {}
    rows = [done.results[2 + 3 * row : 5 + 3 * row] for row in range(len(up))]
    missing = [above for above, row in zip(up, rows, strict=True) if row[0] is Refusal.NO_NODE]
    alone: list[str] = []
    below = parts[-1]
    for above, (_, read, names) in list(zip(up, rows, strict=True))[:0:-1]:
        empty = isinstance(read, Node) and _is_empty(read)
        if not empty or names != (below,):
            break
        alone.append(above)
        below = above.rpartition("/")[2]
    version = node.stat.version if node is not None else -1
    children = _children(path, done.results[1])
    return EntityNode(owner, config, version, children, tuple(missing), tuple(alone))


def write(
    place: EntityNode, config: dict[str, str]
) -> Generator[Transactions, list[MultiResult], Refusal | None]:
    """Write an entity's settings, and notify every broker. Returns the store's refusal, or None."""
    (done,) = yield [writes(place, config)]
    return done.refused


def writes(place: EntityNode, config: dict[str, str]) -> list[Operation]:
    """The operations that set this and notify every broker."""
    data = EntityConfig(config).encode()
    asked: list[Operation]
    if not config and not place.children:
        asked = [Delete(place.path, place.version)]
        asked += [Delete(above) for above in place.alone]
    elif place.version >= 0:
        asked = [SetData(place.path, data, place.version)]
    else:
        asked = [*(Create(above) for above in place.missing), Create(place.path, data)]
    change = ConfigChange(quotas.path(place.owner)).encode()
    asked.append(Create(znodes.CHANGES, change, sequential=True))
    return asked


def _read(places: list[str]) -> Generator[Transactions, list[MultiResult], dict[str, Node]]:
    if not places:
        return {}
    found = {}
    for start in range(0, len(places), _BATCH):
        some = places[start : start + _BATCH]
        answers = yield [[Read(f"{znodes.CONFIG}/{place}")] for place in some]
        for place, done in zip(some, answers, strict=True):
            node = _node(place, done.results[0])
            if node is not None:
                found[place] = node
        if len(some) < len(places):
            yield PAUSE
    return found


def _quotas(state: ControllerState, owner: QuotaOwner, node: Node | None) -> dict[str, float]:
    if node is None:
        return {}
    path = f"{znodes.CONFIG}/{quotas.path(owner)}"
    kind, name = owner[0]
    if kind == quotas.IP and name is not None and not quotas.is_address(name):
        state.fault(path, "it is no IPv4 address, and no name server is asked")
        return {}
    try:
        values, faults = quotas.read(owner, EntityConfig.decode(node.data).config)
    except BadZnodeError as error:
        state.fault(path, error)
        return {}
    if faults:
        state.fault(path, ", ".join(faults))
    return values


def _credentials(
    state: ControllerState, owner: QuotaOwner, node: Node | None
) -> dict[str, ScramCredential]:
    if node is None:
        return {}
    try:
        config = EntityConfig.decode(node.data).config
    except BadZnodeError:  # already noted: the node was read for its quotas
        return {}
    found = {}
    for mechanism in scram.HASHES:
        if mechanism not in config:
            continue
        credential = scram.parse(mechanism, config[mechanism])
        if credential is None:
            state.fault(f"{znodes.CONFIG}/{quotas.path(owner)}", f"it has no valid {mechanism}")
        else:
            found[mechanism] = credential
    return found


def _is_empty(node: Node) -> bool:
    try:
        return not EntityConfig.decode(node.data).config
    except BadZnodeError:
        return False


def _children(place: str, result: Result) -> tuple[str, ...]:
    if result in (Refusal.NO_NODE, Refusal.NOT_ALLOWED):
        return ()
    return store_reads.children(place, result)


def _node(place: str, result: Result) -> Node | None:
    return None if result is Refusal.NOT_ALLOWED else store_reads.node(place, result)
