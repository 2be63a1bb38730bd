//! Whatever fails, in any order: no acknowledged record is lost, and the replicas come to agree.
//!
//! `KRUST_REPLICA_SEEDS`: how many seeds, `KRUST_REPLICA_SEED`: the first one. A failure names its
//! seed; `KRUST_REPLICA_TRACE=1` prints the events of a run.

use crate::simulation::{Report, run};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn whatever_fails_no_acknowledged_record_is_lost() {
    let first = setting("KRUST_REPLICA_SEED", 0);
    let seeds = first..first + setting("KRUST_REPLICA_SEEDS", 2_000);
    let mut total = Report::default();
    for seed in seeds.clone() {
        total.add(&run(seed).unwrap_or_else(|what| panic!("{what}")));
    }
    println!("seeds {seeds:?}: {total:?}");
    assert!(total.acknowledged > 0 && total.elections > 0);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        assert_eq!(run(seed).map(|it| it.trace), run(seed).map(|it| it.trace), "seed {seed}");
    }
}
