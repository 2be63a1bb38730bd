//! [`Head`]: the parts of a request that its reply needs, and the encoding of replies.
//!
//! A reply is encoded directly after the one before it, so that a burst is sent in one write.
//! Format: size int32 (of what follows), response header, response. File ranges are inserted at the
//!     holes of the message.

use crate::broker::requests::apis::Api;
use crate::broker::requests::reply::Output;
use crate::storage::FileRange;
use crate::wire::{Sink, Writer};
use crate::work;

/// The parts of a request that its reply needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) api: &'static Api,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    /// The throttle time that the reply tells the client.
    pub(crate) throttle_time_ms: i32,
}

/// A request whose body is not decoded yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'f> {
    pub(crate) head: Head,
    pub(crate) client_id: Option<&'f str>,
    /// The bytes of the whole request.
    pub(crate) size: usize,
    pub(crate) body: &'f [u8],
}

/// The file ranges that fill the holes of one message, and the number of ranges for each hole.
#[derive(Debug, Default)]
pub(crate) struct FileParts {
    pub(crate) counts: Vec<usize>,
    pub(crate) ranges: Vec<FileRange>,
}

impl FileParts {
    /// Adds the ranges of the next hole.
    pub(crate) fn add(&mut self, ranges: Vec<FileRange>) {
        self.counts.push(ranges.len());
        self.ranges.extend(ranges);
    }
}

impl Head {
    /// Appends the reply that `encode` writes.
    pub(crate) fn reply(self, output: &mut Output, encode: impl FnOnce(&mut Writer, i16)) {
        self.reply_with(output, FileParts::default(), encode);
    }

    /// Appends the reply that `encode` writes, its holes filled from files.
    pub(crate) fn reply_with(
        self,
        output: &mut Output,
        file_parts: FileParts,
        encode: impl FnOnce(&mut Writer, i16),
    ) {
        let mut writer = Writer { buf: std::mem::take(&mut output.buf), holes: Vec::new() };
        let start = writer.buf.len();
        writer.i32(0);
        writer.i32(self.correlation_id);
        if self.api.response_is_tagged(self.version) {
            writer.unsigned_varint(0);
        }
        let body = writer.buf.len();
        encode(&mut writer, self.version);
        if self.throttle_time_ms > 0 {
            output.mute_ms = output.mute_ms.max(self.throttle_time_ms);
            self.put_throttle(writer.buf.get_mut(body..).unwrap_or_default());
        }
        let in_files: usize = file_parts.ranges.iter().map(|range| range.len).sum();
        let size = writer.buf.len() - start - 4 + in_files;
        let size = u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes();
        if let Some(prefix) = writer.buf.get_mut(start..start + 4) {
            prefix.copy_from_slice(&size);
        }
        work::add(writer.buf.len() - start);
        output.buf = writer.buf;
        let mut ranges = file_parts.ranges.into_iter();
        for (hole, count) in writer.holes.iter().zip(file_parts.counts) {
            output.files.extend(ranges.by_ref().take(count).map(|range| (*hole, range)));
        }
    }

    /// Writes the throttle time into a response that has it at a known position.
    #[cold]
    fn put_throttle(self, response: &mut [u8]) {
        let at = self.api.throttle_at(self.version);
        if let Some(place) = at.and_then(|at| response.get_mut(at..at + 4)) {
            place.copy_from_slice(&self.throttle_time_ms.to_be_bytes());
        }
    }

    /// The reply alone.
    pub(crate) fn output(self, encode: impl FnOnce(&mut Writer, i16)) -> Output {
        let mut output = Output::default();
        self.reply(&mut output, encode);
        output
    }
}
