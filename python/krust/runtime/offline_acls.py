"""Reads and writes ACLs where brokers read them, without a broker.

So the first ACLs of a cluster exist before its first broker. Brokers that run on the ZooKeeper
learn of a change at once. The nodes, and the notifications of changes, are those of a broker.
The caller holds the lock of the data directory. Threads: one.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from krust.controller import acl_changes, acl_nodes, ids
from krust.controller.apis import CONTROLLER_APIS
from krust.controller.change_notifications import create_nodes
from krust.controller.state import ControllerState, Request
from krust.runtime.offline_store import open_files, open_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from krust.config import Config
    from krust.runtime.offline_store import OpenStore

_VERSION = 3


class OfflineAcls:
    """Answers the requests about ACLs from an open store."""

    def __init__(self, store: OpenStore, state: ControllerState) -> None:
        self._store, self._state = store, state

    def request(self, api: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to DescribeAcls, CreateAcls or DeleteAcls."""
        if api == "CreateAcls":
            self._store.run(create_nodes(acl_nodes.PERSISTENT))
        request: Request[Any] = Request(api, _VERSION, body, {}, time.time_ns() // 1_000_000)
        answer: dict[str, Any] = self._store.run(CONTROLLER_APIS[api].decide(self._state, request))
        return answer


@contextmanager
def opened(config: Config) -> Iterator[OfflineAcls]:
    """Open the ZooKeeper that the settings name, or else the data directory, and read its ACLs.

    raises  ConfigError, ServerError: it cannot be opened
    """
    stores = open_zookeeper(config) if config.text("zookeeper.connect") else open_files(config)
    state = ControllerState(config, lambda: ids.from_random(os.urandom(16)), -1)
    state.has_authorizer = True
    with stores as store:
        store.run(acl_changes.load(state))
        yield OfflineAcls(store, state)
