//! Whatever version wrote a record, every version reads it.

use krust::record::compression::Codec;
use krust::record::legacy::{self, NewMessage};

use crate::double::{Made, NOW_MS, TestBroker};
use crate::records::{Fetch, TOPIC, batch, batch_with, get, put, values};

/// What a producer of `version` sends.
fn old_or_new(version: i16, value: &str) -> Vec<u8> {
    let magic = match version {
        0 | 1 => 0,
        2 => 1,
        _ => return batch(&[value]),
    };
    let mut set = Vec::new();
    let (key, value) = (Some(&b"k"[..]), Some(value.as_bytes()));
    legacy::put(
        &mut set,
        &NewMessage { magic, timestamp: NOW_MS, key, value, ..NewMessage::default() },
    );
    set
}

/// Offsets and values of what a Fetch of `version` gave.
fn read(version: i16, bytes: &[u8]) -> Vec<(i64, String)> {
    if version >= 4 {
        return values(bytes);
    }
    let mut held = Vec::new();
    let messages = legacy::iter(bytes).map_while(Result::ok);
    let mut found = Vec::new();
    for message in messages {
        assert_eq!(message.magic, if version < 2 { 0 } else { 1 });
        let records = legacy::records(&message, 1 << 20, &mut held).unwrap();
        found.extend(records.map(|record| {
            (record.offset, String::from_utf8_lossy(record.value.unwrap()).into_owned())
        }));
    }
    found
}

#[test]
fn every_pair_of_versions_fetches_the_same_records() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    let mut expected = Vec::new();
    for version in 0..=13 {
        let value = format!("v{version}");
        let answer = put(&mut fixture, &mut conn, (version, -1, &old_or_new(version, &value)));
        assert_eq!(answer, (0, i64::from(version)), "Produce v{version}");
        expected.push((i64::from(version), value));
    }
    for version in 0..=18 {
        let fetch = Fetch { version, ..Fetch::default() };
        let (error, high_watermark, bytes) = get(&mut fixture, &mut conn, fetch);
        assert_eq!((error, high_watermark), (0, 14), "Fetch v{version}");
        assert_eq!(read(version, &bytes), expected, "Fetch v{version}");
    }
}

#[test]
fn every_codec_fetches_the_same_records() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    let codecs = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    for (offset, codec) in (0..).zip(codecs) {
        let records = batch_with(&["a", "b"], codec, |_| {});
        assert_eq!(put(&mut fixture, &mut conn, (7, 1, &records)), (0, offset * 2));
    }
    let ab = |offset| [(offset, "a".to_owned()), (offset + 1, "b".to_owned())];
    let (_, _, bytes) = get(&mut fixture, &mut conn, Fetch::default());
    assert_eq!(values(&bytes), [ab(0), ab(2), ab(4), ab(6)].concat());
    for version in [0, 2] {
        let fetch = Fetch { version, ..Fetch::default() };
        let (error, _, bytes) = get(&mut fixture, &mut conn, fetch);
        assert_eq!((error, read(version, &bytes)), (0, [ab(0), ab(2), ab(4)].concat()));
        let (error, ..) = get(&mut fixture, &mut conn, Fetch { offset: 6, ..fetch });
        assert_eq!(error, 76, "a client that old does not know zstd");
    }
}

#[test]
fn records_are_compressed_as_the_topic_demands() {
    let mut fixture = TestBroker::new();
    let mut made = Made::default();
    made.config.compression_type = Some(Codec::Lz4 as u8);
    fixture.topic(TOPIC, made);
    let mut conn = fixture.connect();
    put(&mut fixture, &mut conn, (9, 1, &batch(&["a", "b"])));
    let (_, _, bytes) = get(&mut fixture, &mut conn, Fetch::default());
    assert_eq!(krust::record::batch::Batch::parse(&bytes).unwrap().codec(), Codec::Lz4);
    assert_eq!(values(&bytes), [(0, "a".to_owned()), (1, "b".to_owned())]);
}
