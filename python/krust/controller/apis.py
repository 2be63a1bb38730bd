"""THE table of controller APIs: which function decides each, which broker may, how it is refused.

A row is a request that the policy thread decides without the group coordinator. Names are Kafka's;
krust's own core sends `AutoCreate` and `LogDirFailed`. AlterReplicaLogDirs has no row: the runtime
decides it, because it needs the core's list of log directories.
A broker without a cluster does not load the modules that only a cluster needs: those functions
import their module at their first call.
Threads: any; the table does not change.
Not here: which versions are served. The core's table of APIs says that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from krust._krust import served_apis
from krust.controller import (
    acl_requests,
    client_quotas,
    configs,
    consumer_offsets,
    delegation_token_requests,
    elect_leaders,
    features,
    log_dirs,
    producer_ids,
    reassignment,
    scram_credentials,
    topics,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.controller.own_requests import AutoCreateRequest, AutoCreateResponse
    from krust.controller.state import ControllerState, Decision, Request
    from krust.errors import Code
    from krust.messages import Message
    from krust.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
    )
    from krust.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from krust.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from krust.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from krust.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from krust.messages.delete_topics import (
        DeletableTopicResult,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )
    from krust.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
    from krust.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


_BETWEEN_BROKERS = frozenset(name for _, name, _, _, asker, _ in served_apis() if asker != "client")


class ControllerApi(NamedTuple):
    """One row of the table."""

    name: str
    decide: Callable[[ControllerState, Request[Any]], Decision[Any]]
    refuse: Callable[[Any, Code, str], Any]
    """makes the response that refuses every item of a request"""
    writes: bool = False
    """whether it changes the metadata"""
    in_slices: bool = False
    """whether it pauses where a request names many things"""
    by_controller: bool = False
    """whether only the controller decides it"""
    is_forwarded: bool = False
    """whether a broker asks the controller on its own behalf, and waits for the answer"""

    @property
    def is_between_brokers(self) -> bool:
        """Whether brokers of a cluster send it to each other. A lone broker decides it only if it
        asks on its own behalf.
        """
        return self.name in _BETWEEN_BROKERS


# Decided in a cluster alone.


def _alter_partition(state: ControllerState, request: Request[Any]) -> Decision[Any]:
    from krust.controller import leader_requests

    return leader_requests.alter_partition(state, request)


def _controlled_shutdown(state: ControllerState, request: Request[Any]) -> Decision[Any]:
    from krust.controller import leader_requests

    return leader_requests.controlled_shutdown(state, request)


def _leader_and_isr(state: ControllerState, request: Request[Any]) -> Decision[Any]:
    from krust.controller import control_request_handlers

    return control_request_handlers.leader_and_isr(state, request)


def _stop_replica(state: ControllerState, request: Request[Any]) -> Decision[Any]:
    from krust.controller import control_request_handlers

    return control_request_handlers.stop_replica(state, request)


def _update_metadata(state: ControllerState, request: Request[Any]) -> Decision[Any]:
    from krust.controller import control_request_handlers

    return control_request_handlers.update_metadata(state, request)


# Responses that refuse every item of a request.


def _refuse_with_text(_message: Message, code: Code, text: str) -> Message:
    return {"error_code": code, "error_message": text}


def _refuse_with_code(_message: Message, code: Code, _text: str) -> Message:
    return {"error_code": code}


def _refuse_topics(message: CreateTopicsRequest, code: Code, text: str) -> CreateTopicsResponse:
    names = [each["name"] for each in message["topics"]]
    return {"topics": [{"name": n, "error_code": code, "error_message": text} for n in names]}


def _refuse_partitions(
    message: CreatePartitionsRequest, code: Code, text: str
) -> CreatePartitionsResponse:
    names = [each["name"] for each in message["topics"]]
    return {
        "throttle_time_ms": 0,
        "results": [{"name": n, "error_code": code, "error_message": text} for n in names],
    }


def _refuse_auto_created(message: AutoCreateRequest, code: Code, _text: str) -> AutoCreateResponse:
    return {"topics": [{"name": name, "error_code": code} for name in message["topics"]]}


def _refuse_deletions(message: DeleteTopicsRequest, code: Code, text: str) -> DeleteTopicsResponse:
    responses: list[DeletableTopicResult] = [
        {"name": name, "error_code": code, "error_message": text}
        for name in message.get("topic_names") or ()
    ]
    responses += [
        {
            "name": each["name"],
            "topic_id": each["topic_id"],
            "error_code": code,
            "error_message": text,
        }
        for each in message.get("topics") or ()
    ]
    return {"responses": responses}


def _refuse_replicas(_message: Message, code: Code, _text: str) -> Message:
    return {"error_code": code, "partition_errors": [], "topics": []}


def _refuse_offsets(message: Message, code: Code, _text: str) -> Message:
    """Every partition of an OffsetCommit 0 or OffsetFetch 0."""
    refused = []
    for topic in message["topics"] or []:
        indexes = topic.get("partition_indexes") or [
            each["partition_index"] for each in topic.get("partitions", ())
        ]
        partitions = [
            {"partition_index": n, "committed_offset": -1, "metadata": "", "error_code": code}
            for n in indexes
        ]
        refused.append({"name": topic["name"], "partitions": partitions})
    return {"topics": refused}


def _refuse_alterations(
    message: AlterConfigsRequest, code: Code, text: str
) -> AlterConfigsResponse:
    return {
        "throttle_time_ms": 0,
        "responses": [
            {
                "error_code": code,
                "error_message": text,
                "resource_type": each["resource_type"],
                "resource_name": each["resource_name"],
            }
            for each in message["resources"]
        ],
    }


def _refuse_descriptions(
    message: DescribeConfigsRequest, code: Code, text: str
) -> DescribeConfigsResponse:
    return {
        "throttle_time_ms": 0,
        "results": [
            {
                "error_code": code,
                "error_message": text,
                "resource_type": each["resource_type"],
                "resource_name": each["resource_name"],
                "configs": [],
            }
            for each in message["resources"]
        ],
    }


def _refuse_quotas(
    message: AlterClientQuotasRequest, code: Code, text: str
) -> AlterClientQuotasResponse:
    return {
        "throttle_time_ms": 0,
        "entries": [
            {"entity": each["entity"], "error_code": code, "error_message": text}
            for each in message["entries"]
        ],
    }


def _refuse_elections(
    _message: ElectLeadersRequest, code: Code, _text: str
) -> ElectLeadersResponse:
    return {"throttle_time_ms": 0, "error_code": code, "replica_election_results": []}


def _refuse_reassignments(
    _message: AlterPartitionReassignmentsRequest, code: Code, text: str
) -> AlterPartitionReassignmentsResponse:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "error_message": text,
        "responses": [],
    }


_ROWS = (
    ControllerApi(
        "CreateTopics",
        topics.create,
        _refuse_topics,
        writes=True,
        in_slices=True,
        by_controller=True,
        is_forwarded=True,
    ),
    ControllerApi(
        "DeleteTopics",
        topics.delete,
        _refuse_deletions,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    ControllerApi(
        "CreatePartitions",
        topics.create_partitions,
        _refuse_partitions,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    ControllerApi(
        "AutoCreate",
        topics.auto_create,
        _refuse_auto_created,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    # The core asks for 16 resources at once.
    ControllerApi("DescribeConfigs", configs.describe, _refuse_descriptions),
    ControllerApi("AlterConfigs", configs.alter, _refuse_alterations, writes=True, in_slices=True),
    ControllerApi(
        "IncrementalAlterConfigs",
        configs.incremental_alter,
        _refuse_alterations,
        writes=True,
        in_slices=True,
    ),
    # The kinds of resources are a set.
    ControllerApi("ListConfigResources", configs.list_resources, _refuse_with_text),
    # A filter has one component of each kind; reading the quotas goes in slices.
    ControllerApi("DescribeClientQuotas", client_quotas.describe, _refuse_with_text),
    ControllerApi(
        "AlterClientQuotas", client_quotas.alter, _refuse_quotas, writes=True, in_slices=True
    ),
    ControllerApi(
        "DescribeUserScramCredentials",
        scram_credentials.describe,
        _refuse_with_text,
        in_slices=True,
    ),
    ControllerApi(
        "AlterUserScramCredentials",
        scram_credentials.alter,
        scram_credentials.refuse,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    # A request has one filter; the ACLs are looked through in slices.
    ControllerApi("DescribeAcls", acl_requests.describe, _refuse_with_text),
    ControllerApi(
        "CreateAcls",
        acl_requests.create,
        acl_requests.refuse_creations,
        writes=True,
        in_slices=True,
    ),
    ControllerApi(
        "DeleteAcls",
        acl_requests.delete,
        acl_requests.refuse_filters,
        writes=True,
        in_slices=True,
    ),
    ControllerApi(
        "CreateDelegationToken",
        delegation_token_requests.create,
        _refuse_with_code,
        writes=True,
        in_slices=True,
    ),
    ControllerApi(
        "RenewDelegationToken", delegation_token_requests.renew, _refuse_with_code, writes=True
    ),
    ControllerApi(
        "ExpireDelegationToken", delegation_token_requests.expire, _refuse_with_code, writes=True
    ),
    ControllerApi(
        "DescribeDelegationToken",
        delegation_token_requests.describe,
        _refuse_with_code,
        in_slices=True,
    ),
    ControllerApi(
        "ElectLeaders",
        elect_leaders.elect,
        _refuse_elections,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    ControllerApi(
        "AlterPartitionReassignments",
        reassignment.alter,
        _refuse_reassignments,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    ControllerApi(
        "ListPartitionReassignments",
        reassignment.list_ongoing,
        _refuse_with_text,
        by_controller=True,
    ),
    ControllerApi(
        "AllocateProducerIds",
        producer_ids.allocate,
        _refuse_with_code,
        writes=True,
        by_controller=True,
        is_forwarded=True,
    ),
    ControllerApi(
        "UpdateFeatures", features.update, _refuse_with_text, writes=True, by_controller=True
    ),
    ControllerApi("LogDirFailed", log_dirs.note_failed, _refuse_with_text, writes=True),
    ControllerApi(
        "OffsetCommit", consumer_offsets.commit, _refuse_offsets, writes=True, in_slices=True
    ),
    ControllerApi("OffsetFetch", consumer_offsets.fetch, _refuse_offsets, in_slices=True),
    ControllerApi(
        "AlterPartition",
        _alter_partition,
        _refuse_with_code,
        writes=True,
        by_controller=True,
        is_forwarded=True,
    ),
    ControllerApi(
        "ControlledShutdown",
        _controlled_shutdown,
        _refuse_with_code,
        writes=True,
        by_controller=True,
        is_forwarded=True,
    ),
    ControllerApi("LeaderAndIsr", _leader_and_isr, _refuse_replicas),
    ControllerApi("UpdateMetadata", _update_metadata, _refuse_replicas),
    ControllerApi("StopReplica", _stop_replica, _refuse_replicas),
)

CONTROLLER_APIS = {row.name: row for row in _ROWS}
"""THE table, by the API's name."""


def refusal(request: Request[Any], code: Code, text: str) -> Message:
    """The response that refuses every item of a request."""
    row = CONTROLLER_APIS.get(request.api)
    refuse = _refuse_with_text if row is None else row.refuse
    return refuse(request.message, code, text)
