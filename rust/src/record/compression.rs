//! The five codecs: compress a buffer or a stream, and inflate a stream.
//!
//! Bounds of inflating, because the bytes come from untrusted peers: the window is at most 8 MiB
//!     (zstd window log 23; one block of lz4 or snappy). The caller holds no more output than it
//!     asks for. The output of one stream is at most [`budget`]: 1 MiB + 1024 x the first 64 KiB of
//!     input + 128 x the rest of the input. So records of up to 1 MiB may compress to any size,
//!     64 MiB may compress to a thousandth, any size may compress to a hundredth, and the work per
//!     input byte is bounded.
//! Threads: a stream belongs to its owner.
//! Not promised: a check of the checksums inside a codec's frame. Some of the codecs' libraries
//!     check them.

use std::io::{self, Read, Write};

use super::RecordError;
use super::frame::WINDOW_LOG;
use super::{lz4, xerial, zstd_frame};
use crate::work;

pub use super::frame::{Framing, WINDOW};

/// The highest zstd level whose own window is not above [`WINDOW`].
const MAX_LEVEL_WITHIN_WINDOW: i32 = 19;
const SMALL_INPUT: u64 = 64 * 1024;
const FREE_OUTPUT: u64 = 1024 * 1024;

/// A codec; the number is the value of the attributes' low three bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum Codec {
    /// No compression.
    #[default]
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy in Xerial's framing, which Java clients write. Raw snappy is accepted too.
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

    /// The codec's bits of the attributes.
    pub const fn bits(self) -> i16 {
        self as i16
    }

    /// Kafka's name of the codec (`compression.type`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The codec with that name; Kafka also accepts `uncompressed`.
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

/// How to compress records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// The codec.
    pub codec: Codec,
    /// The codec's own level (gzip 1-9, zstd -131072-22; the others have none); `None`: its
    /// default.
    pub level: Option<i32>,
}

impl From<Codec> for Compression {
    /// The codec at its default level.
    fn from(codec: Codec) -> Self {
        Self { codec, level: None }
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
    let mut deflate = Deflate::new(Compression { codec, level }, Framing::Standard, out)?;
    deflate.write(input)?;
    deflate.finish()
}

/// Compresses a stream to the end of a buffer. Callers should collect small writes first.
pub(crate) enum Deflate<'o> {
    Plain(&'o mut Vec<u8>),
    Gzip(flate2::write::GzEncoder<&'o mut Vec<u8>>),
    Snappy(Box<xerial::SnappyEncoder<'o>>),
    Lz4(lz4::Lz4Encoder<'o>),
    Zstd(zstd::stream::write::Encoder<'static, &'o mut Vec<u8>>),
}

impl<'o> Deflate<'o> {
    pub(crate) fn new(
        Compression { codec, level }: Compression,
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
            Codec::Snappy => Self::Snappy(Box::new(xerial::SnappyEncoder::new(out))),
            Codec::Lz4 => Self::Lz4(lz4::Lz4Encoder::new(framing, out)),
            Codec::Zstd => {
                let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
                let mut encoder = zstd::stream::write::Encoder::new(out, level)?;
                if level > MAX_LEVEL_WITHIN_WINDOW {
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

    /// Writes the buffered bytes and the frame's end.
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

/// A stream of inflated bytes. A read fails with `InvalidData` if the frame is bad, cut or needs
/// too large a window, and with `FileTooLarge` beyond the [`budget`].
pub struct Inflate<'a> {
    source: InflateSource<'a>,
    left: u64,
}

enum InflateSource<'a> {
    Plain(&'a [u8]),
    Gzip(Box<flate2::bufread::MultiGzDecoder<&'a [u8]>>),
    Snappy(xerial::SnappyDecoder<'a>),
    Lz4(lz4::Lz4Decoder<'a>),
    Zstd(zstd_frame::ZstdDecoder<'a>),
}

impl<'a> Inflate<'a> {
    /// Starts on `input`; nothing is inflated yet.
    pub fn new(codec: Codec, input: &'a [u8]) -> io::Result<Self> {
        let source = match codec {
            Codec::None => InflateSource::Plain(input),
            Codec::Gzip => {
                InflateSource::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(input)))
            }
            Codec::Snappy => InflateSource::Snappy(xerial::SnappyDecoder::new(input)),
            Codec::Lz4 => InflateSource::Lz4(lz4::Lz4Decoder::new(input)),
            Codec::Zstd => InflateSource::Zstd(zstd_frame::ZstdDecoder::new(input, WINDOW_LOG)?),
        };
        let left = match codec {
            Codec::None => u64::MAX,
            _ => budget(input.len()),
        };
        Ok(Self { source, left })
    }

    /// Sets the most bytes of output from here on, instead of the budget for the input's size.
    pub fn allow(&mut self, most: u64) {
        self.left = most;
    }

    /// Appends all output to `out`; `TooLarge` beyond `limit` bytes.
    pub fn read_all(self, limit: usize, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let mut filled = out.len();
        let read = self.read_on(limit, out, &mut filled);
        out.truncate(filled);
        read
    }

    /// Writes all output over the contents of `held` and returns it; `TooLarge` beyond `limit`
    /// bytes. Overwriting avoids clearing a buffer that is used again.
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
            InflateSource::Plain(source) => source.read(out),
            InflateSource::Gzip(source) => source.read(out),
            InflateSource::Snappy(source) => source.read(out),
            InflateSource::Lz4(source) => source.read(out),
            InflateSource::Zstd(source) => source.read(out),
        }?;
        self.left = u64::try_from(read)
            .ok()
            .and_then(|read| self.left.checked_sub(read))
            .ok_or(io::ErrorKind::FileTooLarge)?;
        work::add(read);
        Ok(read)
    }
}

/// Why an [`Inflate`] refused its input.
const INFLATES_TOO_FAR: &str = "inflates to more than its size can account for";

/// Whether records were refused because they inflate to more than was allowed.
pub fn exceeds_inflation_limit(error: &RecordError) -> bool {
    matches!(error, RecordError::Invalid { reason: INFLATES_TOO_FAR, .. })
}

/// The error of the records when a read of an [`Inflate`] failed.
pub(crate) fn failed(error: io::Error) -> RecordError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => RecordError::batch(INFLATES_TOO_FAR),
        _ => RecordError::batch("compressed records cannot be inflated"),
    }
}
