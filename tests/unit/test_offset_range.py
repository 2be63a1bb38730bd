"""SPEC, the grammar of `-o` and `since=`: pure, so that it is tested without a broker."""

import pytest

from krust import offset_range

NOW = 1_800_000_000_000
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", (5, None)),
        ("end", (100, None)),
        ("10", (10, None)),
        ("+3", (8, None)),
        ("-3", (97, None)),
        ("-1000", (5, None)),
        ("+1000", (100, None)),
        ("10:20", (10, 20)),
        (":end", (5, 100)),
        ("10:", (10, None)),
        ("-10:-5", (90, 95)),
        ("start:+4", (5, 9)),
        ("20:10", (20, 20)),
        ("@-1h", (42, None)),
        ("@-1h:end", (42, 100)),
        (f"@{NOW}", (100, None)),
        ("@now:end", (100, 100)),
    ],
)
def test_each_form_names_its_offsets(text: str, expected: tuple[int, int | None]) -> None:
    assert offset_range.parse(text, NOW).resolve(5, 100, {NOW - HOUR: 42, NOW: -1}) == expected


def test_colons_inside_a_time_do_not_split_a_range() -> None:
    parsed = offset_range.parse("@2026-11-01T10:30Z:@2026-11-01T11:00:30Z", NOW)
    assert parsed.times() == [1_793_529_000_000, 1_793_530_830_000]
    assert offset_range.parse("@2026-11-01T10:30Z", NOW).end is None
    assert offset_range.parse("@2026-11-01T10:30+02:00:end", NOW).times() == [1_793_521_800_000]


@pytest.mark.parametrize(
    "text", ["", "begin", "@", "@soon", "@-1y", "1:2:3", "@2026-13-01", "--3", "1.5", "9" * 30]
)
def test_an_invalid_offset_spec_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(offset_range.SpecError):
        offset_range.parse(text, NOW)


def test_an_empty_begin_and_end_is_everything_there_is_and_will_be() -> None:
    assert offset_range.parse(":", NOW) == offset_range.START
