//! The five codecs: compressing a whole buffer, and inflating as a stream.
//!
//! Bounds of inflating, since the bytes come from anyone: the window is at most 8 MiB (zstd
//!     window log 23; the block of lz4 and snappy, since those are decoded by the block), the
//!     caller holds no more output than it asks for, and all output of one stream is at most
//!     [`budget`]: 1 MiB + 1024 x the first 64 KiB of input + 128 x the input after that. So a
//!     batch of up to 1 MiB may be as repetitive as it likes, one of 64 MiB may shrink to a
//!     thousandth, any may shrink to a hundredth, and what a byte from the wire can cost stays
//!     bounded.
//! Threads: a stream belongs to its owner.
//! Not promised: a checksum inside a codec's frame is checked where that codec's library does.

use std::io::{self, Read, Write};

use super::RecordError;
use super::frame::WINDOW_LOG;
use super::{lz4, xerial, zstd_frame};
use crate::work;

pub use super::frame::{Framing, WINDOW};

/// The highest zstd level whose own window is not above [`WINDOW`].
const WIDE_LEVEL: i32 = 19;
const SMALL_INPUT: u64 = 64 * 1024;
const FREE_OUTPUT: u64 = 1024 * 1024;

/// How records are compressed; the numbers are those of the attributes' low three bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum Codec {
    /// Not at all.
    #[default]
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy in Xerial's framing (as Java writes it); raw is accepted too.
    Snappy = 2,
    /// LZ4 frames.
    Lz4 = 3,
    /// RFC 8878; magic 2 only.
    Zstd = 4,
}

impl Codec {
    /// The codec of a batch's or message's attributes.
    pub const fn from_bits(attributes: i16) -> Result<Self, RecordError> {
        match attributes & 0x07 {
            0 => Ok(Self::None),
            1 => Ok(Self::Gzip),
            2 => Ok(Self::Snappy),
            3 => Ok(Self::Lz4),
            4 => Ok(Self::Zstd),
            bits => Err(RecordError::UnsupportedCodec(bits as i8)),
        }
    }

    /// The attributes' bits that say so.
    pub const fn bits(self) -> i16 {
        self as i16
    }

    /// Kafka's name of it (`compression.type`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The codec of that name; Kafka also says `uncompressed`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "none" | "uncompressed" => Some(Self::None),
            "gzip" => Some(Self::Gzip),
            "snappy" => Some(Self::Snappy),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Most bytes that `input` compressed bytes may inflate to.
pub fn budget(input: usize) -> u64 {
    let input = u64::try_from(input).unwrap_or(u64::MAX);
    let small = input.min(SMALL_INPUT);
    (input - small).saturating_mul(128).saturating_add(small * 1024 + FREE_OUTPUT)
}

/// Appends `input`, compressed, to `out`. `level` is the codec's own (gzip 1-9, zstd -131072-22;
/// the others have none); `None` is its default.
pub fn deflate(
    codec: Codec,
    level: Option<i32>,
    input: &[u8],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let mut deflate = Deflate::new((codec, level), Framing::Standard, out)?;
    deflate.write(input)?;
    deflate.finish()
}

/// Compresses a stream to the end of a buffer; small writes are best gathered before.
pub(crate) enum Deflate<'o> {
    Plain(&'o mut Vec<u8>),
    Gzip(flate2::write::GzEncoder<&'o mut Vec<u8>>),
    Snappy(Box<xerial::Deflate<'o>>),
    Lz4(lz4::Deflate<'o>),
    Zstd(zstd::stream::write::Encoder<'static, &'o mut Vec<u8>>),
}

impl<'o> Deflate<'o> {
    pub(crate) fn new(
        (codec, level): (Codec, Option<i32>),
        framing: Framing,
        out: &'o mut Vec<u8>,
    ) -> io::Result<Self> {
        Ok(match codec {
            Codec::None => Self::Plain(out),
            Codec::Gzip => {
                let level = level
                    .and_then(|level| u32::try_from(level).ok())
                    .map_or(flate2::Compression::default(), |level| {
                        flate2::Compression::new(level.min(9))
                    });
                Self::Gzip(flate2::write::GzEncoder::new(out, level))
            }
            Codec::Snappy => Self::Snappy(Box::new(xerial::Deflate::new(out))),
            Codec::Lz4 => Self::Lz4(lz4::Deflate::new(framing, out)),
            Codec::Zstd => {
                let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
                let mut encoder = zstd::stream::write::Encoder::new(out, level)?;
                if level > WIDE_LEVEL {
                    encoder.window_log(WINDOW_LOG)?;
                }
                Self::Zstd(encoder)
            }
        })
    }

    pub(crate) fn write(&mut self, input: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.extend_from_slice(input),
            Self::Gzip(encoder) => encoder.write_all(input)?,
            Self::Snappy(encoder) => encoder.write(input)?,
            Self::Lz4(encoder) => encoder.write(input)?,
            Self::Zstd(encoder) => encoder.write_all(input)?,
        }
        Ok(())
    }

    /// Writes what is held and the frame's end.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(encoder) => encoder.finish().map(drop),
            Self::Snappy(encoder) => encoder.finish(),
            Self::Lz4(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish().map(drop),
        }
    }
}

/// Inflated bytes as a stream. Reading fails with `InvalidData` where the frame is bad, cut or
/// wants too large a window, and with `FileTooLarge` past the [`budget`].
pub struct Inflate<'a> {
    source: Source<'a>,
    left: u64,
}

enum Source<'a> {
    Plain(&'a [u8]),
    Gzip(Box<flate2::bufread::MultiGzDecoder<&'a [u8]>>),
    Snappy(xerial::Inflate<'a>),
    Lz4(lz4::Inflate<'a>),
    Zstd(zstd_frame::Inflate<'a>),
}

impl<'a> Inflate<'a> {
    /// Starts on `input`; nothing is inflated yet.
    pub fn new(codec: Codec, input: &'a [u8]) -> io::Result<Self> {
        let source = match codec {
            Codec::None => Source::Plain(input),
            Codec::Gzip => Source::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(input))),
            Codec::Snappy => Source::Snappy(xerial::Inflate::new(input)),
            Codec::Lz4 => Source::Lz4(lz4::Inflate::new(input)),
            Codec::Zstd => Source::Zstd(zstd_frame::Inflate::new(input, WINDOW_LOG)?),
        };
        let left = match codec {
            Codec::None => u64::MAX,
            _ => budget(input.len()),
        };
        Ok(Self { source, left })
    }

    /// Lets the output be `most` bytes from here on, and not what the input's size can account for.
    pub fn allow(&mut self, most: u64) {
        self.left = most;
    }

    /// Appends all output to `out`; `TooLarge` if that would pass `limit` bytes.
    pub fn read_all(self, limit: usize, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let mut filled = out.len();
        let read = self.read_on(limit, out, &mut filled);
        out.truncate(filled);
        read
    }

    /// All output, over what `held` has from its beginning on; `TooLarge` if that would pass
    /// `limit` bytes. A buffer that is used again is not cleared again.
    pub fn read_over(self, limit: usize, held: &mut Vec<u8>) -> Result<&[u8], RecordError> {
        let mut filled = 0;
        self.read_on(limit, held, &mut filled)?;
        Ok(held.get(..filled).unwrap_or_default())
    }

    fn read_on(
        mut self,
        limit: usize,
        out: &mut Vec<u8>,
        filled: &mut usize,
    ) -> Result<(), RecordError> {
        const STEP: usize = 64 * 1024;
        let start = *filled;
        loop {
            if out.len() < *filled + STEP {
                out.resize(*filled + STEP, 0);
            }
            let room = out.get_mut(*filled..).unwrap_or_default();
            let read = self.read(room).map_err(failed)?;
            *filled += read;
            if read == 0 {
                return Ok(());
            }
            if *filled - start > limit {
                return Err(RecordError::TooLarge { size: *filled - start, limit });
            }
        }
    }
}

impl Read for Inflate<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.source {
            Source::Plain(source) => source.read(out),
            Source::Gzip(source) => source.read(out),
            Source::Snappy(source) => source.read(out),
            Source::Lz4(source) => source.read(out),
            Source::Zstd(source) => source.read(out),
        }?;
        self.left = u64::try_from(read)
            .ok()
            .and_then(|read| self.left.checked_sub(read))
            .ok_or(io::ErrorKind::FileTooLarge)?;
        work::add(read);
        Ok(read)
    }
}

/// Why an [`Inflate`] gave up on its input.
const TOO_MUCH: &str = "inflates to more than its size can account for";

/// Whether records were refused because they inflate to more than was allowed.
pub fn is_too_much(error: &RecordError) -> bool {
    matches!(error, RecordError::Invalid { reason: TOO_MUCH, .. })
}

/// What a failed read of an [`Inflate`] says about the records.
pub(crate) fn failed(error: io::Error) -> RecordError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => RecordError::batch(TOO_MUCH),
        _ => RecordError::batch("compressed records cannot be inflated"),
    }
}
