//! A Produce that takes long: a worker checks, converts, appends and commits what the network
//! thread did not, and answers for all of it.
//!
//! It keeps its own copy of the request, because the frame that it came in is gone. The image is
//! the newest when the worker begins, so that a partition that moved away meanwhile is not written.
//! Threads: a worker's.

use super::super::super::call::Head;
use super::super::super::parked::Wait;
use super::super::super::partition::Wakes;
use super::super::super::workers::Worked;
use super::super::super::{Broker, Output};
use super::append::Append;
use super::{Answer, Part, Scratch, reply};
use crate::protocol::produce::ProduceRequest;
use crate::wire::Reader;

/// A request that a worker is to go on with.
pub(super) struct Long {
    pub(super) head: Head,
    /// Its bytes behind the header.
    pub(super) body: Vec<u8>,
    pub(super) append: Append,
    /// Its first parts, which are committed.
    pub(super) parts: Vec<Part>,
    /// Until when its acknowledgement is waited for, on the monotonic clock.
    pub(super) deadline_ms: i64,
}

impl Long {
    pub(super) fn run(self, broker: &Broker) -> Worked {
        let Self { head, body, append, parts, deadline_ms } = self;
        let Ok(message) = ProduceRequest::decode(&mut Reader::new(&body), head.version) else {
            return Worked::Fails;
        };
        let image = broker.image();
        let from = parts.len();
        let mut scratch = Scratch { parts, ..Scratch::default() };
        scratch.stage(&image, (&append, &message, from));
        scratch.commit(&mut Wakes { here: None, mailbox: broker });
        let parts = &mut scratch.parts;
        match Answer::of(&message, (head.version, parts)) {
            Answer::None => Worked::Answer(Output::default()),
            Answer::Close => Worked::Fails,
            Answer::Now => {
                let mut output = Output::default();
                reply::write(head, &mut output, (&image, &message, parts));
                Worked::Answer(output)
            }
            Answer::Later(waiting) => Worked::wait(Wait::Produce(waiting), deadline_ms),
        }
    }
}
