"""Requests about delegation tokens (KIP-48, KIP-373).

CreateDelegationToken 0-3: a token of the client, or from v3 on of another owner.
RenewDelegationToken 0-2, ExpireDelegationToken 0-2: who has the HMAC, and is the owner or a
    renewer, has the token expire at another time; to expire in a negative time deletes it at once.
DescribeDelegationToken 0-3: tokens with their HMACs. The core hides those of others that the client
    may not describe.
Any broker answers. A client that logged in by a token, or did not prove who it is, is refused with
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED; without `delegation.token.secret.key` all are, with
DELEGATION_TOKEN_AUTH_DISABLED. A change is decided on the node of the token, names the token to all
brokers in the same transaction, and the core has it before the answer leaves.
Codes are Kafka 3.9's. Different from 3.9: an owner of another type than `User` is refused with
INVALID_PRINCIPAL_TYPE, as renewers are, because nobody can log in as one; more than 1,000 renewers
are refused with INVALID_REQUEST.
Not here: who may create tokens for others. The core checks that first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust.controller import delegation_token_changes, delegation_tokens
from krust.controller.change_notifications import create_nodes
from krust.controller.delegation_tokens import (
    USER_TYPE,
    DelegationToken,
    Principal,
    TokenLimits,
)
from krust.controller.pace import PAUSE, Pace
from krust.controller.state import ControllerState, Decision, RefusedError, Request, refused_code
from krust.errors import Code, ServerError
from krust.metadata.store import Create, Delete, Refusal, SetData

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from krust.controller.state import Steps, Transactions
    from krust.messages import RequestContext
    from krust.messages.create_delegation_token import (
        CreatableRenewers,
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )
    from krust.messages.describe_delegation_token import (
        DescribedDelegationToken,
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
    )
    from krust.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
    )
    from krust.messages.renew_delegation_token import (
        RenewDelegationTokenRequest,
        RenewDelegationTokenResponse,
    )
    from krust.metadata.store import MultiResult, Write

    Change = Callable[[DelegationToken], DelegationToken | None]

_ATTEMPTS = 15
"""for a node that others change at the same time"""
_PROOFS = ("certificate", "login")
"""how a client has to have proved who it is"""
_MOST_RENEWERS = 1000
_NO_TIME = -1


def create(
    state: ControllerState, request: Request[CreateDelegationTokenRequest]
) -> Decision[CreateDelegationTokenResponse]:
    """CreateDelegationToken."""
    message, requester = request.message, _requester(request.client)
    owner = requester
    if message.get("owner_principal_name"):
        owner = Principal(
            message.get("owner_principal_type") or "", message.get("owner_principal_name") or ""
        )
    renewers = yield from _principals(message["renewers"])
    try:
        _check_client(request.client)
        if {each.type for each in (owner, *renewers)} != {USER_TYPE}:
            raise RefusedError(Code.INVALID_PRINCIPAL_TYPE, "principals have to be of type User")
        if len(renewers) > _MOST_RENEWERS:
            raise RefusedError(Code.INVALID_REQUEST, f"{_MOST_RENEWERS} renewers are possible")
        _check_key(state)
        limits = TokenLimits(
            state.config.whole("delegation.token.max.lifetime.ms"),
            state.config.whole("delegation.token.expiry.time.ms"),
        )
        times = (limits, message["max_lifetime_ms"], request.now_ms)
        token = delegation_tokens.made(state.new_id(), owner, requester, renewers, times)
        yield from _make(state, token)
    except RefusedError as error:
        return _created(error.code, owner, requester, None)
    state.note(f"delegation token {token.id} of {owner.shown} is made by {requester.shown}")
    made = _created(Code.NONE, owner, requester, token)
    return {**made, "hmac": state.tokens.hmac_of(token.id)}


def renew(
    state: ControllerState, request: Request[RenewDelegationTokenRequest]
) -> Decision[RenewDelegationTokenResponse]:
    """RenewDelegationToken."""
    period_ms = request.message["renew_period_ms"]
    if period_ms < 0:
        period_ms = state.config.whole("delegation.token.expiry.time.ms")
    return (yield from _changed(state, request, request.message["hmac"], period_ms))


def expire(
    state: ControllerState, request: Request[ExpireDelegationTokenRequest]
) -> Decision[ExpireDelegationTokenResponse]:
    """ExpireDelegationToken."""
    period_ms = request.message["expiry_time_period_ms"]
    return (yield from _changed(state, request, request.message["hmac"], period_ms))


def describe(
    state: ControllerState, request: Request[DescribeDelegationTokenRequest]
) -> Decision[DescribeDelegationTokenResponse]:
    """DescribeDelegationToken."""
    owners = request.message["owners"]
    wanted = None if owners is None else set((yield from _principals(owners)))
    try:
        _check_client(request.client)
        _check_key(state)
    except RefusedError as error:
        return {"error_code": error.code, "tokens": [], "throttle_time_ms": 0}
    found: list[DescribedDelegationToken] = []
    pace = Pace()
    for token in state.tokens:
        if pace.add(1 + len(token.renewers)):
            yield PAUSE
        if wanted is None or not wanted.isdisjoint((token.owner, *token.renewers)):
            found.append(_described(state, token))
    return {"error_code": Code.NONE, "tokens": found, "throttle_time_ms": 0}


def _changed(
    state: ControllerState,
    request: Request[RenewDelegationTokenRequest] | Request[ExpireDelegationTokenRequest],
    secret: bytes,
    period_ms: int,
) -> Decision[RenewDelegationTokenResponse]:
    """Have a token expire in `period_ms` from now; a negative one deletes it."""
    now_ms, who = request.now_ms, _requester(request.client)
    ends_ms = now_ms

    def change(token: DelegationToken) -> DelegationToken | None:
        nonlocal ends_ms
        if not token.may_be_changed_by(who):
            raise RefusedError(Code.DELEGATION_TOKEN_OWNER_MISMATCH, f"{token.id} is another's")
        if period_ms < 0:
            return None
        if token.is_expired(now_ms):
            raise RefusedError(Code.DELEGATION_TOKEN_EXPIRED, f"{token.id} has expired")
        later = token.until(now_ms, period_ms)
        ends_ms = later.expires_ms
        return later

    try:
        _check_client(request.client)
        _check_key(state)
        token = state.tokens.by_hmac(secret)
        if token is None:
            raise RefusedError(Code.DELEGATION_TOKEN_NOT_FOUND, "there is no such token")
        yield from _change(state, token.id, change)
    except RefusedError as error:
        return {
            "error_code": error.code,
            "expiry_timestamp_ms": _NO_TIME,
            "throttle_time_ms": 0,
        }
    return {"error_code": Code.NONE, "expiry_timestamp_ms": ends_ms, "throttle_time_ms": 0}


def _make(state: ControllerState, token: DelegationToken) -> Steps:
    """Write a new token, and accept it from now on. RefusedError: as `_change`."""
    write = Create(delegation_tokens.path(token.id), token.encode())
    try:
        refused = yield from _commit(state, write, token.id, token)
        if refused is Refusal.NO_NODE:
            yield from create_nodes(delegation_tokens.PERSISTENT)
            refused = yield from _commit(state, write, token.id, token)
    except ServerError as error:
        raise RefusedError(Code.REQUEST_TIMED_OUT, str(error)) from None
    _check_written(token.id, refused)


def _change(state: ControllerState, token_id: str, change: Change) -> Steps:
    """Change or delete a token, as it is in the tree, and obey that from now on.

    raises  RefusedError: nothing was written, or nobody knows
    """
    path = delegation_tokens.path(token_id)
    refused: Refusal | None = None
    try:
        for _ in range(_ATTEMPTS):
            before, version = yield from delegation_token_changes.read(state, token_id)
            if before is None:
                state.set_token(token_id, None)
                raise RefusedError(Code.DELEGATION_TOKEN_NOT_FOUND, f"{token_id} is gone")
            after = change(before)
            write: Write = Delete(path, version)
            if after is not None:
                write = SetData(path, after.encode(), version)
            refused = yield from _commit(state, write, token_id, after)
            if refused not in (Refusal.BAD_VERSION, Refusal.NO_NODE):
                break
    except ServerError as error:
        raise RefusedError(Code.REQUEST_TIMED_OUT, str(error)) from None
    _check_written(token_id, refused)


def _commit(
    state: ControllerState, write: Write, token_id: str, after: DelegationToken | None
) -> Generator[Transactions, list[MultiResult], Refusal | None]:
    """Make a write, and tell every broker of it. Returns why not; None: it is made."""
    (done,) = yield [[write, delegation_token_changes.changed(token_id)]]
    if done.refused is None:
        state.set_token(token_id, after)
    return done.refused


def _check_written(token_id: str, refused: Refusal | None) -> None:
    if refused is not None:
        raise RefusedError(refused_code(refused), f"{token_id}: {refused.value}")


def _check_client(client: RequestContext) -> None:
    """Refuse clients that logged in by a token, and those that did not prove who they are."""
    if client.get("proof") not in _PROOFS:
        raise RefusedError(
            Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "log in by something else than a token, on a listener with logins",
        )


def _check_key(state: ControllerState) -> None:
    if not state.tokens.is_enabled:
        raise RefusedError(
            Code.DELEGATION_TOKEN_AUTH_DISABLED, f"{delegation_tokens.KEY} is not set"
        )


def _requester(client: RequestContext) -> Principal:
    return Principal(USER_TYPE, client.get("user", ""))


def _principals(
    given: Sequence[CreatableRenewers] | Sequence[DescribeDelegationTokenOwner],
) -> Decision[list[Principal]]:
    """The principals that a request names."""
    found, pace = [], Pace()
    for each in given:
        if pace.add():
            yield PAUSE
        found.append(Principal(each["principal_type"], each["principal_name"]))
    return found


def _created(
    code: Code, owner: Principal, requester: Principal, token: DelegationToken | None
) -> CreateDelegationTokenResponse:
    """The answer to CreateDelegationToken, without the HMAC."""
    return {
        "error_code": code,
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "issue_timestamp_ms": token.issued_ms if token is not None else _NO_TIME,
        "expiry_timestamp_ms": token.expires_ms if token is not None else _NO_TIME,
        "max_timestamp_ms": token.max_ms if token is not None else _NO_TIME,
        "token_id": token.id if token is not None else "",
        "hmac": b"",
        "throttle_time_ms": 0,
    }


def _described(state: ControllerState, token: DelegationToken) -> DescribedDelegationToken:
    return {
        "principal_type": token.owner.type,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.type,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.id,
        "hmac": state.tokens.hmac_of(token.id),
        "renewers": [
            {"principal_type": each.type, "principal_name": each.name} for each in token.renewers
        ],
    }
