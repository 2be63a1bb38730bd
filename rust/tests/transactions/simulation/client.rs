//! A transactional producer: it begins transactions, writes, and ends them, one request at a time.
//! A request without an answer is sent again as it was. After a refusal it gives the transaction up
//! and initialises itself again, as the producer that it was or as a new one.

use std::collections::BTreeSet;

use crate::broker::transactions::transaction::{ClientTransactionVersion, ProducerIdentity};
use krust::protocol::ErrorCode;

use super::messages::{Asked, Request, Write};
use super::oracle::Oracle;
use super::random::Random;

pub struct Client {
    pub number: usize,
    id: String,
    version: ClientTransactionVersion,
    producer: Option<ProducerIdentity>,
    /// The next sequence number of each partition.
    sequences: Vec<i32>,
    /// The open transaction, by the oracle's number, and its partitions.
    open: Option<usize>,
    added: BTreeSet<usize>,
    /// The request that has no answer yet.
    waiting: Option<Request>,
    /// Whether the open transaction was refused something.
    has_failed: bool,
    requests: u64,
}

impl Client {
    pub fn new(
        number: usize,
        id: String,
        version: ClientTransactionVersion,
        partitions: usize,
    ) -> Self {
        Self {
            number,
            id,
            version,
            producer: None,
            sequences: vec![0; partitions],
            open: None,
            added: BTreeSet::new(),
            waiting: None,
            has_failed: false,
            requests: 0,
        }
    }

    /// The next request, or now and then the last one again.
    pub fn act(&mut self, random: &mut Random, oracle: &mut Oracle) -> Option<Request> {
        if let Some(waiting) = &self.waiting {
            // A batch may be given up while it is on its way: its transaction is aborted.
            let is_given_up = matches!(waiting.what, Asked::Write(_)) && random.percent(3);
            if !is_given_up {
                return random.percent(10).then(|| waiting.clone());
            }
            self.has_failed = true;
        }
        let what = self.next(random, oracle);
        self.requests += 1;
        let request =
            Request { client: self.number, number: self.requests, id: self.id.clone(), what };
        self.waiting = Some(request.clone());
        Some(request)
    }

    /// Whether a producer of protocol 1 has had the answer to a request.
    pub fn is_past(&self, request: &Request) -> bool {
        let waits = self.waiting.as_ref().is_some_and(|waiting| waiting.number == request.number);
        self.version == ClientTransactionVersion::V0 && !waits
    }

    fn next(&mut self, random: &mut Random, oracle: &mut Oracle) -> Asked {
        let Some(producer) = self.producer else {
            return Asked::InitProducerId { expected: None };
        };
        let open = *self.open.get_or_insert_with(|| oracle.begin());
        let has_written = oracle.written(open) > 0;
        if self.has_failed || (has_written && random.percent(35)) {
            let commit = !self.has_failed && random.percent(70);
            oracle.ends(open, commit);
            return Asked::EndTxn { producer, commit, version: self.version };
        }
        let partition = random.below(self.sequences.len());
        if self.version == ClientTransactionVersion::V0 && !self.added.contains(&partition) {
            return Asked::AddPartition { producer, partition };
        }
        let value = oracle.value(open, partition);
        let (sequence, version) = (self.sequences[partition], self.version);
        Asked::Write(Write { producer, partition, sequence, value, version })
    }

    pub fn answered(
        &mut self,
        number: u64,
        answer: Result<ProducerIdentity, ErrorCode>,
        random: &mut Random,
        oracle: &mut Oracle,
    ) {
        let Some(request) = self.waiting.take_if(|waiting| waiting.number == number) else {
            return;
        };
        match (request.what, answer) {
            // It is sent again, under the same number: an answer to any of them counts.
            (what, Err(ErrorCode::ConcurrentTransactions)) => {
                self.waiting = Some(Request { what, ..request });
            }
            (Asked::InitProducerId { .. }, Ok(producer)) => self.restart(Some(producer)),
            (Asked::AddPartition { partition, .. }, Ok(_)) => drop(self.added.insert(partition)),
            (Asked::Write(write), Ok(_)) => {
                self.sequences[write.partition] += 1;
                oracle.acknowledged(write.value);
            }
            (Asked::EndTxn { .. }, Ok(next)) => {
                oracle.ended(self.open.take().unwrap());
                self.added.clear();
                // A batch that was given up may be in the log, so its sequence number is used.
                match (self.version, std::mem::take(&mut self.has_failed)) {
                    (ClientTransactionVersion::V2, _) => self.restart(Some(next)),
                    (ClientTransactionVersion::V0, true) => self.restart(None),
                    (ClientTransactionVersion::V0, false) => {}
                }
            }
            (Asked::AddPartition { .. } | Asked::Write(_), Err(_)) if random.percent(50) => {
                self.has_failed = true;
            }
            (_, Err(_)) => self.restart(None),
        }
    }

    fn restart(&mut self, producer: Option<ProducerIdentity>) {
        self.producer = producer;
        self.sequences.fill(0);
        self.added.clear();
        self.open = None;
        self.has_failed = false;
    }
}
