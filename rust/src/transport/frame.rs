//! Frames: a length as a big-endian 32-bit integer, then that many bytes.
//!
//! An invalid length is refused before memory is reserved: a negative length, or one above the
//! limit, means that the peer does not speak Kafka's protocol.
//! Invariant: size = 4 + length; 0 <= length <= limit.

use std::ops::Range;

use thiserror::Error;

/// The bytes of the length in front of each frame.
pub const PREFIX: usize = 4;

/// What is found at a position in the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextFrame {
    /// A whole frame: where its content lies.
    Whole(Range<usize>),
    /// The beginning of a frame of this size, prefix included.
    Part(usize),
    /// Less than a prefix.
    Unknown,
}

/// An invalid frame length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Below zero.
    #[error("a frame of {0} bytes was announced")]
    Negative(i32),
    /// Above the limit.
    #[error("a frame of {length} bytes was announced, the limit is {limit}")]
    TooLong {
        /// The length that was announced.
        length: usize,
        /// The largest one that is taken.
        limit: usize,
    },
}

/// Looks at the frame that starts at `at` in `buf`.
pub fn next(buf: &[u8], at: usize, limit: usize) -> Result<NextFrame, FrameError> {
    let Some(prefix) = buf.get(at..).and_then(|rest| rest.first_chunk::<PREFIX>()) else {
        return Ok(NextFrame::Unknown);
    };
    let announced = i32::from_be_bytes(*prefix);
    let Ok(length) = usize::try_from(announced) else {
        return Err(FrameError::Negative(announced));
    };
    if length > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    let start = at + PREFIX;
    let whole = start + length <= buf.len();
    Ok(if whole {
        NextFrame::Whole(start..start + length)
    } else {
        NextFrame::Part(PREFIX + length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_when_its_last_byte_has_come() {
        let bytes = [9, 0, 0, 0, 2, 7, 8];
        assert_eq!(next(&bytes, 1, 2), Ok(NextFrame::Whole(5..7)));
        assert_eq!(next(&bytes[..6], 1, 2), Ok(NextFrame::Part(6)));
        assert_eq!(next(&bytes[..4], 1, 2), Ok(NextFrame::Unknown));
        assert_eq!(next(&bytes, 7, 2), Ok(NextFrame::Unknown));
        assert_eq!(next(&bytes, 99, 2), Ok(NextFrame::Unknown));
        assert_eq!(next(&[0, 0, 0, 0], 0, 0), Ok(NextFrame::Whole(4..4)));
    }

    #[test]
    fn an_invalid_length_is_refused_at_once() {
        assert_eq!(next(&[0xff; 4], 0, 9), Err(FrameError::Negative(-1)));
        let huge = next(&i32::MAX.to_be_bytes(), 0, 9);
        assert_eq!(huge, Err(FrameError::TooLong { length: 0x7fff_ffff, limit: 9 }));
        assert_eq!(next(&[0, 0, 0, 9], 0, 9), Ok(NextFrame::Part(13)));
    }
}
