//! The CPU time of the server, read from outside: `/proc/PID/task/*/schedstat` counts nanoseconds,
//! `/proc/PID/stat` hundredths of a second, which is too coarse for a round of a tenth of one.

use std::fs;

/// The processes whose CPU is counted; none: nothing is.
pub struct Usage {
    pids: Vec<u32>,
}

impl Usage {
    pub fn of(pids: Vec<u32>) -> Self {
        Self { pids }
    }

    /// CPU seconds of all processes so far.
    pub fn cpu_s(&self) -> Option<f64> {
        (!self.pids.is_empty()).then(|| self.pids.iter().map(|pid| cpu_s(*pid)).sum())
    }

    /// Resident memory of all processes, in bytes.
    pub fn resident(&self) -> Option<u64> {
        (!self.pids.is_empty()).then(|| self.pids.iter().map(|pid| resident(*pid)).sum())
    }
}

fn cpu_s(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the server's --pid");
    let by_task: Option<u64> = tasks
        .flatten()
        .map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum();
    by_task.map_or_else(|| ticks(pid) / 100.0, |nanos| nanos as f64 / 1e9)
}

fn ticks(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the server's --pid");
    let fields = text.rsplit(')').next().expect("fields after the name");
    let times = fields.split_whitespace().skip(11).take(2);
    times.map(|time| time.parse::<f64>().expect("a number")).sum()
}

fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).expect("the server's --pid");
    let pages = text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
