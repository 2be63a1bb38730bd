"""The states of groups, what each answers, and where it can go."""

EMPTY = "Empty"
"""Nobody is here; there may be offsets.

action:      JoinGroup makes a member or a pending one; SyncGroup -> UNKNOWN_MEMBER_ID
transition:  a join -> PREPARING_REBALANCE; deleted, offsets expired -> DEAD"""

PREPARING_REBALANCE = "PreparingRebalance"
"""Members are called to join again.

action:      JoinGroup parks; SyncGroup, Heartbeat -> REBALANCE_IN_PROGRESS
transition:  all joined, or the deadline -> COMPLETING_REBALANCE; nobody joined -> EMPTY"""

COMPLETING_REBALANCE = "CompletingRebalance"
"""Members have joined; the assignment is still on its way: the leader's, or that of krust's own
assignor, which was called when the joins were answered.

action:      SyncGroup parks (the leader's answers all); a join that says the same is answered
transition:  leader's SyncGroup, or the assignor's answer -> STABLE
             join with news, leave, lost member, sync deadline -> PREPARING_REBALANCE"""

STABLE = "Stable"
"""Each member has its assignment.

action:      SyncGroup is answered at once; a follower's join that says the same too
transition:  other joins, leave, lost member, members that never synced -> PREPARING_REBALANCE"""

ASSIGNING = "Assigning"
"""Of a consumer group: the target is older than the group's epoch, because user code computes it.

action:      heartbeats of members are answered by the target before; who joins waits
transition:  computed, or the deadline -> RECONCILING; nobody is left -> EMPTY"""

RECONCILING = "Reconciling"
"""Of a consumer group: members are on their way from what they have to the target. In STABLE each
of them is there, at the target's epoch.

action:      heartbeats say what to revoke, then what is to be had
transition:  all are there -> STABLE; join, leave, lost member, topics -> ASSIGNING or itself"""

DEAD = "Dead"
"""Gone: nobody holds this object any more."""

TRANSITIONS = {
    EMPTY: {PREPARING_REBALANCE, DEAD},
    PREPARING_REBALANCE: {COMPLETING_REBALANCE, EMPTY, DEAD},
    COMPLETING_REBALANCE: {STABLE, PREPARING_REBALANCE, DEAD},
    STABLE: {PREPARING_REBALANCE, DEAD},
    DEAD: set[str](),
}
"""From where to where."""
