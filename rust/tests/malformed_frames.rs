//! Frames that a careless or hostile peer may send, made from the schema for every API, version
//! and direction: cut at every byte, every length and count replaced by -2, -1, 0, 1, 2^31 - 1 and
//! an overlong varint, random bytes flipped. Decoding must end in a value or an error, never in a
//! panic, and must not take more memory than the frame's length allows.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "messages/sample.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod sample;
#[path = "../build/schema.rs"]
#[allow(dead_code, reason = "the test needs less of the parser than the generator does")]
mod schema;

use krust::protocol::{AnyCodec, api};
use krust::wire::{BUDGET_BASE, DecodeError};
use sample::{Form, Frame, LengthMark, Random};
use schema::is_flexible;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting what this thread holds.
struct Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe by definition; it only counts")]
// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.get().wrapping_add(layout.size());
        NOW.set(now);
        PEAK.set(PEAK.get().max(now));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.set(NOW.get().saturating_sub(layout.size()));
        // SAFETY: the caller's promise about `place` and `layout` is passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Decodes and skips one frame, checks memory, and says whether it was a message.
fn is_accepted(codec: &AnyCodec, version: i16, frame: &[u8]) -> bool {
    let before = NOW.get();
    PEAK.set(before);
    let decoded = (codec.decode)(frame, version);
    let taken = PEAK.get() - before;
    // For each byte of an accepted frame the `Value` may take far more than the decoded message.
    let allowed = BUDGET_BASE + 256 * frame.len();
    assert!(taken <= allowed, "{} v{version}: {taken} bytes for {frame:?}", codec.name);
    let skipped = (codec.skip)(frame, version);
    if decoded.is_ok() {
        assert_eq!(skipped, Ok(frame.len()), "{} v{version} {frame:?}", codec.name);
    }
    decoded.is_ok()
}

/// The frame with the length at `mark` written as `length`.
fn with_length(frame: &Frame, mark: &LengthMark, length: i32) -> Vec<u8> {
    let bytes = match mark.form {
        Form::Short => i16::try_from(length).unwrap_or(i16::MAX).to_be_bytes().to_vec(),
        Form::Long => length.to_be_bytes().to_vec(),
        Form::Compact => sample::varint(length.wrapping_add(1) as u32),
        Form::Plain => sample::varint(length as u32),
    };
    spliced(frame, mark, bytes)
}

fn spliced(frame: &Frame, mark: &LengthMark, bytes: Vec<u8>) -> Vec<u8> {
    let mut damaged = frame.bytes.clone();
    damaged.splice(mark.at..mark.at + mark.size, bytes);
    damaged
}

/// Tries all the damage on one frame; says how many frames that were.
fn damage(codec: &AnyCodec, version: i16, (frame, random): (&Frame, &mut Random)) -> usize {
    let mut cases = 0;
    for length in 0..frame.bytes.len() {
        let accepted = is_accepted(codec, version, &frame.bytes[..length]);
        assert!(!accepted, "{} v{version} cut at {length}: {:?}", codec.name, frame.bytes);
        cases += 1;
    }
    for mark in &frame.marks {
        for length in [-2, -1, 0, 1, i32::MAX] {
            let accepted = is_accepted(codec, version, &with_length(frame, mark, length));
            let impossible = length == -2 || length == i32::MAX;
            assert!(!(accepted && impossible), "{} v{version}, {mark:?}: {length}", codec.name);
            cases += 1;
        }
        if matches!(mark.form, Form::Compact | Form::Plain) {
            for overlong in [vec![0x80, 0x80, 0x80, 0x80, 0x80, 0], vec![0xff; 5], vec![0xff; 11]] {
                assert!(!is_accepted(codec, version, &spliced(frame, mark, overlong)));
                cases += 1;
            }
        }
    }
    for _ in 0..frame.bytes.len().min(20) {
        let mut flipped = frame.bytes.clone();
        let at = random.below(flipped.len());
        flipped[at] ^= random.bits() as u8;
        is_accepted(codec, version, &flipped);
        cases += 1;
    }
    cases
}

#[test]
fn damaged_frames_cause_no_panic_and_take_no_memory() {
    let mut random = Random::seeded(4);
    let mut cases = 0;
    for one in sample::apis() {
        let spec = api(one.key).unwrap();
        for version in one.versions.first..=one.versions.last {
            let both = [(&one.request, &spec.request), (&one.response, &spec.response)];
            for (message, codec) in both {
                let value = random.message(message, version);
                let mut frame = Frame::of(&one, message, (version, &value));
                assert!(is_accepted(codec, version, &frame.bytes));
                cases += damage(codec, version, (&frame, &mut random));
                frame = Frame { unknown_tags: true, ..Frame::default() };
                frame.message(message, version, (is_flexible(one.flexible, version), &value));
                cases += damage(codec, version, (&frame, &mut random));
            }
        }
    }
    println!("{cases} malformed frames");
    assert!(cases >= 20_000, "{cases}");
}

/// A megabyte of empty strings would be 16 MB of string slices.
#[test]
fn a_frame_of_tiny_elements_is_refused_before_it_is_decoded() {
    let describe_configs = api(32).unwrap();
    let count: u32 = 1 << 20;
    let mut frame = vec![2, 2, 1];
    frame.extend(sample::varint(count + 1));
    frame.extend(std::iter::repeat_n(1, count as usize));
    frame.extend([0, 0, 0, 0]);
    let before = NOW.get();
    PEAK.set(before);
    let decoded = (describe_configs.request.decode)(&frame, 4);
    assert_eq!(decoded, Err(DecodeError::Memory));
    assert!(PEAK.get() - before < BUDGET_BASE);
}
