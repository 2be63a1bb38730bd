//! Frames of compression codecs that lie about sizes, by the ids of the security record
//! (`docs/security-record.md`): an error before the memory is taken, never a byte that the frame
//! does not have.

use std::io::{ErrorKind, Read};

use krust::record::compression::{Codec, Inflate, WINDOW, deflate};

const XERIAL: &[u8] = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01";
/// FLG: version 1 and independent blocks.
const INDEPENDENT: u8 = 0x60;
/// FLG: version 1 and blocks that refer to earlier ones.
const LINKED: u8 = 0x40;

/// Inflates everything. The error's kind and text, if there is one.
fn inflated(codec: Codec, frame: &[u8]) -> Result<Vec<u8>, (ErrorKind, String)> {
    let mut out = Vec::new();
    let read = Inflate::new(codec, frame).and_then(|mut stream| stream.read_to_end(&mut out));
    read.map(|_| out).map_err(|error| (error.kind(), error.to_string()))
}

fn is_bad(codec: Codec, frame: &[u8]) -> bool {
    inflated(codec, frame).is_err_and(|(kind, _)| kind == ErrorKind::InvalidData)
}

#[test]
fn cve_2023_34455_a_chunk_of_snappy_that_its_stream_does_not_have_is_refused() {
    let mut whole = Vec::new();
    deflate(Codec::Snappy, None, b"one chunk of records", &mut whole).unwrap();
    let block = &whole[XERIAL.len() + 4..];
    assert_eq!(inflated(Codec::Snappy, &whole).unwrap(), b"one chunk of records");
    let right = block.len() as u32;
    for length in [right + 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff] {
        let frame = [XERIAL, &length.to_be_bytes(), block].concat();
        assert!(is_bad(Codec::Snappy, &frame), "{length:#x}");
        let behind = [&whole, &length.to_be_bytes()[..], block].concat();
        assert!(is_bad(Codec::Snappy, &behind), "{length:#x} behind a good chunk");
    }
}

#[test]
fn cve_2023_43642_a_chunk_of_snappy_inflates_to_no_more_than_it_can() {
    // The first bytes of a block are the size that it claims to inflate to.
    for claimed in [WINDOW as u64 + 1, 1 << 31, (1 << 32) - 1] {
        let mut block = Vec::new();
        let mut left = claimed;
        while left >= 0x80 {
            block.push(left as u8 | 0x80);
            left >>= 7;
        }
        block.push(left as u8);
        block.extend_from_slice(&[0; 64]);
        let length = (block.len() as u32).to_be_bytes();
        for frame in [block.clone(), [XERIAL, &length, &block].concat()] {
            let (_, why) = inflated(Codec::Snappy, &frame).unwrap_err();
            assert!(why.contains("larger than the window"), "{claimed}: {why}");
        }
    }
}

/// A frame of lz4 with blocks of at most 64 KiB.
fn lz4(flags: u8, blocks: &[(u32, &[u8])]) -> Vec<u8> {
    let mut frame = Vec::new();
    deflate(Codec::Lz4, None, b"", &mut frame).unwrap();
    frame.truncate(4);
    let checksum = if flags == INDEPENDENT { 0x82 } else { 0xc0 };
    frame.extend_from_slice(&[flags, 0x40, checksum]);
    for (size, bytes) in blocks {
        frame.extend_from_slice(&size.to_le_bytes());
        frame.extend_from_slice(bytes);
    }
    frame.extend_from_slice(&[0; 4]);
    frame
}

#[test]
fn cve_2021_3520_a_block_of_lz4_has_the_size_that_it_says() {
    let block = b"\x30abc"; // three bytes as they are
    for flags in [INDEPENDENT, LINKED] {
        assert_eq!(inflated(Codec::Lz4, &lz4(flags, &[(4, block)])).unwrap(), b"abc");
        for size in [9, 0x7fff_ffff, 0x8000_0009, 0xffff_ffff] {
            assert!(is_bad(Codec::Lz4, &lz4(flags, &[(size, block)])), "{size:#x}");
        }
        let large = vec![0; 65_537];
        for stored in [0, 1 << 31] {
            let frame = lz4(flags, &[(stored | 65_537, &large)]);
            assert!(is_bad(Codec::Lz4, &frame), "above the block size of its frame");
        }
        // One byte, then a match of any length: it may not fill more than 64 KiB.
        let bomb = [b"\x1fa\x01\x00".to_vec(), vec![0xff; 300], b"\x00".to_vec()].concat();
        assert!(is_bad(Codec::Lz4, &lz4(flags, &[(bomb.len() as u32, &bomb)])));
    }
}

#[test]
fn cve_2025_12183_a_match_of_lz4_begins_within_what_was_inflated() {
    let mut earlier = Vec::new();
    deflate(Codec::Lz4, None, &b"canary".repeat(10_000), &mut earlier).unwrap();
    for flags in [INDEPENDENT, LINKED] {
        for distance in [0u16, 4, 0x100, 0xffff] {
            // Three bytes as they are, a match `distance` bytes back, five bytes as they are.
            let [low, high] = distance.to_le_bytes();
            let block = [b"\x34abc", &[low, high][..], b"\x5012345"].concat();
            // What this thread inflated before must not show either.
            inflated(Codec::Lz4, &earlier).unwrap();
            let read = inflated(Codec::Lz4, &lz4(flags, &[(block.len() as u32, &block)]));
            assert!(read.is_err(), "{distance} back: {read:?}");
        }
        let cut = b"\xf0";
        assert!(is_bad(Codec::Lz4, &lz4(flags, &[(1, cut)])), "literals that are not there");
    }
    // A later block may refer to the one before it only if its frame says so.
    let first: (u32, &[u8]) = (5, b"\x40abcd");
    let second: (u32, &[u8]) = (9, b"\x00\x04\x00\x5012345");
    let linked = inflated(Codec::Lz4, &lz4(LINKED, &[first, second])).unwrap();
    assert_eq!(linked, b"abcdabcd12345");
    assert!(is_bad(Codec::Lz4, &lz4(INDEPENDENT, &[first, second])));
}
