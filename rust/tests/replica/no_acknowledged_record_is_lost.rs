//! Whatever fails, in any order: no acknowledged record is lost, and the replicas come to agree.
//!
//! ```text
//! KRUST_REPLICA_SEEDS    how many seeds (2,000)
//! KRUST_REPLICA_SEED     the first one (0)
//! KRUST_REPLICA_REPLAYS  how many of them are run twice (20)
//! KRUST_REPLICA_THREADS  on how many threads (as many as there are cores)
//! KRUST_REPLICA_TRACE    prints the events of a run
//! ```

use std::time::{Duration, Instant};

use crate::simulation::run;
use crate::simulation::seeds::run_all;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    usize::try_from(setting("KRUST_REPLICA_THREADS", cores)).unwrap()
}

#[test]
fn whatever_fails_no_acknowledged_record_is_lost() {
    let first = setting("KRUST_REPLICA_SEED", 0);
    let count = setting("KRUST_REPLICA_SEEDS", 2_000);
    let began = Instant::now();
    let summary = run_all(first..first + count, threads(), Some(Duration::from_secs(10)));
    if let Some((seed, what)) = summary.failure {
        panic!(
            "{what}\nTo see it: KRUST_REPLICA_SEED={seed} KRUST_REPLICA_SEEDS=1 \
             KRUST_REPLICA_TRACE=1 cargo test --profile quick --workspace \
             --test replica whatever_fails -- --nocapture"
        );
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!("seeds {first}..{}: {rate:.0} a second, {:?}", first + count, summary.total);
    assert!(summary.total.acknowledged > 0 && summary.total.leader_epochs > 0);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..setting("KRUST_REPLICA_REPLAYS", 20) {
        assert_eq!(run(seed).map(|it| it.trace), run(seed).map(|it| it.trace), "seed {seed}");
    }
}
