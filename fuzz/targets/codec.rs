//! Each codec inflates any bytes within its budget, and its own output to the original bytes.
#![no_main]

use krust::record::compression::{Codec, Inflate, budget, deflate};

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const LIMIT: usize = 4 << 20;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [choice, input @ ..] = bytes else { return };
    let codec = CODECS[usize::from(*choice) % CODECS.len()];
    let mut out = Vec::new();
    if let Ok(inflate) = Inflate::new(codec, input) {
        let _ = inflate.read_all(LIMIT, &mut out);
        assert!(out.len() as u64 <= budget(input.len()) + 65_536);
    }
    let mut packed = Vec::new();
    deflate(codec, None, input, &mut packed).expect("anything can be compressed");
    let mut back = Vec::new();
    let inflate = Inflate::new(codec, &packed).expect("what was compressed begins well");
    inflate.read_all(LIMIT, &mut back).expect("what was compressed inflates");
    assert_eq!(back, input);
});
