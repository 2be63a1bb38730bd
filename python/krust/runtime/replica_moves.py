"""AlterReplicaLogDirs: `controller/log_dirs.py` decides, the core moves the replicas.

Threads: the policy thread.
Not promised: that the replica is in the new directory when the answer leaves. The copy goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.errors import KrustError

if TYPE_CHECKING:
    from krust._krust import Server
    from krust.controller.state import ControllerState, Decision, Request
    from krust.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
    )


def alter(
    server: Server, state: ControllerState, request: Request[AlterReplicaLogDirsRequest]
) -> Decision[AlterReplicaLogDirsResponse]:
    """Have the core move replicas of this broker to other log directories."""
    from krust.controller import log_dirs

    dirs = log_dirs.log_dirs(server.log_dirs())
    decided = yield from log_dirs.alter(request.message, dirs, state.topics)
    try:
        for move in decided.moves:
            server.place_replica(*move)
    except KrustError:  # a directory went offline meanwhile
        dirs = log_dirs.log_dirs(server.log_dirs())
        decided = yield from log_dirs.alter(request.message, dirs, state.topics)
    return decided.answer
