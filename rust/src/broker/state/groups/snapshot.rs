//! A group and its members as the policy publishes them.
//!
//! Not promised: that the values are consistent. The policy makes sure of that.

/// A group as the policy publishes it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSnapshot {
    /// Which protocol it follows.
    pub kind: GroupKind,
    /// The state of the group.
    pub state: GroupState,
    /// Its generation; of a consumer group its epoch.
    pub generation: i32,
    /// `consumer`, or another; empty where no member ever joined.
    pub protocol_type: String,
    /// When it entered the state, wall clock.
    pub since_ms: i64,
    /// The topics that any member subscribes to; `None`: unknown.
    pub subscribed: Option<Vec<String>>,
    /// Its members, including those whose JoinGroup is delayed.
    pub members: Vec<MemberSnapshot>,
}

/// A member as the policy publishes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberSnapshot {
    /// Its name.
    pub member_id: String,
    /// The instance id of a static member.
    pub instance_id: Option<String>,
    /// Its session timeout.
    pub session_timeout_ms: i64,
    /// Whether its session is timed. It is not timed while its JoinGroup is delayed.
    pub timed: bool,
    /// The connection it joined through.
    pub connection: Option<u64>,
    /// Its role in the protocol.
    pub role: MemberRole,
}

/// The protocol of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupKind {
    /// Members join a generation together.
    #[default]
    Classic,
    /// Each member has an epoch (KIP-848).
    Consumer {
        /// The heartbeat interval.
        heartbeat_interval_ms: i32,
    },
}

/// A member's protocol, and its state as it was last sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberRole {
    /// A member of a classic group.
    #[default]
    Classic,
    /// A member of a consumer group.
    Consumer {
        /// Its epoch.
        epoch: i32,
        /// Whether it knows its assignment: a heartbeat has nothing to tell it.
        has_current_assignment: bool,
    },
    /// A member of a consumer group that uses the classic protocol.
    ClassicMember {
        /// Its generation, which is its epoch.
        generation: i32,
        /// Whether it has to join again.
        rejoin: bool,
    },
}

/// The states of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// No members.
    Empty,
    /// Consumer groups: the target assignment is being computed.
    Assigning,
    /// Consumer groups: members are moving to the target assignment.
    Reconciling,
    /// Members are joining.
    PreparingRebalance,
    /// Classic groups: the leader is computing the assignment.
    CompletingRebalance,
    /// All members have their assignments.
    Stable,
    /// It is being deleted.
    Dead,
}

impl GroupState {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Empty,
        Self::Assigning,
        Self::Reconciling,
        Self::PreparingRebalance,
        Self::CompletingRebalance,
        Self::Stable,
        Self::Dead,
    ];

    /// Kafka's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }

    /// The state with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}
