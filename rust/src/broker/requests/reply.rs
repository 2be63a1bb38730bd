//! Replies of a connection and their order.
//!
//! Kafka's clients match replies to requests by their order, so a reply that is ready early waits
//! for the ones before it. [`Replies`] is a queue of parts. A part is a ready output, or a slot
//! that is filled later. Consecutive replies that are ready at once share one [`Output`], so that a
//! burst of small requests is sent in one write.
//! Invariant: the part with serial s is at index s - first; serials rise by one for each part.
//! Threads: owned by the connection's network thread.
//! Not promised: a limit. The net module stops reading while too many bytes wait here.

use std::collections::VecDeque;

use crate::memory::Lease;
use crate::storage::files::FileRange;

/// Bytes to send. Some are in memory, some go from a file to the socket.
#[derive(Debug, Default)]
pub struct Output {
    /// The bytes in memory: whole replies, each with its length in front.
    pub buf: Vec<u8>,
    /// Ranges of files, each with the position in `buf` before which it belongs; positions do not
    /// fall.
    pub files: Vec<(usize, FileRange)>,
    /// For how long the connection is not read after this has filled a slot.
    pub mute_ms: i32,
    /// The memory of a large `buf` until it is sent.
    pub lease: Option<Lease>,
}

/// A reserved position in a connection's order of replies; the reply fills it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u64);

/// The replies of one connection in the order of its requests.
#[derive(Debug, Default)]
pub struct Replies {
    parts: VecDeque<ReplyPart>,
    first: u64,
    delayed: usize,
    /// The memory of the delayed requests, in bytes.
    delayed_bytes: usize,
    /// Bytes in memory of all ready parts but the last one.
    sealed: usize,
    left: usize,
    mute_ms: i32,
}

/// From this many bytes of replies on, no further request of a connection is handled until some
/// were sent.
const FULL_BYTES: usize = 1 << 20;
/// The first capacity of an output: the replies to a few small requests.
const FIRST_BYTES: usize = 1 << 10;

#[derive(Debug)]
enum ReplyPart {
    Ready(Output),
    /// A slot. Its request takes this many bytes.
    Delayed(usize),
}

impl Output {
    /// The size of this output on the wire.
    pub fn size(&self) -> usize {
        self.files.iter().fold(self.buf.len(), |sum, (_, range)| sum.saturating_add(range.len))
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty() && self.files.is_empty()
    }
}

impl Replies {
    /// The output to which the caller appends a reply that is ready.
    pub fn ready(&mut self) -> &mut Output {
        if !matches!(self.parts.back(), Some(ReplyPart::Ready(_))) {
            let buf = Vec::with_capacity(FIRST_BYTES);
            self.parts.push_back(ReplyPart::Ready(Output { buf, ..Output::default() }));
        }
        match self.parts.back_mut() {
            Some(ReplyPart::Ready(output)) => output,
            _ => unreachable!("a ready part was pushed"),
        }
    }

    /// Reserves a slot for the reply to a delayed request.
    pub fn reserve(&mut self) -> Slot {
        self.reserve_holding(0)
    }

    /// Reserves a slot for a request that takes `bytes` while it is delayed.
    pub fn reserve_holding(&mut self, bytes: usize) -> Slot {
        let serial = self.first + self.parts.len() as u64;
        self.sealed += self.tail();
        self.parts.push_back(ReplyPart::Delayed(bytes));
        self.delayed_bytes += bytes;
        self.delayed += 1;
        Slot(serial)
    }

    /// Fills a slot with its reply (empty: none is sent). False if the slot is not delayed.
    pub fn fill(&mut self, slot: Slot, output: Output) -> bool {
        let part = slot
            .0
            .checked_sub(self.first)
            .and_then(|index| usize::try_from(index).ok())
            .and_then(|index| self.parts.get_mut(index));
        match part {
            Some(part @ ReplyPart::Delayed(_)) => {
                if let ReplyPart::Delayed(bytes) = part {
                    self.delayed_bytes -= *bytes;
                }
                let size = output.buf.len();
                self.mute_ms = self.mute_ms.max(output.mute_ms);
                *part = ReplyPart::Ready(output);
                self.delayed -= 1;
                if slot.0 + 1 < self.first + self.parts.len() as u64 {
                    self.sealed += size;
                }
                true
            }
            _ => false,
        }
    }

    /// Removes the next output that may be sent.
    pub fn take(&mut self) -> Option<Output> {
        match self.parts.pop_front()? {
            ReplyPart::Ready(output) => {
                self.first += 1;
                if !self.parts.is_empty() {
                    self.sealed -= output.buf.len();
                }
                Some(output)
            }
            delayed @ ReplyPart::Delayed(_) => {
                self.parts.push_front(delayed);
                None
            }
        }
    }

    /// The number of delayed slots.
    pub fn delayed(&self) -> usize {
        self.delayed
    }

    /// Whether no output waits to be sent and no slot is delayed.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The memory of replies that are ready and of delayed requests, in bytes.
    pub fn held(&self) -> usize {
        self.sealed + self.tail() + self.delayed_bytes
    }

    /// Whether so many bytes wait to be sent that the service must leave the rest of its frames.
    pub fn is_full(&self) -> bool {
        self.held() >= FULL_BYTES
    }

    /// Notes that the last `frames` frames of an event were not handled. The service gets them
    /// again after replies were sent.
    pub fn leave(&mut self, frames: usize) {
        self.left = frames;
    }

    /// Returns how many frames the last event left, and resets the number.
    pub fn left(&mut self) -> usize {
        std::mem::take(&mut self.left)
    }

    /// Mutes the connection for this time.
    pub fn mute(&mut self, mute_ms: i32) {
        self.mute_ms = self.mute_ms.max(mute_ms);
    }

    /// Whether the connection is muted.
    #[inline]
    pub fn is_muted(&self) -> bool {
        self.mute_ms > 0
    }

    /// Returns for how long the connection is muted, and resets the time.
    pub fn muted_ms(&mut self) -> i32 {
        std::mem::take(&mut self.mute_ms)
    }

    fn tail(&self) -> usize {
        match self.parts.back() {
            Some(ReplyPart::Ready(output)) => output.buf.len(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Output {
        Output { buf: text.as_bytes().to_vec(), ..Output::default() }
    }

    #[test]
    fn a_late_reply_keeps_its_place() {
        let mut replies = Replies::default();
        replies.ready().buf.extend_from_slice(b"a");
        let (first, second) = (replies.reserve(), replies.reserve());
        replies.ready().buf.extend_from_slice(b"d");
        replies.ready().buf.extend_from_slice(b"e");

        assert_eq!(replies.take().unwrap().buf, b"a");
        assert!(replies.take().is_none());
        assert!(replies.fill(second, bytes("c")));
        assert!(replies.take().is_none());
        assert_eq!((replies.delayed(), replies.held()), (1, 3));
        assert!(replies.fill(first, bytes("b")));
        let rest: Vec<Vec<u8>> = std::iter::from_fn(|| replies.take()).map(|o| o.buf).collect();
        assert_eq!(rest, [b"b".to_vec(), b"c".to_vec(), b"de".to_vec()]);
        assert!(replies.is_empty());
    }

    #[test]
    fn what_is_held_is_what_was_put_in_and_not_taken() {
        let mut replies = Replies::default();
        replies.ready().buf.extend_from_slice(b"abc");
        let slot = replies.reserve();
        replies.ready().buf.extend_from_slice(b"defg");
        let last = replies.reserve();
        assert_eq!(replies.held(), 7);
        replies.take();
        assert_eq!(replies.held(), 4);
        replies.fill(last, bytes("hi"));
        replies.fill(slot, bytes("x"));
        assert_eq!(replies.held(), 7);
        while replies.take().is_some() {}
        assert_eq!(replies.held(), 0);
    }

    #[test]
    fn what_waiting_requests_hold_counts_until_they_are_answered() {
        let mut replies = Replies::default();
        let slots =
            [replies.reserve_holding(FULL_BYTES / 2), replies.reserve_holding(FULL_BYTES / 2)];
        assert!(replies.is_full());
        replies.fill(slots[1], bytes("late"));
        assert_eq!((replies.is_full(), replies.held()), (false, FULL_BYTES / 2 + 4));
        replies.fill(slots[0], Output::default());
        assert_eq!(replies.held(), 4);
    }

    #[test]
    fn a_slot_is_filled_once() {
        let mut replies = Replies::default();
        let slot = replies.reserve();
        assert!(replies.fill(slot, bytes("x")));
        assert!(!replies.fill(slot, bytes("y")));
        assert_eq!(replies.take().unwrap().buf, b"x");
        assert!(!replies.fill(slot, bytes("z")));
        assert!(!replies.fill(Slot(7), bytes("z")));
    }
}
