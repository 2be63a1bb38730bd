//! Any sequence of operations on a log shows the same records as the same on a vector; after a
//! crash at any byte the log is a prefix of the vector that has all that was synced.

use std::sync::Arc;

use krust::ids::Offset;
use krust::storage::Log;
use krust::storage::recording::{Crash, RecordingDisk};
use proptest::prelude::*;

use crate::support::{LogFixture, NOW_MS, batch, read_all, read_from, scratch, stage, wanted};

#[derive(Clone, Debug)]
enum LogStep {
    Append { records: usize, size: usize, commit: bool },
    Flush,
    Checkpoint,
    Truncate(u8),
    DeleteRecords(u8),
    Retain,
    Reopen { clean: bool },
}

fn steps() -> impl Strategy<Value = Vec<LogStep>> {
    let step = prop_oneof![
        8 => (1..4usize, 0..400usize, any::<bool>())
            .prop_map(|(records, size, commit)| LogStep::Append { records, size, commit }),
        1 => (1..2usize, 70_000..90_000usize, Just(true))
            .prop_map(|(records, size, commit)| LogStep::Append { records, size, commit }),
        2 => Just(LogStep::Flush),
        1 => Just(LogStep::Checkpoint),
        1 => any::<u8>().prop_map(LogStep::Truncate),
        1 => any::<u8>().prop_map(LogStep::DeleteRecords),
        1 => Just(LogStep::Retain),
        2 => any::<bool>().prop_map(|clean| LogStep::Reopen { clean }),
    ];
    prop::collection::vec(step, 1..40)
}

/// The vector: records from `start` on.
#[derive(Default)]
struct Model {
    start: i64,
    records: Vec<(i64, Vec<u8>)>,
    staged: Vec<(i64, Vec<u8>)>,
    next: i64,
    synced: i64,
    cut: bool,
}

impl Model {
    fn commit(&mut self) {
        self.records.append(&mut self.staged);
    }

    /// A roll shows what was staged before it.
    fn show(&mut self, end: i64) {
        let shown = self.staged.partition_point(|record| record.0 < end);
        self.records.extend(self.staged.drain(..shown));
    }

    fn end(&self) -> i64 {
        self.next
    }

    fn visible(&self) -> Vec<(i64, Vec<u8>)> {
        self.records.iter().filter(|record| record.0 >= self.start).cloned().collect()
    }
}

fn run(fixture: &LogFixture, steps: &[LogStep]) -> Model {
    let mut log = fixture.open_with(false);
    let mut model = Model::default();
    for (number, step) in steps.iter().enumerate() {
        match step {
            LogStep::Append { records, size, commit } => {
                let values: Vec<Vec<u8>> =
                    (0..*records).map(|n| vec![(number + n) as u8; *size]).collect();
                let bytes = batch(&values.iter().map(Vec::as_slice).collect::<Vec<_>>());
                let appended = stage(&log, &bytes).unwrap();
                assert_eq!(appended.base_offset, Offset(model.next));
                for value in values {
                    model.staged.push((model.next, value));
                    model.next += 1;
                }
                if *commit {
                    log.commit(appended.staged).unwrap();
                    log.raise_high_watermark(log.log_end_offset());
                    model.commit();
                }
            }
            LogStep::Flush => {
                log.flush().unwrap();
                model.synced = model.synced.max(log.log_end_offset().0);
            }
            LogStep::Checkpoint => fixture.dir.checkpoint().unwrap(),
            LogStep::Truncate(at) => {
                model.commit();
                let span = model.end() - model.start;
                let to = model.start + if span > 0 { i64::from(*at) % (span + 1) } else { 0 };
                let end = log.truncate_to(Offset(to)).unwrap().0;
                assert!(end <= to);
                model.cut |= end < model.next;
                // The start may lie in the batch that went: the log starts again behind it.
                model.start = model.start.max(log.log_start_offset().0);
                model.records.retain(|record| record.0 < end);
                model.next = end;
                model.synced = model.synced.min(end);
            }
            LogStep::DeleteRecords(at) => {
                let high = log.high_watermark().0;
                let before = i64::from(*at).min(high);
                model.start = log.delete_records(Offset(before)).unwrap().0;
            }
            LogStep::Retain => {
                log.retain(NOW_MS).unwrap();
                model.commit();
            }
            LogStep::Reopen { clean } => {
                if *clean {
                    log.close().unwrap();
                    model.commit();
                }
                fixture.dir.checkpoint().unwrap();
                model.show(log.log_end_offset().0);
                model.next -= i64::try_from(std::mem::take(&mut model.staged).len()).unwrap();
                drop(log);
                // The directory stays open: what its checkpoints said is what a start reads.
                log = fixture.open_with(*clean);
                log.raise_high_watermark(log.log_end_offset());
                assert_eq!(log.log_end_offset().0.max(model.start), model.end());
            }
        }
        compare(&log, &model, &format!("after step {number} {step:?}"));
    }
    model.commit();
    model
}

/// The log shows what the vector has, from its start and from its middle.
fn compare(log: &Log, model: &Model, when: &str) {
    let end = log.log_end_offset().0;
    let mut all: Vec<_> = model.visible().into_iter().filter(|r| r.0 < end).collect();
    all.extend(model.staged.iter().filter(|r| r.0 < end && r.0 >= model.start).cloned());
    assert_eq!(read_all(log), all, "{when}");
    let middle = i64::midpoint(log.log_start_offset().0, end);
    let tail: Vec<_> = all.into_iter().filter(|record| record.0 >= middle).collect();
    assert_eq!(read_from(log, middle, 300), tail, "{when}");
}

/// A log of two flushed batches that was restarted at 7, as a kill after so many operations
/// leaves it, and how many there were.
fn restarted(ops: Option<usize>) -> (Arc<Log>, usize) {
    let dir = scratch();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    let log = fixture.open_with(false);
    for value in [b"a", b"b"] {
        let appended = stage(&log, &batch(&[value])).unwrap();
        log.commit(appended.staged).unwrap();
    }
    log.flush().unwrap();
    fixture.dir.checkpoint().unwrap();
    assert_eq!(log.truncate_fully(Offset(7)).unwrap(), Offset(7));
    let image = scratch();
    let most = disk.ops();
    disk.crash(ops.unwrap_or(most), Crash::Kill { torn: 0 }, image.path()).unwrap();
    (LogFixture::new(image.path()).open_with(false), most)
}

#[test]
fn a_restarted_log_keeps_its_start_offset_after_a_kill() {
    let (log, _) = restarted(None);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(7), Offset(7)));
}

#[test]
fn a_kill_during_a_log_restart_is_no_damage() {
    let (_, most) = restarted(None);
    for ops in 0..most {
        let (log, _) = restarted(Some(ops));
        assert!(log.damage().is_none(), "after {ops} of {most}: {:?}", log.damage());
    }
}

/// How many runs of up to forty steps.
fn cases() -> u32 {
    u32::try_from(wanted("PROPTEST_CASES", 48)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_steps_leaves_log_and_vector_equal(
        steps in steps(), segment_bytes in 500..5000u64, cut in any::<u32>(),
    ) {
        let dir = scratch();
        let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
        let mut fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
        let least = 100_000 * u64::from(segment_bytes % 2 == 0);
        fixture.config.segment_bytes = segment_bytes.max(least);
        if fixture.config.segment_bytes < 100_000 {
            fixture.config.segment_bytes = 95_000;
        }
        let model = run(&fixture, &steps);
        let ops = cut as usize % (disk.ops() + 1);
        let image = scratch();
        disk.crash(ops, Crash::Kill { torn: cut as usize % 300 }, image.path()).unwrap();
        let again = LogFixture::new(image.path());
        let log = again.open_with(false);
        prop_assert!(log.damage().is_none(), "{:?}", log.damage());
        if !model.cut && log.log_start_offset().0 <= log.log_end_offset().0 {
            let found = read_all(&log);
            let (start, end) = (log.log_start_offset().0, log.log_end_offset().0);
            let whole: Vec<_> = model
                .records
                .iter()
                .filter(|record| record.0 >= start && record.0 < end)
                .cloned()
                .collect();
            prop_assert_eq!(found, whole);
        }
        if ops == disk.ops() && cut as usize % 300 > 200 {
            prop_assert!(log.log_end_offset().0 >= model.synced);
        }
    }
}
