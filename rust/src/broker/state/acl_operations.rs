//! What ACLs are about: types of resources and operations, with Kafka's numbers (KIP-11).

/// How many types of resources there are.
pub(super) const TYPES: usize = 6;

/// The types of resources, with Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum ResourceType {
    /// A topic.
    Topic = 2,
    /// A group.
    Group = 3,
    /// The cluster, whose only name is `kafka-cluster`.
    Cluster = 4,
    /// A transactional id.
    TransactionalId = 5,
    /// A delegation token.
    DelegationToken = 6,
    /// A user.
    User = 7,
}

/// What a client may do, with Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
#[expect(missing_docs, reason = "Kafka's names")]
pub enum Operation {
    All = 2,
    Read = 3,
    Write = 4,
    Create = 5,
    Delete = 6,
    Alter = 7,
    Describe = 8,
    ClusterAction = 9,
    DescribeConfigs = 10,
    AlterConfigs = 11,
    IdempotentWrite = 12,
    CreateTokens = 13,
    DescribeTokens = 14,
}

impl ResourceType {
    /// The type of this number.
    pub fn of(number: i8) -> Option<Self> {
        let all = [
            Self::Topic,
            Self::Group,
            Self::Cluster,
            Self::TransactionalId,
            Self::DelegationToken,
            Self::User,
        ];
        all.into_iter().find(|each| *each as i8 == number)
    }

    /// Its place among the types.
    pub(super) const fn index(self) -> usize {
        self as usize - Self::Topic as usize
    }
}

impl Operation {
    /// All operations.
    pub const EVERY: [Self; 13] = [
        Self::All,
        Self::Read,
        Self::Write,
        Self::Create,
        Self::Delete,
        Self::Alter,
        Self::Describe,
        Self::ClusterAction,
        Self::DescribeConfigs,
        Self::AlterConfigs,
        Self::IdempotentWrite,
        Self::CreateTokens,
        Self::DescribeTokens,
    ];

    /// The operation of this number.
    pub fn of(number: i8) -> Option<Self> {
        Self::EVERY.into_iter().find(|each| *each as i8 == number)
    }

    /// Its bit in sets of operations, also in those of replies (KIP-430).
    pub const fn bit(self) -> u16 {
        1 << self as i8
    }

    /// The operations of which one must be allowed.
    pub(super) const fn allowed_by(self) -> u16 {
        let own = self.bit() | Self::All.bit();
        own | match self {
            Self::Describe => {
                Self::Read.bit() | Self::Write.bit() | Self::Delete.bit() | Self::Alter.bit()
            }
            Self::DescribeConfigs => Self::AlterConfigs.bit(),
            _ => 0,
        }
    }

    /// The operations of which none may be denied.
    pub(super) const fn denied_by(self) -> u16 {
        self.bit() | Self::All.bit()
    }
}
