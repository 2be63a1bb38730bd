//! The coordinator of all transactional ids, and its log.
//!
//! Like the broker's, it appends a change before it applies it, answers when the append is
//! committed, and refuses other requests of the id meanwhile. A successor loads the log, of which
//! an uncommitted end may be lost, and has the markers of all prepared transactions written again.

use std::collections::{BTreeMap, BTreeSet};

use crate::broker::transactions::records::{self, TopicNames, TransactionRecord};
use crate::broker::transactions::step::{Event, Moment, Next, Outcome, Step, step};
use crate::broker::transactions::transaction::{ProducerIdentity, Transaction};
use krust::ids::TopicPartition;
use krust::protocol::ErrorCode;
use krust::record::control::EndTransactionMarker;
use krust::wire::Writer;

use super::messages::{Asked, Marker, Message, Request};

pub const TIMEOUT_MS: i32 = 10_000;

/// A record of the coordinator's log, encoded.
struct LogRecord {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// An appended change that is not committed yet.
struct Pending {
    next: Option<Transaction>,
    request: Option<(Request, Result<ProducerIdentity, ErrorCode>)>,
}

/// A transaction whose markers are being written.
struct Ending {
    commit: bool,
    epoch: i16,
    markers: BTreeMap<usize, Marker>,
}

pub struct Coordinator {
    log: Vec<LogRecord>,
    /// How many records are committed.
    pub committed: usize,
    epoch: i32,
    known: BTreeMap<String, Transaction>,
    pending: BTreeMap<String, Pending>,
    endings: BTreeMap<String, Ending>,
    last_id: i64,
    pub now_ms: i64,
    names: TopicNames,
}

/// A committed record of the log, for the oracle.
pub struct LoggedTransaction {
    pub id: String,
    pub transaction: Transaction,
}

impl Coordinator {
    pub fn new() -> Self {
        Self {
            log: Vec::new(),
            committed: 0,
            epoch: 0,
            known: BTreeMap::new(),
            pending: BTreeMap::new(),
            endings: BTreeMap::new(),
            last_id: 0,
            now_ms: 1_000,
            names: TopicNames::default(),
        }
    }

    /// Whether no transaction is open or ending, and nothing waits.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.known.values().all(|each| each.state.is_settled())
    }

    pub fn has_uncommitted(&self) -> bool {
        self.committed < self.log.len()
    }

    pub fn ids(&self) -> Vec<String> {
        self.known.keys().cloned().collect()
    }

    /// Handles a client's request; `Some`: the answer of now.
    pub fn request(&mut self, request: &Request) -> Option<Result<ProducerIdentity, ErrorCode>> {
        let added;
        let event = |new_id| match &request.what {
            Asked::InitProducerId { expected } => {
                Event::InitProducerId { timeout_ms: TIMEOUT_MS, expected: *expected, new_id }
            }
            Asked::EndTxn { producer, commit, version } => {
                Event::EndTxn { producer: *producer, commit: *commit, version: *version, new_id }
            }
            _ => unreachable!("a partition is asked"),
        };
        let made = match &request.what {
            Asked::AddPartition { producer, partition } => {
                added = [place(*partition)];
                let event = Event::AddPartitions { producer: *producer, partitions: &added };
                self.step(&request.id, &event)
            }
            _ => match self.step(&request.id, &event(None)) {
                Ok(Step { outcome: Outcome::NeedsProducerId, .. }) => {
                    self.last_id += 1;
                    self.step(&request.id, &event(Some(self.last_id)))
                }
                other => other,
            },
        };
        let Step { next, outcome } = match made {
            Ok(step) => step,
            Err(code) => return Some(Err(code)),
        };
        let answer = match outcome {
            Outcome::Done(producer) | Outcome::WriteMarkers { producer, .. } => Ok(producer),
            Outcome::EndsFirst => Err(ErrorCode::ConcurrentTransactions),
            Outcome::NeedsProducerId | Outcome::Verified(_) => unreachable!("{outcome:?}"),
        };
        if next == Next::Unchanged {
            return Some(answer);
        }
        self.append(&request.id, next, Some((request.clone(), answer)));
        None
    }

    /// What the coordinator says to a partition that verifies a batch, or adds it under protocol 2.
    pub fn verify(
        &mut self,
        request: &Request,
        producer: ProducerIdentity,
        number: usize,
        adds: bool,
    ) -> ErrorCode {
        let partitions = [place(number)];
        let event = match adds {
            true => Event::AddPartitions { producer, partitions: &partitions },
            false => Event::Verify { producer, partitions: &partitions },
        };
        match self.step(&request.id, &event) {
            Err(code) => code,
            Ok(Step { outcome: Outcome::Verified(codes), .. }) => codes[0],
            Ok(Step { next: Next::Unchanged, .. }) => ErrorCode::None,
            // The batch waits until the partition's addition is committed; here it comes again.
            Ok(Step { next, .. }) => {
                self.append(&request.id, next, None);
                ErrorCode::ConcurrentTransactions
            }
        }
    }

    fn step(&self, id: &str, event: &Event<'_>) -> Result<Step, ErrorCode> {
        if self.pending.contains_key(id) {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let at = Moment { now_ms: self.now_ms, max_timeout_ms: 900_000, expiration_ms: i64::MAX };
        step(self.known.get(id), event, at)
    }

    fn append(
        &mut self,
        id: &str,
        next: Next,
        request: Option<(Request, Result<ProducerIdentity, ErrorCode>)>,
    ) {
        let next = match next {
            Next::Changed(transaction) => Some(transaction),
            Next::Removed => None,
            Next::Unchanged => return,
        };
        let mut key = Writer::new();
        records::write_key(id, &mut key);
        let value = next.as_ref().map(|transaction| {
            let mut value = Writer::new();
            records::write_value(transaction, records::value_version(2), &mut value);
            value.buf
        });
        self.log.push(LogRecord { key: key.buf, value });
        self.pending.insert(id.to_owned(), Pending { next, request });
    }

    /// Commits all that is appended: it is applied, and its clients get their answers.
    pub fn commit(&mut self, out: &mut Vec<Message>) -> Vec<LoggedTransaction> {
        self.committed = self.log.len();
        let mut logged = Vec::new();
        for (id, Pending { next, request }) in std::mem::take(&mut self.pending) {
            match next {
                None => drop(self.known.remove(&id)),
                Some(transaction) => {
                    self.known.insert(id.clone(), transaction.clone());
                    if transaction.state.marker().is_some() {
                        self.begin_markers(&id, out);
                    } else {
                        self.endings.remove(&id);
                    }
                    logged.push(LoggedTransaction { id, transaction });
                }
            }
            if let Some((Request { client, number, .. }, answer)) = request {
                out.push(Message::Answer { client, number, answer });
            }
        }
        logged
    }

    fn begin_markers(&mut self, id: &str, out: &mut Vec<Message>) {
        let transaction = &self.known[id];
        let commit = transaction.state.marker().unwrap();
        let ends = EndTransactionMarker {
            producer_id: transaction.producer.id,
            producer_epoch: transaction.producer.epoch,
            coordinator_epoch: self.epoch,
            commit,
        };
        let markers: BTreeMap<usize, Marker> = transaction
            .partitions
            .iter()
            .map(|partition| usize::try_from(partition.partition).unwrap())
            .map(|partition| {
                let version = transaction.client_version;
                (partition, Marker { id: id.to_owned(), partition, ends, version })
            })
            .collect();
        out.extend(markers.values().cloned().map(Message::Marker));
        let epoch = ends.producer_epoch;
        self.endings.insert(id.to_owned(), Ending { commit, epoch, markers });
    }

    /// Sends the markers that have no answer again.
    pub fn repeat_markers(&mut self, out: &mut Vec<Message>) {
        let all = self.endings.values().flat_map(|ending| ending.markers.values());
        out.extend(all.cloned().map(Message::Marker));
    }

    /// Whether the transaction of a marker is still waiting for markers.
    pub fn is_ending(&self, marker: &Marker) -> bool {
        let ending = self.endings.get(&marker.id);
        ending.is_some_and(|it| {
            it.commit == marker.ends.commit && it.epoch == marker.ends.producer_epoch
        })
    }

    /// A partition has a marker, or refuses it.
    pub fn marked(&mut self, marker: &Marker, code: ErrorCode) {
        let Some(ending) = self.endings.get_mut(&marker.id) else { return };
        let is_same =
            ending.markers.get(&marker.partition).is_some_and(|it| it.ends == marker.ends);
        // A partition that knows a later epoch has ended the transaction already.
        if is_same && matches!(code, ErrorCode::None | ErrorCode::InvalidProducerEpoch) {
            ending.markers.remove(&marker.partition);
        }
    }

    /// Appends that a transaction is complete whose markers are written.
    pub fn complete(&mut self) {
        let done: BTreeSet<String> = self
            .endings
            .iter()
            .filter(|(_, ending)| ending.markers.is_empty())
            .map(|(id, _)| id.clone())
            .collect();
        for id in done {
            if let Ok(Step { next, .. }) = self.step(&id, &Event::MarkersWritten) {
                self.append(&id, next, None);
            }
        }
    }

    /// Aborts the transactions whose time is up.
    pub fn time_out(&mut self) {
        for id in self.ids() {
            if let Ok(Step { next, .. }) = self.step(&id, &Event::TimedOut) {
                self.append(&id, next, None);
            }
        }
    }

    /// It dies, and a successor loads its log, of which `kept` uncommitted records are left.
    pub fn fail_over(&mut self, kept: usize, out: &mut Vec<Message>) -> Vec<LoggedTransaction> {
        self.log.truncate(self.committed + kept);
        let first = self.committed;
        self.committed = self.log.len();
        self.epoch += 1;
        self.known.clear();
        self.pending.clear();
        self.endings.clear();
        let mut logged = Vec::new();
        for (position, LogRecord { key, value }) in self.log.iter().enumerate() {
            match records::read(Some(key), value.as_deref(), &mut self.names).unwrap() {
                TransactionRecord::Updated(id, transaction) => {
                    self.known.insert(id.to_owned(), transaction.clone());
                    if position >= first {
                        logged.push(LoggedTransaction { id: id.to_owned(), transaction });
                    }
                }
                TransactionRecord::Removed(id) => drop(self.known.remove(id)),
                TransactionRecord::Other => panic!("a record that it wrote itself"),
            }
        }
        for id in self.ids() {
            if self.known[&id].state.marker().is_some() {
                self.begin_markers(&id, out);
            }
        }
        logged
    }
}

fn place(partition: usize) -> TopicPartition {
    TopicPartition::new("data", i32::try_from(partition).unwrap())
}
