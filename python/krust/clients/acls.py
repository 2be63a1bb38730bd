"""ACLs as clients have them: one by Kafka's names, and the requests that show and change them.

What is asked may be a broker, or anything else that answers these requests. Texts may be in any
case, with or without hyphens: `describe-configs`, `DESCRIBE_CONFIGS` and `DescribeConfigs` are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict

from krust.clients.coordinator_client import refused
from krust.controller.acls import (
    ANY,
    BY_CLASS,
    MATCH,
    PATTERNS,
    TABLES,
    WILDCARD,
    AclBinding,
    AclFilter,
    creation,
    number,
)
from krust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from krust.errors import KafkaError


class Answers(Protocol):
    """A client, or what stands for one."""

    def request(self, api: str, body: dict[str, Any]) -> dict[str, Any]:
        """The response to a request."""
        ...


@dataclass(frozen=True, kw_only=True)
class Acl:
    """Whether a principal may do an operation with resources, from hosts."""

    principal: str
    """`User:alice`; `User:*` is everybody"""
    operation: str
    """`All`, `Read`, `Write`, `Create`, `Delete`, `Alter`, `Describe` ..."""
    resource_type: str
    """`Topic`, `Group`, `Cluster`, `TransactionalId`, `DelegationToken`, `User`"""
    name: str
    """`*`: all of the type; the only cluster is `kafka-cluster`"""
    pattern_type: str = "Literal"
    """`Literal`, or `Prefixed`: names that begin so"""
    host: str = WILDCARD
    """an address; `*`: all"""
    permission: str = "Allow"
    """`Allow`, or `Deny`, which wins"""

    @classmethod
    def of(cls, binding: AclBinding) -> Self:
        """The ACL of a binding."""
        return cls(**shown(binding))

    def binding(self) -> AclBinding:
        """Its binding. ConfigError: an unknown name."""
        return AclBinding(
            number("resource_type", self.resource_type),
            number("pattern_type", self.pattern_type),
            self.name,
            self.principal,
            self.host,
            number("operation", self.operation),
            number("permission", self.permission),
        )


class AclFields(TypedDict, total=False):
    """The values of the ACLs that are meant; a field that is left out has any value."""

    principal: str
    operation: str
    resource_type: str
    name: str
    pattern_type: str
    """`Match`: all ACLs that hold for the resource `name`, by prefix and by `*` too"""
    host: str
    permission: str


def shown(binding: AclBinding) -> dict[str, str]:
    """The fields of a binding, by Kafka's names."""
    fields = binding._asdict()
    return {
        field: name_of(field, value) if field in TABLES else value
        for field, value in fields.items()
    }


def name_of(field: str, value: int) -> str:
    """The name of a number; of an unknown one, the number."""
    names = {known: name for name, known in TABLES[field].items()}
    return names.get(value, str(value))


def wanted(fields: AclFields) -> AclFilter:
    """The filter that finds ACLs with these fields. ConfigError: an unknown name."""
    given: dict[str, Any] = dict(fields)
    for field in TABLES.keys() & given.keys():
        is_match = field == "pattern_type" and given[field].lower() == "match"
        given[field] = MATCH if is_match else number(field, given[field])
    return AclFilter(**given)


def describe(asked: Answers, chosen: AclFilter) -> list[AclBinding]:
    """The bindings that a filter finds. KafkaError: SECURITY_DISABLED ..."""
    answer = asked.request("DescribeAcls", _filter_body(chosen))
    error = _refusal(answer, "ACLs")
    if error is not None:
        raise error
    return sorted(
        AclBinding(
            resource["resource_type"],
            resource.get("pattern_type", PATTERNS["Literal"]),
            resource["resource_name"],
            *_entry(acl),
        )
        for resource in answer["resources"]
        for acl in resource["acls"]
    )


def create(asked: Answers, bindings: Iterable[AclBinding]) -> list[KafkaError | None]:
    """Create bindings; those that exist stay. Returns the refusal of each, None: it is there."""
    given = list(bindings)
    creations = [creation(each) for each in given]
    answer = asked.request("CreateAcls", {"creations": creations})
    return [
        _refusal(result, described(each))
        for each, result in zip(given, answer["results"], strict=True)
    ]


def delete(asked: Answers, chosen: Iterable[AclFilter]) -> list[AclBinding]:
    """Delete what any filter finds. Returns what was deleted.

    raises  KafkaError: the first refusal; what is found beside it may be deleted
    """
    filters = [_filter_body(each) for each in chosen]
    answer = asked.request("DeleteAcls", {"filters": filters})
    gone: list[AclBinding] = []
    errors: list[KafkaError | None] = []
    for result in answer["filter_results"]:
        errors.append(_refusal(result, "ACLs"))
        for acl in result["matching_acls"]:
            binding = AclBinding(
                acl["resource_type"],
                acl.get("pattern_type", PATTERNS["Literal"]),
                acl["resource_name"],
                *_entry(acl),
            )
            errors.append(_refusal(acl, described(binding)))
            gone.append(binding)
    for error in filter(None, errors):
        raise error
    return sorted(set(gone))


def found(asked: Answers, fields: AclFields) -> list[Acl]:
    """The ACLs with these fields. KafkaError, ConfigError: as `describe`, `wanted`."""
    return [Acl.of(each) for each in describe(asked, wanted(fields))]


def deleted(asked: Answers, fields: AclFields) -> list[Acl]:
    """Delete the ACLs with these fields, of which there has to be one."""
    if not fields:
        raise ConfigError("delete_acls without a field would delete all", hint="give a field")
    return [Acl.of(each) for each in delete(asked, [wanted(fields)])]


def described(binding: AclBinding) -> str:
    """A binding in words: `Allow User:alice Read on Topic orders`."""
    fields = shown(binding)
    prefix = "prefix " if binding.pattern_type == PATTERNS["Prefixed"] else ""
    host = "" if binding.host == WILDCARD else f" from {binding.host}"
    return (
        f"{fields['permission']} {binding.principal} {fields['operation']} on "
        f"{fields['resource_type']} {prefix}{binding.name}{host}"
    )


def _filter_body(chosen: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": chosen.resource_type or ANY,
        "resource_name_filter": chosen.name,
        "pattern_type_filter": chosen.pattern_type or ANY,
        "principal_filter": chosen.principal,
        "host_filter": chosen.host,
        "operation": chosen.operation or ANY,
        "permission_type": chosen.permission or ANY,
    }


def _entry(acl: Mapping[str, Any]) -> tuple[str, str, int, int]:
    return acl["principal"], acl["host"], acl["operation"], acl["permission_type"]


def _refusal(answer: Mapping[str, Any], subject: str) -> KafkaError | None:
    """The exception of an answer's `error_code`; None: it is NONE."""
    code = answer["error_code"]
    if not code:
        return None
    error = refused(code, subject)
    if answer.get("error_message"):
        error.args = (f"{subject}: {answer['error_message']}",)
    if error.name == "SECURITY_DISABLED":
        error.hint = "the brokers need the setting authorizer.class.name"
        if BY_CLASS in str(error):
            error.hint = "look into that class; a client of the user shows what it is allowed"
    return error
