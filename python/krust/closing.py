"""The `with` statement of clients and clusters: it closes them at its end, also after an error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Closing(ABC):
    """A client or cluster that `with` closes."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
