"""Kafka's own records decode, and any other bytes are None instead of an error."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from krust.cli.internal import TABLE, decoded


def test_an_offset_commit_and_its_tombstone_are_decoded() -> None:
    key = bytes.fromhex("0001 0001 67 0001 74 00000002")
    value = bytes.fromhex("0003 0000000000000007 ffffffff 0000 0000000000000009")
    place = {"kind": "offset", "group": "g", "topic": "t", "partition": 2}
    fields = {"offset": 7, "leader_epoch": -1, "metadata": "", "commit_timestamp_ms": 9}
    assert decoded("__consumer_offsets", key, value) == {**place, "value": fields}
    assert decoded("__consumer_offsets", key, None) == {**place, "value": None}


@given(
    st.sampled_from(sorted(TABLE)),
    st.binary() | st.binary().map(lambda rest: b"\0\2" + rest) | st.none(),
    st.binary() | st.binary().map(lambda rest: b"\0\3" + rest) | st.none(),
)
def test_any_bytes_are_decoded_or_none(topic: str, key: bytes | None, value: bytes | None) -> None:
    assert decoded(topic, key, value) is None or key is not None
