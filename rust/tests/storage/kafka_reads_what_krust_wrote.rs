//! Kafka's own `DumpLogSegments` has no complaint about any file that a log wrote.
//! Needs Java, and Kafka 3.9's jars in the folder that `KRUST_KAFKA_JARS` names; skipped without.

use std::path::Path;
use std::process::Command;

use krust::ids::Epoch;
use krust::record::batch::BatchFields;
use krust::record::compression::Codec;

use crate::support::{LogFixture, NOW_MS, append, batch_of, build, fill, marker, value};

fn write(fixture: &LogFixture) {
    let log = fixture.open();
    fill(&log, 100);
    for (round, codec) in
        [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd].into_iter().enumerate()
    {
        let values: Vec<Vec<u8>> = (0..20).map(value).collect();
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let fields = BatchFields { codec, ..BatchFields::default() };
        let timestamp = NOW_MS + i64::try_from(round).unwrap() * 1000;
        append(&log, &build(timestamp, &values, &fields)).unwrap();
        append(&log, &build(timestamp - 5000, &values, &fields)).unwrap();
    }
    log.set_leader_epoch(Epoch(4));
    for producer_id in [70, 71] {
        let fields = BatchFields {
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            transactional: true,
            ..BatchFields::default()
        };
        append(&log, &build(NOW_MS, &[b"in a transaction"], &fields)).unwrap();
        append(&log, &batch_of(72, i32::try_from(producer_id).unwrap() - 70, &[b"x"])).unwrap();
        append(&log, &marker(producer_id, producer_id == 71)).unwrap();
    }
    fill(&log, 30);
    log.close().unwrap();
    fixture.dir.close().unwrap();
}

fn dump(jars: &str, path: &Path, extra: &[&str]) -> String {
    let output = Command::new("java")
        .args(["-cp", &format!("{jars}/*"), "kafka.tools.DumpLogSegments"])
        .args(extra)
        .args(["--files", path.to_str().unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{path:?}: {text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn kafka_opens_a_krust_directory_without_a_complaint() {
    let Ok(jars) = std::env::var("KRUST_KAFKA_JARS") else {
        println!("skipped: KRUST_KAFKA_JARS does not name a folder of Kafka's jars");
        return;
    };
    if Command::new("java").arg("-version").output().is_err() {
        println!("skipped: there is no java");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 6000;
    write(&fixture);
    let mut paths: Vec<String> = std::fs::read_dir(fixture.partition())
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .filter(|path| path.contains("/000000"))
        .collect();
    paths.sort();
    assert!(paths.iter().filter(|path| path.ends_with(".log")).count() > 2);
    let text = dump(&jars, Path::new(&paths.join(",")), &["--deep-iteration"]);
    let complaints = ["ismatch", "not found", "orrupt", "rror", "xception", "isvalid: false"];
    for complaint in complaints {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(complaint)).collect();
        assert!(lines.is_empty(), "{lines:#?}");
    }
    assert_eq!(text.matches("isvalid: true").count(), text.matches("baseOffset: ").count());
    assert!(text.contains("producerId: 70") && text.contains("currentTxnFirstOffset"));
    assert!(text.contains("lastStableOffset"), "{text}");
}
