"""Decodes records of the internal topics `__consumer_offsets` and `__transaction_state`.

Format: key and value each begin with a version (int16). The key's version is the type of the
record. The fields of the table follow, in classic (not flexible) encoding. Source: Kafka's
OffsetCommit*, GroupMetadata* and TransactionLog* of `coordinator.*.generated`. Not promised: types
and versions that the table lacks (KIP-848's groups, flexible values). For them and for invalid
bytes the result is None, and the caller shows the bytes.
"""

from __future__ import annotations

import struct
from typing import Any

INTEGERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}
MOST = 1 << 20
"""The most elements of an array."""

Fields = tuple[tuple[str, Any], ...]
"""Name and type: a key of INTEGERS, string, bytes, or a list with one type or Fields."""

_OFFSET: Fields = (("offset", "int64"),)
_COMMIT: Fields = (("metadata", "string"), ("commit_timestamp_ms", "int64"))
_GROUP: Fields = (
    ("protocol_type", "string"),
    ("generation", "int32"),
    ("protocol", "string"),
    ("leader", "string"),
)
_SINCE: Fields = (("current_state_timestamp_ms", "int64"),)
_CLIENT: Fields = (("client_id", "string"), ("client_host", "string"))
_REBALANCE: Fields = (("rebalance_timeout_ms", "int32"),)
_REST: Fields = (
    ("session_timeout_ms", "int32"),
    ("subscription", "bytes"),
    ("assignment", "bytes"),
)
_MEMBER: Fields = (("member_id", "string"),)
_INSTANCE: Fields = (("group_instance_id", "string"),)

_COMMITTED: dict[int, Fields] = {
    0: _OFFSET + _COMMIT,
    1: (*_OFFSET, *_COMMIT, ("expire_timestamp_ms", "int64")),
    2: _OFFSET + _COMMIT,
    3: (*_OFFSET, ("leader_epoch", "int32"), *_COMMIT),
}
_GROUPS: dict[int, Fields] = {
    0: (*_GROUP, ("members", [_MEMBER + _CLIENT + _REST])),
    1: (*_GROUP, ("members", [_MEMBER + _CLIENT + _REBALANCE + _REST])),
    2: (*_GROUP, *_SINCE, ("members", [_MEMBER + _CLIENT + _REBALANCE + _REST])),
    3: (*_GROUP, *_SINCE, ("members", [_MEMBER + _INSTANCE + _CLIENT + _REBALANCE + _REST])),
}
_PLACE: Fields = (("group", "string"), ("topic", "string"), ("partition", "int32"))
_TRANSACTION: Fields = (
    ("producer_id", "int64"),
    ("producer_epoch", "int16"),
    ("transaction_timeout_ms", "int32"),
    ("transaction_status", "int8"),
    ("partitions", [(("topic", "string"), ("partitions", ["int32"]))]),
    ("last_update_timestamp_ms", "int64"),
    ("start_timestamp_ms", "int64"),
)
TABLE: dict[str, dict[int, tuple[str, Fields, dict[int, Fields]]]] = {
    "__consumer_offsets": {
        0: ("offset", _PLACE, _COMMITTED),
        1: ("offset", _PLACE, _COMMITTED),
        2: ("group", (("group", "string"),), _GROUPS),
    },
    "__transaction_state": {
        0: ("transaction", (("transactional_id", "string"),), {0: _TRANSACTION}),
    },
}
"""topic -> version of the key -> type, fields of the key, fields of the value by its version"""


def decoded(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any] | None:
    """A record as {"kind", the fields of the key, "value": fields, or None for a tombstone}."""
    try:
        version, at = _integer(key or b"", 0, "int16")
        kind, fields, values = TABLE[topic][version]
        known, _ = _struct(key or b"", at, fields)
        if value is None:
            return {"kind": kind, **known, "value": None}
        version, at = _integer(value, 0, "int16")
        found, _ = _struct(value, at, values[version])
    except (KeyError, ValueError, struct.error):
        return None
    return {"kind": kind, **known, "value": found}


def _struct(data: bytes, at: int, fields: Fields) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    for name, kind in fields:
        found[name], at = _read(data, at, kind)
    return found, at


def _read(data: bytes, at: int, kind: Any) -> tuple[Any, int]:
    if isinstance(kind, tuple):
        return _struct(data, at, kind)
    if isinstance(kind, list):
        count, at = _integer(data, at, "int32")
        items = []
        for _ in range(_within(count, MOST)):
            item, at = _read(data, at, kind[0])
            items.append(item)
        return items, at
    if kind in INTEGERS:
        return _integer(data, at, kind)
    size, at = _integer(data, at, "int16" if kind == "string" else "int32")
    if size < 0:
        return None, at
    end = at + _within(size, len(data) - at)
    part = data[at:end]
    return (part.decode() if kind == "string" else part.hex()), end


def _integer(data: bytes, at: int, kind: str) -> tuple[int, int]:
    form = INTEGERS[kind]
    return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)


def _within(number: int, limit: int) -> int:
    if number > limit:
        raise ValueError("more than there is")
    return max(0, number)
