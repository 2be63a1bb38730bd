//! All interleavings of a small cluster: the right protocol keeps what it promises in every state,
//! and protocols that are known to be wrong are refuted.
//!
//! ```text
//! KRUST_REPLICA_STATES  a search of the right protocol ends after so many states (40,000)
//! ```

use std::time::Instant;

use crate::exhaustive::search::SearchResult;
use crate::exhaustive::steps::{Bounds, Search};
use crate::exhaustive::variants::Variant;
use crate::simulation::decisions::Policy;

/// Nothing goes wrong.
const CALM: Bounds = Bounds {
    records: 2,
    leader_epochs: 2,
    writes: 4,
    kills: 0,
    power_cuts: 0,
    sessions: 0,
    late: 0,
    stops: 0,
    moves: 0,
    refusals: 0,
};

fn search(replicas: usize, variant: Variant, bounds: Bounds) -> Search {
    let policy = Policy {
        min_insync_replicas: 2,
        elects_uncleanly: false,
        new_epoch_for_isr: false,
        is_kafka: false,
    };
    Search { replicas, policy, variant, bounds }
}

/// A wrong protocol is refuted within so many states.
const MOST_TO_REFUTE: usize = 2_000_000;

fn run(search: &Search, most: usize) -> SearchResult {
    let began = Instant::now();
    let found = search.run(most, 2);
    let SearchResult { states, transitions, depth, violation, is_complete } = &found;
    println!(
        "{:?}, {} replicas, {:?}: {states} states, {transitions} transitions, depth {depth}, \
         complete {is_complete}, {:.1} s",
        search.variant,
        search.replicas,
        search.bounds,
        began.elapsed().as_secs_f64()
    );
    if let Some((what, way)) = violation {
        println!("  {what}\n  {way:?}");
    }
    found
}

fn holds(search: &Search) {
    let most = std::env::var("KRUST_REPLICA_STATES").ok().and_then(|text| text.parse().ok());
    let found = run(search, most.unwrap_or(40_000));
    assert!(found.violation.is_none(), "{:?}", found.violation);
}

fn refuted(search: &Search, names: &[&str]) {
    let violation = run(search, MOST_TO_REFUTE).violation;
    let (what, _) = violation.unwrap_or_else(|| panic!("{:?} is not refuted", search.variant));
    assert!(names.iter().any(|name| what.starts_with(name)), "{what}");
}

#[test]
fn the_right_protocol_holds_in_all_interleavings() {
    let of_two: [Bounds; 7] = [
        Bounds { leader_epochs: 2, ..CALM },
        Bounds { leader_epochs: 3, ..CALM },
        Bounds { leader_epochs: 3, kills: 1, ..CALM },
        Bounds { leader_epochs: 3, power_cuts: 1, ..CALM },
        Bounds { leader_epochs: 3, sessions: 1, ..CALM },
        Bounds { leader_epochs: 3, moves: 1, ..CALM },
        Bounds { leader_epochs: 3, moves: 1, late: 1, ..CALM },
    ];
    for bounds in of_two {
        holds(&search(2, Variant::Right, bounds));
    }
    holds(&search(3, Variant::Right, Bounds { kills: 1, ..CALM }));
}

/// A leader may go on alone. A follower returns; its addition is refused, and a copy comes late.
fn refusals(is_kafka: bool) -> Search {
    let bounds = Bounds { leader_epochs: 1, late: 1, refusals: 1, ..CALM };
    let mut search = search(2, Variant::Right, bounds);
    search.policy.min_insync_replicas = 1;
    search.policy.is_kafka = is_kafka;
    search
}

#[test]
fn a_refused_addition_that_comes_later_all_the_same_loses_nothing() {
    for is_kafka in [false, true] {
        holds(&refusals(is_kafka));
    }
}

const MOVED: Bounds = Bounds { leader_epochs: 3, kills: 1, moves: 2, sessions: 1, ..CALM };

#[test]
fn truncating_to_the_high_watermark_is_refuted() {
    refuted(&search(2, Variant::TruncatesByWatermark, MOVED), &["D1", "R"]);
}

/// A leader is elected away and back. A Fetch of its first term comes in its second one and counts,
/// and its answer is taken. Then the follower leads in the epoch between, which is over, and
/// truncates.
#[test]
fn a_fetch_that_names_no_epoch_is_refuted() {
    let bounds = Bounds { leader_epochs: 3, writes: 3, moves: 2, ..CALM };
    refuted(&search(2, Variant::FetchNamesNoEpoch, bounds), &["D1", "R"]);
    holds(&search(2, Variant::Right, bounds));
}

#[test]
fn an_in_sync_set_that_holds_before_it_is_confirmed_is_refuted() {
    let bounds = Bounds { records: 1, ..CALM };
    refuted(&search(3, Variant::AppliesUnconfirmed, bounds), &["D1", "D2", "R"]);
}

#[test]
fn a_high_watermark_over_an_unconfirmed_smaller_set_is_refuted() {
    refuted(&search(3, Variant::WatermarkOverShrunkSet, MOVED), &["D1", "R"]);
}

#[test]
fn a_stale_registration_that_joins_the_in_sync_set_is_refuted() {
    let bounds = Bounds { records: 1, power_cuts: 1, ..CALM };
    refuted(&search(2, Variant::StaleIncarnationJoins, bounds), &["D1", "R"]);
}

#[test]
fn a_clean_shutdown_marker_before_the_records_is_refuted() {
    let bounds = Bounds { leader_epochs: 3, stops: 1, power_cuts: 1, moves: 1, ..CALM };
    refuted(&search(2, Variant::MarkerFirst, bounds), &["D1", "R"]);
}

#[test]
fn a_leader_that_leads_on_after_a_restart_is_refuted() {
    let bounds = Bounds { power_cuts: 1, ..MOVED };
    refuted(&search(2, Variant::LeadsOnAfterRestart, bounds), &["D1", "R"]);
}

#[test]
fn a_high_watermark_below_min_insync_replicas_is_refuted() {
    let bounds = Bounds { power_cuts: 1, ..MOVED };
    refuted(&search(2, Variant::WatermarkBelowMinimum, bounds), &["D1", "R"]);
}
