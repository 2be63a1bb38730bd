//! The batches of Produce requests between check and reply: staged one after the other, committed
//! once per partition, then answered.
//!
//! Threads: owned by one network thread or one worker.

use std::sync::Arc;

use crate::broker::handlers::produce::append::Append;
use crate::broker::handlers::produce::parts::{Part, named};
use crate::broker::handlers::produce::reply::DelayedProduce;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::partition::{Acks, Partition};
use crate::broker::state::waking::Wakes;
use crate::protocol::ErrorCode;
use crate::protocol::produce::ProduceRequest;
use crate::storage::Stage;

/// How many of the last partitions to commit are searched for a repeated one.
const LOOK_BACK: usize = 4;

/// Buffers that one reactor thread reuses from event to event.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) parts: Vec<Part>,
    pub(crate) commits: Vec<(Arc<Partition>, Stage)>,
    pub(crate) converted: Vec<u8>,
}

/// How a request is answered after its batches are committed.
pub(crate) enum Answer {
    /// No reply: acks=0.
    None,
    /// No reply (acks=0), and it failed: the connection is closed.
    Close,
    Now,
    /// When watermarks have passed its records.
    Later(DelayedProduce),
}

impl Answer {
    /// Of a request of some version whose parts are these. They are moved out where it is late.
    pub(crate) fn of(message: &ProduceRequest<'_>, (version, parts): (i16, &mut [Part])) -> Self {
        let acks = match message.acks {
            0 if parts.iter().any(|part| part.error != ErrorCode::None) => return Self::Close,
            0 => return Self::None,
            1 => Acks::Leader,
            _ => Acks::All,
        };
        match parts.iter().all(|part| part.is_acknowledged(acks)) {
            true => Self::Now,
            false => Self::Later(DelayedProduce::new(acks, message, (version, parts))),
        }
    }
}

impl Scratch {
    /// Stages the parts of a request from number `from` on. False where one of them takes this
    /// thread too long: those before it are staged.
    pub(crate) fn stage(
        &mut self,
        image: &ClusterImage,
        (append, message, from): (&Append, &ProduceRequest<'_>, usize),
    ) -> bool {
        let mut skip = from;
        for topic in &message.topic_data {
            let found = named(topic, append.version).find(image);
            for data in &topic.partition_data {
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                let part = match found {
                    Ok(found) => append.partition(found, data, &mut self.converted),
                    Err(error) => Some(Part::refused(error)),
                };
                let Some(part) = part else { return false };
                self.commit_later(&part);
                self.parts.push(part);
            }
        }
        true
    }

    /// Writes what is staged, moves watermarks, and puts failures into the parts.
    pub(crate) fn commit(&mut self, wakes: &mut Wakes<'_>) {
        for (partition, stage) in self.commits.drain(..) {
            if partition.log.commit(stage).is_err() {
                // Part of it may have been written before the failure: each stage knows.
                let parts = self.parts.iter_mut().filter(|part| {
                    part.partition.as_ref().is_some_and(|other| Arc::ptr_eq(other, &partition))
                });
                parts.for_each(Part::settle);
            }
            partition.advance(wakes);
        }
    }

    /// Notes what a part needs committed. A partition that several batches of the event went to is
    /// noted once, with the last of them.
    pub(crate) fn commit_later(&mut self, part: &Part) {
        let (Some(partition), Some(stage)) = (&part.partition, part.stage) else { return };
        let recent = self.commits.iter_mut().rev().take(LOOK_BACK);
        match recent.into_iter().find(|(other, _)| Arc::ptr_eq(other, partition)) {
            Some((_, last)) => *last = stage,
            None => self.commits.push((Arc::clone(partition), stage)),
        }
    }
}
