"""Bugs planted in the steps of the transaction coordinator, and in what a group's coordinator keeps
of its offsets, each to be caught by the simulation.

python -m tests.planted_transactions [--seeds N] [--first N] [NAME...]
"""

from __future__ import annotations

import sys

from tests.planted_steps import PlantedBug, Suite

ENDS = ("T1", "T2", "T3", "P1", "P2")
"""the checks of how a transaction ends, any of which may see a bug first"""

BUGS = (
    PlantedBug(
        "a producer that is superseded keeps its epoch",
        "step.rs",
        "        let epoch = self.producer.epoch.saturating_add(1);\n        Self {",
        "        let epoch = self.producer.epoch;\n        Self {",
        ENDS,
    ),
    PlantedBug(
        "partitions are added by any epoch",
        "step.rs",
        "        } else if self.producer.epoch != producer.epoch {",
        "        } else if self.producer.epoch == i16::MIN {",
        ENDS,
    ),
    PlantedBug(
        "a transaction begins while markers of the last one are written",
        "step.rs",
        "        } else if self.state.marker().is_some() {",
        "        } else if self.start_ms == i64::MIN {",
        ENDS,
    ),
    PlantedBug(
        "added partitions are forgotten",
        "step.rs",
        "    next.partitions.extend(partitions.iter().cloned());\n",
        "",
        ENDS,
    ),
    PlantedBug(
        "a partition that was not added is confirmed",
        "step.rs",
        "        false => ErrorCode::TransactionAbortable,",
        "        false => ErrorCode::None,",
        ENDS,
    ),
    PlantedBug(
        "an old client's abort commits",
        "step.rs",
        "        state: prepared(commit),\n"
        "        next_producer_id: NO_PRODUCER_ID,\n"
        "        client_version: ClientTransactionVersion::V0,",
        "        state: prepared(true),\n"
        "        next_producer_id: NO_PRODUCER_ID,\n"
        "        client_version: ClientTransactionVersion::V0,",
        ENDS,
    ),
    PlantedBug(
        "an old client of any epoch ends the transaction",
        "step.rs",
        "    if old.producer.epoch != producer.epoch {",
        "    if old.producer.epoch == i16::MIN {",
        ENDS,
    ),
    PlantedBug(
        "EndTxn of protocol 2 does not bump the epoch",
        "step.rs",
        "epoch: present.epoch.saturating_add(1), ..present },\n        next_producer_id,",
        "epoch: present.epoch, ..present },\n        next_producer_id,",
        ENDS,
    ),
    PlantedBug(
        "a new producer leaves the open transaction open",
        "step.rs",
        "        TransactionState::Ongoing => Ok(changed(old.fenced(at), Outcome::EndsFirst)),",
        "        TransactionState::Ongoing => renew(old, request, at),",
        ENDS,
    ),
    PlantedBug(
        "a transaction that is aborted for its producer commits",
        "step.rs",
        "            state: TransactionState::PrepareAbort,\n            client_version",
        "            state: TransactionState::PrepareCommit,\n            client_version",
        ENDS,
    ),
    PlantedBug(
        "a new producer has the epoch of the last one",
        "step.rs",
        "                let producer = ProducerIdentity { epoch: present.epoch + 1, ..present };",
        "                let producer = present;",
        ENDS,
    ),
    PlantedBug(
        "a late EndTxn of protocol 2 ends the next transaction",
        "step.rs",
        "            if !is_present {\n"
        "                return Err(ErrorCode::ProducerFenced);\n"
        "            }\n"
        "            if old.state",
        "            if old.state",
        ENDS,
    ),
    PlantedBug(
        "a producer begins while markers are written",
        "step.rs",
        "        _ => Err(ErrorCode::ConcurrentTransactions),\n    }\n}\n\n/// The next epoch or",
        "        _ => renew(old, request, at),\n    }\n}\n\n/// The next epoch or",
        ENDS,
    ),
    PlantedBug(
        "the log has no partitions of a prepared transaction",
        "records.rs",
        "    let is_empty = transaction.state == TransactionState::Empty;",
        "    let is_empty = transaction.state != TransactionState::Ongoing;",
        ENDS,
    ),
    PlantedBug(
        "EndTxn of protocol 2 does the opposite",
        "step.rs",
        "        last_epoch: present.epoch,\n        state: prepared(commit),",
        "        last_epoch: present.epoch,\n        state: prepared(!commit),",
        ENDS,
    ),
    PlantedBug(
        "a partition does not open its transaction",
        "step.rs",
        "        next.state = TransactionState::Ongoing;\n",
        "",
        ENDS,
    ),
    PlantedBug(
        "offsets of an aborted transaction apply",
        "shard_groups.rs",
        "ended.into_iter().filter(|_| commit)",
        "ended.into_iter().filter(|_| commit | true)",
        ("G3",),
    ),
    PlantedBug(
        "offsets apply before their transaction ends",
        "shard_groups.rs",
        "            (Some(stored), Some(producer)) => {\n",
        "            (Some(stored), Some(_)) if partition == 0 => {\n"
        "                self.offsets.put((group, partition), &topic, stored);\n"
        "            }\n"
        "            (Some(stored), Some(producer)) => {\n",
        ("G3",),
    ),
    PlantedBug(
        "the transaction that ends last has the newest offset",
        "offsets.rs",
        "newest.record_offset < stored.record_offset",
        "newest.record_offset != stored.record_offset",
        ("G3",),
    ),
    PlantedBug(
        "the first offset of a transaction stays",
        "pending_offsets.rs",
        "        if self.by_producer.entry(producer).or_default().insert(key, stored).is_none() {",
        "        let offsets = self.by_producer.entry(producer).or_default();\n"
        "        let is_new = !offsets.contains_key(&key);\n"
        "        offsets.entry(key).or_insert(stored);\n"
        "        if is_new {",
        ("G3",),
    ),
    PlantedBug(
        "a partition is stable when one of its transactions has ended",
        "pending_offsets.rs",
        "producer.is_none_or(|producer| producer == *it)",
        "producer.is_none_or(|producer| producer != i64::MIN && *it != i64::MIN)",
        ("G3",),
    ),
)

SUITE = Suite(
    "transactions",
    "rust/src/broker/",
    (
        "transactions/records.rs",
        "transactions/step.rs",
        "transactions/transaction.rs",
        "state/groups/offsets.rs",
        "state/groups/pending_offsets.rs",
        "state/groups/shard_groups.rs",
    ),
    "KRUST_TXN",
    BUGS,
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
