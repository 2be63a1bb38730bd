//! The leader's side of a partition: runs [`LeaderReplica`] and carries out its effects, which are
//! the high watermark of the log, requests that may go on, and proposals for the controller.
//!
//! A sole replica has no [`LeaderReplica`] and takes no lock: each append raises its high
//! watermark.
//! Threads: any; a step holds the lock of the replica. Nothing is woken under it.

use std::sync::atomic::Ordering;

use super::{Partition, Replica, ReplicaRole, WatchScope};
use crate::broker::replica::leader::{
    CommitState, FollowerFetch, IsrMember, LeaderEffects, LeaderReplica, Leadership, Moment,
    ProposalOutcome, ProposedIsr, ReplicationSettings,
};
use crate::broker::state::replication::IsrProposal;
use crate::broker::state::waking::Wakes;
use crate::ids::{Epoch, Offset};
use crate::protocol::ErrorCode;

/// What the controller and the settings say to a leader.
#[derive(Clone, Debug)]
pub(crate) struct LeaderAssignment<'a> {
    /// This broker's node id.
    pub(crate) node: i32,
    pub(crate) leadership: Leadership,
    pub(crate) settings: ReplicationSettings,
    /// The brokers that are alive.
    pub(crate) alive: &'a [i32],
}

/// The controller's answer to a proposal.
#[derive(Clone, Debug)]
pub(crate) enum ProposalAnswer {
    Committed(AlteredIsr),
    Refused(ErrorCode),
    /// Nobody knows whether it took effect.
    Unknown,
}

/// The in-sync set after a change, as AlterPartition answers it.
#[derive(Clone, Debug)]
pub(crate) struct AlteredIsr {
    pub(crate) leader_epoch: Epoch,
    pub(crate) partition_epoch: i32,
    pub(crate) isr: Vec<i32>,
}

/// What a step of the leader changed, beside proposals.
#[derive(Clone, Copy, Debug, Default)]
struct StepResult {
    is_high_watermark_raised: bool,
    is_low_watermark_moved: bool,
    /// Records that wait for acks=all cannot be committed any more, for a new reason.
    commits_end: bool,
    has_proposed: bool,
}

impl Partition {
    /// Makes this broker the leader in a leader epoch, or tells the leader of this epoch what
    /// changed. An older epoch is ignored.
    pub(crate) fn lead(&self, assignment: LeaderAssignment<'_>, wakes: &mut Wakes<'_>) {
        let LeaderAssignment { node, leadership, settings, alive } = assignment;
        let epoch = leadership.leader_epoch;
        let is_sole = leadership.replicas == [node];
        let mut replica = self.replica.lock();
        if let Replica::Leader(leader) = &*replica
            && leader.leadership().leader_epoch > epoch
        {
            return;
        }
        if is_sole {
            if epoch > Epoch::NONE {
                self.log.set_leader_epoch(epoch);
            }
            *replica = Replica::Sole;
            self.set_commit_state(CommitState::Possible);
            self.role.store(ReplicaRole::SoleLeader as u8, Ordering::SeqCst);
            drop(replica);
            return self.advance(wakes);
        }
        // The role is stored before the log end. A thread that still saw a sole replica has read
        // a log end that the new leader's epoch start covers.
        self.role.store(ReplicaRole::Leader as u8, Ordering::SeqCst);
        let is_same = matches!(&*replica, Replica::Leader(leader)
            if leader.leadership().leader_epoch == epoch);
        if !is_same {
            self.log.begin_leader_epoch(epoch);
            let (high_watermark, moment) = (self.log.high_watermark(), self.moment());
            let (leader, _) =
                LeaderReplica::new(node, leadership.clone(), settings, high_watermark, moment);
            *replica = Replica::Leader(Box::new(leader));
        }
        drop(replica);
        let assigned = |leader: &mut LeaderReplica, moment| {
            let first = leader.assigned(leadership, moment);
            let second = leader.reconfigure(settings, moment);
            let last = leader.brokers_changed(alive, moment);
            Ok(LeaderEffects {
                high_watermark: last.high_watermark.or(second.high_watermark),
                propose: first.propose.or(second.propose).or(last.propose),
            })
        };
        let _ = self.step(wakes, assigned);
    }

    /// Whether this replica is throttled as a leader.
    pub(crate) fn is_leader_throttled(&self) -> bool {
        self.is_leader_throttled.load(Ordering::Relaxed)
    }

    /// Whether this broker leads and the replica on broker `replica` is in sync.
    pub(crate) fn has_in_sync(&self, replica: i32) -> bool {
        match &*self.replica.lock() {
            Replica::Leader(leader) => {
                leader.leadership().isr.iter().any(|member| member.replica == replica)
            }
            _ => false,
        }
    }

    /// Has `choose` pick a follower for a consumer, if this broker leads and has followers.
    /// `choose` is called under the lock of the replica.
    pub(crate) fn choose_follower(
        &self,
        choose: impl FnOnce(&LeaderReplica) -> Option<i32>,
    ) -> Option<i32> {
        if self.role() != ReplicaRole::Leader {
            return None;
        }
        match &*self.replica.lock() {
            Replica::Leader(leader) => choose(leader),
            _ => None,
        }
    }

    /// A follower fetched, in the leader epoch that the caller's image has. Errors: it has no
    /// replica or an earlier registration, or this broker does not lead in this epoch.
    pub(crate) fn follower_fetched(
        &self,
        leader_epoch: Epoch,
        fetch: &FollowerFetch,
        wakes: &mut Wakes<'_>,
    ) -> Result<(), ErrorCode> {
        self.step(wakes, |leader, moment| {
            if leader.leadership().leader_epoch != leader_epoch {
                return Err(ErrorCode::NotLeaderOrFollower);
            }
            leader.follower_fetched(fetch, moment)
        })
    }

    /// Time passed: see [`LeaderReplica::tick`].
    pub(crate) fn tick(&self, wakes: &mut Wakes<'_>) {
        if self.role() == ReplicaRole::Leader {
            let _ = self.step(wakes, |leader, moment| Ok(leader.tick(moment)));
        }
    }

    /// These brokers are alive.
    pub(crate) fn brokers_changed(&self, alive: &[i32], wakes: &mut Wakes<'_>) {
        if self.role() == ReplicaRole::Leader {
            let _ = self.step(wakes, |leader, moment| Ok(leader.brokers_changed(alive, moment)));
        }
    }

    /// The controller answered a proposal, or its answer was lost.
    pub(crate) fn proposal_ended(
        &self,
        proposed: &ProposedIsr,
        answer: ProposalAnswer,
        wakes: &mut Wakes<'_>,
    ) {
        let _ = self.step(wakes, |leader, moment| {
            let outcome = match answer {
                ProposalAnswer::Committed(altered) => {
                    let replicas = leader.leadership().replicas.clone();
                    ProposalOutcome::Committed(altered.leadership(proposed, replicas))
                }
                ProposalAnswer::Refused(error) => ProposalOutcome::Refused(error),
                ProposalAnswer::Unknown => ProposalOutcome::Unknown,
            };
            Ok(leader.proposal_ended(proposed, outcome, moment))
        });
    }

    /// Whether an acks=all append may begin, and one that waits may go on waiting.
    pub(crate) fn commit_state(&self) -> CommitState {
        match self.commit_state.load(Ordering::Acquire) {
            state if state == CommitState::TooFewInSync as u8 => CommitState::TooFewInSync,
            state if state == CommitState::CutOff as u8 => CommitState::CutOff,
            _ => CommitState::Possible,
        }
    }

    /// Whether records can be committed, as far as this broker knows.
    pub(crate) fn can_commit(&self) -> bool {
        self.commit_state() == CommitState::Possible
    }

    /// Keeps the state. True: it is another one, in which nothing is committed.
    pub(super) fn set_commit_state(&self, state: CommitState) -> bool {
        let before = self.commit_state.swap(state as u8, Ordering::AcqRel);
        before != state as u8 && state != CommitState::Possible
    }

    /// Whether the high watermark covers all that earlier leaders may have shown to consumers.
    pub(crate) fn knows_high_watermark(&self) -> bool {
        match &*self.replica.lock() {
            Replica::Leader(leader) => leader.knows_high_watermark(),
            _ => true,
        }
    }

    /// The lowest log start offset of the live replicas.
    pub(crate) fn low_watermark(&self) -> Offset {
        let log_start = self.log.log_start_offset();
        match &*self.replica.lock() {
            Replica::Leader(leader) => leader.low_watermark(log_start),
            _ => log_start,
        }
    }

    /// The log end moved, or what is flushed. True if the high watermark rose.
    pub(super) fn log_end_moved(&self, wakes: &mut Wakes<'_>) -> bool {
        let result = self.change_leader(|leader, moment| Ok(leader.log_end_moved(moment)));
        result.is_ok_and(|result| self.propose(result, wakes).is_high_watermark_raised)
    }

    /// Runs a step, carries out its effects, and wakes the requests that may go on.
    fn step(
        &self,
        wakes: &mut Wakes<'_>,
        run: impl FnOnce(&mut LeaderReplica, Moment) -> Result<LeaderEffects, ErrorCode>,
    ) -> Result<(), ErrorCode> {
        let result = self.propose(self.change_leader(run)?, wakes);
        if result.is_high_watermark_raised {
            self.wake(wakes, WatchScope::All);
        } else if result.is_low_watermark_moved {
            self.mark_watchers(wakes, WatchScope::All);
        }
        if result.commits_end {
            self.wake_uncommitted(wakes);
        }
        Ok(())
    }

    /// Runs a step and carries out its effects under the lock.
    fn change_leader(
        &self,
        run: impl FnOnce(&mut LeaderReplica, Moment) -> Result<LeaderEffects, ErrorCode>,
    ) -> Result<StepResult, ErrorCode> {
        let mut replica = self.replica.lock();
        let Replica::Leader(leader) = &mut *replica else {
            return Err(ErrorCode::NotLeaderOrFollower);
        };
        let (before, log_start) = (self.log.high_watermark(), self.log.log_start_offset());
        let low_watermark = leader.low_watermark(log_start);
        let moment = self.moment();
        let effects = run(leader, moment)?;
        // The leader may be ahead of the log, which waits for the disk where it must.
        let after = self.log.raise_high_watermark(leader.high_watermark());
        let result = StepResult {
            is_high_watermark_raised: after > before,
            is_low_watermark_moved: leader.low_watermark(log_start) != low_watermark,
            commits_end: self.set_commit_state(leader.commit_state(moment)),
            has_proposed: effects.propose.is_some(),
        };
        if let Some(proposed) = effects.propose {
            let (partition, topic_id) = (self.name.clone(), self.topic_id);
            self.replication.proposals.add(IsrProposal { partition, topic_id, proposed });
        }
        Ok(result)
    }

    fn propose(&self, result: StepResult, wakes: &Wakes<'_>) -> StepResult {
        if result.has_proposed {
            wakes.waker.isr_proposed();
        }
        result
    }

    fn moment(&self) -> Moment {
        let now_ms = self.replication.clock.monotonic_ms();
        Moment { log_end: self.log.log_end_offset(), now_ms }
    }
}

impl AlteredIsr {
    /// The state after the change. Members that were proposed keep the registration that they were
    /// proposed with.
    fn leadership(self, proposed: &ProposedIsr, replicas: Vec<i32>) -> Leadership {
        let member = |replica: i32| {
            let known = proposed.isr.iter().find(|member| member.replica == replica).copied();
            known.unwrap_or(IsrMember { replica, broker_epoch: -1 })
        };
        let Self { leader_epoch, partition_epoch, isr } = self;
        let isr = isr.into_iter().map(member).collect();
        Leadership { leader_epoch, partition_epoch, isr, replicas }
    }
}
