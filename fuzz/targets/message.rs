//! Every message at every version: a decoded message encodes to bytes that decode to the same one.
#![no_main]

use krust::protocol::{Direction, decode_any, encode_any};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [key, version, direction, body @ ..] = bytes else { return };
    let (key, version) = (i16::from(*key), i16::from(*version));
    let direction = if direction & 1 == 0 { Direction::Request } else { Direction::Response };
    let Ok(value) = decode_any(key, version, direction, body) else { return };
    let writer = encode_any(key, version, direction, &value).expect("what decodes encodes");
    assert!(writer.holes.is_empty());
    let again = decode_any(key, version, direction, &writer.buf).expect("what encodes decodes");
    assert_eq!(format!("{value:?}"), format!("{again:?}"));
});
