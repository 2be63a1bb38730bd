//! Message sets of magic 0 and 1, plain and in a wrapper. The target corrects their checksums, so
//! that the rest is reached. Converted batches are whole and can be read to their end.
#![no_main]

use krust::record::compression::{Codec, deflate};
use krust::record::convert::{LegacyTarget, each_record, run_to_legacy, to_v2};
use krust::record::legacy::{self, NewMessage};
use krust::record::{RecordError, batch, crc};

const CODECS: [Codec; 3] = [Codec::Gzip, Codec::Snappy, Codec::Lz4];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [choice, set @ ..] = bytes else { return };
    let set = sealed(set);
    exercise(&set);
    let codec = CODECS[usize::from(*choice) % CODECS.len()];
    let mut packed = Vec::new();
    deflate(codec, None, &set, &mut packed).expect("anything can be compressed");
    let mut wrapper = Vec::new();
    let (magic, attributes) = ((choice >> 7) as i8, codec as i8);
    let value = Some(&packed[..]);
    let plain = NewMessage { magic, attributes, value, offset: 9, ..NewMessage::default() };
    legacy::put(&mut wrapper, &plain);
    exercise(&wrapper);
});

/// The set with each message's checksum corrected, up to the first bytes that are no message.
fn sealed(set: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in legacy::iter(set).map_while(Result::ok) {
        let at = out.len();
        out.extend_from_slice(message.bytes());
        let crc = crc::crc32(&out[at + 16..]);
        out[at + 12..at + 16].copy_from_slice(&crc.to_be_bytes());
    }
    out.extend_from_slice(&set[out.len()..]);
    out
}

fn exercise(set: &[u8]) {
    let mut held = Vec::new();
    for message in legacy::iter(set).map_while(Result::ok) {
        if let Ok(records) = legacy::records(&message, 1 << 20, &mut held) {
            records.take(10_000).for_each(drop);
        }
    }
    let target = LegacyTarget { magic: 0, first_offset: 0 };
    let _ = run_to_legacy(set, &target, &mut (1 << 20), &mut Vec::new());
    let only_old = !legacy::iter(set).any(|found| matches!(found, Err(RecordError::Magic(_))));
    let mut out = Vec::new();
    if to_v2(set, 4 << 20, &mut out).is_ok() {
        for batch in batch::iter(&out) {
            let batch = batch.expect("a conversion writes whole batches");
            assert!(batch.crc_ok());
            assert!(!only_old || each_record(&batch, |_| Ok(())).is_ok());
        }
    }
}
