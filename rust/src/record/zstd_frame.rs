//! Reading zstd frames, with a context that a thread uses again.
//!
//! A context is 100 KiB and the window of its frame; to make both anew for each batch costs as much
//! as inflating 16 KiB. So each thread keeps one, if it has not grown above [`KEPT`].
//! Threads: a stream stays on the thread that began it.

use std::cell::Cell;
use std::io;

use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::frame::bad_frame;

/// The largest context that is kept.
const KEPT: usize = 1 << 20;

thread_local! {
    static CONTEXT: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
}

/// Inflated bytes of one or more frames.
pub(crate) struct Inflate<'a> {
    /// There until it is dropped.
    context: Option<DCtx<'static>>,
    input: &'a [u8],
    at: usize,
    /// A frame has begun and not ended.
    is_inside: bool,
}

impl<'a> Inflate<'a> {
    /// Starts on `input`, whose windows may be 2^`window_log` bytes.
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

impl Drop for Inflate<'_> {
    fn drop(&mut self) {
        CONTEXT.set(self.context.take().filter(|context| context.sizeof() <= KEPT));
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, zstd::zstd_safe::get_error_name(code))
}
