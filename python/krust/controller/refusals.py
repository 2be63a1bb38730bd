"""Responses that refuse every item of a request, with one error code and text.

Threads: any; pure functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krust.controller.own_requests import AutoCreateRequest, AutoCreateResponse
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
    from krust.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from krust.messages.create_acls import CreateAclsRequest, CreateAclsResponse
    from krust.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from krust.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from krust.messages.delete_acls import (
        DeleteAclsFilterResult,
        DeleteAclsRequest,
        DeleteAclsResponse,
    )
    from krust.messages.delete_topics import (
        DeletableTopicResult,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )
    from krust.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
    from krust.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


def with_text(_message: Message, code: Code, text: str) -> Message:
    """A response with an error for the whole request, and its text."""
    return {"error_code": code, "error_message": text}


def with_code(_message: Message, code: Code, _text: str) -> Message:
    """A response with an error for the whole request, without a text."""
    return {"error_code": code}


def topics(message: CreateTopicsRequest, code: Code, text: str) -> CreateTopicsResponse:
    """Refuse every topic of a CreateTopics."""
    names = [each["name"] for each in message["topics"]]
    return {"topics": [{"name": n, "error_code": code, "error_message": text} for n in names]}


def new_partitions(
    message: CreatePartitionsRequest, code: Code, text: str
) -> CreatePartitionsResponse:
    """Refuse every topic of a CreatePartitions."""
    names = [each["name"] for each in message["topics"]]
    return {
        "throttle_time_ms": 0,
        "results": [{"name": n, "error_code": code, "error_message": text} for n in names],
    }


def auto_created_topics(message: AutoCreateRequest, code: Code, _text: str) -> AutoCreateResponse:
    """Refuse every topic of an AutoCreate."""
    return {"topics": [{"name": name, "error_code": code} for name in message["topics"]]}


def deletions(message: DeleteTopicsRequest, code: Code, text: str) -> DeleteTopicsResponse:
    """Refuse every topic of a DeleteTopics."""
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


def replicas(_message: Message, code: Code, _text: str) -> Message:
    """Refuse a LeaderAndIsr, an UpdateMetadata or a StopReplica."""
    return {"error_code": code, "partition_errors": [], "topics": []}


def offsets(message: Message, code: Code, _text: str) -> Message:
    """Refuse every partition of an OffsetCommit 0 or OffsetFetch 0."""
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


def config_changes(message: AlterConfigsRequest, code: Code, text: str) -> AlterConfigsResponse:
    """Refuse every resource of an AlterConfigs or IncrementalAlterConfigs."""
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


def config_descriptions(
    message: DescribeConfigsRequest, code: Code, text: str
) -> DescribeConfigsResponse:
    """Refuse every resource of a DescribeConfigs."""
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


def quota_changes(
    message: AlterClientQuotasRequest, code: Code, text: str
) -> AlterClientQuotasResponse:
    """Refuse every entity of an AlterClientQuotas."""
    return {
        "throttle_time_ms": 0,
        "entries": [
            {"entity": each["entity"], "error_code": code, "error_message": text}
            for each in message["entries"]
        ],
    }


def elections(_message: ElectLeadersRequest, code: Code, _text: str) -> ElectLeadersResponse:
    """Refuse an ElectLeaders."""
    return {"throttle_time_ms": 0, "error_code": code, "replica_election_results": []}


def reassignments(
    _message: AlterPartitionReassignmentsRequest, code: Code, text: str
) -> AlterPartitionReassignmentsResponse:
    """Refuse an AlterPartitionReassignments."""
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "error_message": text,
        "responses": [],
    }


def acl_creations(message: CreateAclsRequest, code: Code, text: str) -> CreateAclsResponse:
    """Refuse every binding of a CreateAcls."""
    return {
        "throttle_time_ms": 0,
        "results": [{"error_code": code, "error_message": text} for _ in message["creations"]],
    }


def acl_deletions(message: DeleteAclsRequest, code: Code, text: str) -> DeleteAclsResponse:
    """Refuse every filter of a DeleteAcls."""
    results: list[DeleteAclsFilterResult] = [
        {"error_code": code, "error_message": text, "matching_acls": []} for _ in message["filters"]
    ]
    return {"throttle_time_ms": 0, "filter_results": results}


def scram_changes(
    message: AlterUserScramCredentialsRequest, code: Code, text: str
) -> AlterUserScramCredentialsResponse:
    """Refuse every user of an AlterUserScramCredentials."""
    names = dict.fromkeys(each["name"] for each in (*message["deletions"], *message["upsertions"]))
    return {
        "throttle_time_ms": 0,
        "results": [{"user": name, "error_code": code, "error_message": text} for name in names],
    }
