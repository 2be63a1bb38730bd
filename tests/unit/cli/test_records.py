"""Records as text and text as records: pure, without a broker."""

from __future__ import annotations

import pytest

from krust.cli.records import (
    FormatError,
    FormattedRecord,
    block_fields,
    encode,
    formatter,
    parser,
    to_object,
    when,
)

RECORD = FormattedRecord(
    "t", 3, 42, 1_700_000_000_123, 0, b"k\xff", b'{"a": 1}', [("h", b"1"), ("n", None)]
)


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("%t/%p@%o", b"t/3@42"),
        (r"%k\t%v\n", b'k\xff\t{"a": 1}\n'),
        ("%k{hex} %k{base64}", b"6bff a/8="),
        ("%v{json}", b'{"a": 1}'),
        ("%T %K %V %H %i", b"1 2 8 2 9"),
        ("%h{%k:%v;}", b"h:1;n:;"),
        ("%d %d{iso}", b"1700000000123 2023-11-14T22:13:20.123+00:00"),
        ("%d{%H:%M} %d{strftime[%Y]}", b"22:13 2023"),
        (r"100%% \x41\\", b"100% A\\"),
        ("", b""),
    ],
)
def test_each_format_verb_shows_its_field(form: str, shown: bytes) -> None:
    assert formatter(form)(RECORD, 9) == shown


@pytest.mark.parametrize("form", ["%z", "%", "%k{rot13}", "%h{", r"\q", "%o{hex}", "%h{%z}"])
def test_an_invalid_format_is_refused(form: str) -> None:
    with pytest.raises(FormatError):
        formatter(form)


def test_null_is_empty_as_text_and_null_as_json() -> None:
    tombstone = RECORD._replace(key=None, value=None, timestamp=-1)
    assert formatter("%k|%v|%d{iso}|%v{hex}")(tombstone, 1) == b"|||"
    fields = to_object(tombstone)
    assert (fields["key"], fields["value"]) == (None, None)
    assert when(-1, "iso") == ""


def test_bytes_that_are_not_text_survive_json() -> None:
    fields = to_object(RECORD)
    assert fields["key"] == {"base64": "a/8="}
    assert encode(fields["key"]) == b"k\xff"
    assert encode("text") == b"text"
    assert encode(None) is None
    assert encode({"a": [1]}) == b'{"a": [1]}'


def test_input_is_cut_at_the_literals() -> None:
    pattern, verbs = parser(r"%k{hex}: %v\n")
    found = pattern.match(b"6bff: a: b\nnext")
    assert found is not None
    assert (verbs, found.groups()) == (["k{hex}", "v"], (b"6bff", b"a: b"))
    for form in ("%v%v", "literal", "%o", "%h{%k}"):
        with pytest.raises(FormatError):
            parser(form)


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        (r"%v\n", [("v", b"\n")]),
        (r"%k%v\n", None),
        (r"%k\t%t|%v{string}%%\r\n", [("k", b"\t"), ("t", b"|"), ("v", b"%\r\n")]),
        ("%v", None),
        (r"=%v\n", None),
        (r"%k{hex} %v\n", None),
        (r"%p %v\n", None),
    ],
)
def test_blocks_are_cut_if_each_field_ends_with_a_literal(
    form: str, fields: list[tuple[str, bytes]] | None
) -> None:
    assert block_fields(form) == fields
