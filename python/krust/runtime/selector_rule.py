"""The user's replica selector, if the broker has one. Its code is loaded for the first question.

Threads: the policy thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust._krust import Server
    from krust.config import Config
    from krust.controller.state import ControllerState
    from krust.replica_selectors.selector import Question
    from krust.runtime.selector_calls import SelectorCalls


class SelectorRule:
    """The selector that `replica.selector.class` names."""

    def __init__(self, config: Config, server: Server) -> None:
        self._config = config
        self._server = server
        self._selecting: SelectorCalls | None = None

    def ask(self, ticket: int, questions: Sequence[Question], state: ControllerState) -> None:
        """Have the selector asked; the core is answered when it has decided."""
        from krust.runtime.selector_calls import Brokers, SelectorCalls

        if self._selecting is None:
            self._selecting = SelectorCalls(self._config, self._server)
        racks = {number: live.rack for number, live in state.brokers.items()}
        racks[state.node_id] = self._config.text("broker.rack")
        self._selecting.start(ticket, questions, Brokers(state.node_id, racks))

    def close(self) -> None:
        """End the calls of the selector."""
        if self._selecting is not None:
            self._selecting.close()
