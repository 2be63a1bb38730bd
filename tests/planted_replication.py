"""Bugs planted in the step functions of replication, each to be caught by the simulation.

python -m tests.planted_replication [--seeds N] [--first N] [NAME...]
"""

from __future__ import annotations

import sys

from tests.planted_steps import PlantedBug, Suite

BUGS = (
    PlantedBug(
        "the high watermark does not wait for a replica whose addition is on its way",
        "leader.rs",
        "        self.additions.contains(&replica) || self.member(replica).is_some()\n",
        "        self.member(replica).is_some()\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "the high watermark does not wait for a replica whose removal is on its way",
        "leader.rs",
        "        self.additions.contains(&replica) || self.member(replica).is_some()\n",
        "        if let Proposal::Sent(proposed) | Proposal::Repeat(proposed) = &self.proposal {\n"
        "            return proposed.isr.iter().any(|member| member.replica == replica);\n"
        "        }\n"
        "        self.additions.contains(&replica) || self.member(replica).is_some()\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "the high watermark moves while too few replicas are in sync",
        "leader.rs",
        "        if !self.has_enough_in_sync() {\n            return effects;\n        }\n",
        "",
        ("D1", "R1", "R5", "R6"),
    ),
    PlantedBug(
        "the high watermark falls with the in-sync set",
        "leader.rs",
        "        if lowest > self.high_watermark {\n",
        "        if lowest != self.high_watermark {\n",
        ("D1", "R1", "R2", "liveness"),
    ),
    PlantedBug(
        "a new leader takes everything in its log for committed",
        "leader.rs",
        "            high_watermark,\n            epoch_start: moment.log_end,\n",
        "            high_watermark: high_watermark.max(moment.log_end),\n"
        "            epoch_start: moment.log_end,\n",
        ("R2", "R5"),
    ),
    PlantedBug(
        "a follower joins below the start of the leader's epoch",
        "leader.rs",
        "            && follower.log_end >= self.epoch_start\n",
        "",
        ("D1", "R1", "R2"),
    ),
    PlantedBug(
        "a follower joins below the high watermark",
        "leader.rs",
        "            && follower.log_end >= self.high_watermark\n"
        "            && follower.log_end >= self.epoch_start\n",
        "",
        ("D1", "R2"),
    ),
    PlantedBug(
        "a proposal of unknown outcome is forgotten",
        "leader.rs",
        "                self.has_lost_copy = true;\n"
        "                self.proposal = Proposal::Repeat(proposed.clone());\n",
        "                self.additions.clear();\n"
        "                self.proposal = Proposal::None;\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "a refused proposal is forgotten while a copy of it is on its way",
        "leader.rs",
        "        if !self.has_lost_copy {\n            self.additions.clear();\n        }\n",
        "        self.additions.clear();\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "a second proposal counts instead of the first",
        "leader.rs",
        "        for IsrMember { replica, .. } in &isr {\n",
        "        self.additions.clear();\n        for IsrMember { replica, .. } in &isr {\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "an older state of the partition is taken for a newer one",
        "leader.rs",
        "            || leadership.partition_epoch <= self.leadership.partition_epoch\n",
        "            || leadership.partition_epoch == self.leadership.partition_epoch\n",
        ("D1", "R2"),
    ),
    PlantedBug(
        "the state of another leader epoch is taken",
        "leader.rs",
        "        if leadership.leader_epoch != self.leadership.leader_epoch\n"
        "            || leadership",
        "        if leadership",
        ("R3",),
    ),
    PlantedBug(
        "a leader applies a proposed in-sync set at once",
        "leader.rs",
        "        self.proposal = Proposal::Sent(proposed.clone());\n        proposed\n",
        "        self.proposal = Proposal::Sent(proposed.clone());\n"
        "        self.leadership.isr.clone_from(&proposed.isr);\n"
        "        proposed\n",
        ("D1", "D2", "R2", "R3"),
    ),
    PlantedBug(
        "acks=all is answered by fewer replicas than must be in sync",
        "leader.rs",
        "        self.leadership.isr.len() >= wanted\n",
        "        self.leadership.isr.len() + 1 >= wanted\n",
        ("D2",),
    ),
    PlantedBug(
        "a silent follower never leaves the in-sync set",
        "leader.rs",
        "!it.is_caught_up(moment, self.settings.lag_time_max_ms)",
        "it.replica < 0 && moment.now_ms < 0",
        ("liveness",),
    ),
    PlantedBug(
        "a follower appends the answer to an earlier question",
        "follower.rs",
        "        if self.request(log) != Some(request) {\n"
        "            return FollowerEffect::None;\n"
        "        }\n",
        "        let _ = request;\n",
        ("L1", "R4", "R5", "R6", "P1"),
    ),
    PlantedBug(
        "a follower names no epoch of its last batch",
        "follower.rs",
        "        let last_fetched_epoch = log.last_batch_epoch();\n",
        "        let last_fetched_epoch = Epoch::NONE;\n",
        ("R1", "R4", "R5", "D1", "liveness"),
    ),
    PlantedBug(
        "a follower drops no more than the leader's end of an epoch that it lacks",
        "follower.rs",
        "            (own_end.min(log_end), false)\n",
        "            (end_offset.min(log_end), true)\n",
        ("R4", "R5", "R6", "D1", "liveness"),
    ),
    PlantedBug(
        "a follower keeps what its leader does not have in their common epoch",
        "follower.rs",
        "            (own_end.min(end_offset).min(log_end), true)\n",
        "            (own_end.min(log_end), true)\n",
        ("R4", "R5", "D1", "liveness"),
    ),
    PlantedBug(
        "a follower truncates one record too much",
        "follower.rs",
        "        if to < log_end { FollowerEffect::TruncateTo(to) }",
        "        let to = if to < log_end { Offset(to.0 - 1) } else { to };\n"
        "        if to < log_end { FollowerEffect::TruncateTo(to) }",
        ("R6",),
    ),
    PlantedBug(
        "a follower below the leader's log start does not start again",
        "follower.rs",
        "        FollowerEffect::TruncateFullyAndStartAt(log_start)\n",
        "        FollowerEffect::TruncateTo(log_start)\n",
        ("liveness",),
    ),
)

SUITE = Suite(
    "replica",
    "rust/src/broker/replica/",
    ("leader.rs", "follower.rs"),
    "KRUST_REPLICA",
    BUGS,
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
