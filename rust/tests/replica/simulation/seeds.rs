//! Many seeds, on all cores.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::run::{Report, run};

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Summary {
    pub total: Report,
    /// The lowest seed that failed, and what went wrong in it.
    pub failure: Option<(u64, String)>,
}

impl Report {
    /// Adds the counts of another run. The order does not matter.
    pub fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.leader_epochs += other.leader_epochs;
        self.controllers += other.controllers;
        self.unclean_elections += other.unclean_elections;
        self.kills += other.kills;
        self.power_cuts += other.power_cuts;
        self.stops += other.stops;
        self.pauses += other.pauses;
        self.sessions_lost += other.sessions_lost;
        self.network_cuts += other.network_cuts;
        self.disk_failures += other.disk_failures;
        self.reassignments += other.reassignments;
        self.truncations += other.truncations;
        self.steps += other.steps;
        self.trace = self.trace.wrapping_add(other.trace);
    }
}

/// Runs one seed; a panic is a failure of the seed too.
pub fn run_caught(seed: u64) -> Result<Report, String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(format!("seed {seed}: panic: {text}"))
    })
}

/// Runs the seeds on `threads` threads. After a failure no further seed is begun.
pub fn run_all(seeds: Range<u64>, threads: usize, progress_every: Option<Duration>) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let summary = Mutex::new(Summary::default());
    let began = Instant::now();
    std::thread::scope(|scope| {
        let (seeds, next, summary) = (&seeds, &next, &summary);
        for _ in 0..threads {
            scope.spawn(|| work(seeds, next, summary));
        }
        if let Some(every) = progress_every {
            scope.spawn(move || show_progress((seeds, began, every), next, summary));
        }
    });
    summary.into_inner().unwrap()
}

fn work(seeds: &Range<u64>, next: &AtomicU64, summary: &Mutex<Summary>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds.end || summary.lock().unwrap().failure.is_some() {
            return;
        }
        let outcome = run_caught(seed);
        let mut summary = summary.lock().unwrap();
        match outcome {
            Ok(report) => summary.total.add(&report),
            Err(what) => {
                if summary.failure.as_ref().is_none_or(|known| seed < known.0) {
                    summary.failure = Some((seed, what));
                }
            }
        }
    }
}

fn show_progress(
    (seeds, began, every): (&Range<u64>, Instant, Duration),
    next: &AtomicU64,
    summary: &Mutex<Summary>,
) {
    let mut shown = began;
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let done = next.load(Ordering::Relaxed).min(seeds.end) - seeds.start;
        let is_over = done == seeds.end - seeds.start || summary.lock().unwrap().failure.is_some();
        if is_over {
            return;
        }
        if shown.elapsed() >= every {
            shown = Instant::now();
            let rate = done as f64 / began.elapsed().as_secs_f64();
            println!("{done} of {} seeds, {rate:.0} a second", seeds.end - seeds.start);
        }
    }
}
