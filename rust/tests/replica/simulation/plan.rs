//! What a seed decides before its run begins: the cluster, its settings, and how often what fails.

use crate::replica::leader::ReplicationSettings;

use super::decisions::Policy;
use super::random::Random;

/// `replica.lag.time.max.ms`.
pub const LAG_MS: i64 = 60;
/// A session ends so long after ZooKeeper heard of its broker last.
pub const SESSION_MS: i64 = 40;
/// A broker looks after its partition at least so often.
pub const TICK_MS: i64 = 8;

#[derive(Clone, Debug)]
pub struct Plan {
    pub brokers: usize,
    /// How many replicas the partition has at first.
    pub replicas: usize,
    pub policy: Policy,
    /// `krust.flush.mode=ack`: what is acknowledged or reported to a leader is on the disk.
    pub flushes: bool,
    /// A broker that was killed counts as one that may have lost records, as in KIP-966.
    pub distrusts_kills: bool,
    /// Control requests name the registrations of the in-sync replicas.
    pub names_registrations: bool,
    /// So many of a hundred leaders do not know Fetch v12: their followers ask for ends of epochs.
    pub old_leaders: u64,
    /// Nothing is written after everything was repaired.
    pub ends_silently: bool,
    /// In the end a follower falls silent.
    pub ends_with_silence: bool,
    pub faults: Faults,
}

/// How often what goes wrong, in percent of messages, or of the moments at which it could.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub repeat: u64,
    /// Messages that arrive very late.
    pub late: u64,
    pub longest_delay_ms: i64,
    /// How late a watch may come.
    pub longest_watch_ms: i64,
    pub network_cut: u64,
    pub kill: u64,
    pub power_cut: u64,
    /// All machines at once.
    pub power_cut_of_all: u64,
    pub stop: u64,
    pub pause: u64,
    pub session_loss: u64,
    pub clock_jump: u64,
    pub disk_error: u64,
    pub leader_move: u64,
    pub reassignment: u64,
    pub deletion: u64,
    /// Additions to the in-sync set that a controller refuses, for a reason that passes.
    pub refusal: u64,
}

impl Plan {
    pub fn of(random: &mut Random) -> Self {
        let brokers = match random.below(20) {
            0..=11 => 3,
            12..=14 => 4,
            _ => 5,
        };
        let replicas = if random.percent(70) { 3 } else { 2 + random.index(brokers - 1) };
        let min_insync_replicas = match random.below(10) {
            0..=1 => 1,
            2..=7 => 2,
            _ => 3.min(replicas),
        };
        let policy = Policy {
            min_insync_replicas,
            elects_uncleanly: random.percent(25),
            new_epoch_for_isr: random.percent(50),
            is_kafka: random.percent(30),
        };
        Self {
            brokers,
            replicas,
            policy,
            flushes: random.percent(20),
            distrusts_kills: random.percent(20),
            names_registrations: random.percent(50),
            old_leaders: if random.percent(40) { 30 } else { 0 },
            ends_silently: random.percent(50),
            ends_with_silence: random.percent(25),
            faults: Faults::of(random),
        }
    }

    pub fn settings(&self) -> ReplicationSettings {
        let min_insync_replicas = self.policy.min_insync_replicas;
        ReplicationSettings { lag_time_max_ms: LAG_MS, min_insync_replicas }
    }

    /// Whether disks are recorded, so that they can lose what was not synced, and fail.
    pub fn records_disks(&self) -> bool {
        let Faults { power_cut, power_cut_of_all, disk_error, stop, .. } = self.faults;
        power_cut + power_cut_of_all + disk_error + stop > 0
    }
}

impl Faults {
    fn of(random: &mut Random) -> Self {
        Self {
            loss: random.sometimes(60, 30),
            repeat: random.sometimes(60, 50),
            late: random.sometimes(40, 8),
            longest_delay_ms: 1 + random.sometimes(70, 60).cast_signed(),
            longest_watch_ms: 1 + random.sometimes(60, 80).cast_signed(),
            network_cut: random.sometimes(60, 40),
            kill: random.sometimes(60, 40),
            power_cut: random.sometimes(50, 25),
            power_cut_of_all: random.sometimes(15, 5),
            stop: random.sometimes(35, 15),
            pause: random.sometimes(40, 20),
            session_loss: random.sometimes(50, 20),
            clock_jump: random.sometimes(30, 20),
            disk_error: random.sometimes(25, 15),
            leader_move: random.sometimes(50, 20),
            reassignment: random.sometimes(40, 15),
            deletion: random.sometimes(30, 15),
            refusal: random.sometimes(40, 50),
        }
    }

    /// What is left when everything is repaired: messages take a moment.
    pub fn none() -> Self {
        Self { longest_delay_ms: 2, longest_watch_ms: 2, ..Self::default() }
    }
}
