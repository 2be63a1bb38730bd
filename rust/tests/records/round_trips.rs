//! What goes in comes out: every codec, both conversions, and streams fed and read in any pieces.

use std::io::Read;

use krust::record::batch::{self, Batch, BatchFields, ValidationRules};
use krust::record::compression::{Codec, Inflate, deflate};
use krust::record::{RecordError, convert};
use proptest::prelude::*;

use super::sample::{build, codec, down, read, read_set, records};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_batch_reads_back_as_it_was_built(records in records(), codec in codec()) {
        let bytes = build(&records, &BatchFields { codec, ..BatchFields::default() });
        prop_assert_eq!(&read(&bytes).unwrap(), &records);
        let batch = Batch::parse(&bytes).unwrap();
        let largest = records.iter().map(|record| record.timestamp).max();
        let keys = records.iter().position(|record| record.key.is_none());
        let result = batch::check(&batch, &ValidationRules::default()).unwrap();
        prop_assert_eq!(Some(result.max_timestamp), largest);
        let keyed = ValidationRules { need_keys: true, ..ValidationRules::default() };
        let walked = batch::check(&batch, &keyed);
        match keys {
            None => {
                let at = usize::try_from(walked.unwrap().offset_of_max_timestamp).unwrap();
                prop_assert_eq!(Some(records[at].timestamp), largest);
            }
            Some(at) => {
                let refused = |answer: &Result<_, RecordError>| match answer {
                    Err(RecordError::Invalid { index, .. }) => usize::try_from(*index).ok(),
                    _ => None,
                };
                prop_assert_eq!(refused(&walked), Some(at));
            }
        }
    }

    #[test]
    fn records_survive_conversion_to_message_sets_and_back(
        records in records(),
        codec in codec(),
        magic in 0i8..2,
    ) {
        prop_assume!(codec != Codec::Zstd);
        let bytes = build(&records, &BatchFields { codec, ..BatchFields::default() });
        let reduced: Vec<_> = records.iter().map(|record| record.reduced(magic)).collect();
        let set = down(&bytes, magic);
        prop_assert_eq!(&read_set(&set).unwrap(), &reduced);
        let mut up = Vec::new();
        convert::to_v2(&set, usize::MAX, &mut up).unwrap();
        let batch = Batch::parse(&up).unwrap();
        batch::check(&batch, &ValidationRules::default()).unwrap();
        prop_assert_eq!((batch.size(), batch.codec()), (up.len(), codec));
        prop_assert_eq!(read(&up).unwrap(), reduced);
    }

    #[test]
    fn a_stream_inflates_in_steps_of_any_size(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        repeats in 1usize..80,
        step in 1usize..5000,
        codec in codec(),
    ) {
        let bytes = bytes.repeat(repeats);
        let mut packed = Vec::new();
        deflate(codec, None, &bytes, &mut packed).unwrap();
        let mut inflate = Inflate::new(codec, &packed).unwrap();
        let mut held = vec![0; step];
        let mut out = Vec::new();
        loop {
            let read = inflate.read(&mut held).unwrap();
            if read == 0 {
                break;
            }
            out.extend_from_slice(&held[..read]);
        }
        prop_assert!(out == bytes);
    }

    #[test]
    fn recompression_keeps_every_record(records in records(), from in codec(), to in codec()) {
        let fields = BatchFields { codec: from, producer_id: 5, ..BatchFields::default() };
        let bytes = build(&records, &fields);
        let mut out = Vec::new();
        let batch = Batch::parse(&bytes).unwrap();
        convert::recompress(&batch, to.into(), usize::MAX, &mut out).unwrap();
        let rewritten = Batch::parse(&out).unwrap();
        prop_assert!(rewritten.crc_ok());
        prop_assert_eq!((rewritten.codec(), rewritten.header().producer_id), (to, 5));
        prop_assert_eq!(read(&out).unwrap(), records);
    }
}

#[test]
fn every_level_of_every_codec_is_read_back() {
    let text: Vec<u8> = (0u32..60_000).flat_map(|n| (n / 7).to_string().into_bytes()).collect();
    for (codec, levels) in [(Codec::Gzip, 1..=9), (Codec::Zstd, -7..=22)] {
        for level in levels {
            let mut packed = Vec::new();
            deflate(codec, Some(level), &text, &mut packed).unwrap();
            let mut out = Vec::new();
            Inflate::new(codec, &packed).unwrap().read_all(1 << 22, &mut out).unwrap();
            assert!(out == text, "{codec:?} {level}");
        }
    }
}

#[test]
fn raw_snappy_and_consecutive_frames_are_read() {
    let text = b"one frame after the other ".repeat(9000);
    let mut raw = vec![0; snap::raw::max_compress_len(text.len())];
    let size = snap::raw::Encoder::new().compress(&text, &mut raw).unwrap();
    let mut out = Vec::new();
    Inflate::new(Codec::Snappy, &raw[..size]).unwrap().read_all(1 << 20, &mut out).unwrap();
    assert!(out == text);
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let mut packed = Vec::new();
        let (head, tail) = text.split_at(77_777);
        deflate(codec, None, head, &mut packed).unwrap();
        deflate(codec, None, tail, &mut packed).unwrap();
        let mut out = Vec::new();
        Inflate::new(codec, &packed).unwrap().read_all(1 << 20, &mut out).unwrap();
        assert!(out == text, "{codec:?}");
    }
}

#[test]
fn lz4_frames_of_every_block_size_and_mode_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;
    let text: Vec<u8> = (0u32..900_000).flat_map(|n| (n / 3).to_le_bytes()).collect();
    for block_size in
        [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB]
    {
        for block_mode in [BlockMode::Independent, BlockMode::Linked] {
            let info = FrameInfo::new()
                .block_size(block_size)
                .block_mode(block_mode)
                .block_checksums(true)
                .content_checksum(true)
                .content_size(Some(text.len() as u64));
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(&text).unwrap();
            let packed = encoder.finish().unwrap();
            let mut out = Vec::new();
            Inflate::new(Codec::Lz4, &packed).unwrap().read_all(1 << 23, &mut out).unwrap();
            assert!(out == text, "{block_size:?} {block_mode:?}");
        }
    }
}
