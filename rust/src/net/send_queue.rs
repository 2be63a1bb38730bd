//! The replies of one connection that wait to be sent.
//!
//! A reply is bytes in memory with ranges of files between them. The queue chooses how they leave
//! the process. Bytes of many replies are gathered in one send. A long file range goes by
//! `sendfile`. Short ranges are read into the thread's scratch buffer and sent together with the
//! bytes around them, because a thousand sends of 200 bytes cost more than copying them.
//! After a partial send only the cursor is kept; the ranges in the scratch buffer are read again.
//! With TLS all ranges go through the scratch buffer, which is encrypted from there; what the
//! kernel does not take stays with the session.
//! Invariant: the cursor is at the first byte that the kernel (with TLS: the session) has not
//! taken.
//! Threads: one network thread owns it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use crate::broker::Output;
use crate::storage::files::FileRange;
use crate::sys;
use crate::transport::tls::{SEND_BYTES, TlsBuffers, TlsSession};

/// Ranges up to this size are copied through memory.
const SHORT: usize = 32 << 10;
/// The most bytes that are copied or gathered for one send.
const GATHER_BYTES: usize = 256 << 10;
/// The most slices in one send.
const GATHER_SLICES: usize = 64;
/// The most bytes that one connection sends in one turn, and the same while others wait for short
/// replies. Small shares cost up to twice the CPU per byte, so they are used only then.
pub(super) const SHARE: usize = 8 << 20;
pub(super) const SMALL_SHARE: usize = 64 << 10;
/// The memory that a waiting file range takes.
const RANGE_COST: usize = size_of::<(usize, FileRange)>();

/// The unsent replies of one connection.
#[derive(Default)]
pub(super) struct SendQueue {
    outputs: VecDeque<Output>,
    /// Bytes sent of the first output's `buf`.
    buf_at: usize,
    /// The first output's next range, and the bytes sent of it.
    range: usize,
    range_at: usize,
    memory: usize,
}

/// Where a flush stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushResult {
    /// All is sent.
    All,
    /// The socket is full.
    Blocked,
    /// The connection used up its share of this turn.
    Enough,
}

/// The next bytes to send.
enum Piece<'a> {
    Bytes(&'a [u8]),
    File { range: &'a FileRange, from: usize },
}

impl SendQueue {
    pub(super) fn push(&mut self, output: Output) {
        if !output.is_empty() {
            self.memory += cost(&output);
            self.outputs.push_back(output);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// The memory of the unsent replies.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Sends until all is sent, the socket is full, or this turn's `share` is used up. Returns
    /// where it stopped, and the bytes sent.
    pub(super) fn flush(
        &mut self,
        socket: &impl AsFd,
        scratch: &mut Vec<u8>,
        share: usize,
    ) -> io::Result<(FlushResult, usize)> {
        let mut sent = 0;
        while !self.outputs.is_empty() {
            if sent >= share {
                return Ok((FlushResult::Enough, sent));
            }
            let most = share - sent;
            let step = match self.long_range() {
                Some((range, from)) => send_range(socket, range, from, most),
                None => self.send_gathered(socket, scratch, most),
            };
            match step {
                Ok(count) => {
                    self.advance(count);
                    sent += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((FlushResult::Blocked, sent));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((FlushResult::All, sent))
    }

    /// The same through a TLS session, which keeps the records that the socket did not take. While
    /// the handshake goes on, only its own records leave.
    pub(super) fn flush_encrypted(
        &mut self,
        session: &mut TlsSession,
        socket: &impl AsFd,
        (scratch, buffers): (&mut Vec<u8>, &mut TlsBuffers),
        share: usize,
    ) -> io::Result<(FlushResult, usize)> {
        let mut sent = 0;
        loop {
            if !session.send_waiting(socket)? {
                return Ok((FlushResult::Blocked, sent));
            }
            if self.outputs.is_empty() || session.is_handshaking() {
                return Ok((FlushResult::All, sent));
            }
            if sent >= share {
                return Ok((FlushResult::Enough, sent));
            }
            self.copy_pieces(scratch, SEND_BYTES.min(share - sent), usize::MAX)?;
            session.send(socket, scratch, buffers)?;
            self.advance(scratch.len());
            sent += scratch.len();
        }
    }

    /// The next piece, if it is a range for `sendfile`.
    fn long_range(&self) -> Option<(&FileRange, usize)> {
        match self.pieces().next() {
            Some(Piece::File { range, from }) if range.len - from > SHORT => Some((range, from)),
            _ => None,
        }
    }

    fn send_gathered(
        &self,
        socket: &impl AsFd,
        scratch: &mut Vec<u8>,
        most: usize,
    ) -> io::Result<usize> {
        let mut slices = Vec::with_capacity(8);
        let mut size = 0;
        let mut more = false;
        for piece in self.pieces() {
            match piece {
                Piece::Bytes(bytes) if slices.len() < GATHER_SLICES => {
                    let bytes = bytes.get(..most - size).unwrap_or(bytes);
                    size += bytes.len();
                    slices.push(IoSlice::new(bytes));
                }
                Piece::File { range, from } if range.len - from <= SHORT => {
                    return self.send_copied(socket, scratch, most.min(GATHER_BYTES));
                }
                Piece::File { .. } => more = true,
                Piece::Bytes(_) => {}
            }
            if more || slices.len() == GATHER_SLICES || size >= most.min(GATHER_BYTES) {
                break;
            }
        }
        sys::send(socket, &slices, more)
    }

    /// Sends the next pieces through `scratch`, short ranges included.
    fn send_copied(
        &self,
        socket: &impl AsFd,
        scratch: &mut Vec<u8>,
        most: usize,
    ) -> io::Result<usize> {
        let more = self.copy_pieces(scratch, most, SHORT)?;
        sys::send(socket, &[IoSlice::new(scratch)], more)
    }

    /// Copies the next pieces to `scratch`, up to `most` bytes or a range that is longer than
    /// `longest`. Returns whether such a range follows.
    fn copy_pieces(&self, scratch: &mut Vec<u8>, most: usize, longest: usize) -> io::Result<bool> {
        scratch.clear();
        for piece in self.pieces() {
            let room = most - scratch.len();
            if room == 0 {
                break;
            }
            match piece {
                Piece::Bytes(bytes) => {
                    scratch.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                }
                Piece::File { range, from } if range.len - from <= longest => {
                    read_range(range, from, room, scratch)?;
                }
                Piece::File { .. } => return Ok(true),
            }
        }
        Ok(false)
    }

    /// The unsent pieces, from the cursor on.
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut skip = (self.buf_at, self.range, self.range_at);
        self.outputs.iter().flat_map(move |output| {
            let start = std::mem::take(&mut skip);
            Pieces { output, buf_at: start.0, range: start.1, range_at: start.2 }
        })
    }

    /// Moves the cursor past `count` sent bytes.
    fn advance(&mut self, mut count: usize) {
        while let Some(output) = self.outputs.front() {
            let bound = output.files.get(self.range).map_or(output.buf.len(), |(at, _)| *at);
            let bytes = bound.saturating_sub(self.buf_at).min(count);
            self.buf_at += bytes;
            count -= bytes;
            if self.buf_at < bound {
                return;
            }
            match output.files.get(self.range) {
                Some((_, range)) => {
                    let taken = (range.len - self.range_at).min(count);
                    self.range_at += taken;
                    count -= taken;
                    if self.range_at < range.len {
                        return;
                    }
                    (self.range, self.range_at) = (self.range + 1, 0);
                }
                None => {
                    self.memory -= cost(output);
                    self.outputs.pop_front();
                    (self.buf_at, self.range, self.range_at) = (0, 0, 0);
                }
            }
        }
    }
}

/// The pieces of one output from a cursor on; empty ones are left out.
struct Pieces<'a> {
    output: &'a Output,
    buf_at: usize,
    range: usize,
    range_at: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let output = self.output;
        loop {
            let next = output.files.get(self.range);
            let bound = next.map_or(output.buf.len(), |(at, _)| *at);
            if let Some(bytes) = output.buf.get(self.buf_at..bound)
                && !bytes.is_empty()
            {
                self.buf_at = bound;
                return Some(Piece::Bytes(bytes));
            }
            let (_, range) = next?;
            let from = std::mem::take(&mut self.range_at);
            self.range += 1;
            if from < range.len {
                return Some(Piece::File { range, from });
            }
        }
    }
}

fn cost(output: &Output) -> usize {
    output.buf.capacity() + output.files.len() * RANGE_COST
}

fn send_range(
    socket: &impl AsFd,
    range: &FileRange,
    from: usize,
    most: usize,
) -> io::Result<usize> {
    let position = range.position + from as u64;
    match sys::sendfile(socket, &range.file, position, most.min(range.len - from))? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

fn read_range(
    range: &FileRange,
    from: usize,
    most: usize,
    scratch: &mut Vec<u8>,
) -> io::Result<()> {
    let start = scratch.len();
    scratch.resize(start + most.min(range.len - from), 0);
    let Some(room) = scratch.get_mut(start..) else { return Ok(()) };
    range.file.read_exact_at(room, range.position + from as u64)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use super::*;

    fn file_of(bytes: &[u8]) -> Arc<std::fs::File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(file)
    }

    /// Outputs of every mixture of bytes, short and long ranges, and what they are on the wire.
    fn mixed() -> (Vec<Output>, Vec<u8>) {
        let content: Vec<u8> = (0..400_000_u32).map(|n| (n % 251) as u8).collect();
        let file = file_of(&content);
        let range = |position: usize, len| FileRange {
            file: Arc::clone(&file),
            position: position as u64,
            len,
        };
        let outputs = vec![
            Output { buf: b"plain".to_vec(), files: vec![], ..Output::default() },
            Output {
                buf: b"headtail".to_vec(),
                files: vec![(4, range(7, 200_000))],
                ..Output::default()
            },
            Output {
                buf: vec![],
                files: vec![(0, range(0, 10)), (0, range(9, 0))],
                ..Output::default()
            },
            Output {
                buf: vec![b'x'; 3000],
                files: (0..1000).map(|n| (n * 3, range(n, 300))).collect(),
                ..Output::default()
            },
            Output { buf: b"z".to_vec(), files: vec![(1, range(0, 400_000))], ..Output::default() },
            Output { buf: vec![b'y'; 600_000], files: vec![], ..Output::default() },
        ];
        let mut wire = Vec::new();
        for output in &outputs {
            let mut at = 0;
            for (position, range) in &output.files {
                wire.extend_from_slice(&output.buf[at..*position]);
                let start = range.position as usize;
                wire.extend_from_slice(&content[start..start + range.len]);
                at = *position;
            }
            wire.extend_from_slice(&output.buf[at..]);
        }
        (outputs, wire)
    }

    #[test]
    fn bytes_and_file_ranges_are_sent_in_order_through_partial_sends() {
        for share in [SHARE, SMALL_SHARE, 1000] {
            let (outputs, wire) = mixed();
            let (near, mut far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                far.read_to_end(&mut all).unwrap();
                all
            });
            let mut send_queue = SendQueue::default();
            outputs.into_iter().for_each(|output| send_queue.push(output));
            let mut scratch = Vec::new();
            loop {
                let (flushed, sent) = send_queue.flush(&near, &mut scratch, share).unwrap();
                assert!(sent < share + SHORT, "{sent} bytes of a share of {share}");
                if flushed == FlushResult::All {
                    break;
                }
                std::thread::yield_now();
            }
            assert_eq!(send_queue.memory(), 0);
            drop(near);
            assert!(reader.join().unwrap() == wire);
        }
    }

    #[test]
    fn a_truncated_file_ends_the_connection() {
        let file = file_of(&[7; 100_000]);
        let (near, _far) = UnixStream::pair().unwrap();
        for len in [200, 50_000] {
            let range = FileRange { file: Arc::clone(&file), position: 99_900, len };
            let mut send_queue = SendQueue::default();
            send_queue.push(Output { buf: vec![], files: vec![(0, range)], ..Output::default() });
            let error = loop {
                match send_queue.flush(&near, &mut Vec::new(), SHARE) {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
