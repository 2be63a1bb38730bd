"""Users and ACLs that the metadata gets at a start, before the broker takes its first connection.

They are written as AlterUserScramCredentials and CreateAcls write them, so other brokers that run
on the metadata learn of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import acl_requests, scram_credentials
from krust.controller.acls import creation
from krust.controller.state import ControllerState, Request
from krust.errors import Code, ServerError
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from krust.controller.acls import AclBinding
    from krust.controller.state import Steps
    from krust.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        ScramCredentialUpsertion,
    )
    from krust.messages.create_acls import CreateAclsRequest

_ACLS_VERSION = 3


class FirstUsers(NamedTuple):
    """What is written."""

    credentials: Sequence[ScramCredentialUpsertion]
    acls: Sequence[AclBinding]

    def __repr__(self) -> str:
        return f"FirstUsers({[each['name'] for each in self.credentials]})"


def write(state: ControllerState, wanted: FirstUsers, now_ms: int) -> Steps:
    """Write them. ServerError: one was refused."""
    users: AlterUserScramCredentialsRequest = {
        "deletions": [],
        "upsertions": list(wanted.credentials),
    }
    asked = Request("AlterUserScramCredentials", 0, users, {}, now_ms)
    made = yield from scram_credentials.alter(state, asked)
    for each in made["results"]:
        _check(f"user {each['user']}", each["error_code"], each["error_message"])
    if not wanted.acls:
        return
    acls: CreateAclsRequest = {"creations": [creation(each) for each in wanted.acls]}
    granted = yield from acl_requests.create(
        state, Request("CreateAcls", _ACLS_VERSION, acls, {}, now_ms)
    )
    for binding, result in zip(wanted.acls, granted["results"], strict=True):
        _check(f"an ACL of {binding.principal}", result["error_code"], result["error_message"])


def _check(what: str, code: int, message: str | None) -> None:
    if code != Code.NONE:
        raise ServerError(
            f"{what} cannot be written into the metadata: {message or Code(code).name}",
            hint="look at the metadata's store, and start again",
        )
