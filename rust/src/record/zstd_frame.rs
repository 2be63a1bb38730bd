//! Reads zstd frames. Each thread reuses one decompression context.
//!
//! A context needs 100 KiB and the window of its frame. Creating it for each batch costs as much as
//! inflating 16 KiB. So each thread keeps one context, unless it has grown above
//! [`MAX_KEPT_CONTEXT`].
//! Threads: a stream stays on the thread that began it.

use std::cell::Cell;
use std::io;

use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::frame::bad_frame;

/// The largest context that a thread keeps, in bytes.
const MAX_KEPT_CONTEXT: usize = 1 << 20;

thread_local! {
    static CONTEXT: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
}

/// Inflated bytes of one or more frames.
pub(crate) struct ZstdDecoder<'a> {
    /// `Some` until an error or the drop.
    context: Option<DCtx<'static>>,
    input: &'a [u8],
    at: usize,
    /// A frame has begun and has not ended.
    is_inside: bool,
}

impl<'a> ZstdDecoder<'a> {
    /// Decodes `input`, whose windows may have up to 2^`window_log` bytes.
    pub(crate) fn new(input: &'a [u8], window_log: u32) -> io::Result<Self> {
        let mut context = match CONTEXT.take() {
            Some(context) => context,
            None => DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?,
        };
        context.reset(ResetDirective::SessionOnly).map_err(failed)?;
        context.set_parameter(DParameter::WindowLogMax(window_log)).map_err(failed)?;
        Ok(Self { context: Some(context), input, at: 0, is_inside: false })
    }

    pub(crate) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(context) = &mut self.context else { return Ok(0) };
        let mut output = OutBuffer::around(out);
        loop {
            if self.at == self.input.len() && !self.is_inside {
                return Ok(0);
            }
            let mut input = InBuffer { src: self.input, pos: self.at };
            let wanted = match context.decompress_stream(&mut output, &mut input) {
                Ok(wanted) => wanted,
                Err(code) => {
                    self.context = None;
                    return Err(failed(code));
                }
            };
            let read = input.pos - self.at;
            self.at = input.pos;
            self.is_inside = wanted != 0;
            if output.pos() > 0 {
                return Ok(output.pos());
            }
            if read == 0 {
                return Err(bad_frame("a zstd frame ends early"));
            }
        }
    }
}

impl Drop for ZstdDecoder<'_> {
    fn drop(&mut self) {
        CONTEXT.set(self.context.take().filter(|context| context.sizeof() <= MAX_KEPT_CONTEXT));
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, zstd::zstd_safe::get_error_name(code))
}
