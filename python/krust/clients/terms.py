"""What a consumer's settings say to its group: the protocol, the times, the ways to share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.clients import options
from krust.clients.coordinator import Coordinator
from krust.clients.membership import Strategy, Terms
from krust.coordinator.assignors.find import ASSIGNORS
from krust.coordinator.assignors.spec import Assignor
from krust.errors import ConfigError
from krust.plugins import FindError

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_THE_OTHER = {
    "classic": {"group.remote.assignor"},
    "consumer": {
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    },
}
"""By group.protocol: settings that hold under the other one only."""
COOPERATIVE = "cooperative-sticky"
API_MS = 60_000
"""default.api.timeout.ms"""


def coordinator_of(terms: Terms, given: Mapping[str, object]) -> Coordinator:
    """What asks the group's coordinator on behalf of the application, not of the member."""
    answer_ms = options.number(given, "request.timeout.ms", 30_000)
    patience_ms = options.number(given, "default.api.timeout.ms", API_MS)
    return Coordinator(terms.group_id, given, min(answer_ms, patience_ms), patience_ms)


def terms_of(given: Mapping[str, object]) -> Terms | None:
    """What a member tells its group; None: there is no group."""
    protocol = options.choice(given, "group.protocol", "classic", "consumer")
    for name in sorted(OF_THE_OTHER[protocol] & given.keys()):
        hint = "leave it out, or set the other group.protocol"
        raise ConfigError(f"{name} is not a setting of group.protocol={protocol}", hint=hint)
    group_id = given.get("group.id")
    if group_id is None:
        return None

    def text(name: str) -> str | None:
        return None if given.get(name) is None else str(given[name])

    strategies = _strategies(given.get("partition.assignment.strategy", ("range", COOPERATIVE)))
    return Terms(
        str(group_id),
        text("group.instance.id"),
        text("client.rack"),
        options.number(given, "session.timeout.ms", 45_000),
        options.number(given, "heartbeat.interval.ms", 3000),
        options.number(given, "max.poll.interval.ms", 300_000),
        options.number(given, "metadata.max.age.ms", 300_000),
        options.number(given, "default.api.timeout.ms", API_MS),
        strategies if protocol == "classic" else (),
        text("group.remote.assignor"),
    )


def _strategies(given: object) -> tuple[Strategy, ...]:
    several = given.split(",") if isinstance(given, str) else given
    if not isinstance(several, (list, tuple)):
        several = [several]
    return tuple(map(_strategy, several))


def _strategy(given: object) -> Strategy:
    """A name, an assignor or its class; one of the user's own may say `cooperative = True`."""
    try:
        if isinstance(given, str):
            name = given.strip()
            if name == COOPERATIVE:
                return Strategy(name, ASSIGNORS.find("sticky"), cooperative=True)
            assignor = ASSIGNORS.find(name)
        else:
            made = given() if isinstance(given, type) else given
            if not isinstance(made, Assignor):
                raise ConfigError(f"partition.assignment.strategy: {given!r} is not an assignor")
            assignor = made
    except FindError as error:
        raise ConfigError(f"partition.assignment.strategy: {error}", hint=error.hint) from error
    return Strategy(assignor.name, assignor, bool(getattr(assignor, "cooperative", False)))
