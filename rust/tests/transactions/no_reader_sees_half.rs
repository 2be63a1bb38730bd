//! Whatever is lost, late or repeated, and whoever dies: a reader of committed records sees each
//! transaction as a whole or not at all.
//!
//! ```text
//! KRUST_TXN_SEEDS  how many seeds (2,000)
//! KRUST_TXN_SEED   the first one (0)
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::simulation::{Summary, run};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn whatever_fails_no_reader_sees_half_of_a_transaction() {
    let first = setting("KRUST_TXN_SEED", 0);
    let count = setting("KRUST_TXN_SEEDS", 2_000);
    let mut total = Summary::default();
    for seed in first..first + count {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(summary) => {
                total.committed += summary.committed;
                total.failures += summary.failures;
                total.delivered += summary.delivered;
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let what = text.unwrap_or("panic: no text");
                println!("seed {seed}: {what}");
                panic!("seed {seed}: KRUST_TXN_SEED={seed} KRUST_TXN_SEEDS=1 shows it");
            }
        }
    }
    println!("seeds {first}..{}: {total:?}", first + count);
    if total.committed == 0 {
        println!("seed {first}: T2: no transaction is ever committed");
    }
    assert!(total.committed > 0 && total.failures > 0);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
