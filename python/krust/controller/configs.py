"""Requests about settings: which value is effective, where it comes from, and changes of it.

DescribeConfigs 0-4: every setting of topics and brokers, with source, synonyms (v1), type and
    documentation (v3); groups; client metrics by their defaults; of the loggers the root one.
AlterConfigs 0-2 (replaces all that was set), IncrementalAlterConfigs 0-1 (set, delete, append,
    subtract): topics, this broker, all brokers (""), groups (`group_configs.py`).
    One bad item refuses its resource alone (`config_checks.py` says which are bad).
ListConfigResources 0-1: v0 lists client metrics, and there are none; v1 also the groups that have
    settings of their own.
Version notes: v0 of DescribeConfigs has `is_default` in place of a source.
Not done: dynamic log levels, settings of client metrics: INVALID_REQUEST.
Source: KIP-133, KIP-226, KIP-339, KIP-524, KIP-569, KIP-1142.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from krust.controller import config_checks, group_configs, stored_passwords
from krust.controller.pace import PAUSE, WRITE, Pace
from krust.controller.state import (
    ControllerState,
    Decision,
    RefusedError,
    Request,
    refused_code,
)
from krust.errors import Code
from krust.listeners import base_name
from krust.metadata import znodes
from krust.metadata.contents import ConfigChange, EntityConfig
from krust.metadata.store import Create, Operation, Refusal, SetData
from krust.named_tuple import NamedTuple
from krust.settings import BROKER, TOPIC, Setting, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from krust.controller.entities import Topic
    from krust.controller.state import Steps
    from krust.messages.alter_configs import (
        AlterConfigsRequest,
        AlterConfigsResource,
        AlterConfigsResourceResponse,
        AlterConfigsResponse,
    )
    from krust.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
    )
    from krust.messages.incremental_alter_configs import (
        AlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from krust.messages.incremental_alter_configs import (
        AlterConfigsResource as IncrementalResource,
    )
    from krust.messages.list_config_resources import (
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
    )

    _Alteration = Callable[[Mapping[str, str], Any], dict[str, str]]

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
LOGGER_RESOURCE = 8
METRICS_RESOURCE = 16
GROUP_RESOURCE = 32
RESOURCES = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    LOGGER_RESOURCE,
    METRICS_RESOURCE,
    GROUP_RESOURCE,
)

DYNAMIC_TOPIC = 1
DYNAMIC_BROKER = 2
DYNAMIC_DEFAULT_BROKER = 3
STATIC_BROKER = 4
DEFAULT = 5
DYNAMIC_LOGGER = 6
DYNAMIC_GROUP = 8
"""The sources, as DescribeConfigs numbers them."""

SET, DELETE, APPEND, SUBTRACT = range(4)
"""The operations of IncrementalAlterConfigs."""

_METRICS_DEFAULTS = {
    "interval.ms": ("300000", Type.INT),
    "match": ("", Type.LIST),
    "metrics": ("", Type.LIST),
}


_TABLES = {TOPIC_RESOURCE: TOPIC, BROKER_RESOURCE: BROKER}
_NUMBER = re.compile("[+-]?[0-9]{1,10}")


class SettingValue(NamedTuple):
    """A value of a setting, and its source. Lists of them have the effective value first."""

    name: str
    value: str
    source: int


def describe(
    state: ControllerState, request: Request[DescribeConfigsRequest]
) -> Decision[DescribeConfigsResponse]:
    """DescribeConfigs."""
    yield from ()
    results: list[DescribeConfigsResult] = []
    for resource in request.message["resources"]:
        kind, name = resource["resource_type"], resource["resource_name"]
        result: DescribeConfigsResult = {
            "error_code": Code.NONE,
            "error_message": None,
            "resource_type": kind,
            "resource_name": name,
            "configs": [],
        }
        results.append(result)
        try:
            entries = _entries(state, kind, name, resource.get("configuration_keys"))
        except RefusedError as refused:
            result |= {"error_code": refused.code, "error_message": str(refused)}
            continue
        for entry in entries:
            if not request.message.get("include_synonyms"):
                entry["synonyms"] = []
            if not request.message.get("include_documentation"):
                entry["documentation"] = None
        result["configs"] = entries
    return {"throttle_time_ms": 0, "results": results}


def list_resources(
    state: ControllerState, request: Request[ListConfigResourcesRequest]
) -> Decision[ListConfigResourcesResponse]:
    """ListConfigResources."""
    yield from ()
    wanted = set(request.message.get("resource_types") or ())
    if request.version == 0:
        wanted = {METRICS_RESOURCE}
    elif not wanted:
        wanted = set(RESOURCES)
    brokers = sorted(state.brokers)
    found: list[tuple[str, int]] = []
    if TOPIC_RESOURCE in wanted:
        found += [(name, TOPIC_RESOURCE) for name in sorted(state.topics)]
    for kind in (BROKER_RESOURCE, LOGGER_RESOURCE):
        if kind in wanted:
            found += [(str(broker), kind) for broker in brokers]
    if GROUP_RESOURCE in wanted:
        found += [(group, GROUP_RESOURCE) for group in sorted(state.groups)]
    unknown = wanted - set(RESOURCES)
    return {
        "throttle_time_ms": 0,
        "error_code": Code.UNSUPPORTED_VERSION if unknown else Code.NONE,
        "config_resources": []
        if unknown
        else [{"resource_name": name, "resource_type": kind} for name, kind in found],
    }


def alter(
    state: ControllerState, request: Request[AlterConfigsRequest]
) -> Decision[AlterConfigsResponse]:
    """AlterConfigs: a setting that the request does not name gets its default."""

    def changed(_before: Mapping[str, str], resource: AlterConfigsResource) -> dict[str, str]:
        config = {}
        for pair in resource["configs"]:
            if pair["value"] is None:
                raise RefusedError(
                    Code.INVALID_REQUEST, f"Null value not supported for : {pair['name']}"
                )
            config[pair["name"]] = pair["value"]
        return config

    return (yield from _alter_each(state, request, changed))


def incremental_alter(
    state: ControllerState, request: Request[IncrementalAlterConfigsRequest]
) -> Decision[IncrementalAlterConfigsResponse]:
    """IncrementalAlterConfigs."""

    def changed(before: Mapping[str, str], resource: IncrementalResource) -> dict[str, str]:
        kind = resource["resource_type"]
        table = _TABLES.get(kind, {})
        names = [pair["name"] for pair in resource["configs"]]
        if len(set(names)) < len(names):
            raise RefusedError(Code.INVALID_REQUEST, "Error due to duplicate config keys")
        config = dict(before)
        for pair in resource["configs"]:
            name, operation, value = pair["name"], pair["config_operation"], pair["value"]
            if operation == DELETE:
                config.pop(name, None)
                continue
            if value is None:
                raise RefusedError(Code.INVALID_REQUEST, f"Null value not supported for : {name}")
            if operation == SET:
                config[name] = value
                continue
            if kind == GROUP_RESOURCE:
                raise RefusedError(Code.INVALID_CONFIG, _no_list_refusal(name, operation))
            config[name] = _with_list_change(state, table.get(name), before, pair)
        return config

    return (yield from _alter_each(state, request, changed))


def topic_entries(
    state: ControllerState, topic: Topic, names: Iterable[str] | None
) -> list[DescribeConfigsResourceResult]:
    """All settings of a topic, or those named."""
    wanted = None if names is None else set(names)
    entries: list[DescribeConfigsResourceResult] = []
    for name, setting in TOPIC.items():
        if wanted is not None and name not in wanted:
            continue
        known = (
            [SettingValue(name, topic.config[name], DYNAMIC_TOPIC)] if name in topic.config else []
        )
        known += _values_by_source(state, setting.synonyms)
        entry = _described_entry(setting, known, state.topic_text(topic, name))
        entries.append(entry)
    return entries


def _alter_each(
    state: ControllerState, request: Request[Any], changed: _Alteration
) -> Decision[AlterConfigsResponse]:
    """Plan each resource, write it, then apply it; for both APIs."""
    results: list[AlterConfigsResourceResponse] = []
    resources = request.message["resources"]
    keys = [(each["resource_type"], each["resource_name"]) for each in resources]
    times = Counter(keys)
    pace = Pace()
    for resource, key in zip(resources, keys, strict=True):
        if pace.add(1 + len(resource["configs"])):
            yield PAUSE
        result: AlterConfigsResourceResponse = {
            "error_code": Code.NONE,
            "error_message": None,
            "resource_type": key[0],
            "resource_name": key[1],
        }
        results.append(result)
        try:
            if times[key] > 1:
                raise RefusedError(Code.INVALID_REQUEST, "Each resource must appear at most once.")
            before = _current_config(state, *key)
            config = changed(before, resource)
            _check(state, key, before, config)
            if not request.message.get("validate_only"):
                yield from _write_config(state, key, config)
                if pace.add(WRITE):
                    yield PAUSE
        except RefusedError as refused:
            result |= {"error_code": refused.code, "error_message": str(refused)}
    return {"throttle_time_ms": 0, "responses": results}


def _write_config(state: ControllerState, key: tuple[int, str], config: dict[str, str]) -> Steps:
    """Write the settings of one entity and apply them."""
    kind, name = key
    if kind == TOPIC_RESOURCE:
        topic = state.topics[name]
        data = EntityConfig(config).encode()
        asked: list[Operation] = [
            SetData(znodes.topic_config(name), data, topic.config_version),
            _notification("topics", name),
        ]
        (done,) = yield [asked]
        _raise_if_refused(done.refused)
        now = state.current_topic(name, topic.id)
        if now is not None and now.config_version <= topic.config_version:
            state.put(now._replace(config=config, config_version=topic.config_version + 1))
        return
    if kind == GROUP_RESOURCE:
        yield from group_configs.write(state, name, config)
        return
    entity = state.own if name else state.everywhere
    label = name or znodes.DEFAULT_ENTITY
    path, data = znodes.broker_config(label), stored_passwords.seal(state, entity, config)
    asked = [
        Create(path, data) if entity.version < 0 else SetData(path, data, entity.version),
        _notification("brokers", label),
    ]
    (done,) = yield [asked]
    _raise_if_refused(done.refused)
    sealed = {each: text for each, text in entity.sealed.items() if config.get(each) == text}
    entity.config = stored_passwords.usable(entity, config)
    entity.version, entity.sealed = entity.version + 1, sealed
    state.brokers_changed()


def _notification(kind: str, name: str) -> Operation:
    """The notification that tells every broker whose settings changed."""
    change = ConfigChange(znodes.entity(kind, name))
    return Create(znodes.CHANGES, change.encode(), sequential=True)


def _raise_if_refused(refused: Refusal | None) -> None:
    if refused is not None:
        raise RefusedError(
            refused_code(refused), f"the settings changed meanwhile, or {refused.value}"
        )


def _current_config(state: ControllerState, kind: int, name: str) -> Mapping[str, str]:
    """The settings that the resource has now. RefusedError: there is no such resource."""
    if kind == TOPIC_RESOURCE:
        topic = state.topics.get(name)
        if topic is None:
            raise RefusedError(
                Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return topic.config
    if kind == BROKER_RESOURCE:
        _check_broker(state, name, "Node")
        entity = state.own if name else state.everywhere
        return {**entity.config, **entity.sealed}
    if kind == GROUP_RESOURCE:
        if not name:
            raise RefusedError(Code.INVALID_REQUEST, "Default group resources are not allowed.")
        return group_configs.config(state, name)
    if kind in RESOURCES:
        raise RefusedError(Code.INVALID_REQUEST, "such settings cannot be changed here")
    raise RefusedError(Code.INVALID_REQUEST, f"Unknown resource type {kind}")


def _check(
    state: ControllerState,
    key: tuple[int, str],
    before: Mapping[str, str],
    config: Mapping[str, str],
) -> None:
    """Refuse settings that the resource cannot have."""
    kind, name = key
    if kind == GROUP_RESOURCE:
        group_configs.check(state, config)
    elif kind == TOPIC_RESOURCE:
        config_checks.check_topic(state, before, config)
    else:
        config_checks.check_broker(state, name, before, config)


def _check_broker(state: ControllerState, name: str, who: str = "Broker") -> None:
    if name and not _NUMBER.fullmatch(name):
        raise RefusedError(Code.INVALID_REQUEST, f"{who} id must be an integer, but it is: {name}")
    if name not in ("", str(state.node_id)):
        raise RefusedError(
            Code.INVALID_REQUEST,
            f"Unexpected broker id, expected {state.node_id} or empty string, but received {name}",
        )


def _with_list_change(
    state: ControllerState,
    setting: Setting | None,
    before: Mapping[str, str],
    pair: AlterableConfig,
) -> str:
    """The value of a list setting with items appended or subtracted."""
    name = pair["name"]
    if setting is None or setting.type is not Type.LIST or pair["config_operation"] > SUBTRACT:
        raise RefusedError(
            Code.INVALID_CONFIG, f"Config value append is not allowed for config key: {name}"
        )
    if name in before:
        text = before[name]
    elif setting.change == "topic":
        text = state.topic_text(None, name) or ""
    else:
        text = state.broker_text(name) or ""
    items = [item.strip() for item in text.split(",") if item.strip()]
    given = [item.strip() for item in (pair["value"] or "").split(",") if item.strip()]
    if pair["config_operation"] == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def _entries(
    state: ControllerState, kind: int, name: str, names: Sequence[str] | None
) -> list[DescribeConfigsResourceResult]:
    """The settings of one resource."""
    wanted = set(names) if names else None
    if kind == TOPIC_RESOURCE:
        topic = state.topics.get(name)
        if topic is None:
            raise RefusedError(
                Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return topic_entries(state, topic, wanted)
    if kind == BROKER_RESOURCE:
        _check_broker(state, name)
        return _broker_entries(state, name, wanted)
    if kind == LOGGER_RESOURCE:
        _check_broker(state, name or "none")
        entries = [_entry_without_table("root", "INFO", Type.STRING, DYNAMIC_LOGGER)]
    elif kind == GROUP_RESOURCE:
        if not name:
            raise RefusedError(Code.INVALID_REQUEST, "Group name must not be empty")
        entries = _group_entries(state, name)
    elif kind == METRICS_RESOURCE:
        if not name:
            why = "Client metrics subscription name must not be empty"
            raise RefusedError(Code.INVALID_REQUEST, why)
        entries = [
            _entry_without_table(key, *metric, DEFAULT) for key, metric in _METRICS_DEFAULTS.items()
        ]
    else:
        raise RefusedError(Code.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    return [entry for entry in entries if wanted is None or entry["name"] in wanted]


def _group_entries(state: ControllerState, group: str) -> list[DescribeConfigsResourceResult]:
    """A group's settings that are served here."""
    own = group_configs.config(state, group)
    entries: list[DescribeConfigsResourceResult] = []
    for name in group_configs.SERVED:
        setting = BROKER[group_configs.broker_setting(name)]
        known = [SettingValue(name, own[name].strip(), DYNAMIC_GROUP)] if name in own else []
        known += _values_by_source(state, (setting.name,))
        entry = _described_entry(setting, known, known[0].value)
        entries.append({**entry, "name": name, "read_only": False})
    return entries


def _no_list_refusal(name: str, operation: int) -> str:
    """The refusal of an append or subtract on a setting that is no list."""
    words = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}
    if operation not in words:
        return f"Unsupported operation {operation} on {name}"
    return f"Can't {words[operation]} to key {name} because its type is not LIST."


def _broker_entries(
    state: ControllerState, name: str, wanted: set[str] | None
) -> list[DescribeConfigsResourceResult]:
    """A broker's settings; for all brokers (""): only what was set for all."""
    entries: list[DescribeConfigsResourceResult] = []
    for setting in (*BROKER.values(), *_listener_settings(state)):
        if wanted is not None and setting.name not in wanted:
            continue
        if not name:
            text = state.everywhere.config.get(setting.name)
            if text is not None:
                known = [SettingValue(setting.name, text, DYNAMIC_DEFAULT_BROKER)]
                entries.append(_described_entry(setting, known, text))
            continue
        known = _values_by_source(state, _units_of(setting.name))
        entries.append(_described_entry(setting, known, state.broker_text(setting.name)))
    return entries


def _listener_settings(state: ControllerState) -> list[Setting]:
    """The settings that listeners have of their own, wherever they are given."""
    own = state.own
    given = {*state.config.given(), *own.config, *own.sealed, *state.everywhere.config}
    rows = [(name, BROKER.get(base_name(name) or "")) for name in sorted(given - BROKER.keys())]
    return [row._replace(name=name, default=None) for name, row in rows if row is not None]


def _units_of(name: str) -> tuple[str, ...]:
    """A setting and those that say the same in other units, the one that wins first."""
    for setting in TOPIC.values():
        if name in setting.synonyms and len(setting.synonyms) > 1:
            return setting.synonyms[setting.synonyms.index(name) :]
    return (name,)


def _values_by_source(state: ControllerState, names: tuple[str, ...]) -> list[SettingValue]:
    """All values of these broker settings with their sources, the effective one first."""
    config = state.config
    given = config.given()
    static = {name: setup.text for name, setup in given.items() if setup.source.kind != "mode"}
    by_default = {
        name: text
        for name in names
        if name in given or name in BROKER
        if (text := (given[name].text if name in given else BROKER[name].default)) is not None
        and name not in static
    }
    layers: tuple[tuple[int, Mapping[str, str]], ...] = (
        (DYNAMIC_BROKER, {**state.own.config, **state.own.sealed}),
        (DYNAMIC_DEFAULT_BROKER, state.everywhere.config),
        (STATIC_BROKER, static),
        (DEFAULT, by_default),
    )
    return [
        SettingValue(name, texts[name], source)
        for source, texts in layers
        for name in names
        if name in texts
    ]


def _described_entry(
    setting: Setting, known: list[SettingValue], text: str | None
) -> DescribeConfigsResourceResult:
    """One setting as DescribeConfigs answers it."""
    source = known[0].source if known else DEFAULT
    hidden = setting.sensitive
    return {
        "name": setting.name,
        "value": None if hidden else text,
        "read_only": not setting.dynamic,
        "is_default": source == DEFAULT,
        "config_source": source,
        "is_sensitive": hidden,
        "synonyms": [
            {"name": each.name, "value": None if hidden else each.value, "source": each.source}
            for each in known
        ],
        "config_type": int(setting.type),
        "documentation": setting.doc,
    }


def _entry_without_table(
    name: str, value: str, kind: Type, source: int
) -> DescribeConfigsResourceResult:
    """A setting that no table has."""
    return {
        "name": name,
        "value": value,
        "read_only": False,
        "is_default": source == DEFAULT,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [{"name": name, "value": value, "source": source}],
        "config_type": int(kind),
        "documentation": None,
    }
