//! What must hold after every step. The names are those of the project's list of invariants.
//!
//! R1 the high watermark is at most the log end, and never falls on a leader within its epoch
//! R4 epochs never fall along a log           L1 offsets are dense
//! R5 two replicas agree below both high watermarks
//! R9 one leader in each epoch
//! D1 an acknowledged record is in the log of each in-sync and each eligible replica
//!
//! A log only grows between two truncations or restarts, so what was checked once is not checked
//! again until then.

use super::broker::{AppendedRecord, Broker};
use super::controller::{Controller, node_id};

#[derive(Default)]
pub struct Checks {
    pub acknowledged: Vec<AppendedRecord>,
    logs: Vec<CheckedLog>,
    /// Of each pair of brokers, the offset below which their logs were compared.
    agree_below: Vec<Vec<i64>>,
    unclean_elections: usize,
}

/// How far a broker's log was checked.
#[derive(Clone, Default)]
struct CheckedLog {
    run: u64,
    /// So many records are in order.
    records: usize,
    /// So many acknowledged records were found in it.
    acknowledged: usize,
    leader_epoch: i32,
    high_watermark: i64,
}

impl Checks {
    pub fn new(brokers: usize) -> Self {
        Self {
            logs: vec![CheckedLog::default(); brokers],
            agree_below: vec![vec![0; brokers]; brokers],
            ..Self::default()
        }
    }

    /// What is wrong now, if anything.
    pub fn check(&mut self, brokers: &[Broker], controller: &Controller) -> Result<(), String> {
        if controller.unclean_elections > self.unclean_elections {
            // A policy chose to go on without what may be lost: what was promised ends here.
            *self = Self::new(brokers.len());
            self.unclean_elections = controller.unclean_elections;
            return Ok(());
        }
        for broker in brokers.iter().filter(|broker| broker.is_up) {
            self.check_log(broker)?;
        }
        for (at, one) in brokers.iter().enumerate() {
            for other in brokers.get(at + 1..).unwrap_or_default() {
                if self.unclean_elections == 0 && one.is_up && other.is_up {
                    self.check_agreement(one, other)?;
                }
            }
        }
        check_elections(controller)?;
        self.check_acknowledged(brokers, controller)
    }

    fn check_log(&mut self, broker: &Broker) -> Result<(), String> {
        let (node, end) = (broker.node, broker.log().log_end_offset().0);
        let records = &broker.records_held;
        let checked = &mut self.logs[node];
        if checked.run != broker.run || records.len() < checked.records {
            *checked = CheckedLog { run: broker.run, ..CheckedLog::default() };
            for other in 0..self.agree_below.len() {
                self.agree_below[node][other] = 0;
                self.agree_below[other][node] = 0;
            }
        }
        let high = broker.high_watermark();
        if high > end {
            return Err(format!("R1: broker {node} has high watermark {high}, log end {end}"));
        }
        let known = records.last().map_or(end, |last| last.offset + 1);
        if known != end {
            return Err(format!("broker {node}: the log ends at {end}, its records at {known}"));
        }
        for pair in records[checked.records.saturating_sub(1)..].windows(2) {
            if pair[1].offset != pair[0].offset + 1 {
                return Err(format!("L1: broker {node}: {:?} follows {:?}", pair[1], pair[0]));
            }
            if pair[1].epoch < pair[0].epoch {
                return Err(format!("R4: broker {node}: {:?} follows {:?}", pair[1], pair[0]));
            }
        }
        checked.records = records.len();
        let epoch = broker.leader().map_or(-1, |it| it.leadership().leader_epoch.0);
        if epoch >= 0 && checked.leader_epoch == epoch && high < checked.high_watermark {
            return Err(format!("R1: broker {node}: the high watermark fell to {high} in {epoch}"));
        }
        (checked.leader_epoch, checked.high_watermark) = (epoch, high);
        Ok(())
    }

    fn check_agreement(&mut self, one: &Broker, other: &Broker) -> Result<(), String> {
        let from = &mut self.agree_below[one.node][other.node];
        let below = one.high_watermark().min(other.high_watermark());
        for offset in *from..below {
            if one.record_at(offset) != other.record_at(offset) {
                return Err(format!(
                    "R5: brokers {} and {} differ below {below}: {:?} and {:?}",
                    one.node,
                    other.node,
                    one.record_at(offset),
                    other.record_at(offset),
                ));
            }
        }
        *from = below.max(*from);
        Ok(())
    }

    fn check_acknowledged(
        &mut self,
        brokers: &[Broker],
        controller: &Controller,
    ) -> Result<(), String> {
        let may_lead = |broker: &&Broker| {
            let replica = node_id(broker.node);
            let is_known = controller.broker_epoch(broker.node) == Some(broker.broker_epoch);
            let is_listed =
                controller.is_in_sync(replica) || controller.eligible.contains(&replica);
            broker.is_up && is_known && is_listed
        };
        for broker in brokers.iter().filter(may_lead) {
            let checked = &mut self.logs[broker.node].acknowledged;
            for record in &self.acknowledged[*checked..] {
                let held = broker.record_at(record.offset);
                if held != Some(record) {
                    return Err(format!(
                        "D1: {record:?} was acknowledged; broker {} has {held:?} and may lead",
                        broker.node
                    ));
                }
            }
            *checked = self.acknowledged.len();
        }
        Ok(())
    }
}

fn check_elections(controller: &Controller) -> Result<(), String> {
    let is_repeated = controller.elections.windows(2).any(|pair| pair[0].0 >= pair[1].0);
    if is_repeated { Err(format!("R9: {:?}", controller.elections)) } else { Ok(()) }
}
