"""The membership config: the settings of a consumer that concern its group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.clients import options
from krust.clients.coordinator_client import CoordinatorClient
from krust.clients.membership import AssignmentStrategy, MembershipConfig
from krust.coordinator.assignors.assignor import Assignor
from krust.coordinator.assignors.find import ASSIGNORS
from krust.errors import ConfigError
from krust.plugins import FindError

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS_OF_OTHER_PROTOCOL = {
    "classic": {"group.remote.assignor"},
    "consumer": {
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    },
}
"""group.protocol -> settings that only the other protocol has."""
COOPERATIVE = "cooperative-sticky"
API_MS = 60_000
"""default.api.timeout.ms"""


def coordinator_client(config: MembershipConfig, given: Mapping[str, object]) -> CoordinatorClient:
    """The client for the application's own requests to the coordinator."""
    answer_ms = options.number(given, "request.timeout.ms", 30_000)
    patience_ms = options.number(given, "default.api.timeout.ms", API_MS)
    return CoordinatorClient(config.group_id, given, min(answer_ms, patience_ms), patience_ms)


def membership_config(given: Mapping[str, object]) -> MembershipConfig | None:
    """The config; None: there is no group."""
    protocol = options.choice(given, "group.protocol", "classic", "consumer")
    for name in sorted(SETTINGS_OF_OTHER_PROTOCOL[protocol] & given.keys()):
        hint = "leave it out, or set the other group.protocol"
        raise ConfigError(f"{name} is not a setting of group.protocol={protocol}", hint=hint)
    group_id = given.get("group.id")
    if group_id is None:
        return None

    def text(name: str) -> str | None:
        return None if given.get(name) is None else str(given[name])

    strategies = _strategies(given.get("partition.assignment.strategy", ("range", COOPERATIVE)))
    return MembershipConfig(
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


def _strategies(given: object) -> tuple[AssignmentStrategy, ...]:
    several = given.split(",") if isinstance(given, str) else given
    if not isinstance(several, (list, tuple)):
        several = [several]
    return tuple(map(_strategy, several))


def _strategy(given: object) -> AssignmentStrategy:
    """The strategy of a name, an assignor or its class, which may set `cooperative = True`."""
    try:
        if isinstance(given, str):
            name = given.strip()
            if name == COOPERATIVE:
                return AssignmentStrategy(name, ASSIGNORS.find("sticky"), cooperative=True)
            assignor = ASSIGNORS.find(name)
        else:
            made = given() if isinstance(given, type) else given
            if not isinstance(made, Assignor):
                raise ConfigError(f"partition.assignment.strategy: {given!r} is not an assignor")
            assignor = made
    except FindError as error:
        raise ConfigError(f"partition.assignment.strategy: {error}", hint=error.hint) from error
    return AssignmentStrategy(
        assignor.name, assignor, bool(getattr(assignor, "cooperative", False))
    )
