//! A Kafka creates `leader-epoch-checkpoint` without a byte, and writes it when an epoch begins.

use krust::ids::{Epoch, Offset};

use crate::corruption::captured_lines::CapturedLines;
use crate::support::{LogFixture, append_after_roll, batch, fill, value};

const EPOCHS: &str = "leader-epoch-checkpoint";

#[test]
fn a_log_without_a_batch_has_no_epoch_and_nothing_is_warned_of() {
    for text in ["", "0\n0\n"] {
        for clean in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let fixture = LogFixture::new(dir.path());
            std::fs::create_dir(fixture.partition()).unwrap();
            std::fs::write(fixture.file(0, "log"), "").unwrap();
            std::fs::write(fixture.partition().join(EPOCHS), text).unwrap();
            let lines = CapturedLines::default();
            let log = lines.collect(|| fixture.open_with(clean));
            assert_eq!(lines.all(), Vec::<String>::new(), "{text:?}, clean: {clean}");
            assert_eq!((log.epochs(), log.log_end_offset()), (Vec::new(), Offset(0)));
        }
    }
}

#[test]
fn the_epochs_of_a_log_with_batches_are_rebuilt() {
    for text in ["", "0\n0\n"] {
        for clean in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let fixture = LogFixture::new(dir.path());
            let log = fixture.open();
            for (epoch, first) in [(3, 0), (7, 10), (8, 20)] {
                log.set_leader_epoch(Epoch(epoch));
                append_after_roll(&log, &batch(&[value(first).as_slice()]));
                fill(&log, 9);
            }
            let epochs = log.epochs();
            log.close().unwrap();
            fixture.dir.checkpoint().unwrap();
            drop((log, fixture));
            let fixture = LogFixture::new(dir.path());
            std::fs::write(fixture.partition().join(EPOCHS), text).unwrap();
            let log = fixture.open_with(clean);
            assert_eq!(
                epochs,
                [(Epoch(3), Offset(0)), (Epoch(7), Offset(10)), (Epoch(8), Offset(20))]
            );
            assert_eq!(log.epochs(), epochs, "{text:?}, clean: {clean}");
        }
    }
}
