//! A frame never extends beyond the received bytes or beyond the limit.
#![no_main]

use krust::transport::frame::{NextFrame, PREFIX, next};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut at = 0;
    while let Ok(NextFrame::Whole(range)) = next(bytes, at, 1 << 20) {
        assert!(range.start == at + PREFIX && range.end <= bytes.len());
        assert!(range.len() <= 1 << 20);
        at = range.end;
    }
});
