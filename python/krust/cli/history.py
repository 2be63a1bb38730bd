"""Shows a group's last rebalances for `krust group describe`: when, who, why, what failed.

krust's coordinator keeps them (`coordinator/history.py`) and returns them in DescribeGroups if the
request asks for them. Other brokers ignore that field, and then the history is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krust.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHOWN = 5
"""The most reasons of the last rebalance without `--history`."""


def plain(history: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """The history for JSON; unknown values are null."""
    if history is None:
        return None
    return [
        {
            **each,
            "ended_ms": None if each["ended_ms"] < 0 else each["ended_ms"],
            "generation": None if each["generation"] < 0 else each["generation"],
        }
        for each in history
    ]


def lines(group: Mapping[str, Any], now_ms: float, *, all_of_it: bool) -> Iterator[str]:
    """Lines for people: the last rebalance, or all, the newest last.

    A group without a protocol type has never had a member and exists only for its offsets.
    """
    history: Sequence[Mapping[str, Any]] | None = group["history"]
    if history is None and not group["members"] and not group["protocol_type"]:
        yield "no rebalance yet"
    elif history is None:
        yield "last rebalance: this broker keeps no history"
    elif not history:
        yield "last rebalance: none since the broker started"
    for each in (history or ())[0 if all_of_it else -1 :]:
        yield _head(each, now_ms, last=each is (history or ())[-1])
        reasons = each["reasons"] if all_of_it else each["reasons"][:_SHOWN]
        yield from (f"  {reason['why']}" for reason in reasons)
        more = each["more"] + len(each["reasons"]) - len(reasons)
        if more:
            yield f"  and {more} more"
        if each["trouble"]:
            yield from (f"  ! {line}" for line in str(each["trouble"]).splitlines())


def _head(one: Mapping[str, Any], now_ms: float, *, last: bool) -> str:
    ago = span(max(0.0, now_ms - one["started_ms"]))
    parts = [f"{'last ' if last else ''}rebalance {ago} ago"]
    if one["generation"] is None:
        parts.append("members are still to join" if last else "overtaken by the next")
    else:
        parts.append(f"generation {one['generation']}, {counted(one['members'], 'member')}")
        if one["ended_ms"] is not None:
            parts.append(f"took {span(one['ended_ms'] - one['started_ms'])}")
        else:
            parts.append("not assigned yet" if last else "overtaken by the next")
    return "   ".join(parts)


def span(milliseconds: float) -> str:
    """A duration in one unit."""
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
