//! The right protocol, and protocols that are known to be wrong: what they do otherwise.

/// Which protocol a search follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    Right,
    /// A follower truncates to its high watermark, and never learns of a divergence (KIP-101).
    TruncatesByWatermark,
    /// A Fetch names neither the leader's epoch nor that of the last batch (KIP-320). Followers
    /// truncate by the ends of epochs.
    FetchNamesNoEpoch,
    /// A leader takes a proposed in-sync set for the committed one.
    AppliesUnconfirmed,
    /// The high watermark no longer waits for a follower whose removal was proposed.
    WatermarkOverShrunkSet,
    /// Whoever runs now under the id of a replica joins the in-sync set (KIP-903).
    StaleIncarnationJoins,
    /// The clean-shutdown marker is written before what it vouches for is on the disk (KIP-966).
    MarkerFirst,
    /// The controller keeps a restarted leader in its epoch.
    LeadsOnAfterRestart,
    /// The high watermark moves while fewer replicas are in sync than must be (KIP-966).
    WatermarkBelowMinimum,
}
