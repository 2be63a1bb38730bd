//! What a follower appends is what its leader has: the bytes, and all that is derived from them.

use std::path::Path;
use std::sync::Arc;

use krust::ids::{Epoch, Offset};
use krust::record::legacy;
use krust::storage::recording::{DiskCall, InjectedFault, RecordingDisk};
use krust::storage::{AppendError, Log, LogReadRequest, StorageError, inspect};

use crate::support::{
    LogFixture, append, batch, batch_of, bytes_of, expected, fill, marker, read_all, stage,
    unpack_kafka, value,
};

const ENOSPC: i32 = 28;

/// A leader's log over several segments: small batches, large ones, idempotent and transactional.
fn leader(path: &Path) -> (LogFixture, Vec<u8>) {
    let mut fixture = LogFixture::new(path);
    fixture.config.segment_bytes = 200_000;
    let log = fixture.open();
    fill(&log, 20);
    for sequence in 0..9 {
        append(&log, &batch_of(7, sequence, &[&vec![b'x'; 70_000]])).unwrap();
        fill(&log, 3);
    }
    append(&log, &marker(7, false)).unwrap();
    let bytes = bytes_of(&log);
    log.close().unwrap();
    (fixture, bytes)
}

/// The files of the log, by name, but for what differs with the disk's reservations.
fn files(fixture: &LogFixture) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(fixture.partition())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_follower_has_the_files_of_its_leader() {
    let dir = tempfile::tempdir().unwrap();
    let (leader, bytes) = leader(&dir.path().join("leader"));
    assert!(files(&leader).iter().filter(|(name, _)| name.ends_with(".log")).count() >= 4);
    for (number, step) in [(0, bytes.len()), (1, 1 << 17), (2, 90_000)] {
        let mut follower = LogFixture::new(&dir.path().join(number.to_string()));
        follower.config.segment_bytes = 200_000;
        let log = follower.open();
        let mut done = 0;
        while done < bytes.len() {
            // As a leader answers: a piece whose last batch may be cut.
            let piece = &bytes[done..bytes.len().min(done + step)];
            log.append_as_follower(piece).unwrap();
            done = bytes_of(&log).len();
        }
        log.close().unwrap();
        assert_eq!(files(&follower), files(&leader), "pieces of {step} bytes");
    }
}

#[test]
fn one_answer_costs_one_write() {
    let dir = tempfile::tempdir().unwrap();
    let leader = LogFixture::new(&dir.path().join("leader"));
    let log = leader.open();
    fill(&log, 500);
    append(&log, &batch(&[&vec![b'x'; 300_000]])).unwrap();
    fill(&log, 500);
    let path = dir.path().join("follower");
    std::fs::create_dir(&path).unwrap();
    let disk = Arc::new(RecordingDisk::new(&path).unwrap());
    let follower = LogFixture::on(&path, Arc::clone(&disk) as _);
    let copy = follower.open();
    let bytes = bytes_of(&log);
    copy.append_as_follower(&bytes[..200]).unwrap();
    let log_writes = || {
        let changes = (0..disk.ops()).map(|number| disk.label(number));
        changes.filter(|it| it.starts_with("write ") && it.ends_with(".log")).count()
    };
    let (before, held) = (log_writes(), bytes_of(&copy).len());
    assert_eq!(copy.append_as_follower(&bytes[held..]).unwrap(), Offset(1001));
    assert_eq!(log_writes() - before, 1);
    assert_eq!(bytes_of(&copy), bytes);
}

#[test]
fn a_refused_write_takes_the_whole_answer_back() {
    let dir = tempfile::tempdir().unwrap();
    let leader = LogFixture::new(&dir.path().join("leader"));
    let log = leader.open();
    fill(&log, 30);
    let bytes = bytes_of(&log);
    let size = bytes.len() / 30;
    let path = dir.path().join("follower");
    std::fs::create_dir(&path).unwrap();
    let disk = Arc::new(RecordingDisk::new(&path).unwrap());
    let follower = LogFixture::on(&path, Arc::clone(&disk) as _);
    let copy = follower.open();
    copy.append_as_follower(&bytes[..size * 10]).unwrap();
    disk.inject(InjectedFault { call: DiskCall::Write, code: ENOSPC, skip: 0, times: 1 });
    let refused = copy.append_as_follower(&bytes[size * 10..]);
    assert!(matches!(refused, Err(AppendError::Storage(StorageError::NoSpace(_)))), "{refused:?}");
    assert_eq!(read_all(&copy), expected(0..10));
    assert_eq!(copy.append_as_follower(&bytes[size * 10..]).unwrap(), Offset(30));
    assert_eq!(bytes_of(&copy), bytes);
}

#[test]
fn a_log_that_fails_to_begin_anew_is_unchanged_or_its_directory_goes_offline() {
    for skip in 0..8 {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
        let follower = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
        let copy = follower.open();
        fill(&copy, 10);
        disk.inject(InjectedFault { call: DiskCall::Write, code: ENOSPC, skip, times: 1 });
        let outcome = copy.truncate_fully(Offset(50));
        let is_anew = copy.log_start_offset() == Offset(50) && copy.log_end_offset() == Offset(50);
        match outcome {
            Ok(_) => assert!(is_anew, "skip {skip}"),
            Err(_) if follower.dir.is_offline() => {}
            Err(_) => assert_eq!(read_all(&copy), expected(0..10), "skip {skip}"),
        }
    }
}

#[test]
fn what_precedes_a_damaged_batch_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let leader = LogFixture::new(&dir.path().join("leader"));
    let log = leader.open();
    fill(&log, 10);
    let mut bytes = bytes_of(&log);
    let size = bytes.len() / 10;
    bytes[size * 6 - 1] ^= 0xff;
    let follower = LogFixture::new(&dir.path().join("follower"));
    let copy = follower.open();
    assert!(matches!(copy.append_as_follower(&bytes), Err(AppendError::Corrupt(_))));
    assert_eq!(read_all(&copy), expected(0..5));
    assert_eq!(append(&copy, &batch(&[&value(5)])).unwrap().base_offset, Offset(5));
}

#[test]
fn a_high_watermark_is_known_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, 7);
    let staged = stage(&log, &batch(&[b"a", b"b", b"c"])).unwrap().staged;
    log.commit(staged).unwrap();
    log.raise_high_watermark(Offset(7));
    fixture.dir.checkpoint_high_watermarks().unwrap();
    let file = dir.path().join("replication-offset-checkpoint");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "0\n1\nt 0 7\n");
    let written = std::fs::metadata(&file).unwrap().modified().unwrap();
    fixture.dir.checkpoint_high_watermarks().unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), written, "nothing moved");
    drop((log, fixture));
    let log = LogFixture::new(dir.path()).open();
    assert_eq!((log.high_watermark(), log.log_end_offset()), (Offset(7), Offset(10)));
}

/// A way to cut a log.
type Truncation = fn(&Log) -> Result<Offset, StorageError>;

#[test]
fn a_high_watermark_that_a_truncation_lowered_is_not_higher_again_after_a_kill() {
    let cuts: [Truncation; 2] =
        [|log| log.truncate_to(Offset(3)), |log| log.truncate_fully(Offset(3))];
    for cut in cuts {
        let dir = tempfile::tempdir().unwrap();
        let fixture = LogFixture::new(dir.path());
        let log = fixture.open();
        fill(&log, 7);
        log.raise_high_watermark(Offset(7));
        fixture.dir.checkpoint_high_watermarks().unwrap();
        assert_eq!(cut(&log).unwrap(), Offset(3));
        let staged = stage(&log, &batch(&[b"a", b"b"])).unwrap().staged;
        log.commit(staged).unwrap();
        assert_eq!((log.high_watermark(), log.log_end_offset()), (Offset(3), Offset(5)));
        drop((log, fixture));
        let log = LogFixture::new(dir.path()).open();
        assert_eq!((log.high_watermark(), log.log_end_offset()), (Offset(3), Offset(5)));
    }
}

/// All bytes of a log with messages of old formats, in one read.
fn old_bytes(log: &Log) -> Vec<u8> {
    let (offset, upper) = (log.log_start_offset(), log.log_end_offset());
    let read = LogReadRequest { offset, max_bytes: usize::MAX >> 1, upper, min_one: true };
    log.read(read).unwrap().to_vec().unwrap()
}

#[test]
fn a_follower_copies_the_message_formats_before_batches() {
    for name in ["kafka-0.8.2.2", "kafka-0.10.2.2"] {
        let dir = tempfile::tempdir().unwrap();
        let mut leader = LogFixture::new(&unpack_kafka(name, dir.path()));
        leader.dense = false;
        for found in leader.dir.partitions().unwrap() {
            leader.name = found.name.clone();
            let log = leader.open();
            log.set_leader_epoch(Epoch(3));
            append(&log, &batch(&[b"of today"])).unwrap();
            let (bytes, end) = (old_bytes(&log), log.log_end_offset());
            assert!(legacy::iter(&bytes).next().is_some_and(|it| it.is_ok()), "{name}");
            for step in [bytes.len(), 5000] {
                let place = dir.path().join(format!("{}-{step}", found.name));
                let mut follower = LogFixture::new(&place);
                (follower.dense, follower.config.segment_bytes) = (false, 16 << 10);
                let copy = follower.open();
                let mut done = 0;
                while done < bytes.len() {
                    copy.append_as_follower(&bytes[done..bytes.len().min(done + step)]).unwrap();
                    done = old_bytes(&copy).len();
                }
                copy.close().unwrap();
                assert_eq!(inspect::verify(&follower.partition()).unwrap(), []);
                let copy = follower.open_with(false);
                assert!(old_bytes(&copy) == bytes, "{name} {} {step}", found.name);
                assert_eq!(copy.log_end_offset(), end);
                assert_eq!(copy.epochs(), [(Epoch(3), Offset(end.0 - 1))]);
            }
        }
    }
}

#[test]
fn a_damaged_message_of_an_old_format_is_refused() {
    let mut bytes = Vec::new();
    for offset in 0..10 {
        let message = legacy::NewMessage {
            magic: 1,
            offset,
            timestamp: crate::support::NOW_MS,
            value: Some(b"value"),
            ..legacy::NewMessage::default()
        };
        legacy::put(&mut bytes, &message);
    }
    let size = bytes.len() / 10;
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let copy = fixture.open();
    bytes[size * 6 - 1] ^= 0xff;
    assert!(matches!(copy.append_as_follower(&bytes), Err(AppendError::Corrupt(_))));
    assert!(old_bytes(&copy) == bytes[..size * 5]);
    bytes[size * 6 - 1] ^= 0xff;
    let again = copy.append_as_follower(&bytes);
    assert!(matches!(again, Err(AppendError::WrongOffset { .. })), "{again:?}");
    assert_eq!(copy.append_as_follower(&bytes[size * 5..]).unwrap(), Offset(10));
    assert!(old_bytes(&copy) == bytes);
}
