"""JSON values to columns: the decoders of pyarrow and Python agree on any bytes."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the extra `tables` is not installed")

from krust.decode import ddl  # noqa: E402
from krust.decode.from_json import JsonDecoder  # noqa: E402
from krust.errors import ConfigError  # noqa: E402

QUICK = ddl.schema("a bigint, b string, c double, d boolean, e array<bigint>, f struct<x:int>")
WIDE = ddl.schema(
    "at timestamp, day date, price decimal(10,2), raw binary, tags map<string,int>, f float"
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abcdefxyz"), inner, max_size=4)
    ),
    max_leaves=8,
)
TEXTS = st.one_of(
    JSON.map(lambda tree: json.dumps(tree).encode()),
    JSON.map(lambda tree: json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.binary(max_size=20),
    st.text(alphabet='{}[]",:ab10 \n\\u-.eE+tfn', max_size=20).map(str.encode),
)
TRICKS = [
    b'{"a":1}{"a":2}',
    b'{"a":1},{"a":2}',
    b'{"a":1}]}\n{"v":[{"a":2}',
    b'{"a":1},{"krust":true}]}\n{"v":[{"a":2}',
    b'{"a":1}],"w":[{}',
    b"{} {}",
    b"",
    b"null",
    b"[]",
    b"{",
    b"}",
    b'{"a":1,"a":2}',
    b'{"z":1,"z":2}',
    b'{"a":1.0}',
    b'{"a":NaN}',
    b'{"c":NaN}',
    b'{"c":Infinity}',
    b'{"c":1e400}',
    b'{"b":"\xff"}',
    b'{"z":"\xff"}',
    b'\xef\xbb\xbf{"a":1}',
    b'{"a":-0}',
    b'{"b":"\\ud800"}',
    b'{"z":"\\ud800"}',
    b'{"b":"\\u0000"}',
    b'{"f":{"x":1,"x":1}}',
    b'{"e":[1,null]}',
    b'{"f":[]}',
]


def _decode(decoder: JsonDecoder, values: list[bytes | None]) -> tuple[list[Any], list[int]]:
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.columns.schema == decoder.schema
    good = range(len(values)) if decoded.good is None else decoded.good
    assert decoded.columns.num_rows == len(good)
    bad = [row for row, reason in decoded.bad if reason]
    assert sorted([*good, *bad]) == list(range(len(values)))
    return list(zip(good, map(repr, decoded.columns.to_pylist()), strict=True)), bad


LONG = [b'{"a":' + b"1" * 5000 + b"}", b'{"z":' + b"[" * 100_000, b'{"z":' * 100_000]


@given(st.lists(TEXTS | st.sampled_from(TRICKS), max_size=6))
@example(TRICKS)
@example([b'{"a":', b"1}"])
@example([b'{"b":"', b'"}'])
@example([b'{"a":1}{"a":2}', b""])
def test_the_fast_and_the_exact_decoder_agree_on_any_bytes(values: list[bytes]) -> None:
    both, slow = JsonDecoder(QUICK), JsonDecoder(QUICK)
    slow._quick = None
    assert _decode(both, [*values]) == _decode(slow, [*values])
    for value in values:  # the neighbours of a value make no difference
        assert _decode(both, [value]) == _decode(slow, [value])


@pytest.mark.parametrize("trick", [*TRICKS, *LONG], ids=lambda trick: repr(trick[:24]))
def test_a_hostile_row_affects_no_other_row(trick: bytes) -> None:
    beside = [b'{"a":%d}' % number for number in range(20)]
    rows, bad = _decode(JsonDecoder(QUICK), [*beside[:10], trick, *beside[10:]])
    others = [row for row in rows if row[0] != 10]
    assert len(others) == 20
    assert [f"'a': {n}," in text for n, (_, text) in enumerate(others)] == [True] * 20
    assert set(bad) <= {10}


TIMES = ddl.schema("at timestamp, day date, local timestamp_ntz, n int")
MOMENTS = st.one_of(
    st.datetimes().map(lambda one: one.isoformat()),
    st.datetimes().map(lambda one: f"{one.isoformat(' ')}Z"),
    st.datetimes(timezones=st.timezones()).map(lambda one: one.isoformat()),
    st.dates().map(lambda one: one.isoformat()),
    st.text(alphabet="0123456789-:TZ .+", max_size=20),
    st.integers(-(10**16), 10**16),
    st.none(),
    st.sampled_from(
        [
            "2026-01-01T24:00:00Z",
            "2026-01-01T23:59:60Z",
            "0000-01-01",
            "2026-13-01",
            "2026-1-1",
            "2026-01-01T01:02Z",
            "2026-01-01T01Z",
            "2026-01-01 01:02:03.1234567",
            "2026-02-29",
        ]
    ),
)


@given(
    st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(TIMES.names, MOMENTS)), max_size=5)
)
def test_the_fast_and_the_exact_decoder_read_times_alike(rows: list[dict[str, Any]]) -> None:
    values = [json.dumps(row).encode() for row in rows]
    both, slow = JsonDecoder(TIMES), JsonDecoder(TIMES)
    slow._quick = None
    assert _decode(both, [*values]) == _decode(slow, [*values])
    for value in values:
        assert _decode(both, [value]) == _decode(slow, [value])


FITTING = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | st.integers(-(2**63), 2**63 - 1),
        "b": st.none() | st.text(),
        "c": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "d": st.none() | st.booleans(),
        "e": st.none() | st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
        "f": st.none() | st.fixed_dictionaries({"x": st.integers(-(2**31), 2**31 - 1)}),
        "other": JSON,
    },
)


@given(st.lists(FITTING, min_size=1, max_size=8))
def test_values_that_fit_the_schema_are_decoded_unchanged(rows: list[dict[str, Any]]) -> None:
    values = [json.dumps(row).encode() for row in rows]
    decoded = JsonDecoder(QUICK).decode(pa.array(values, pa.binary()))
    assert not decoded.bad
    assert decoded.columns.to_pylist() == [
        {name: row.get(name) for name in "abcdef"} for row in rows
    ]


def test_many_valid_rows_take_the_fast_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = JsonDecoder(QUICK)
    monkeypatch.setattr(decoder, "_read", None)
    values = [b'{"a": %d,\n "b": "x", "unknown": [{}]}' % number for number in range(5000)]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.good is None
    assert decoded.columns.column("a").to_pylist() == list(range(5000))


def test_times_numbers_bytes_and_maps_are_decoded() -> None:
    row = {
        "at": "2026-11-21T10:00:00.5+02:00",
        "day": "2026-11-21",
        "price": 12.5,
        "raw": "AAE=",
        "tags": {"x": 1, "y": None},
        "f": 0.5,
    }
    values = [json.dumps(row).encode(), b'{"at": 1795255200000, "price": "0.01"}', None]
    decoded = JsonDecoder(WIDE).decode(pa.array(values, pa.binary()))
    assert not decoded.bad
    first, second, third = decoded.columns.to_pylist()
    assert first["at"] == datetime(2026, 11, 21, 8, 0, 0, 500_000, UTC)
    assert first["day"] == date(2026, 11, 21)
    assert first["price"] == Decimal("12.50")
    assert first["raw"] == b"\0\1"
    assert first["tags"] == [("x", 1), ("y", None)]
    assert second["at"] == datetime(2026, 11, 21, 10, 0, 0, 0, UTC)
    assert second["price"] == Decimal("0.01")
    assert set(third.values()) == {None}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"at": "yesterday"}', 'at: "yesterday" is a string, the column is timestamp'),
        (b'{"at": 1e400}', "at:"),
        (b'{"at": 99999999999999999999}', "at:"),
        (b'{"day": "2026-02-30"}', "day:"),
        (b'{"price": 1.234}', "price: 1.234 is a number"),
        (b'{"price": 123456789012.5}', "price:"),
        (b'{"price": "1e999999999"}', "price:"),
        (b'{"raw": "?"}', "raw:"),
        (b'{"tags": {"x": "1"}}', 'tags{}: "1" is a string'),
        (b'{"tags": []}', "tags: [] is an array"),
        (b"[1]", "a JSON object is wanted, this is an array"),
        (b"{'at': 1}", "no JSON: "),
        (b"\xff", "no UTF-8 at byte 0"),
        (b'{"day": "2026-01-01", "day": 3}', "day: there are two of it"),
    ],
)
def test_a_bad_row_has_the_reason(value: bytes, reason: str) -> None:
    decoded = JsonDecoder(WIDE).decode(pa.array([b"{}", value, b"{}"], pa.binary()))
    assert decoded.good == [0, 2]
    (bad,) = decoded.bad
    assert (bad.row, bad.reason[: len(reason)]) == (1, reason)


@pytest.mark.parametrize(
    "text",
    [
        "id bigint",
        "a struct<x:int,y:array<map<string,double>>>, `odd name` decimal(38,18)",
        "at timestamp, local timestamp_ntz, b binary, t tinyint, s smallint, f float, d date",
    ],
)
def test_a_schema_text_is_converted_to_arrow_and_back(text: str) -> None:
    columns = ddl.schema(text)
    assert ddl.schema(ddl.text(columns)) == columns


@pytest.mark.parametrize(
    "text",
    ["", "id", "id bigint,", "id money", "id array<int", "a int, A int", "a decimal(50,2)",
     "a " + "array<" * 100 + "int" + ">" * 100, "a int b", "<", "a map<int>"],
)  # fmt: skip
def test_an_invalid_schema_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        ddl.schema(text)


@given(st.text(max_size=30))
def test_no_text_breaks_the_reading_of_schemas(text: str) -> None:
    with suppress(ConfigError):
        ddl.schema(text)
