"""Requests of krust's own core that Kafka's protocol does not have, as TypedDicts.

`AutoCreate`: a client asked for topics that do not exist, and the broker creates them.
`LogDirFailed`: a log directory of this broker failed; the request names all lost replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence


class AutoCreateRequest(TypedDict):
    """The topics to create."""

    topics: Sequence[str]


class AutoCreateResult(TypedDict):
    """One topic: created, or there already."""

    name: str
    error_code: int


class AutoCreateResponse(TypedDict):
    """A result for each topic."""

    topics: Sequence[AutoCreateResult]


class LostReplica(TypedDict):
    """A replica of this broker."""

    topic: str
    partition: int


class LogDirFailedRequest(TypedDict):
    """All replicas that are lost."""

    replicas: Sequence[LostReplica]


class LogDirFailedResponse(TypedDict):
    """It has no fields."""
