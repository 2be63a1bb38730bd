"""Settings of single groups (KIP-848): their valid values, their znodes, the effective values.

Each setting overrides the broker's setting `group.<name>` for one group. The group need not exist.
The znode is /config/groups/G, with the group's name URL-encoded. Kafka 3.9 has no such node: its
brokers log an error for each notification about a group and continue. When the last setting of a
group is removed, its node is deleted.
Not served: share.*, streams.* (krust has no such groups) and consumer.assignment.interval.ms (the
coordinator computes targets at once). These names are refused as unknown. Settings that other
programs wrote are kept. A value outside of the broker's bounds counts as the nearest bound; the
bounds may have changed since it was written.
Source: Kafka 4.3, also for the texts and the order of the checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import store_reads
from krust.controller.state import ConfigEntity, ControllerState, RefusedError, refused_code
from krust.errors import Code
from krust.metadata import znodes
from krust.metadata.contents import ConfigChange, EntityConfig
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Children, Create, Delete, Read, Refusal, SetData

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from krust.controller.state import Steps
    from krust.metadata.store import Operation, Result

HEARTBEAT = "consumer.heartbeat.interval.ms"
SESSION = "consumer.session.timeout.ms"
SERVED = (HEARTBEAT, SESSION)
"""Those that are served, in the order in which they are checked."""

_BOUNDS = {
    HEARTBEAT: (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    SESSION: (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
}
_LARGEST = 2**31 - 1


def broker_setting(name: str) -> str:
    """The name of the broker setting that gives the default."""
    return f"group.{name}"


def config(state: ControllerState, group: str) -> Mapping[str, str]:
    """The settings of this group alone."""
    entity = state.groups.get(group)
    return entity.config if entity is not None else {}


def check(state: ControllerState, config: Mapping[str, str]) -> None:
    """RefusedError: these cannot be the settings of a group."""
    for name in config:
        if name not in SERVED:
            raise RefusedError(Code.INVALID_CONFIG, f"Unknown group config name: {name}")
    given = {name: _parsed(name, config[name]) for name in SERVED if name in config}
    for name, value in given.items():
        low, high = _bounds(state, name)
        if value < low or value > high:
            than = "greater" if value < low else "less"
            limit = _BOUNDS[name][value > high]
            raise RefusedError(
                Code.INVALID_CONFIG, f"{name} must be {than} than or equal to {limit}"
            )
    heartbeat, session = (given.get(name, state.whole(broker_setting(name))) for name in SERVED)
    if session <= heartbeat:
        raise RefusedError(Code.INVALID_CONFIG, f"{SESSION} must be greater than {HEARTBEAT}")


def timing(state: ControllerState, group: str) -> tuple[int, int] | None:
    """The heartbeat interval and session timeout of a group's members; None: the broker's."""
    entity = state.groups.get(group)
    if entity is None:
        return None
    heartbeat, session = (_bounded(state, name, entity.config.get(name)) for name in SERVED)
    return heartbeat, session


def write(state: ControllerState, group: str, config: Mapping[str, str]) -> Steps:
    """Write the settings of a group and apply them."""
    entity = state.groups.get(group) or ConfigEntity()
    if not config and entity.version < 0:
        return
    path, data = znodes.group_config(group), EntityConfig(dict(config)).encode()
    change: Operation
    if not config:
        change = Delete(path, entity.version)
    elif entity.version >= 0:
        change = SetData(path, data, entity.version)
    else:
        yield [[Create(znodes.GROUP_CONFIGS)]]
        change = Create(path, data)
    notification = ConfigChange(f"groups/{znodes.group_part(group)}").encode()
    (done,) = yield [[change, Create(znodes.CHANGES, notification, sequential=True)]]
    if done.refused is not None:
        raise RefusedError(
            refused_code(done.refused), f"the settings changed meanwhile, or {done.refused.value}"
        )
    state.set_group_config(
        group, ConfigEntity(dict(config), entity.version + 1) if config else None
    )


def load(state: ControllerState) -> Steps:
    """Read the settings of all groups. ServerError: the tree cannot be read now."""
    (read,) = yield [[Children(znodes.GROUP_CONFIGS)]]
    result = read.results[0]
    parts = () if result is Refusal.NO_NODE else store_reads.children(znodes.GROUP_CONFIGS, result)
    groups = [znodes.unsanitised(part) for part in parts]
    yield from reread(state, groups)
    for gone in state.groups.keys() - set(groups):
        state.set_group_config(gone, None)


def reread(state: ControllerState, groups: Collection[str]) -> Steps:
    """Read the settings of some groups. ServerError: the tree cannot be read now."""
    paths = [znodes.group_config(group) for group in groups]
    results = yield from store_reads.read_many(map(Read, paths))
    for group, path, result in zip(groups, paths, results, strict=True):
        state.set_group_config(group, _entity(state, path, result))


def groups_of(parts: Iterable[str]) -> list[str]:
    """The groups that notifications name; names that are not legal are left out."""
    return [znodes.unsanitised(part) for part in parts if part and "/" not in part]


def _entity(state: ControllerState, path: str, result: Result) -> ConfigEntity | None:
    try:
        node = store_reads.node(path, result)
    except store_reads.UnreadableError as error:
        state.fault(path, error)
        return None
    if node is None:
        return None
    try:
        config = dict(EntityConfig.decode(node.data).config)
    except BadZnodeError as error:
        state.fault(path, error)
        return ConfigEntity({}, node.stat.version)
    for name in [each for each in SERVED if each in config]:
        try:
            _parsed(name, config[name])
        except RefusedError as error:
            state.fault(path, error)
            del config[name]
    return ConfigEntity(config, node.stat.version)


def _parsed(name: str, text: str) -> int:
    """A value as Kafka parses it."""
    digits = text.strip().removeprefix("+")
    why = f"Invalid value {text} for configuration {name}"
    whole = digits.removeprefix("-")
    is_whole = whole.isascii() and whole.isdigit() and len(whole) < 32
    if not is_whole or not -_LARGEST - 1 <= int(digits) <= _LARGEST:
        raise RefusedError(Code.INVALID_CONFIG, f"{why}: Not a number of type INT")
    if int(digits) < 1:
        raise RefusedError(Code.INVALID_CONFIG, f"{why}: Value must be at least 1")
    return int(digits)


def _bounds(state: ControllerState, name: str) -> tuple[int, int]:
    low, high = map(state.whole, _BOUNDS[name])
    return low, high


def _bounded(state: ControllerState, name: str, text: str | None) -> int:
    if text is None:
        return state.whole(broker_setting(name))
    low, high = _bounds(state, name)
    return max(low, min(high, _parsed(name, text)))
