"""THE table of controller APIs: which function decides each, which broker may, how it is refused.

A row is a request that the policy thread decides without the group coordinator. Names are Kafka's;
krust's own core sends `AutoCreate` and `LogDirFailed`. AlterReplicaLogDirs has no row: the runtime
decides it, because it needs the core's list of log directories.
The table names the functions. Their modules are imported at the first request for one of them: a
broker starts 3 ms earlier without what most brokers are never asked for.
Threads: any; the table does not change.
Not here: which versions are served. The core's table of APIs says that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from krust._krust import served_apis
from krust.controller import refusals
from krust.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from krust.controller.state import ControllerState, Decision, Request
    from krust.errors import Code
    from krust.messages import Message


_BETWEEN_BROKERS = frozenset(name for _, name, _, _, asker, _ in served_apis() if asker != "client")


class ControllerApi(NamedTuple):
    """One row of the table."""

    name: str
    decided_by: str
    """module and function in this package, as `topics.create`"""
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

    def decide(self, state: ControllerState, request: Request[Any]) -> Decision[Any]:
        """The decision of a request. A module that cannot be imported is its error."""
        module, function = self.decided_by.split(".")
        decide = getattr(import_module(f"krust.controller.{module}"), function)
        return (yield from decide(state, request))

    @property
    def is_between_brokers(self) -> bool:
        """Whether brokers of a cluster send it to each other. A lone broker decides it only if it
        asks on its own behalf.
        """
        return self.name in _BETWEEN_BROKERS


_ROWS = (
    ControllerApi(
        "CreateTopics",
        "topics.create",
        refusals.topics,
        writes=True,
        in_slices=True,
        by_controller=True,
        is_forwarded=True,
    ),
    ControllerApi(
        "DeleteTopics",
        "topics.delete",
        refusals.deletions,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    ControllerApi(
        "CreatePartitions",
        "topics.create_partitions",
        refusals.new_partitions,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    ControllerApi(
        "AutoCreate",
        "topics.auto_create",
        refusals.auto_created_topics,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    # The core asks for 16 resources at once.
    ControllerApi("DescribeConfigs", "configs.describe", refusals.config_descriptions),
    ControllerApi(
        "AlterConfigs", "configs.alter", refusals.config_changes, writes=True, in_slices=True
    ),
    ControllerApi(
        "IncrementalAlterConfigs",
        "configs.incremental_alter",
        refusals.config_changes,
        writes=True,
        in_slices=True,
    ),
    # The kinds of resources are a set.
    ControllerApi("ListConfigResources", "configs.list_resources", refusals.with_text),
    # A filter has one component of each kind; reading the quotas goes in slices.
    ControllerApi("DescribeClientQuotas", "client_quotas.describe", refusals.with_text),
    ControllerApi(
        "AlterClientQuotas",
        "client_quotas.alter",
        refusals.quota_changes,
        writes=True,
        in_slices=True,
    ),
    ControllerApi(
        "DescribeUserScramCredentials",
        "scram_credentials.describe",
        refusals.with_text,
        in_slices=True,
    ),
    ControllerApi(
        "AlterUserScramCredentials",
        "scram_credentials.alter",
        refusals.scram_changes,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    # A request has one filter; the ACLs are looked through in slices.
    ControllerApi("DescribeAcls", "acl_requests.describe", refusals.with_text),
    ControllerApi(
        "CreateAcls",
        "acl_requests.create",
        refusals.acl_creations,
        writes=True,
        in_slices=True,
    ),
    ControllerApi(
        "DeleteAcls",
        "acl_requests.delete",
        refusals.acl_deletions,
        writes=True,
        in_slices=True,
    ),
    ControllerApi(
        "CreateDelegationToken",
        "delegation_token_requests.create",
        refusals.with_code,
        writes=True,
        in_slices=True,
    ),
    ControllerApi(
        "RenewDelegationToken", "delegation_token_requests.renew", refusals.with_code, writes=True
    ),
    ControllerApi(
        "ExpireDelegationToken", "delegation_token_requests.expire", refusals.with_code, writes=True
    ),
    ControllerApi(
        "DescribeDelegationToken",
        "delegation_token_requests.describe",
        refusals.with_code,
        in_slices=True,
    ),
    ControllerApi(
        "ElectLeaders",
        "elect_leaders.elect",
        refusals.elections,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    ControllerApi(
        "AlterPartitionReassignments",
        "reassignment.alter",
        refusals.reassignments,
        writes=True,
        in_slices=True,
        by_controller=True,
    ),
    ControllerApi(
        "ListPartitionReassignments",
        "reassignment.list_ongoing",
        refusals.with_text,
        by_controller=True,
    ),
    ControllerApi(
        "AllocateProducerIds",
        "producer_ids.allocate",
        refusals.with_code,
        writes=True,
        by_controller=True,
        is_forwarded=True,
    ),
    ControllerApi(
        "UpdateFeatures", "features.update", refusals.with_text, writes=True, by_controller=True
    ),
    ControllerApi("LogDirFailed", "log_dirs.note_failed", refusals.with_text, writes=True),
    ControllerApi(
        "OffsetCommit", "consumer_offsets.commit", refusals.offsets, writes=True, in_slices=True
    ),
    ControllerApi("OffsetFetch", "consumer_offsets.fetch", refusals.offsets, in_slices=True),
    ControllerApi(
        "AlterPartition",
        "leader_requests.alter_partition",
        refusals.with_code,
        writes=True,
        by_controller=True,
        is_forwarded=True,
    ),
    ControllerApi(
        "ControlledShutdown",
        "leader_requests.controlled_shutdown",
        refusals.with_code,
        writes=True,
        by_controller=True,
        is_forwarded=True,
    ),
    ControllerApi("LeaderAndIsr", "control_request_handlers.leader_and_isr", refusals.replicas),
    ControllerApi("UpdateMetadata", "control_request_handlers.update_metadata", refusals.replicas),
    ControllerApi("StopReplica", "control_request_handlers.stop_replica", refusals.replicas),
)

CONTROLLER_APIS = {row.name: row for row in _ROWS}
"""THE table, by the API's name."""


def refusal(request: Request[Any], code: Code, text: str) -> Message:
    """The response that refuses every item of a request."""
    row = CONTROLLER_APIS.get(request.api)
    refuse = refusals.with_text if row is None else row.refuse
    return refuse(request.message, code, text)
