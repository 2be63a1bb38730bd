//! Clients that write. Most are idempotent producers with acks=all that repeat a batch until it is
//! acknowledged, with up to five on their way; one is a plain producer with acks=1 that repeats
//! nothing. A broker takes the first sequence number that it sees of a producer, whichever it is,
//! so a producer waits for its first batch before it sends the next.

use std::collections::VecDeque;

use krust::protocol::ErrorCode;

use super::machine::StoredRecord;
use super::messages::Message;
use super::random::Random;

/// A producer repeats what was not answered for so long.
const PATIENCE_MS: i64 = 45;
const IN_FLIGHT: u32 = 5;
const MOST_RECORDS: i64 = 3;

/// A batch on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NewBatch {
    pub client: usize,
    /// Counts the batches of a client.
    pub number: u32,
    pub records: i32,
    /// The value of the first record; each record's is unique in a run.
    pub value: u64,
    /// -1: not idempotent, and acks=1.
    pub producer_id: i64,
    pub producer_epoch: i16,
    /// The sequence number of the first record.
    pub sequence: i32,
}

pub struct Client {
    number: usize,
    is_idempotent: bool,
    producer_epoch: i16,
    next_number: u32,
    next_sequence: i32,
    next_value: u64,
    /// A batch of this producer epoch was acknowledged.
    is_known: bool,
    /// In the order of their sequence numbers, with the time at which each was sent last.
    in_flight: VecDeque<(NewBatch, Option<i64>)>,
    /// Whom it takes for the leader.
    leader: usize,
}

impl Client {
    pub fn new(number: usize, is_idempotent: bool) -> Self {
        Self {
            number,
            is_idempotent,
            producer_epoch: 0,
            next_number: 0,
            next_sequence: 0,
            next_value: (number as u64) << 32,
            is_known: false,
            in_flight: VecDeque::new(),
            leader: 0,
        }
    }

    /// Whether all that it wrote is acknowledged.
    pub fn is_done(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// The offset of the oldest record that a broker needs to know its next batch or to recognise a
    /// batch that it repeats.
    pub fn oldest_needed(&self, held: &[StoredRecord]) -> Option<i64> {
        let oldest = self.in_flight.front().map_or(self.next_value, |(batch, _)| batch.value);
        let id =
            if self.is_idempotent { i64::try_from(self.number).unwrap() } else { return None };
        let own = held.iter().rev().filter(|it| it.producer_id == id);
        own.map(|it| (it.value, it.offset)).find(|(value, _)| *value <= oldest).map(|it| it.1)
    }

    /// Its turn: it writes a new record, unless `is_calm`, and repeats what has no answer.
    pub fn turn(
        &mut self,
        (now_ms, is_calm): (i64, bool),
        (brokers, random): (usize, &mut Random),
        sends: &mut Vec<(usize, Message)>,
    ) {
        let is_late = |sent: &Option<i64>| sent.is_some_and(|at| now_ms - at > PATIENCE_MS);
        if !self.is_idempotent || self.in_flight.iter().any(|(_, sent)| is_late(sent)) {
            self.leader = random.index(brokers);
        }
        // A broker remembers the last five batches of a producer.
        let oldest = self.in_flight.front().map_or(self.next_number, |(it, _)| it.number);
        if !is_calm && self.next_number - oldest < IN_FLIGHT {
            let batch = self.next_batch(random);
            if !self.is_idempotent {
                sends.push((self.leader, Message::Produce(batch)));
                return;
            }
            self.in_flight.push_back((batch, None));
        }
        let most = if self.is_known { self.in_flight.len() } else { 1 };
        for (batch, sent) in self.in_flight.iter_mut().take(most) {
            if sent.is_none() || is_late(sent) {
                *sent = Some(now_ms);
                sends.push((self.leader, Message::Produce(*batch)));
            }
        }
    }

    fn next_batch(&mut self, random: &mut Random) -> NewBatch {
        let records = i32::try_from(random.between(1, MOST_RECORDS)).unwrap();
        let batch = NewBatch {
            client: self.number,
            number: self.next_number,
            records,
            value: self.next_value,
            producer_id: if self.is_idempotent { i64::try_from(self.number).unwrap() } else { -1 },
            producer_epoch: if self.is_idempotent { self.producer_epoch } else { -1 },
            sequence: if self.is_idempotent { self.next_sequence } else { -1 },
        };
        self.next_number += 1;
        self.next_sequence += records;
        self.next_value += u64::from(records.unsigned_abs());
        batch
    }

    /// A broker answered. `begins_anew`: acknowledged records were lost by a decision of the
    /// operator, so sequence numbers that do not fit are a reason to take a new producer epoch.
    pub fn answered(
        &mut self,
        (from, batch): (usize, NewBatch),
        outcome: Result<i64, ErrorCode>,
        (brokers, begins_anew): (usize, bool),
        random: &mut Random,
    ) {
        let Some(at) = self.in_flight.iter().position(|(it, _)| *it == batch) else { return };
        match outcome {
            Ok(_) => {
                self.is_known = true;
                self.in_flight.remove(at);
            }
            Err(ErrorCode::NotLeaderOrFollower) => {
                if self.leader == from {
                    self.leader = random.index(brokers);
                }
                self.in_flight[at].1 = None;
            }
            Err(ErrorCode::OutOfOrderSequenceNumber | ErrorCode::InvalidProducerEpoch)
                if begins_anew =>
            {
                self.is_known = false;
                self.producer_epoch += 1;
                self.next_sequence = 0;
                for (batch, sent) in &mut self.in_flight {
                    batch.producer_epoch = self.producer_epoch;
                    batch.sequence = self.next_sequence;
                    self.next_sequence += batch.records;
                    *sent = None;
                }
            }
            Err(_) => self.in_flight[at].1 = None,
        }
    }
}
