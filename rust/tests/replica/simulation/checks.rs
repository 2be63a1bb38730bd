//! What must hold after every step. The names are those of the project's list of invariants.
//!
//! ```text
//! R1  the high watermark is at most the log end, and never falls on a leader within its epoch; the
//!     log of a new leader has every offset that was ever below a high watermark
//! R2  the high watermark of the leader is at most the log end of each in-sync replica
//! R3  a leader's in-sync set is one that ZooKeeper has had, at the partition epoch that it names
//! R4  epochs never fall along a log, nor does the partition's leader epoch
//! R5  all replicas have the same record at each offset below their high watermarks, for ever
//! R6  a follower keeps what it shares with its leader, and what is below its high watermark
//! R7  nobody leads who lost records since it was in sync or eligible
//! R9  one leader in each epoch, elected from the in-sync or the eligible replicas
//! R10 a reassignment ends with all replicas that it wants in sync
//! D1  an acknowledged record is in the log of each in-sync and each eligible replica, unless as
//!     many as must be in sync have lost records
//! D2  nothing is acknowledged by fewer in-sync replicas than must be in sync
//! L1  offsets are dense, and the acknowledged one is the record's
//! P1  a record of an idempotent producer is at most once in a log, in the order of the sequence
//! ```
//! When a policy chose to go on without what may be lost, what was promised before ends, and R1
//! (of a new leader), R5, R6 and P1 are not checked any more in this run.
//! A log only grows between two truncations or restarts, so what was checked once is not checked
//! again until then.

use std::collections::HashMap;

use crate::replica::leader::IsrMember;

use super::broker::{Broker, Effects};
use super::decisions::Policy;
use super::machine::StoredRecord;
use super::replica::Acknowledged;
use super::zookeeper::{PartitionState, ZooKeeper, node_id};

pub struct Checks {
    policy: Policy,
    pub acknowledged: Vec<StoredRecord>,
    /// The record at each offset that was below a high watermark.
    committed: Vec<Option<StoredRecord>>,
    logs: Vec<CheckedLog>,
    /// Who led in each leader epoch, and how much had been lost there by then.
    leaders: HashMap<i32, (usize, i64)>,
    /// Each state that ZooKeeper has had, by its partition epoch.
    states: Vec<PartitionState>,
    /// The newest registration under which each broker was in sync or eligible.
    listed_at: Vec<i64>,
    /// So many replicas had everything that was acknowledged.
    promised: usize,
    /// An operator has deleted what is below.
    pub deleted_below: i64,
    /// The leader epoch of the last unclean election.
    pub unclean_epoch: Option<i32>,
}

/// How far a broker's log was checked.
#[derive(Clone, Default)]
struct CheckedLog {
    run: u64,
    log_restarts: u64,
    /// So many records are in order.
    records: usize,
    /// The offset of the first of them.
    start: i64,
    /// Below here it was compared with what is committed.
    agreed: i64,
    /// So many acknowledged records were found in it.
    acknowledged: usize,
    leader_epoch: i32,
    high_watermark: i64,
    partition_epoch: i32,
    /// The last producer epoch and sequence number of each producer.
    sequences: Vec<(i64, i16, i32)>,
}

impl Checks {
    pub fn new(brokers: usize, policy: Policy, zookeeper: &ZooKeeper) -> Self {
        Self {
            policy,
            acknowledged: Vec::new(),
            committed: Vec::new(),
            logs: vec![CheckedLog::default(); brokers],
            leaders: HashMap::new(),
            states: vec![zookeeper.state.clone()],
            listed_at: vec![-1; brokers],
            promised: zookeeper.state.least_in_sync(&policy),
            deleted_below: 0,
            unclean_epoch: None,
        }
    }

    /// A broker took a step.
    pub fn check_broker(
        &mut self,
        broker: &Broker,
        effects: &Effects,
        (brokers, zookeeper): (&[Broker], &ZooKeeper),
    ) -> Result<(), String> {
        for acknowledged in &effects.acknowledged {
            self.check_acknowledgement(broker, acknowledged)?;
        }
        if broker.is_up {
            self.check_log(broker)?;
            if self.unclean_epoch.is_none() {
                self.check_agreement(broker)?;
                self.check_truncation(broker, effects, brokers)?;
            }
            self.check_leader(broker, brokers, zookeeper)?;
        }
        if effects.acknowledged.is_empty() {
            self.check_acknowledged(broker, zookeeper)
        } else {
            brokers.iter().try_for_each(|it| self.check_acknowledged(it, zookeeper))
        }
    }

    fn check_acknowledgement(
        &mut self,
        broker: &Broker,
        acknowledged: &Acknowledged,
    ) -> Result<(), String> {
        let record = acknowledged.record;
        if acknowledged.in_sync < self.policy.min_insync_replicas.min(acknowledged.replicas) {
            return Err(format!("D2: broker {}: {acknowledged:?}", broker.node));
        }
        // Its disk may have failed in the same step.
        if broker.is_up && record.offset < broker.log_start() {
            return Ok(());
        }
        if broker.is_up && broker.record_at(record.offset) != Some(&record) {
            return Err(format!("L1: broker {}: {record:?} is not at its offset", broker.node));
        }
        // A leader of an earlier epoch may not know yet that an operator gave up its records.
        if self.unclean_epoch.is_none_or(|epoch| acknowledged.leader_epoch >= epoch) {
            self.acknowledged.push(record);
        }
        Ok(())
    }

    fn check_log(&mut self, broker: &Broker) -> Result<(), String> {
        let (node, end, high) = (broker.node, broker.log_end(), broker.high_watermark());
        let checked = &mut self.logs[node];
        let start = broker.held.first().map_or(end, |it| it.offset);
        let checked_end = checked.start + count(checked.records);
        let goes_on = checked.start <= start && start <= checked_end && checked_end <= end;
        let is_same = (checked.run, checked.log_restarts) == (broker.run, broker.log_restarts);
        if !is_same || !goes_on {
            let (run, log_restarts) = (broker.run, broker.log_restarts);
            *checked = CheckedLog { run, log_restarts, start, ..CheckedLog::default() };
        }
        checked.records -= usize::try_from(start - checked.start).unwrap();
        checked.start = start;
        if high > end {
            return Err(format!("R1: broker {node} has high watermark {high}, log end {end}"));
        }
        let known = broker.held.last().map_or(end, |last| last.offset + 1);
        if known != end {
            return Err(format!(
                "L1: broker {node}: the log ends at {end}, its records at {known}"
            ));
        }
        for pair in broker.held[checked.records.saturating_sub(1)..].windows(2) {
            if pair[1].offset != pair[0].offset + 1 {
                return Err(format!("L1: broker {node}: {:?} follows {:?}", pair[1], pair[0]));
            }
            if pair[1].epoch < pair[0].epoch {
                return Err(format!("R4: broker {node}: {:?} follows {:?}", pair[1], pair[0]));
            }
        }
        if self.unclean_epoch.is_none() {
            for record in &broker.held[checked.records..] {
                checked.check_sequence(record).map_err(|what| format!("P1: {node}: {what}"))?;
            }
        }
        checked.records = broker.held.len();
        let epoch = broker.leads_in().map_or(-1, |it| it.0);
        if epoch >= 0 && checked.leader_epoch == epoch && high < checked.high_watermark {
            return Err(format!("R1: broker {node}: the high watermark fell to {high} in {epoch}"));
        }
        checked.high_watermark = high;
        Ok(())
    }

    /// What is below a high watermark is the same everywhere, for ever.
    fn check_agreement(&mut self, broker: &Broker) -> Result<(), String> {
        let high = broker.high_watermark();
        let from = self.logs[broker.node].agreed;
        if high <= from {
            return Ok(());
        }
        let length = usize::try_from(high).unwrap();
        if self.committed.len() < length {
            self.committed.resize(length, None);
        }
        let first = from.max(broker.log_start());
        for offset in first..high {
            let held = broker.record_at(offset);
            let committed = &mut self.committed[usize::try_from(offset).unwrap()];
            if committed.is_none() {
                *committed = held.copied();
            }
            if committed.as_ref() != held {
                return Err(format!(
                    "R5: broker {}, offset {offset} below {high}: {held:?}, not {committed:?}",
                    broker.node
                ));
            }
        }
        self.logs[broker.node].agreed = high;
        Ok(())
    }

    fn check_truncation(
        &mut self,
        broker: &Broker,
        effects: &Effects,
        brokers: &[Broker],
    ) -> Result<(), String> {
        let Some(cut) = effects.truncated else { return Ok(()) };
        if cut.to < cut.high_watermark {
            return Err(format!("R6: broker {}: {cut:?}", broker.node));
        }
        let leader = &brokers[cut.leader];
        if !leader.is_up || leader.leads_in().is_none_or(|it| it.0 != cut.leader_epoch) {
            return Ok(());
        }
        let next = leader.record_at(cut.to);
        if next.is_some() && next == cut.dropped.as_ref() {
            return Err(format!("R6: broker {} drops what its leader has: {cut:?}", broker.node));
        }
        Ok(())
    }

    fn check_leader(
        &mut self,
        broker: &Broker,
        brokers: &[Broker],
        zookeeper: &ZooKeeper,
    ) -> Result<(), String> {
        let (node, state) = (broker.node, &zookeeper.state);
        let Some(leader) = broker.leader() else {
            self.logs[node].leader_epoch = -1;
            return Ok(());
        };
        let (leadership, checked) = (leader.leadership(), &mut self.logs[node]);
        let epoch = leadership.leader_epoch.0;
        if checked.leader_epoch != epoch {
            checked.leader_epoch = epoch;
            checked.partition_epoch = -1;
            self.check_new_leader(broker, epoch, zookeeper)?;
        }
        let checked = &mut self.logs[node];
        if checked.partition_epoch != leadership.partition_epoch {
            checked.partition_epoch = leadership.partition_epoch;
            let known = self.states.get(usize::try_from(leadership.partition_epoch).unwrap());
            let is_known = known.is_some_and(|it| {
                let isr = it.isr.iter().map(|it| it.replica);
                it.leader_epoch == epoch && isr.eq(leadership.isr.iter().map(|it| it.replica))
            });
            if !is_known {
                return Err(format!("R3: broker {node}: {leadership:?}, ZooKeeper {known:?}"));
            }
        }
        if epoch == state.leader_epoch {
            let high = broker.high_watermark();
            for member in &state.isr {
                let other = &brokers[usize::try_from(member.replica).unwrap()];
                let is_steady = other.is_up && other.broker_epoch == member.broker_epoch;
                if is_steady && other.log_end() < high {
                    return Err(format!("R2: broker {node}: {high}, {} has less", other.node));
                }
            }
        }
        Ok(())
    }

    fn check_new_leader(
        &mut self,
        broker: &Broker,
        epoch: i32,
        zookeeper: &ZooKeeper,
    ) -> Result<(), String> {
        let node = broker.node;
        let led = self.leaders.entry(epoch).or_insert((node, broker.lost_at));
        if *led != (node, broker.lost_at) {
            return Err(format!("R9: broker {node} leads in {epoch}, which {led:?} led"));
        }
        let began = self.states.iter().find(|it| it.leader_epoch == epoch);
        let named = began.and_then(|it| it.isr.iter().find(|it| it.replica == node_id(node)));
        let named = named.ok_or_else(|| format!("R9: broker {node} leads in {epoch}"))?;
        let is_unclean = self.unclean_epoch.is_some();
        if !is_unclean && !has_kept_all(broker, *named) {
            return Err(format!("R7: broker {node} leads in {epoch}, and lost records"));
        }
        let end = broker.log_end();
        if !is_unclean && epoch == zookeeper.state.leader_epoch && end < count(self.committed.len())
        {
            let served = self.committed.len();
            return Err(format!("R1: broker {node} leads in {epoch} to {end}; {served} served"));
        }
        Ok(())
    }

    /// The state in ZooKeeper may have changed.
    pub fn check_state(&mut self, brokers: &[Broker], zookeeper: &ZooKeeper) -> Result<(), String> {
        let (state, before) = (&zookeeper.state, self.states.last().unwrap());
        if state.partition_epoch == before.partition_epoch {
            return Ok(());
        }
        let (from, to) = (before.leader_epoch, state.leader_epoch);
        if to < from || (to == from && state.leader != before.leader) {
            return Err(format!("R4: leader epoch {to} after {from}: {state:?}"));
        }
        let is_unclean = state.unclean_elections > before.unclean_elections;
        // A replica may join, complete a reassignment by that, and lead at once.
        let joined: &[IsrMember] = if before.target == state.replicas { &state.isr } else { &[] };
        let is_listed = |replica: i32| {
            let mut listed = before.isr.iter().chain(&before.eligible).chain(joined);
            listed.any(|it| it.replica == replica)
        };
        if to > from && state.leader >= 0 && !is_unclean && !is_listed(state.leader) {
            return Err(format!("R9: {state:?} after {before:?}"));
        }
        if before.replicas != state.replicas
            && state.target.is_empty()
            && !state.replicas.iter().all(|it| state.is_in_sync(*it))
        {
            return Err(format!("R10: {state:?} after {before:?}"));
        }
        if is_unclean {
            self.check_unclean(brokers, zookeeper)?;
            self.acknowledged.clear();
            self.unclean_epoch = Some(to);
            self.logs.iter_mut().for_each(|it| it.acknowledged = 0);
        }
        for member in state.isr.iter().chain(&state.eligible) {
            let known = &mut self.listed_at[usize::try_from(member.replica).unwrap()];
            *known = member.broker_epoch.max(*known);
        }
        let least = state.least_in_sync(&self.policy);
        self.promised = if state.isr.len() < least { self.promised.min(least) } else { least };
        self.states.push(state.clone());
        brokers.iter().try_for_each(|it| self.check_acknowledged(it, zookeeper))
    }

    /// An unclean election where it is not allowed is one that the operator had to ask for: as many
    /// replicas have lost records as must be in sync.
    fn check_unclean(&self, brokers: &[Broker], zookeeper: &ZooKeeper) -> Result<(), String> {
        let before = self.states.last().unwrap();
        let is_lossy = |it: &&Broker| it.may_have_lost_since(self.listed_at[it.node]);
        let (lost, state) = (brokers.iter().filter(is_lossy).count(), &zookeeper.state);
        if !self.policy.elects_uncleanly && lost < self.promised {
            return Err(format!(
                "D1: {lost} lost records, and nobody leads: {before:?}, {state:?}"
            ));
        }
        Ok(())
    }

    fn check_acknowledged(&mut self, broker: &Broker, zookeeper: &ZooKeeper) -> Result<(), String> {
        let checked = &mut self.logs[broker.node].acknowledged;
        if *checked == self.acknowledged.len() {
            return Ok(());
        }
        let state = &zookeeper.state;
        let mut listed = state.isr.iter().chain(&state.eligible);
        let named = listed.find(|it| it.replica == node_id(broker.node));
        if named.is_none_or(|named| !has_kept_all(broker, *named)) {
            return Ok(());
        }
        for record in &self.acknowledged[*checked..] {
            let held = broker.record_at(record.offset);
            if held != Some(record) && record.offset >= self.deleted_below {
                return Err(format!(
                    "D1: {record:?} was acknowledged; broker {} has {held:?} and may lead",
                    broker.node
                ));
            }
        }
        *checked = self.acknowledged.len();
        Ok(())
    }
}

fn count(records: usize) -> i64 {
    i64::try_from(records).unwrap()
}

/// Whether a broker has lost nothing since it had the registration that a state names.
fn has_kept_all(broker: &Broker, named: IsrMember) -> bool {
    broker.lost_at < named.broker_epoch
}

impl CheckedLog {
    fn check_sequence(&mut self, record: &StoredRecord) -> Result<(), String> {
        if record.producer_id < 0 {
            return Ok(());
        }
        let known = self.sequences.iter_mut().find(|it| it.0 == record.producer_id);
        let now = (record.producer_id, record.producer_epoch, record.sequence);
        let Some(known) = known else {
            self.sequences.push(now);
            return Ok(());
        };
        if (known.1, known.2 + 1) != (record.producer_epoch, record.sequence) {
            return Err(format!("{record:?} follows {known:?}"));
        }
        *known = now;
        Ok(())
    }
}
