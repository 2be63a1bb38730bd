"""An ACL, and the operations that there are."""

from __future__ import annotations

from typing import NamedTuple

IMPLIED = {
    "Describe": {"Read", "Write", "Delete", "Alter"},
    "DescribeConfigs": {"AlterConfigs"},
}
BITS = {"Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8}
BITS |= {"ClusterAction": 9, "DescribeConfigs": 10, "AlterConfigs": 11, "IdempotentWrite": 12}
SUPPORTED = {
    "Topic": [
        "Read",
        "Write",
        "Create",
        "Delete",
        "Alter",
        "Describe",
        "DescribeConfigs",
        "AlterConfigs",
    ],
    "Group": ["Read", "Delete", "Describe"],
    "Cluster": [
        "Create",
        "Alter",
        "Describe",
        "ClusterAction",
        "DescribeConfigs",
        "AlterConfigs",
        "IdempotentWrite",
    ],
    "TransactionalId": ["Describe", "Write"],
}
CLUSTER = "kafka-cluster"


class Rule(NamedTuple):
    """One ACL. pattern: literal or prefixed."""

    permission: str
    resource: str
    pattern: str
    name: str
    principal: str
    host: str
    operation: str

    def covers(self, resource: str, name: str) -> bool:
        if self.resource != resource:
            return False
        if self.pattern == "prefixed":
            return name.startswith(self.name)
        return self.name in (name, "*")
