//! Batches of magic 2: viewed, checked, read and converted down without a fault.
#![no_main]

use krust::record::batch::{self, Rules};
use krust::record::convert::{Target, to_legacy};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for found in batch::iter(bytes) {
        let Ok(found) = found else { break };
        assert!(found.size() <= bytes.len());
        let _ = batch::check(&found, &Rules::default());
        for record in found.records().take(10_000) {
            let Ok(record) = record else { break };
            record.headers.iter().take(100).for_each(drop);
        }
        for magic in [0, 1] {
            let mut out = Vec::new();
            let target = Target { magic, first_offset: 0 };
            let _ = to_legacy(&found, &target, &mut (1 << 20), &mut out);
        }
    }
});
