//! Compares what a start makes of a damaged directory with what is true of it.
//!
//! Wrong: a record that is not the one written at its offset; a time that finds another record; a
//! transaction's records that are taken for committed. Silent: something is missing (records,
//! producers, epochs), and neither a line of the log nor an error names the partition.

use std::collections::BTreeMap;
use std::path::Path;

use krust::ids::Offset;
use krust::record::batch;
use krust::record::convert::each_record;
use krust::storage::{AbortedTxn, Log, LogDir, LogReadRequest};

use super::captured_lines::CapturedLines;
use super::image::{self, Content, ExpectedLog};

/// What is wrong with what a start made of the directory; empty: nothing.
pub fn check_start(
    root: &Path,
    expected_logs: &BTreeMap<&str, ExpectedLog>,
) -> (Vec<String>, Vec<String>) {
    let lines = CapturedLines::default();
    let faults = lines.collect(|| start(root, expected_logs, &lines));
    (faults, lines.all())
}

fn start(
    root: &Path,
    expected_logs: &BTreeMap<&str, ExpectedLog>,
    lines: &CapturedLines,
) -> Vec<String> {
    let dir = match LogDir::open(root, &image::dir_options()) {
        Ok(dir) => dir,
        Err(error) => {
            let reported = error.to_string();
            let has_remedy = ["write", "delete", "restore", "start"];
            let helps = has_remedy.iter().any(|word| reported.contains(word));
            return if helps { Vec::new() } else { vec![format!("no remedy in: {reported}")] };
        }
    };
    let mut faults = Vec::new();
    for (topic, truth) in expected_logs {
        let found = match image::open(&dir, topic) {
            Ok(log) => partition(&log, truth, dir.was_clean()),
            Err(error) => {
                lines.add(format!("{topic}-0: {error}"));
                Vec::new()
            }
        };
        let named = lines.all().iter().any(|line| line.contains(&format!("{topic}-0")));
        for (fault, excused) in found {
            if !(excused && named) {
                faults.push(format!("{topic}: {fault}{}", if named { " (named)" } else { "" }));
            }
        }
    }
    faults
}

/// What differs, and whether a line or an error that names the partition excuses it.
fn partition(log: &Log, truth: &ExpectedLog, clean: bool) -> Vec<(String, bool)> {
    let mut faults = Vec::new();
    let (start, end) = (log.log_start_offset().0, log.log_end_offset().0);
    if start != truth.start {
        faults.push((format!("starts at {start}, not {}", truth.start), true));
    }
    if end > truth.end {
        faults.push((format!("ends at {end}, beyond {}", truth.end), false));
    } else if end < truth.end {
        let reused = clean && log.damage().is_none();
        faults.push((format!("ends at {end}, not {}, reused: {reused}", truth.end), !reused));
    }
    let read = read_all(log, truth, &mut faults);
    if read.is_none() && log.topic_id() != Some(truth.id) {
        faults.push(("has another topic id".to_owned(), true));
    }
    let lost = read.is_some();
    if let Ok(found) = log.aborted(Offset(start), Offset(end)) {
        // What ended behind the end is open now. Where the next one begins bounds searches only.
        let states = |it: &AbortedTxn| (it.producer_id, it.first_offset, it.last_offset);
        let due = truth.aborted.iter().filter(|it| it.last_offset < end).map(states);
        if !lost && !found.iter().map(states).eq(due) {
            faults.push(("has other aborted transactions".to_owned(), false));
        }
    }
    if image::producers(log) != truth.producers {
        faults.push(("has other producers".to_owned(), true));
    }
    let is_compacted = log.config().compact; // its epochs begin where batches are left
    if log.epochs() != truth.epochs && !is_compacted {
        faults.push((format!("has epochs {:?}, not {:?}", log.epochs(), truth.epochs), true));
    }
    for (time, offset) in &truth.times {
        match log.offset_for_timestamp(*time) {
            Ok(found) if found.map(|found| found.offset.0) != *offset => {
                let found = found.map(|found| found.offset.0);
                if found.is_some_and(|found| found < truth.start) {
                    continue; // deleted records are seen again, which is named
                }
                let skips = read.is_none_or(|first| offset.is_some_and(|offset| offset < first));
                faults.push((format!("{time} finds {found:?}, not {offset:?}"), !skips));
            }
            _ => {}
        }
    }
    faults
}

/// Reads as a client does that checks checksums and goes on behind what it cannot read. The first
/// offset that is missing.
fn read_all(log: &Log, truth: &ExpectedLog, faults: &mut Vec<(String, bool)>) -> Option<i64> {
    let mut got = BTreeMap::new();
    let mut at = log.log_start_offset().0;
    let mut reported = Vec::new();
    while at < log.log_end_offset().0 {
        let read = LogReadRequest {
            offset: Offset(at),
            max_bytes: 2000,
            upper: log.log_end_offset(),
            min_one: true,
        };
        let next = match log.read(read) {
            Ok(slice) => take(&slice.to_vec().unwrap(), at, &mut got, &mut reported),
            Err(error) => {
                reported.push((at, error.to_string()));
                at
            }
        };
        at = if next > at { next } else { at + 1 };
    }
    let mut missing = Vec::new();
    for (offset, content) in &got {
        if truth.records.get(offset).is_none_or(|known| known != content) {
            let resurrected = *offset < truth.start;
            faults.push((format!("WRONG record at {offset}"), resurrected));
        }
    }
    for offset in truth.records.keys().filter(|offset| !got.contains_key(offset)) {
        missing.push(*offset);
        let excused = reported.iter().any(|(from, _)| from <= offset);
        if !excused {
            faults.push((format!("{offset} is missing"), true));
        }
    }
    missing.first().copied()
}

/// The records of a fetch; the offset that is due after them. Bad bytes are what the client names.
fn take(
    bytes: &[u8],
    at: i64,
    got: &mut BTreeMap<i64, Content>,
    reported: &mut Vec<(i64, String)>,
) -> i64 {
    let mut next = at;
    for found in batch::iter(bytes) {
        let batch = match found {
            Ok(batch) => batch,
            Err(error) => {
                if next == at {
                    reported.push((next, error.to_string()));
                }
                break;
            }
        };
        if !batch.crc_ok() {
            reported.push((next, "wrong checksum".to_owned()));
            break;
        }
        if !batch.is_control() {
            let read = each_record(&batch, |record| {
                if record.offset >= at {
                    let key = record.key.map(<[u8]>::to_vec);
                    let value = record.value.map(<[u8]>::to_vec);
                    got.insert(record.offset, (record.timestamp, key, value));
                }
                Ok(())
            });
            if let Err(error) = read {
                reported.push((next, error.to_string()));
            }
        }
        next = next.max(batch.last_offset() + 1);
    }
    next
}
