//! Keeps a thread's reads and writes below a number of bytes a second.
//! Threads: shared by all cleaners; one short lock.
//! Not promised: an even rate. Each piece is read at full speed, and the next one waits.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The earliest time of the next piece.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    /// Notes `bytes` at `now`. Returns how long to wait before the next piece.
    pub(super) fn after(&self, bytes: u64, bytes_per_second: f64, now: Instant) -> Duration {
        let cost = bytes as f64 / bytes_per_second.max(1.0);
        let cost = Duration::try_from_secs_f64(cost).unwrap_or(Duration::from_secs(3600));
        let mut free_from = self.0.lock();
        let from = free_from.unwrap_or(now).max(now);
        let until = from + cost;
        *free_from = Some(until);
        until - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_queue_up_and_time_passes_them() {
        let throttle = Throttle::default();
        let now = Instant::now();
        assert_eq!(throttle.after(500, 1000.0, now), Duration::from_millis(500));
        assert_eq!(throttle.after(1000, 1000.0, now), Duration::from_millis(1500));
        let later = now + Duration::from_secs(9);
        assert_eq!(throttle.after(1000, 1000.0, later), Duration::from_secs(1));
        assert_eq!(throttle.after(1 << 30, f64::MAX, later), Duration::from_secs(1));
    }
}
