"""Requests about ACLs.

DescribeAcls 0-3: the ACLs that this broker obeys and that match a filter, by resource pattern.
CreateAcls 0-3: decides each binding by itself; those of one pattern are written together. One that
    is there already is fine, and changes nothing.
DeleteAcls 0-3: the ACLs that each filter deleted. One that several filters match belongs to the
    first. With the last ACL of a pattern goes its node.
Any broker answers; without an authorizer, or if a user's class is one, each item is refused with
SECURITY_DISABLED. Each write names the changed pattern to all brokers in the same transaction
(`acl_changes.py`), and this broker obeys it before it answers. Codes and texts are Kafka 3.9's. As
there, a binding may have an operation that means nothing for its type of resource, and any host.
Different from 3.9: bindings with a pattern, an operation or a principal that cannot be are refused
    one by one with INVALID_REQUEST and the reason (3.9 fails all of the request, or closes the
    connection); a write that changes nothing is not made; a broken node is not overwritten, but
    DeleteAcls may delete it: it counts as one that denies everybody everything.
Version notes: v0 has literal patterns only; v2 is flexible; v3 added users as resources.
Source: KIP-11, KIP-140, KIP-290.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krust import authorizer
from krust.controller import acl_changes, acl_nodes, refusals, store_reads
from krust.controller.acl_nodes import AclEntry
from krust.controller.acls import (
    ANY,
    BY_CLASS,
    LITERAL,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    AclBinding,
    AclFilter,
    ResourcePattern,
    validate,
)
from krust.controller.change_notifications import create_nodes
from krust.controller.pace import PAUSE, WRITE, Pace
from krust.controller.state import ControllerState, Decision, RefusedError, Request, refused_code
from krust.errors import Code, ServerError
from krust.metadata.json_fields import BadZnodeError
from krust.metadata.store import Create, Delete, Read, Refusal, SetData

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from krust.controller.state import Transactions
    from krust.messages.create_acls import (
        AclCreation,
        AclCreationResult,
        CreateAclsRequest,
        CreateAclsResponse,
    )
    from krust.messages.delete_acls import (
        DeleteAclsFilter,
        DeleteAclsFilterResult,
        DeleteAclsMatchingAcl,
        DeleteAclsRequest,
        DeleteAclsResponse,
    )
    from krust.messages.describe_acls import (
        DescribeAclsRequest,
        DescribeAclsResource,
        DescribeAclsResponse,
    )
    from krust.metadata.store import MultiResult, Node, Operation

    Entries = frozenset[AclEntry]

NO_AUTHORIZER = "No Authorizer is configured"
_ATTEMPTS = 15
"""for a node that others change at the same time"""
_RETRIABLE = (Refusal.BAD_VERSION, Refusal.NODE_EXISTS, Refusal.NO_NODE)


def describe(
    state: ControllerState, request: Request[DescribeAclsRequest]
) -> Decision[DescribeAclsResponse]:
    """DescribeAcls."""
    if not state.has_authorizer:
        return _description(Code.SECURITY_DISABLED, _why_none(state, " on the broker"))
    wanted = _filter(request.message)
    problem = _problem(wanted)
    if problem is not None:
        return _description(Code.INVALID_REQUEST, problem)
    resources: list[DescribeAclsResource] = []
    pace = Pace()
    for pattern in sorted(state.acls):
        entries = state.acls.get(pattern, frozenset())
        if pace.add(1 + len(entries)):
            yield PAUSE
        found = sorted(each for each in entries if wanted.matches(each.of(pattern)))
        if found:
            resources.append(
                {
                    "resource_type": pattern.resource_type,
                    "resource_name": pattern.name,
                    "pattern_type": pattern.pattern_type,
                    "acls": [
                        {
                            "principal": each.principal,
                            "host": each.host,
                            "operation": each.operation,
                            "permission_type": each.permission,
                        }
                        for each in found
                    ],
                }
            )
    return _description(Code.NONE, "", resources)


def create(
    state: ControllerState, request: Request[CreateAclsRequest]
) -> Decision[CreateAclsResponse]:
    """CreateAcls."""
    creations = request.message["creations"]
    if not state.has_authorizer:
        return refusals.acl_creations(request.message, Code.SECURITY_DISABLED, _why_none(state))
    results = [_result(Code.NONE, "") for _ in creations]
    asked: dict[ResourcePattern, dict[int, AclEntry]] = {}
    pace = Pace()
    for index, each in enumerate(creations):
        if pace.add():
            yield PAUSE
        binding = _binding(each)
        problem = validate(binding)
        if problem is not None:
            results[index] = _result(Code.INVALID_REQUEST, problem)
        else:
            asked.setdefault(binding.pattern, {})[index] = AclEntry(*binding[3:])
    for pattern, added in asked.items():
        if pace.add(WRITE):
            yield PAUSE
        try:
            yield from _change(state, pattern, frozenset(added.values()).union)
        except RefusedError as error:
            for index in added:
                results[index] = _result(error.code, str(error))
    return {"throttle_time_ms": 0, "results": results}


def delete(
    state: ControllerState, request: Request[DeleteAclsRequest]
) -> Decision[DeleteAclsResponse]:
    """DeleteAcls."""
    if not state.has_authorizer:
        return refusals.acl_deletions(request.message, Code.SECURITY_DISABLED, _why_none(state))
    results: list[DeleteAclsFilterResult] = []
    filters: dict[int, AclFilter] = {}
    pace = Pace()
    for index, each in enumerate(request.message["filters"]):
        if pace.add():
            yield PAUSE
        wanted = _filter(each)
        problem = _problem(wanted)
        code = Code.NONE if problem is None else Code.INVALID_REQUEST
        results.append({"error_code": code, "error_message": problem, "matching_acls": []})
        if problem is None:
            filters[index] = wanted
    patterns = yield from _matching_patterns(state, filters)
    for pattern in patterns:
        yield PAUSE
        for index, found in (yield from _delete(state, pattern, filters)).items():
            results[index]["matching_acls"] = [*results[index]["matching_acls"], *found]
    return {"throttle_time_ms": 0, "filter_results": results}


def _why_none(state: ControllerState, more: str = ".") -> str:
    """Why this broker has no ACLs."""
    name = authorizer.plug_in(state.config.text)
    if name:
        return f"{BY_CLASS}: {authorizer.CLASS} is {name}"
    return f"{NO_AUTHORIZER}{more}"


def _matching_patterns(
    state: ControllerState, filters: dict[int, AclFilter]
) -> Generator[Transactions, list[MultiResult], list[ResourcePattern]]:
    """The patterns with ACLs to delete, as far as this broker knows, and those that filters name:
    it may not have read these yet.
    """
    named = [each.named_pattern for each in filters.values()]
    patterns = {each: None for each in named if each is not None and acl_nodes.is_storable(each)}
    pace = Pace()
    for pattern in sorted(state.acls):
        entries = state.acls.get(pattern, frozenset())
        if pace.add(len(filters) * (1 + len(entries))):
            yield PAUSE
        if _by_filter(pattern, entries, filters):
            patterns[pattern] = None
    return list(patterns)


def _delete(
    state: ControllerState, pattern: ResourcePattern, filters: dict[int, AclFilter]
) -> Generator[Transactions, list[MultiResult], dict[int, list[DeleteAclsMatchingAcl]]]:
    """Delete the ACLs of a pattern that filters match. Returns them by the filter's index."""

    def without(before: Entries) -> Entries:
        matching = _by_filter(pattern, before, filters)
        return before.difference(*matching.values())

    code, text = Code.NONE, None
    try:
        before = yield from _change(state, pattern, without)
    except RefusedError as error:
        before = state.acls.get(pattern, frozenset())
        code, text = error.code, str(error)
    return {
        index: [_match(pattern, each, code, text) for each in sorted(entries)]
        for index, entries in _by_filter(pattern, before, filters).items()
    }


def _by_filter(
    pattern: ResourcePattern, entries: Entries, filters: dict[int, AclFilter]
) -> dict[int, list[AclEntry]]:
    """The entries that filters match, each at the first one."""
    exact: dict[AclEntry, int] = {}
    others: list[tuple[int, AclFilter]] = []
    for index, wanted in filters.items():
        if wanted.matches_pattern(pattern):
            entry = _only_entry(wanted)
            if entry is None:
                others.append((index, wanted))
            else:
                exact.setdefault(entry, index)
    found: dict[int, list[AclEntry]] = {}
    for entry in entries if exact or others else ():
        binding = entry.of(pattern)
        matching = [index for index, wanted in others if wanted.matches(binding)][:1]
        matching += [exact[entry]] if entry in exact else []
        if matching:
            found.setdefault(min(matching), []).append(entry)
    return found


def _only_entry(wanted: AclFilter) -> AclEntry | None:
    """The only entry that a filter matches; None: there may be several."""
    principal, host, operation, permission = wanted[3:]
    if principal is None or host is None or operation in (None, ANY) or permission in (None, ANY):
        return None
    return AclEntry(principal, host, operation, permission)


def _change(
    state: ControllerState, pattern: ResourcePattern, change: Callable[[Entries], Entries]
) -> Generator[Transactions, list[MultiResult], Entries]:
    """Change the ACLs of a pattern, and obey them from now on. Returns those before.

    raises  RefusedError: nothing was written, or nobody knows
    """
    path = acl_nodes.path(pattern)
    refused: Refusal | None = None
    try:
        for _ in range(_ATTEMPTS):
            (read,) = yield [[Read(path)]]
            node = store_reads.node(path, read.results[0])
            before = _entries_before(path, node, change)
            after = change(before)
            if after != before:
                (done,) = yield [_writes(pattern, node, after)]
                refused = done.refused
            if after == before or refused is None:
                state.set_acls(pattern, after)
                return before
            if refused not in _RETRIABLE:
                break
            if refused is Refusal.NO_NODE:
                yield from create_nodes(acl_nodes.PERSISTENT)
    except ServerError as error:
        raise RefusedError(Code.REQUEST_TIMED_OUT, str(error)) from None
    code = refused_code(refused) if refused is not None else Code.UNKNOWN_SERVER_ERROR
    raise RefusedError(code, f"{path}: {refused and refused.value}")


def _entries_before(path: str, node: Node | None, change: Callable[[Entries], Entries]) -> Entries:
    """The entries in a node. One that cannot be read may be deleted, and not changed."""
    try:
        return acl_changes.entries_in(node)
    except BadZnodeError as error:
        if change(acl_changes.CLOSED):
            text = f"{path} cannot be read: {error}; delete its ACLs, and create them again"
            raise RefusedError(Code.UNKNOWN_SERVER_ERROR, text) from None
        return acl_changes.CLOSED


def _writes(pattern: ResourcePattern, node: Node | None, after: Entries) -> list[Operation]:
    """The operations that write a pattern's entries, and name the pattern to every broker."""
    path = acl_nodes.path(pattern)
    write: Operation
    if node is None:
        write = Create(path, acl_nodes.encode(after))
    elif after:
        write = SetData(path, acl_nodes.encode(after), node.stat.version)
    else:
        write = Delete(path, node.stat.version)
    change = acl_nodes.encode_change(pattern)
    return [write, Create(acl_nodes.change_path(pattern), change, sequential=True)]


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        creation["resource_type"],
        creation.get("resource_pattern_type", LITERAL),
        creation["resource_name"],
        creation["principal"],
        creation["host"],
        creation["operation"],
        creation["permission_type"],
    )


def _filter(message: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        message["resource_type_filter"],
        message.get("pattern_type_filter", LITERAL),
        message["resource_name_filter"],
        message["principal_filter"],
        message["host_filter"],
        message["operation"],
        message["permission_type"],
    )


def _problem(wanted: AclFilter) -> str | None:
    """What is wrong with a filter; None: nothing."""
    if wanted.resource_type not in (ANY, *RESOURCE_TYPES.values()):
        return "Unknown patternFilter."
    if wanted.pattern_type not in (ANY, MATCH, *PATTERN_TYPES.values()):
        return "Unknown patternFilter."
    if wanted.operation not in (ANY, *OPERATIONS.values()):
        return "Unknown entryFilter."
    return None if wanted.permission in (ANY, *PERMISSIONS.values()) else "Unknown entryFilter."


def _description(
    code: Code, text: str, resources: Sequence[DescribeAclsResource] = ()
) -> DescribeAclsResponse:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "error_message": text,
        "resources": list(resources),
    }


def _result(code: Code, text: str) -> AclCreationResult:
    return {"error_code": code, "error_message": text}


def _match(
    pattern: ResourcePattern, entry: AclEntry, code: Code, text: str | None
) -> DeleteAclsMatchingAcl:
    return {
        "error_code": code,
        "error_message": text,
        "resource_type": pattern.resource_type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }
