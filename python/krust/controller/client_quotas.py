"""Requests about the quotas of users, clients and addresses.

DescribeClientQuotas 0-1: filters by components, each a name, the default, or any; `strict` leaves
    out owners with other parts. AlterClientQuotas 0-1: decides each entry by itself;
    `validate_only` writes nothing.
Any broker answers. It reads the tree and keeps nothing in memory. Codes and texts are Kafka 3.9's.
Different from 3.9: a value below zero, or that is no number, is refused (3.9 stores some of them);
    an address is an IPv4 address (krust asks no name server; 3.9 has no IPv6 either); a key that is
    no quota is not removed. If the node is broken, the alteration is refused.
Version notes: v1 is flexible.
Source: KIP-546, KIP-599, KIP-612.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from krust.controller import quota_entities, quotas
from krust.controller.pace import PAUSE, WRITE, Pace
from krust.controller.state import (
    ControllerState,
    Decision,
    RefusedError,
    Request,
    refused_code,
)
from krust.errors import Code, ServerError
from krust.metadata import znodes
from krust.metadata.contents import EntityConfig
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Refusal, is_path
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from krust.controller.quotas import QuotaOwner
    from krust.controller.state import Steps, Transactions
    from krust.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        EntryResult,
        OpData,
    )
    from krust.messages.describe_client_quotas import (
        ComponentData,
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
        EntityData,
        EntryData,
        ValueData,
    )
    from krust.metadata.store import MultiResult, Node, Operation

EXACT, DEFAULT, ANY = range(3)
"""How a component of DescribeClientQuotas matches."""

_TOLERANCE = 1e-6
_ENTITIES_PER_WRITE = 100
"""entities that one transaction writes; it costs one sync of the store"""
_ATTEMPTS = 3
"""for a node that others change at the same time"""
_RETRIABLE = (Refusal.BAD_VERSION, Refusal.NODE_EXISTS, Refusal.NO_NODE, Refusal.NOT_EMPTY)
_NameFilter = tuple[int, str | None]


class _Alteration(NamedTuple):
    """The changes of one entity's quotas, and the result to fill in."""

    owner: QuotaOwner
    ops: Sequence[OpData]
    result: EntryResult


def describe(
    state: ControllerState, request: Request[DescribeClientQuotasRequest]
) -> Decision[DescribeClientQuotasResponse]:
    """DescribeClientQuotas."""
    entries: list[EntryData] = []
    try:
        wanted = _name_filters(request.message["components"])
        strict = bool(request.message["strict"])
        pace = Pace()
        for place, node in (yield from quota_entities.read_owner_nodes()).items():
            if pace.add():
                yield PAUSE
            owner = quotas.owner_at(place)
            if owner is not None and _matches(owner, wanted, strict=strict):
                values = _quota_values(owner, node)
                if values:
                    entries.append({"entity": _entity_data(owner), "values": values})
    except RefusedError as refused:
        return _describe_response(refused.code, str(refused), None)
    except ServerError as error:
        return _describe_response(Code.REQUEST_TIMED_OUT, str(error), None)
    return _describe_response(Code.NONE, "", entries)


def _describe_response(
    code: Code, text: str, entries: list[EntryData] | None
) -> DescribeClientQuotasResponse:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "error_message": text,
        "entries": entries,
    }


def alter(
    state: ControllerState, request: Request[AlterClientQuotasRequest]
) -> Decision[AlterClientQuotasResponse]:
    """AlterClientQuotas."""
    only_check = bool(request.message["validate_only"])
    results: dict[frozenset[tuple[str, str | None]], EntryResult] = {}
    asked: list[_Alteration] = []
    pace = Pace()
    for entry in request.message["entries"]:
        if pace.add(len(entry["entity"]) + len(entry["ops"])):
            yield PAUSE
        named = {each["entity_type"]: each["entity_name"] for each in entry["entity"]}
        entity = _entity_data(named.items())
        result: EntryResult = {"error_code": Code.NONE, "error_message": None, "entity": entity}
        results[frozenset(named.items())] = result
        try:
            asked.append(_Alteration(_owner_of(named), entry["ops"], result))
        except RefusedError as refused:
            result |= {"error_code": refused.code, "error_message": str(refused)}
    rest = asked if only_check else (yield from _write_simple(state, asked))
    for each in rest:
        if pace.add(WRITE):
            yield PAUSE
        try:
            yield from _write_quotas(state, each.owner, each.ops, only_check)
        except RefusedError as refused:
            each.result.update({"error_code": refused.code, "error_message": str(refused)})
    return {"throttle_time_ms": 0, "entries": list(results.values())}


def _write_simple(
    state: ControllerState, asked: list[_Alteration]
) -> Generator[Transactions, list[MultiResult], list[_Alteration]]:
    """Write the simple alterations, many in one transaction: those of an owner of one part that is
    named once, keeps its node, and whose parent node exists. Returns the others, and those whose
    transaction failed: the caller writes each of them by itself and so learns its own error.
    """
    times = Counter(each.owner for each in asked)
    simple: list[_Alteration] = []
    rest: list[_Alteration] = []
    for each in asked:
        is_path_of_one = len(each.owner) == 1 and is_path(_znode(each.owner))
        (simple if times[each.owner] == 1 and is_path_of_one else rest).append(each)
    for start in range(0, len(simple), _ENTITIES_PER_WRITE):
        operations: list[Operation] = []
        written = []
        for each in simple[start : start + _ENTITIES_PER_WRITE]:
            try:
                place = yield from quota_entities.read_entity(each.owner)
                config = _with_ops(each.owner, place.config, each.ops)
            except (BadZnodeError, RefusedError, ServerError):
                rest.append(each)
                continue
            if not config or place.missing:
                rest.append(each)
            elif config != place.config:
                operations += quota_entities.writes(place, config)
                written.append(each)
        if not written:
            continue
        (done,) = yield [operations]
        try:
            if done.refused is None:
                yield from quota_entities.reread(state, *(each.owner for each in written))
            else:
                rest += written
        except ServerError:
            rest += written
        if start + _ENTITIES_PER_WRITE < len(simple):
            yield PAUSE
    return rest


def _write_quotas(
    state: ControllerState, owner: QuotaOwner, ops: Sequence[OpData], only_check: bool
) -> Steps:
    """Write the quotas of one owner, and enforce them from now on."""
    path = _znode(owner)
    if not is_path(path):
        raise RefusedError(Code.INVALID_REQUEST, f"{path} cannot be stored")
    refused: Refusal | None = None
    try:
        for _ in range(_ATTEMPTS):
            place = yield from quota_entities.read_entity(owner)
            config = _with_ops(owner, place.config, ops)
            if only_check or config == place.config:
                return
            refused = yield from quota_entities.write(place, config)
            if refused not in _RETRIABLE:
                break
        if refused is None:
            yield from quota_entities.reread(state, owner)
    except BadZnodeError as error:
        raise RefusedError(Code.UNKNOWN_SERVER_ERROR, f"{path}: {error}") from None
    except ServerError as error:
        raise RefusedError(Code.REQUEST_TIMED_OUT, str(error)) from None
    if refused is not None:
        raise RefusedError(refused_code(refused), f"{path}: {refused.value}")


def _znode(owner: QuotaOwner) -> str:
    return f"{znodes.CONFIG}/{quotas.path(owner)}"


def _owner_of(named: Mapping[str, str | None]) -> QuotaOwner:
    """The owner that an entry names. RefusedError: there is no such owner."""
    if not named:
        raise RefusedError(Code.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in named.items():
        if kind not in quotas.KINDS:
            raise RefusedError(Code.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise RefusedError(Code.INVALID_REQUEST, f"Empty {kind} not supported")
    if quotas.IP in named:
        if len(named) > 1:
            raise RefusedError(
                Code.INVALID_REQUEST,
                "Invalid quota entity combination, IP entity should not be used with "
                "user/client ID entity.",
            )
        address = named[quotas.IP]
        if address is not None and not quotas.is_address(address):
            raise RefusedError(
                Code.INVALID_REQUEST,
                f"{znodes.sanitised(address)} is not a valid IP or resolvable host.",
            )
    return tuple((kind, named[kind]) for kind in quotas.KINDS if kind in named)


def _with_ops(owner: QuotaOwner, before: dict[str, str], ops: Sequence[OpData]) -> dict[str, str]:
    """An owner's settings after these changes."""
    config, known = dict(before), quotas.keys_of(owner)
    for op in ops:
        key, value = op["key"], op["value"]
        if op["remove"]:
            if key in config and key not in known:
                raise RefusedError(Code.INVALID_REQUEST, f"Invalid configuration key {key}")
            config.pop(key, None)
            continue
        if key not in known:
            raise RefusedError(Code.INVALID_REQUEST, f"Invalid configuration key {key}")
        config[key] = _stored_text(key, value)
    return config


def _stored_text(key: str, value: float) -> str:
    """A quota as it is stored."""
    if key in quotas.INTEGER_QUOTAS:
        kind = quotas.INTEGER_QUOTAS[key]
        most = 2**63 - 1 if kind == "LONG" else 2**31 - 1
        whole = min(int(value + _TOLERANCE), most) if 0 <= value < math.inf else 0
        if not abs(whole - value) <= _TOLERANCE:
            raise RefusedError(Code.INVALID_REQUEST, f"Configuration {key} must be a {kind} value")
        return str(whole)
    if not 0 <= value < math.inf:
        raise RefusedError(Code.INVALID_REQUEST, f"Quota {key} must be a number, and not below 0")
    return quotas.text_of(value)


def _name_filters(asked: Sequence[ComponentData]) -> dict[str, _NameFilter]:
    """The filter of each kind of name: how it matches, and which name."""
    wanted: dict[str, _NameFilter] = {}
    for each in asked:
        kind, how, name = each["entity_type"], each["match_type"], each["match"]
        if kind in wanted:
            word = {quotas.CLIENT: "client"}.get(kind, kind)
            raise RefusedError(
                Code.INVALID_REQUEST, f"Duplicate {word} filter component entity type"
            )
        if not kind:
            raise RefusedError(
                Code.INVALID_REQUEST, "Unexpected empty filter component entity type"
            )
        if kind not in quotas.KINDS:
            raise RefusedError(
                Code.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported"
            )
        if how not in (EXACT, DEFAULT, ANY) or (how == EXACT and name is None):
            raise RefusedError(Code.INVALID_REQUEST, f"Unexpected match type {how} of {kind}")
        wanted[kind] = (how, name)
    if quotas.IP in wanted and len(wanted) > 1:
        raise RefusedError(
            Code.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used "
            "with user or clientId filter component.",
        )
    return wanted


def _matches(owner: QuotaOwner, wanted: Mapping[str, _NameFilter], *, strict: bool) -> bool:
    named = dict(owner)
    if strict and named.keys() - wanted.keys():
        return False
    for kind, (how, name) in wanted.items():
        if kind not in named:
            return False
        if how == EXACT and named[kind] != name:
            return False
        if how == DEFAULT and named[kind] is not None:
            return False
    return True


def _quota_values(owner: QuotaOwner, node: Node) -> list[ValueData]:
    try:
        values, _ = quotas.read(owner, EntityConfig.decode(node.data).config)
    except BadZnodeError:
        return []
    return [{"key": key, "value": value} for key, value in values.items()]


def _entity_data(owner: Iterable[tuple[str, str | None]]) -> list[EntityData]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in owner]
