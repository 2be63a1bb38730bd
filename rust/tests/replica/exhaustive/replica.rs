//! What a replica does with a message: the real step functions, over the abstract log.

use crate::replica::follower::{FollowerEffect, FollowerReplica, FollowerRequest, LeaderAnswer};
use crate::replica::leader::{
    FollowerFetch, IsrMember, LeaderEffects, LeaderReplica, Leadership, Moment, ReplicationSettings,
};
use krust::ids::{Epoch, Offset};

use super::cluster::{Cluster, Flight, Proposal, Record, Role, offset_of};
use super::steps::Search;
use super::variants::Variant;
use crate::simulation::serving::{self, Checked};
use crate::simulation::zookeeper::{PartitionState, node_id};

/// A Fetch brings so many records at most: a follower is behind for some steps.
const FETCHED: usize = 2;

/// What became of a step; `None`: it changes nothing.
pub type Outcome = Result<Option<Cluster>, String>;

pub fn leadership(state: &PartitionState) -> Leadership {
    Leadership {
        leader_epoch: Epoch(state.leader_epoch),
        partition_epoch: state.partition_epoch,
        isr: state.isr.clone(),
        replicas: state.replicas.clone(),
    }
}

impl Cluster {
    fn moment(&self, node: usize) -> Moment {
        Moment { log_end: offset_of(self.brokers[node].log.records.len()), now_ms: 0 }
    }

    /// The controller tells a broker of a state.
    pub fn assigned(mut self, node: usize, state: &PartitionState, search: &Search) -> Outcome {
        let epoch = state.leader_epoch;
        let broker = &mut self.brokers[node];
        if epoch < broker.leader_epoch {
            return Ok(None);
        }
        if epoch == broker.leader_epoch {
            let Role::Leader(leader) = &broker.role else { return Ok(None) };
            if leader.leadership().partition_epoch >= state.partition_epoch {
                return Ok(None);
            }
            let assigned = leadership(state);
            self.lead(node, search, |leader, moment| leader.assigned(assigned, moment))?;
            return Ok(Some(self));
        }
        broker.leader_epoch = epoch;
        broker.flight = None;
        if state.leader == node_id(node) {
            broker.log.begun = Some(epoch);
            let settings = ReplicationSettings {
                lag_time_max_ms: -1,
                min_insync_replicas: match search.variant {
                    Variant::WatermarkBelowMinimum => 1,
                    _ => search.policy.min_insync_replicas,
                },
            };
            let high_watermark = offset_of(broker.log.high_watermark);
            let moment = self.moment(node);
            let (leader, _) = LeaderReplica::new(
                node_id(node),
                leadership(state),
                settings,
                high_watermark,
                moment,
            );
            self.brokers[node].role = Role::Leader(Box::new(leader));
            if epoch == self.state.leader_epoch {
                self.check_new_leader(node)?;
            }
            self.lead(node, search, LeaderReplica::log_end_moved)?;
        } else if let Ok(leader) = usize::try_from(state.leader) {
            if search.variant == Variant::TruncatesByWatermark {
                let to = broker.log.high_watermark;
                broker.log.truncate(to);
            }
            let by_fetch = search.variant != Variant::FetchNamesNoEpoch;
            broker.role = Role::Follower(FollowerReplica::new(Epoch(epoch), by_fetch), leader);
        } else {
            broker.role = Role::None;
        }
        Ok(Some(self))
    }

    /// Runs a step of a leader, and carries out its effects.
    pub fn lead(
        &mut self,
        node: usize,
        search: &Search,
        run: impl FnOnce(&mut LeaderReplica, Moment) -> LeaderEffects,
    ) -> Result<(), String> {
        let moment = self.moment(node);
        let Role::Leader(leader) = &mut self.brokers[node].role else { return Ok(()) };
        let effects = run(leader, moment);
        let mut high_watermark = leader.high_watermark();
        if let Some(proposed) = effects.propose {
            let applied = Leadership {
                isr: proposed.isr.clone(),
                partition_epoch: proposed.partition_epoch + 1,
                ..leader.leadership().clone()
            };
            match search.variant {
                Variant::AppliesUnconfirmed => {
                    leader.assigned(applied, moment);
                    high_watermark = leader.high_watermark();
                }
                Variant::WatermarkOverShrunkSet => {
                    let mut shrunk = leader.clone();
                    shrunk.assigned(applied, moment);
                    high_watermark = shrunk.high_watermark();
                }
                _ => {}
            }
            let broker_epoch = self.brokers[node].broker_epoch;
            self.proposals.push(Proposal { from: node, broker_epoch, proposed, outcome: None });
        }
        let log = &mut self.brokers[node].log;
        let reached = usize::try_from(high_watermark.0).unwrap().min(log.records.len());
        log.high_watermark = log.high_watermark.max(reached);
        self.note_committed(node)
    }

    /// The question that a follower asks now.
    pub fn question(&self, node: usize) -> Option<Flight> {
        let broker = &self.brokers[node];
        let Role::Follower(follower, to) = &broker.role else { return None };
        let request = follower.request(&broker.log)?;
        Some(Flight::Ask { to: *to, broker_epoch: broker.broker_epoch, request })
    }

    /// A leader gets a question; `None` in place of the answer: it cannot answer.
    pub fn asked(
        &mut self,
        (from, to): (usize, usize),
        (broker_epoch, request): (i64, FollowerRequest),
        search: &Search,
    ) -> Result<Option<(LeaderAnswer, Vec<Record>)>, String> {
        let Role::Leader(leader) = &self.brokers[to].role else { return Ok(None) };
        let epoch = leader.leadership().leader_epoch;
        let names_epoch = search.variant != Variant::FetchNamesNoEpoch
            || !matches!(request, FollowerRequest::Fetch { .. });
        if names_epoch && serving::check_epoch(serving::epoch_of(&request), epoch).is_err() {
            return Ok(None);
        }
        let request = match (search.variant, request) {
            (
                Variant::TruncatesByWatermark | Variant::FetchNamesNoEpoch,
                FollowerRequest::Fetch { fetch_offset, log_start, current_leader_epoch, .. },
            ) => FollowerRequest::Fetch {
                fetch_offset,
                log_start,
                current_leader_epoch,
                last_fetched_epoch: Epoch::NONE,
            },
            (_, request) => request,
        };
        let fetch_offset = match serving::check(&self.brokers[to].log, &request) {
            Ok(Checked::Answer(answer)) => return Ok(Some((answer, Vec::new()))),
            Ok(Checked::Read { from, .. }) => from,
            Err(error) => return Ok(Some((LeaderAnswer::Refused(error), Vec::new()))),
        };
        let is_anonymous = search.variant == Variant::StaleIncarnationJoins;
        let fetch = FollowerFetch {
            replica: node_id(from),
            broker_epoch: if is_anonymous { -1 } else { broker_epoch },
            fetch_offset,
            log_start: Offset(0),
        };
        let mut is_refused = false;
        self.lead(to, search, |leader, moment| {
            leader.follower_fetched(&fetch, moment).unwrap_or_else(|_| {
                is_refused = true;
                LeaderEffects::default()
            })
        })?;
        if is_refused {
            return Ok(None);
        }
        let log = &self.brokers[to].log;
        let first = usize::try_from(fetch_offset.0).unwrap();
        let records = log.records.iter().skip(first).take(FETCHED).copied().collect();
        let high_watermark = offset_of(log.high_watermark);
        Ok(Some((LeaderAnswer::Fetched { high_watermark, log_start: Offset(0) }, records)))
    }

    /// A follower gets an answer.
    pub fn answered(
        &mut self,
        node: usize,
        (from, request): (usize, FollowerRequest),
        (answer, records): (LeaderAnswer, &[Record]),
    ) -> Result<(), String> {
        let broker = &mut self.brokers[node];
        let Role::Follower(follower, leader) = &mut broker.role else { return Ok(()) };
        if *leader != from {
            return Ok(());
        }
        match follower.answered(&broker.log, request, answer) {
            FollowerEffect::None | FollowerEffect::RetryLater | FollowerEffect::Stop => {}
            FollowerEffect::Append { high_watermark, .. } => {
                let log = &mut broker.log;
                log.begun = None;
                log.records.extend_from_slice(records);
                let reached = usize::try_from(high_watermark.0).unwrap().min(log.records.len());
                log.high_watermark = log.high_watermark.max(reached);
                if log.records.windows(2).any(|pair| pair[1].0 < pair[0].0) {
                    return Err(format!("R4: {node}: {:?}", log.records));
                }
            }
            FollowerEffect::TruncateTo(offset)
            | FollowerEffect::TruncateFullyAndStartAt(offset) => {
                let to = usize::try_from(offset.0).unwrap();
                if to < broker.log.high_watermark {
                    return Err(format!("R6: {node} truncates to {to}: {:?}", broker.log));
                }
                broker.log.truncate(to);
            }
        }
        self.note_committed(node)
    }

    /// Whether a member of the in-sync set lives under the registration that it names.
    pub fn is_live(&self, member: &IsrMember) -> bool {
        let live = self.list.find(member.replica);
        live.is_some_and(|it| it.broker_epoch == member.broker_epoch)
    }
}
