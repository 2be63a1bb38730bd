//! Batches of magic 2. The target corrects their checksums, so that the records are reached.
//! Viewing, checking, reading, down-conversion and recompression do not panic, and a batch that
//! passes the check can be read to its end.
#![no_main]

use krust::record::batch::{self, Batch, Header, ValidationRules};
use krust::record::compression::Codec;
use krust::record::convert::{LegacyTarget, each_record, recompress, to_legacy};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(header) = Header::read(bytes) else { return };
    let Ok(size) = Batch::parse(bytes).map(|batch| batch.size()) else { return };
    let records = &bytes[batch::HEADER_SIZE..size];
    let sealed = [&header.seal(records)[..], records].concat();
    let found = Batch::parse(&sealed).expect("only the checksum was changed");
    assert!(found.crc_ok());
    let need_keys = ValidationRules { need_keys: true, ..ValidationRules::default() };
    let keys = batch::check(&found, &need_keys);
    let facts = batch::check(&found, &ValidationRules::default());
    let mut count = 0;
    let mut largest = i64::MIN;
    let read = each_record(&found, |record| {
        record.headers.iter().take(100).for_each(drop);
        largest = largest.max(record.timestamp);
        count += 1;
        Ok(())
    });
    if let (Ok(facts), true) = (facts, found.codec() == Codec::None) {
        read.expect("what was checked reads to its end");
        assert_eq!((facts.record_count, facts.max_timestamp), (count, largest));
    }
    if keys.is_ok() {
        assert_eq!(read, Ok(()));
    }
    for magic in [0, 1] {
        let target = LegacyTarget { magic, first_offset: 0 };
        let _ = to_legacy(&found, &target, &mut (1 << 20), &mut Vec::new());
    }
    let _ = recompress(&found, Codec::Snappy.into(), 1 << 20, &mut Vec::new());
});
