"""Writes the SCRAM credentials of users where brokers will read them, without a broker.

So the first user of a cluster exists before its first broker, which may need it to log in at the
others. Brokers that run on the ZooKeeper learn of a change at once.
The caller holds the lock of the data directory. Threads: one.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from krust.controller import ids, scram_credentials
from krust.controller.state import ControllerState, Request
from krust.metadata import znodes
from krust.metadata.store import Create
from krust.runtime.offline_store import open_files, open_zookeeper

if TYPE_CHECKING:
    from krust.config import Config
    from krust.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )


def alter(
    config: Config, message: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Alter credentials in the ZooKeeper that the settings name, or else in the data directory.

    raises  ConfigError, ServerError: it cannot be opened
    """
    opened = open_zookeeper(config) if config.text("zookeeper.connect") else open_files(config)
    state = ControllerState(config, lambda: ids.from_random(os.urandom(16)), -1)
    request = Request("AlterUserScramCredentials", 0, message, {}, time.time_ns() // 1_000_000)
    with opened as store:
        store.ask([[Create(path)] for path in znodes.PERSISTENT])
        return store.run(scram_credentials.alter(state, request))
