"""The header of schema registries' serializers before a value: a zero byte and the schema's id.

Avro       00, id in 4 bytes, body
Protobuf   00, id in 4 bytes, message index, body
message index: a count and that many numbers, zigzag varints; `00` stands for [0]
"""

from __future__ import annotations

from krust.decode.result import BadValueError

HEADER_BYTES = 5
_DEEPEST = 64
_VARINT_BYTES = 5


def schema_id(value: bytes) -> int:
    """The id in a value's header. BadValueError: it has none."""
    if len(value) < HEADER_BYTES:
        raise BadValueError(f"{len(value)} bytes are too few for the 5-byte schema header")
    if value[0]:
        raise BadValueError(f"the schema header begins with 0x{value[0]:02x} instead of 0x00")
    return int.from_bytes(value[1:HEADER_BYTES], "big")


def message_index(value: bytes) -> tuple[tuple[int, ...], int]:
    """The path of a Protobuf message in its file, and the position of its body."""
    count, at = _zigzag(value, HEADER_BYTES)
    if count == 0:
        return (0,), at
    if not 0 < count <= _DEEPEST:
        raise BadValueError(f"a message index of {count} numbers")
    path = []
    for _ in range(count):
        number, at = _zigzag(value, at)
        if number < 0:
            raise BadValueError(f"a message index with {number} in it")
        path.append(number)
    return tuple(path), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(_VARINT_BYTES):
        if at >= len(value):
            raise BadValueError("the message index is cut short")
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise BadValueError("the message index has a number of more than 32 bits")
