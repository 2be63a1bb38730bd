//! Long Produce requests: a worker checks, converts, appends and commits the batches that the
//! network thread left, and replies. What is long: `share`, and an append that needs a new segment.
//!
//! The worker has its own copy of the request, because the connection's buffer is reused. It takes
//! the newest cluster image, so that it does not write to a partition that has moved away.
//! Threads: a worker.

use crate::broker::handlers::produce::append::Append;
use crate::broker::handlers::produce::parts::Part;
use crate::broker::handlers::produce::reply;
use crate::broker::handlers::produce::scratch::{Answer, Scratch};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::delayed::Worked;
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::state::waking::Wakes;
use crate::protocol::produce::ProduceRequest;
use crate::wire::Reader;

/// A request that a worker finishes.
pub(crate) struct LongProduce {
    pub(crate) head: Head,
    /// Its bytes behind the header.
    pub(crate) body: Vec<u8>,
    pub(crate) append: Append,
    /// Its first parts, which are committed.
    pub(crate) parts: Vec<Part>,
    /// Until when its acknowledgement is waited for, on the monotonic clock.
    pub(crate) deadline_ms: i64,
}

impl LongProduce {
    pub(crate) fn run(self, broker: &Broker) -> Worked {
        let Self { head, body, append, parts, deadline_ms } = self;
        let Ok(message) = ProduceRequest::decode(&mut Reader::new(&body), head.version) else {
            return Worked::Fails;
        };
        let image = broker.image();
        let from = parts.len();
        let mut scratch = Scratch { parts, ..Scratch::default() };
        scratch.stage(&image, (&append, &message, from));
        scratch.commit(&mut Wakes { here: None, waker: broker });
        let parts = &mut scratch.parts;
        match Answer::of(&message, (head.version, parts)) {
            Answer::None => Worked::Answer(Output::default()),
            Answer::Close => Worked::Fails,
            Answer::Now => {
                let mut output = Output::default();
                reply::write(head, &mut output, (&image, &message, parts));
                Worked::Answer(output)
            }
            Answer::Later(waiting) => Worked::wait(Box::new(waiting), deadline_ms),
        }
    }
}
