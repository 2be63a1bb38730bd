//! The leader of a partition: which replicas are in sync, how far each follower is, and up to which
//! offset records are committed (the high watermark).
//!
//! Words: the *committed* in-sync set (ISR) is the one that the controller confirmed last. The
//!     *maximal* ISR is the committed one and the replicas whose addition was proposed from the
//!     present partition epoch, even if it was refused: a copy of the proposal may be on its way,
//!     and take effect once the reason of the refusal has passed. A replica whose removal was
//!     proposed is in it until the controller confirms the removal.
//! Invariants:
//!     high_watermark <= log end of every member of the maximal ISR, as it fetched last under the
//!     registration that the ISR names;
//!     the high watermark never falls within a leader epoch;
//!     it does not rise while the committed ISR is smaller than min(`min.insync.replicas`,
//!     replicas) (KIP-966);
//!     at most one proposal is on its way; the committed ISR changes only by the controller's word,
//!     and only to a higher partition epoch.
//! A refusal is final if the outcome of each proposal from this partition epoch is known, for then
//!     no copy is on its way. Else the leader proposes the committed ISR itself, in another order.
//!     krust's controller and Kafka's write it again, in a higher partition epoch, and no copy can
//!     take effect any more. Kafka's does not if the leader is the only member: then the refused
//!     replica counts until it joins after all, another one does, or another leader is elected.
//! Source: KIP-497 (AlterPartition), KIP-903 (broker epochs), KIP-966 (watermark under min ISR).
//! Not promised: that a follower is alive. Its silence alone removes it, after the lag time.

use crate::ids::{Epoch, Offset};
use crate::protocol::ErrorCode;

/// A replica that the controller refused is proposed again after this part of the lag time: after a
/// second of 30.
const REFUSAL_PAUSES: i64 = 30;

/// A member of an in-sync set. A broker that registered again may have lost records, so it is
/// another member (KIP-903).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IsrMember {
    /// Its node id.
    pub replica: i32,
    /// Its registration; -1 if unknown: a Kafka in ZooKeeper mode does not name it.
    pub broker_epoch: i64,
}

/// What the controller decided about a partition that this broker leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leadership {
    /// The term of this leader.
    pub leader_epoch: Epoch,
    /// The version of the partition's state; it rises with each change.
    pub partition_epoch: i32,
    /// The in-sync replicas, this broker included.
    pub isr: Vec<IsrMember>,
    /// All replicas, this broker included.
    pub replicas: Vec<i32>,
}

/// The settings that replication of a partition depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicationSettings {
    /// `replica.lag.time.max.ms`: a follower that was not caught up for longer leaves the ISR.
    pub lag_time_max_ms: i64,
    /// `min.insync.replicas` of the topic.
    pub min_insync_replicas: usize,
}

/// Where the leader's log ends, and the time of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// The leader's log end offset.
    pub log_end: Offset,
    /// Monotonic milliseconds.
    pub now_ms: i64,
}

/// A follower's Fetch of this partition, after its leader epoch was checked and its log was found
/// to agree with the leader's up to `fetch_offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FollowerFetch {
    /// The follower's node id.
    pub replica: i32,
    /// The follower's registration (KIP-903); -1 before Fetch v15.
    pub broker_epoch: i64,
    /// The follower's log end offset: it has everything below.
    pub fetch_offset: Offset,
    /// The follower's log start offset.
    pub log_start: Offset,
}

/// A proposed in-sync set, for AlterPartition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProposedIsr {
    /// The proposing leader's epoch.
    pub leader_epoch: Epoch,
    /// The partition epoch that the proposal replaces.
    pub partition_epoch: i32,
    /// The members.
    pub isr: Vec<IsrMember>,
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProposalOutcome {
    /// The partition's state after the change.
    Committed(Leadership),
    /// The controller refused it.
    Refused(ErrorCode),
    /// Nobody knows whether it took effect: the connection failed or the answer did not come.
    Unknown,
}

/// An in-sync follower that consumers may read from (KIP-392), as it fetched last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadableFollower {
    /// Its node id.
    pub replica: i32,
    /// Its log end offset.
    pub log_end: Offset,
    /// When it last had everything that the leader had, in monotonic milliseconds.
    pub caught_up_ms: i64,
}

/// Whether the leader can have records committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CommitState {
    /// As far as it knows.
    Possible,
    /// The committed ISR is smaller than min(`min.insync.replicas`, replicas).
    TooFewInSync,
    /// A member of the ISR has been silent for twice the lag time, and no controller has confirmed
    /// that it leaves. Another broker may lead by now.
    CutOff,
}

/// The effects of a step. The caller carries them out in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEffects {
    /// Raise the high watermark to this offset.
    pub high_watermark: Option<Offset>,
    /// Send this proposal to the controller, and report its outcome.
    pub propose: Option<ProposedIsr>,
}

/// A follower as the leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FollowerProgress {
    replica: i32,
    is_alive: bool,
    broker_epoch: i64,
    /// [`Offset::NONE`] until it fetched in this leader epoch.
    log_end: Offset,
    log_start: Offset,
    /// The last time at which it had everything that the leader had.
    caught_up_ms: i64,
    /// The last Fetch: the leader's log end then, and the time.
    leader_end_at_fetch: Offset,
    fetched_ms: i64,
    /// The controller refused it: it is not proposed again before.
    not_before_ms: i64,
}

/// The last proposal, while it is undecided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Proposal {
    /// The last one was answered.
    None,
    /// It is on its way.
    Sent(ProposedIsr),
    /// Its outcome is unknown, or a newer state exists that this leader has not heard of. It is
    /// sent again at the next tick, which is harmless: it names the partition epoch it replaces.
    Repeat(ProposedIsr),
}

/// The leader of one partition in one leader epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaderReplica {
    node: i32,
    settings: ReplicationSettings,
    leadership: Leadership,
    followers: Vec<FollowerProgress>,
    proposal: Proposal,
    /// The replicas that were not in the committed ISR, and were proposed from this partition
    /// epoch. A proposal may take effect until the epoch rises.
    additions: Vec<i32>,
    /// A proposal was sent from this partition epoch of which nobody knows what became of it.
    has_lost_copy: bool,
    high_watermark: Offset,
    /// The log end when the epoch began. A follower joins the ISR only from here on, because below
    /// it may lack records that were committed in earlier epochs.
    epoch_start: Offset,
}

impl LeaderReplica {
    /// Begins a leader epoch on the broker `node`, whose log knows that records below
    /// `high_watermark` are committed.
    pub fn new(
        node: i32,
        leadership: Leadership,
        settings: ReplicationSettings,
        high_watermark: Offset,
        moment: Moment,
    ) -> (Self, LeaderEffects) {
        let mut leader = Self {
            node,
            settings,
            leadership,
            followers: Vec::new(),
            proposal: Proposal::None,
            additions: Vec::new(),
            has_lost_copy: false,
            high_watermark,
            epoch_start: moment.log_end,
        };
        leader.match_followers(moment.now_ms);
        let effects = leader.raise_high_watermark(moment);
        (leader, effects)
    }

    /// What the controller confirmed last.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// The offset below which every in-sync replica has every record.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Whether the high watermark covers all that earlier leaders may have shown to consumers.
    /// Until then ListOffsets answers OFFSET_NOT_AVAILABLE.
    pub fn knows_high_watermark(&self) -> bool {
        self.high_watermark >= self.epoch_start
    }

    /// Whether an acks=all append may begin: the committed ISR has min(`min.insync.replicas`,
    /// replicas) members.
    pub fn has_enough_in_sync(&self) -> bool {
        let wanted = self.settings.min_insync_replicas.min(self.leadership.replicas.len());
        self.leadership.isr.len() >= wanted
    }

    /// Whether records can be committed now.
    pub fn commit_state(&self, moment: Moment) -> CommitState {
        let limit_ms = self.settings.lag_time_max_ms.saturating_mul(2);
        let is_silent = |follower: &FollowerProgress| {
            self.member(follower.replica).is_some() && !follower.is_caught_up(moment, limit_ms)
        };
        if !self.has_enough_in_sync() {
            CommitState::TooFewInSync
        } else if self.followers.iter().any(is_silent) {
            CommitState::CutOff
        } else {
            CommitState::Possible
        }
    }

    /// The members of the maximal ISR.
    pub fn maximal_isr(&self) -> Vec<i32> {
        let all = self.leadership.replicas.iter().copied();
        all.filter(|replica| self.is_in_maximal_isr(*replica)).collect()
    }

    /// The followers of the committed ISR whose logs have the offset, or end there. A follower out
    /// of sync may stay behind, and a consumer would with it.
    pub fn followers_with(&self, offset: Offset) -> impl Iterator<Item = ReadableFollower> {
        let has_offset = move |follower: &&FollowerProgress| {
            follower.log_start <= offset
                && offset <= follower.log_end
                && self.member(follower.replica).is_some()
                && !self.is_registered_again(follower)
        };
        self.followers.iter().filter(has_offset).map(|follower| ReadableFollower {
            replica: follower.replica,
            log_end: follower.log_end,
            caught_up_ms: follower.caught_up_ms,
        })
    }

    /// The lowest log start offset of the live replicas; the leader's own is `log_start`. Records
    /// below are deleted on all of them.
    pub fn low_watermark(&self, log_start: Offset) -> Offset {
        let alive = self.followers.iter().filter(|follower| follower.is_alive);
        alive.map(|follower| follower.log_start).fold(log_start, Offset::min)
    }

    /// Other settings hold from now on.
    pub fn reconfigure(&mut self, settings: ReplicationSettings, moment: Moment) -> LeaderEffects {
        self.settings = settings;
        self.raise_high_watermark(moment)
    }

    /// The leader appended.
    pub fn log_end_moved(&mut self, moment: Moment) -> LeaderEffects {
        self.raise_high_watermark(moment)
    }

    /// These brokers are alive. The high watermark does not wait for others outside the ISR.
    pub fn brokers_changed(&mut self, alive: &[i32], moment: Moment) -> LeaderEffects {
        for follower in &mut self.followers {
            follower.is_alive = alive.contains(&follower.replica);
        }
        self.raise_high_watermark(moment)
    }

    /// A follower fetched. Errors: NOT_LEADER_OR_FOLLOWER for a broker that has no replica and for
    /// an earlier registration of one that has.
    pub fn follower_fetched(
        &mut self,
        fetch: &FollowerFetch,
        moment: Moment,
    ) -> Result<LeaderEffects, ErrorCode> {
        let known = self.followers.iter_mut().find(|follower| follower.replica == fetch.replica);
        let follower = known.ok_or(ErrorCode::NotLeaderOrFollower)?;
        if fetch.broker_epoch >= 0 && fetch.broker_epoch < follower.broker_epoch {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        follower.note(fetch, moment);
        let follower = *follower;
        self.name_registration(fetch);
        let mut effects = self.raise_high_watermark(moment);
        if self.may_join(&follower, moment) {
            let joins = IsrMember { replica: fetch.replica, broker_epoch: follower.broker_epoch };
            let isr = self.leadership.isr.iter().copied().chain([joins]).collect();
            effects.propose = Some(self.propose(isr));
        }
        Ok(effects)
    }

    /// Time passed: a follower that was not caught up for the lag time leaves the ISR, a proposal
    /// whose outcome is unknown is sent again, and the committed ISR is proposed where a copy of a
    /// refused proposal may be on its way.
    pub fn tick(&mut self, moment: Moment) -> LeaderEffects {
        let mut effects = self.raise_high_watermark(moment);
        match &self.proposal {
            Proposal::Sent(_) => {}
            Proposal::Repeat(proposed) => {
                effects.propose = Some(proposed.clone());
                self.proposal = Proposal::Sent(proposed.clone());
            }
            Proposal::None => {
                let stays = |member: &IsrMember| !self.must_leave(member.replica, moment);
                let mut isr: Vec<_> = self.leadership.isr.iter().copied().filter(stays).collect();
                let is_smaller = isr.len() < self.leadership.isr.len();
                if !is_smaller {
                    isr.reverse();
                }
                if is_smaller || !self.additions.is_empty() {
                    effects.propose = Some(self.propose(isr));
                }
            }
        }
        effects
    }

    /// The controller answered the proposal that is on its way, or its answer was lost.
    pub fn proposal_ended(
        &mut self,
        proposed: &ProposedIsr,
        outcome: ProposalOutcome,
        moment: Moment,
    ) -> LeaderEffects {
        if !matches!(&self.proposal, Proposal::Sent(sent) if sent == proposed) {
            return LeaderEffects::default();
        }
        match outcome {
            ProposalOutcome::Committed(leadership) => {
                let is_unchanged = leadership.leader_epoch == self.leadership.leader_epoch
                    && leadership.partition_epoch == self.leadership.partition_epoch;
                self.proposal =
                    if is_unchanged { Proposal::None } else { Proposal::Repeat(proposed.clone()) };
                return self.assigned(leadership, moment);
            }
            // A member cannot join now. Before AlterPartition v2 the same refusal is
            // OPERATION_NOT_ATTEMPTED.
            ProposalOutcome::Refused(
                ErrorCode::IneligibleReplica | ErrorCode::OperationNotAttempted,
            ) => self.refused(moment),
            ProposalOutcome::Refused(_) | ProposalOutcome::Unknown => {
                self.has_lost_copy = true;
                self.proposal = Proposal::Repeat(proposed.clone());
            }
        }
        self.raise_high_watermark(moment)
    }

    /// The replicas that were proposed may not join now.
    fn refused(&mut self, moment: Moment) {
        self.proposal = Proposal::None;
        let pause_ms = self.settings.lag_time_max_ms / REFUSAL_PAUSES;
        for follower in &mut self.followers {
            if self.additions.contains(&follower.replica) {
                follower.not_before_ms = moment.now_ms.saturating_add(pause_ms);
            }
        }
        if !self.has_lost_copy {
            self.additions.clear();
        }
    }

    /// The controller's word on this partition, by LeaderAndIsr or as the answer to a proposal. It
    /// changes nothing unless it is of this leader epoch and of a higher partition epoch; then no
    /// proposal that was sent before can take effect.
    pub fn assigned(&mut self, leadership: Leadership, moment: Moment) -> LeaderEffects {
        if leadership.leader_epoch != self.leadership.leader_epoch
            || leadership.partition_epoch <= self.leadership.partition_epoch
        {
            return LeaderEffects::default();
        }
        self.proposal = Proposal::None;
        self.additions.clear();
        self.has_lost_copy = false;
        self.leadership = leadership;
        self.match_followers(moment.now_ms);
        self.raise_high_watermark(moment)
    }

    /// Makes the list of followers that of the replicas, and keeps what is known of each.
    fn match_followers(&mut self, now_ms: i64) {
        let known = std::mem::take(&mut self.followers);
        let others = self.leadership.replicas.iter().filter(|replica| **replica != self.node);
        self.followers = others
            .map(|replica| {
                let known = known.iter().find(|follower| follower.replica == *replica);
                let is_in_sync = self.member(*replica).is_some();
                known
                    .copied()
                    .unwrap_or_else(|| FollowerProgress::new(*replica, is_in_sync, now_ms))
            })
            .collect();
    }

    /// The replica's membership in the committed ISR.
    fn member(&self, replica: i32) -> Option<&IsrMember> {
        self.leadership.isr.iter().find(|member| member.replica == replica)
    }

    fn is_in_maximal_isr(&self, replica: i32) -> bool {
        self.additions.contains(&replica) || self.member(replica).is_some()
    }

    /// Whether the follower may be proposed for the ISR: it has all that is committed, and all that
    /// the log held when this epoch began.
    fn may_join(&self, follower: &FollowerProgress, moment: Moment) -> bool {
        self.proposal == Proposal::None
            && moment.now_ms >= follower.not_before_ms
            && follower.is_alive
            && self.member(follower.replica).is_none()
            && follower.log_end >= self.high_watermark
            && follower.log_end >= self.epoch_start
    }

    /// Whether a member has to leave the ISR: it lags, or its broker registered again since it
    /// joined. A Kafka in ZooKeeper mode commits a proposal that names an earlier registration.
    fn must_leave(&self, replica: i32, moment: Moment) -> bool {
        let follower = self.followers.iter().find(|follower| follower.replica == replica);
        follower.is_some_and(|it| {
            self.is_registered_again(it) || !it.is_caught_up(moment, self.settings.lag_time_max_ms)
        })
    }

    fn propose(&mut self, isr: Vec<IsrMember>) -> ProposedIsr {
        let Leadership { leader_epoch, partition_epoch, .. } = self.leadership;
        for IsrMember { replica, .. } in &isr {
            if !self.is_in_maximal_isr(*replica) {
                self.additions.push(*replica);
            }
        }
        let proposed = ProposedIsr { leader_epoch, partition_epoch, isr };
        self.proposal = Proposal::Sent(proposed.clone());
        proposed
    }

    /// The high watermark is the lowest log end of the maximal ISR and of the live followers that
    /// are caught up: without those, it could run ahead of them for ever, and they could not join.
    fn raise_high_watermark(&mut self, moment: Moment) -> LeaderEffects {
        let mut effects = LeaderEffects::default();
        if !self.has_enough_in_sync() {
            return effects;
        }
        let lag = self.settings.lag_time_max_ms;
        let waits_for = |follower: &&FollowerProgress| {
            self.is_in_maximal_isr(follower.replica)
                || (follower.is_alive && follower.is_caught_up(moment, lag))
        };
        let ends = self.followers.iter().filter(waits_for).map(|it| self.in_sync_end(it));
        let lowest = ends.fold(moment.log_end, Offset::min);
        if lowest > self.high_watermark {
            self.high_watermark = lowest;
            effects.high_watermark = Some(lowest);
        }
        effects
    }

    /// The log end that counts for the high watermark. The progress of a broker that registered
    /// again does not make the membership of its earlier registration good.
    fn in_sync_end(&self, follower: &FollowerProgress) -> Offset {
        if self.is_registered_again(follower) { Offset::NONE } else { follower.log_end }
    }

    /// A member that the controller chose gets its first Fetch's registration: the tree has none.
    fn name_registration(&mut self, fetch: &FollowerFetch) {
        let mut isr = self.leadership.isr.iter_mut();
        let member = isr.find(|member| member.replica == fetch.replica);
        if let Some(unnamed) = member.filter(|member| member.broker_epoch < 0) {
            unnamed.broker_epoch = fetch.broker_epoch;
        }
    }

    /// Whether the broker fetches under another registration than the ISR names.
    fn is_registered_again(&self, follower: &FollowerProgress) -> bool {
        let named = self.member(follower.replica).map_or(-1, |member| member.broker_epoch);
        named >= 0 && follower.broker_epoch >= 0 && named != follower.broker_epoch
    }
}

impl FollowerProgress {
    /// A follower that has not fetched yet. A member of the ISR has the lag time to do so.
    fn new(replica: i32, is_in_sync: bool, now_ms: i64) -> Self {
        Self {
            replica,
            is_alive: true,
            broker_epoch: -1,
            log_end: Offset::NONE,
            log_start: Offset::NONE,
            caught_up_ms: if is_in_sync { now_ms } else { i64::MIN },
            leader_end_at_fetch: Offset::NONE,
            fetched_ms: now_ms,
            not_before_ms: now_ms,
        }
    }

    /// A follower is caught up at a Fetch from the leader's log end. One that now has what the
    /// leader had at its last Fetch was caught up then: under steady load it is never at the end.
    fn note(&mut self, fetch: &FollowerFetch, moment: Moment) {
        if fetch.fetch_offset >= moment.log_end {
            self.caught_up_ms = moment.now_ms;
        } else if self.leader_end_at_fetch > Offset::NONE
            && fetch.fetch_offset >= self.leader_end_at_fetch
        {
            self.caught_up_ms = self.caught_up_ms.max(self.fetched_ms);
        }
        self.broker_epoch = self.broker_epoch.max(fetch.broker_epoch);
        self.log_end = fetch.fetch_offset;
        self.log_start = fetch.log_start;
        self.leader_end_at_fetch = moment.log_end;
        self.fetched_ms = moment.now_ms;
    }

    fn is_caught_up(&self, moment: Moment, lag_time_max_ms: i64) -> bool {
        self.log_end >= moment.log_end
            || moment.now_ms.saturating_sub(self.caught_up_ms) <= lag_time_max_ms
    }
}
