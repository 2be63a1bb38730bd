//! Bytes that are not what they say: cut, flipped, blown up. Each answer is an error or the truth,
//! never a panic, never more memory or time than the bytes can account for.

use krust::record::batch::{
    self, Batch, BatchBuilder, BatchFields, Header, NewRecord, TimestampBounds, ValidationRules,
};
use krust::record::compression::{Codec, Inflate, budget, deflate};
use krust::record::{RecordError, convert, legacy, retain};

use super::sample::{CODECS, OwnedRecord, build, down, read, read_set};

fn records() -> Vec<OwnedRecord> {
    (0..12)
        .map(|offset| OwnedRecord {
            offset,
            timestamp: 1000 + offset % 5,
            key: (offset % 4 != 0).then(|| format!("key {offset}").into_bytes()),
            value: Some(b"abc".repeat(offset as usize * 9)),
            headers: vec![("h".to_owned(), None); offset as usize % 3],
        })
        .collect()
}

/// The batch with `change` made to it, and its checksum made right again.
fn resealed(bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    change(&mut bytes);
    let header = Header::read(&bytes).unwrap();
    let records = bytes.split_off(batch::HEADER_SIZE);
    [&header.seal(&records)[..], &records].concat()
}

/// Everything that reads a batch or set; the answers do not matter, only that they come.
fn exercise(bytes: &[u8]) {
    let keys = ValidationRules { need_keys: true, ..ValidationRules::default() };
    for batch in batch::iter(bytes).flatten() {
        let _ = batch::check(&batch, &ValidationRules::default());
        let _ = batch::check(&batch, &keys);
        let target = convert::LegacyTarget { magic: 1, first_offset: 0 };
        let _ = convert::to_legacy(&batch, &target, &mut (1 << 20), &mut Vec::new());
        let _ = convert::recompress(&batch, Codec::None.into(), 1 << 22, &mut Vec::new());
        batch.records().for_each(drop);
    }
    let _ = read_set(bytes);
    let _ = convert::to_v2(bytes, 1 << 24, &mut Vec::new());
    let target = convert::LegacyTarget { magic: 0, first_offset: 3 };
    let _ = convert::run_to_legacy(bytes, &target, &mut (1 << 20), &mut Vec::new());
}

#[test]
fn a_batch_cut_anywhere_is_truncated() {
    for codec in CODECS {
        let bytes = build(&records(), &BatchFields { codec, ..BatchFields::default() });
        for end in 0..bytes.len() {
            let cut = Batch::parse(&bytes[..end]);
            assert!(matches!(cut, Err(RecordError::Truncated { .. })), "{codec:?} {end}");
        }
    }
}

#[test]
fn a_flipped_bit_never_passes_the_checksum() {
    for codec in CODECS {
        let bytes = build(&records(), &BatchFields { codec, ..BatchFields::default() });
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            if let Ok(batch) = Batch::parse(&flipped) {
                let free = at < 8 || (12..16).contains(&at);
                assert_eq!(batch.crc_ok(), free, "{codec:?} {at}");
            }
            exercise(&flipped);
        }
    }
}

#[test]
fn bad_records_under_a_right_checksum_return_an_error() {
    for codec in CODECS {
        let bytes = build(&records(), &BatchFields { codec, ..BatchFields::default() });
        for at in 21..bytes.len() {
            for bit in 0..8 {
                exercise(&resealed(&bytes, |bytes| bytes[at] ^= 1 << bit));
            }
            let cut = resealed(&bytes[..at.max(batch::HEADER_SIZE)], |bytes| {
                let length = (bytes.len() - batch::PREFIX_SIZE) as i32;
                bytes[8..12].copy_from_slice(&length.to_be_bytes());
            });
            exercise(&cut);
            if let Ok(batch) = Batch::parse(&cut) {
                let rules = ValidationRules { need_keys: true, ..ValidationRules::default() };
                assert!(batch::check(&batch, &rules).is_err(), "{codec:?} {at}");
                assert!(read(&cut).is_err());
            }
        }
    }
}

#[test]
fn an_accepted_compressed_batch_can_be_read_completely() {
    for codec in CODECS {
        let bytes = build(&records(), &BatchFields { codec, ..BatchFields::default() });
        for at in batch::HEADER_SIZE..bytes.len() {
            for bit in 0..8 {
                let flipped = resealed(&bytes, |bytes| bytes[at] ^= 1 << bit);
                let batch = Batch::parse(&flipped).unwrap();
                let Ok(validated) = batch::check(&batch, &ValidationRules::default()) else {
                    continue;
                };
                let mut count = 0;
                let read = convert::each_record(&batch, |_| {
                    count += 1;
                    Ok(())
                });
                assert_eq!((read, count), (Ok(()), validated.record_count), "{codec:?} {at}");
            }
        }
    }
}

#[test]
fn records_that_inflate_beyond_the_limit_are_refused() {
    let large = OwnedRecord { value: Some(vec![0; 4 << 20]), ..records().remove(0) };
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let bytes =
            build(std::slice::from_ref(&large), &BatchFields { codec, ..BatchFields::default() });
        let batch = Batch::parse(&bytes).unwrap();
        for (inflated_max, accepted) in [(5 << 20, true), (3 << 20, false)] {
            let rules =
                ValidationRules { inflated_max: Some(inflated_max), ..ValidationRules::default() };
            assert_eq!(batch::check(&batch, &rules).is_ok(), accepted, "{codec:?}");
        }
    }
}

#[test]
fn down_conversion_ends_when_much_was_inflated() {
    let zeros = OwnedRecord {
        key: None,
        value: Some(vec![0; 1 << 20]),
        headers: vec![],
        ..records().remove(0)
    };
    let bomb = build(
        std::slice::from_ref(&zeros),
        &BatchFields { codec: Codec::Gzip, ..BatchFields::default() },
    );
    let target = convert::LegacyTarget { magic: 1, first_offset: 0 };
    let (mut limit, mut out) = (1 << 19, Vec::new());
    let taken = convert::run_to_legacy(&bomb.repeat(10), &target, &mut limit, &mut out).unwrap();
    assert_eq!(taken, 2 * bomb.len(), "each took 256 KiB off");
}

#[test]
fn damaged_message_sets_return_an_error() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
        let bytes = build(&records(), &BatchFields { codec, ..BatchFields::default() });
        for magic in [0, 1] {
            let set = down(&bytes, magic);
            for at in 0..set.len() {
                exercise(&set[..at]);
                let mut flipped = set.clone();
                flipped[at] ^= 1 << (at % 8);
                exercise(&flipped);
                let whole = legacy::iter(&flipped).all(|m| m.is_ok_and(|m| m.crc_ok()));
                assert!(at < 8 || codec == Codec::None || !whole, "{codec:?} {magic} {at}");
            }
        }
    }
}

#[test]
fn inflation_stops_at_its_budget() {
    let zeros = vec![0; 64 << 20];
    for codec in CODECS {
        let mut bomb = Vec::new();
        deflate(codec, None, &zeros, &mut bomb).unwrap();
        let mut out = Vec::new();
        let answer = Inflate::new(codec, &bomb).unwrap().read_all(usize::MAX, &mut out);
        let allowed = codec == Codec::None || budget(bomb.len()) >= 64 << 20;
        assert_eq!(answer.is_ok(), allowed, "{codec:?} {}", bomb.len());
        assert!(allowed || out.len() as u64 <= budget(bomb.len()));
        let limited = Inflate::new(codec, &bomb).unwrap().read_all(1000, &mut Vec::new());
        assert!(matches!(limited, Err(RecordError::TooLarge { .. })), "{codec:?}");
    }
}

#[test]
fn compaction_refuses_records_beyond_the_inflation_budget() {
    let entry =
        NewRecord { timestamp: 0, key: None, value: Some(&vec![0; 64 << 20]), headers: &[] };
    let mut builder = BatchBuilder::new();
    builder.add(&entry);
    let bomb =
        builder.to_bytes(&BatchFields { codec: Codec::Zstd, ..BatchFields::default() }).unwrap();
    assert!(budget(bomb.len()) < 64 << 20);
    let outcome = retain::StoredBatchReader::default().open(&bomb).map(|opened| opened.len());
    assert!(matches!(outcome, Err(RecordError::Invalid { .. })), "{outcome:?}");
}

#[test]
fn ordinary_and_very_repetitive_data_fit_the_budget() {
    let line = b"2026-11-21T12:00:00Z level=info service=checkout message=accepted order=";
    for codec in CODECS {
        let text: Vec<u8> =
            (0..200_000u32).flat_map(|n| [&line[..], n.to_string().as_bytes()].concat()).collect();
        let constant = line.repeat(900_000 / line.len());
        for input in [text, constant] {
            let mut packed = Vec::new();
            deflate(codec, None, &input, &mut packed).unwrap();
            let mut out = Vec::new();
            Inflate::new(codec, &packed).unwrap().read_all(usize::MAX, &mut out).unwrap();
            assert!(out == input, "{codec:?}");
        }
    }
}

#[test]
fn a_zstd_window_above_the_limit_is_refused() {
    // Magic, descriptor without content size, window 2^31, then one raw block of a byte.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x09, 0x00, 0x00, b'x'];
    let answer = Inflate::new(Codec::Zstd, &frame).unwrap().read_all(1 << 20, &mut Vec::new());
    assert!(answer.is_err());
    let small = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x09, 0x00, 0x00, b'x'];
    let mut out = Vec::new();
    Inflate::new(Codec::Zstd, &small).unwrap().read_all(1 << 20, &mut out).unwrap();
    assert_eq!(out, b"x");
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let bytes = build(&records(), &BatchFields::default());
    let invalid = |change: fn(&mut Vec<u8>)| {
        let bytes = resealed(&bytes, change);
        Batch::parse(&bytes).and_then(|batch| batch::check(&batch, &ValidationRules::default()))
    };
    assert!(invalid(|bytes| bytes[26] += 1).is_err(), "last offset delta too high");
    assert!(invalid(|bytes| bytes[26] -= 1).is_err(), "last offset delta too low");
    assert!(invalid(|bytes| bytes[23] = 0xff).is_err(), "last offset delta negative");
    assert!(invalid(|bytes| bytes[60] -= 1).is_err(), "record count too low");
    assert!(invalid(|bytes| bytes[57] = 0xff).is_err(), "record count negative");
    assert!(invalid(|bytes| bytes[22] |= 0x20).is_err(), "a client's control batch");
    assert!(invalid(|bytes| bytes[22] |= 0x05).is_err(), "an unknown codec");
    assert!(invalid(|bytes| bytes[43] = 0).is_err(), "a producer id without a sequence");
    assert!(matches!(
        invalid(|bytes| bytes[22] |= 0x08),
        Err(RecordError::Timestamp { index: -1, .. })
    ));
    assert_eq!(invalid(|bytes| bytes[42] ^= 1).map(|validated| validated.max_timestamp), Ok(1004));
}

#[test]
fn timestamps_beyond_the_bounds_are_refused_with_their_index() {
    for codec in CODECS {
        let bytes = build(&records(), &BatchFields { codec, ..BatchFields::default() });
        let batch = Batch::parse(&bytes).unwrap();
        let check = |now_ms, before_max_ms, after_max_ms| {
            let bounds = Some(TimestampBounds { now_ms, before_max_ms, after_max_ms });
            batch::check(&batch, &ValidationRules { bounds, ..ValidationRules::default() })
        };
        assert!(check(1002, 2, 2).is_ok());
        assert!(check(0, i64::MAX, i64::MAX).is_ok());
        assert!(check(i64::MAX, i64::MAX, i64::MAX).is_ok());
        let early = check(1003, 2, 2);
        assert_eq!(early, Err(RecordError::Timestamp { index: 0, timestamp: 1000 }), "{codec:?}");
        assert!(matches!(check(900, i64::MAX, 100), Err(RecordError::Timestamp { .. })));
    }
}
