"""Requests about the SCRAM credentials of users (KIP-554).

DescribeUserScramCredentials 0: the mechanisms and iterations of each user. Any broker answers; it
    reads the tree.
AlterUserScramCredentials 0: the controller alone. All changes of one user are made, or none.
Codes and texts are Kafka 3.9's. Different from 3.9: a salt, or a salted password that no such
    mechanism makes, is refused.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from krust.controller import quota_entities, quotas, scram
from krust.controller.pace import PAUSE, WRITE, Pace
from krust.controller.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, ScramCredential
from krust.controller.state import ControllerState, Decision, RefusedError, Request, refused_code
from krust.errors import Code, ServerError
from krust.metadata.contents import EntityConfig
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Refusal, is_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krust.controller.state import Steps
    from krust.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        AlterUserScramCredentialsResult,
    )
    from krust.messages.describe_user_scram_credentials import (
        CredentialInfo,
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResult,
    )
    from krust.metadata.store import Node

_NAMES = {number: name for name, number in MECHANISMS.items()}
_ATTEMPTS = 3
"""for a node that others change at the same time"""
_RETRIABLE = (Refusal.BAD_VERSION, Refusal.NODE_EXISTS, Refusal.NO_NODE, Refusal.NOT_EMPTY)
_SERVER_ERROR_TEXT = "The server experienced an unexpected error when processing the request."


def describe(
    state: ControllerState, request: Request[DescribeUserScramCredentialsRequest]
) -> Decision[DescribeUserScramCredentialsResponse]:
    """DescribeUserScramCredentials."""
    asked = [each["name"] for each in request.message["users"] or ()]
    try:
        found = yield from quota_entities.read_owner_nodes("users")
    except ServerError as error:
        return _description(Code.REQUEST_TIMED_OUT, str(error), [])
    known: dict[str, DescribeUserScramCredentialsResult] = {}
    pace = Pace()
    for place, node in found.items():
        if pace.add():
            yield PAUSE
        user = quota_entities.user_of(quotas.owner_at(place))
        if user is not None:
            result = _described(user, node)
            if result is not None:
                known[user] = result
    times = Counter(asked)
    results: list[DescribeUserScramCredentialsResult] = []
    for name in times:
        if pace.add():
            yield PAUSE
        results.append(_refused_name(name, times[name]) or known.get(name) or _unknown(name))
    if not asked:
        results = [known[name] for name in sorted(known)]
    return _description(Code.NONE, "", results)


def alter(
    state: ControllerState, request: Request[AlterUserScramCredentialsRequest]
) -> Decision[AlterUserScramCredentialsResponse]:
    """AlterUserScramCredentials."""
    changes: dict[str, dict[str, ScramCredential | None]] = {}
    refused: dict[str, RefusedError] = {}
    pace = Pace()
    for each in (*request.message["deletions"], *request.message["upsertions"]):
        if pace.add():
            yield PAUSE
        user = each["name"]
        mechanism = _NAMES.get(each["mechanism"], "")
        try:
            credential = _asked_for(mechanism, each)
            if mechanism in changes.setdefault(user, {}):
                text = "A user credential cannot be altered twice in the same request"
                raise RefusedError(Code.DUPLICATE_RESOURCE, text)
            changes[user][mechanism] = credential
        except RefusedError as error:
            refused.setdefault(user, error)
    results: list[AlterUserScramCredentialsResult] = []
    for user in dict.fromkeys((*changes, *refused)):
        if pace.add(WRITE):
            yield PAUSE
        try:
            if user in refused:
                raise refused[user]
            yield from _write(state, user, changes[user])
        except RefusedError as error:
            results.append(_result(user, error.code, str(error)))
        else:
            results.append(_result(user, Code.NONE, None))
    return {"throttle_time_ms": 0, "results": results}


def _asked_for(mechanism: str, change: Mapping[str, object]) -> ScramCredential | None:
    """The credential that a change sets; None: it deletes one."""
    if not change["name"]:
        raise RefusedError(Code.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if not mechanism:
        raise RefusedError(Code.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if "salted_password" not in change:
        return None
    iterations, salt, salted = change["iterations"], change["salt"], change["salted_password"]
    if not (isinstance(iterations, int) and isinstance(salt, bytes) and isinstance(salted, bytes)):
        raise TypeError("the request has fields of other types")
    if iterations > MAX_ITERATIONS:
        raise RefusedError(Code.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if iterations < MIN_ITERATIONS:
        raise RefusedError(Code.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if not salt or len(salted) != scram.hash_bytes(mechanism):
        text = f"The salt or the salted password does not belong to {mechanism}"
        raise RefusedError(Code.UNACCEPTABLE_CREDENTIAL, text)
    return scram.of_salted_password(mechanism, salt, salted, iterations)


def _write(
    state: ControllerState, user: str, changes: Mapping[str, ScramCredential | None]
) -> Steps:
    """Write a user's credentials, and accept them from now on."""
    owner = ((quotas.USER, user),)
    path = quotas.path(owner)
    if not is_path(f"/config/{path}"):
        raise RefusedError(Code.UNACCEPTABLE_CREDENTIAL, "The name of the user cannot be stored")
    refused: Refusal | None = None
    try:
        for _ in range(_ATTEMPTS):
            place = yield from quota_entities.read_entity(owner)
            config = dict(place.config)
            for mechanism, credential in changes.items():
                if credential is not None:
                    config[mechanism] = credential.text
                elif config.pop(mechanism, None) is None:
                    text = "Attempt to delete a user credential that does not exist"
                    raise RefusedError(Code.RESOURCE_NOT_FOUND, text)
            refused = yield from quota_entities.write(place, config)
            if refused not in _RETRIABLE:
                break
        if refused is None:
            yield from quota_entities.reread(state, owner)
    except BadZnodeError as error:
        raise RefusedError(Code.UNKNOWN_SERVER_ERROR, f"{path}: {error}") from None
    except ServerError as error:
        raise RefusedError(Code.REQUEST_TIMED_OUT, str(error)) from None
    if refused is not None:
        raise RefusedError(refused_code(refused), f"{path}: {refused.value}")


def _result(user: str, code: Code, text: str | None) -> AlterUserScramCredentialsResult:
    return {"user": user, "error_code": code, "error_message": text}


def _description(
    code: Code, text: str, results: list[DescribeUserScramCredentialsResult]
) -> DescribeUserScramCredentialsResponse:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "error_message": text,
        "results": results,
    }


def _described(user: str, node: Node) -> DescribeUserScramCredentialsResult | None:
    """The SCRAM credentials of a user; None: there are none."""
    try:
        config = EntityConfig.decode(node.data).config
    except BadZnodeError:
        return None
    infos: list[CredentialInfo] = []
    for name, number in MECHANISMS.items():
        if name not in config:
            continue
        stored = scram.parse(name, config[name])
        if stored is None:
            return _user_result(user, Code.UNKNOWN_SERVER_ERROR, _SERVER_ERROR_TEXT)
        infos.append({"mechanism": number, "iterations": stored.iterations})
    return {**_user_result(user, Code.NONE, ""), "credential_infos": infos} if infos else None


def _refused_name(name: str, times: int) -> DescribeUserScramCredentialsResult | None:
    if not name:
        return _user_result(name, Code.RESOURCE_NOT_FOUND, "Username must not be empty")
    if times > 1:
        text = "Cannot describe SCRAM credentials for the same user twice in a single request: "
        return _user_result(name, Code.DUPLICATE_RESOURCE, text + name)
    return None


def _unknown(name: str) -> DescribeUserScramCredentialsResult:
    text = "Attempt to describe a user credential that does not exist: "
    return _user_result(name, Code.RESOURCE_NOT_FOUND, text + name)


def _user_result(name: str, code: Code, text: str) -> DescribeUserScramCredentialsResult:
    return {"user": name, "error_code": code, "error_message": text, "credential_infos": []}
