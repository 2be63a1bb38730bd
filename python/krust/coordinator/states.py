"""The states of groups: how each answers requests, and which states can follow."""

EMPTY = "Empty"
"""The group has no member; it may have offsets.

action:      JoinGroup creates a member or a pending one; SyncGroup -> UNKNOWN_MEMBER_ID
transition:  a join -> PREPARING_REBALANCE; deleted, offsets expired -> DEAD"""

PREPARING_REBALANCE = "PreparingRebalance"
"""Members are called to join again.

action:      JoinGroup waits; SyncGroup, Heartbeat -> REBALANCE_IN_PROGRESS
transition:  all joined, or the deadline -> COMPLETING_REBALANCE; no member joined -> EMPTY"""

COMPLETING_REBALANCE = "CompletingRebalance"
"""Members have joined and wait for the assignment: the leader's, or that of krust's assignor, which
was called when the joins were answered.

action:      SyncGroup waits (the leader's answers all); an unchanged join is answered
transition:  leader's SyncGroup, or the assignor's answer -> STABLE
             changed join, leave, lost member, sync deadline -> PREPARING_REBALANCE"""

STABLE = "Stable"
"""Each member has its assignment.

action:      SyncGroup and a follower's unchanged join are answered at once
transition:  other joins, leave, lost member, members that never synced -> PREPARING_REBALANCE"""

ASSIGNING = "Assigning"
"""A consumer group waits for user code to compute the target of the group's epoch.

action:      heartbeats are answered by the previous target; members that join wait
transition:  computed, or the deadline -> RECONCILING; no member is left -> EMPTY"""

RECONCILING = "Reconciling"
"""Members of a consumer group exchange partitions until each has its target. In STABLE all members
have their target and its epoch.

action:      heartbeats are answered with the partitions to keep, later with all of the target
transition:  all have their target -> STABLE; join, leave, lost member, topics -> ASSIGNING"""

DEAD = "Dead"
"""The group is deleted; this object is no longer used."""

TRANSITIONS = {
    EMPTY: {PREPARING_REBALANCE, DEAD},
    PREPARING_REBALANCE: {COMPLETING_REBALANCE, EMPTY, DEAD},
    COMPLETING_REBALANCE: {STABLE, PREPARING_REBALANCE, DEAD},
    STABLE: {PREPARING_REBALANCE, DEAD},
    DEAD: set[str](),
}
"""The states that can follow each state of a classic group."""
