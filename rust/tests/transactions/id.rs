//! One transactional id, stepped by hand.

use krust::broker::transactions::step::{Event, Moment, Next, Outcome, Step, step};
use krust::broker::transactions::transaction::{
    ClientTransactionVersion, ProducerIdentity, Transaction, TransactionState,
};
use krust::ids::TopicPartition;
use krust::protocol::ErrorCode;

pub const V0: ClientTransactionVersion = ClientTransactionVersion::V0;
pub const V2: ClientTransactionVersion = ClientTransactionVersion::V2;
pub const TIMEOUT_MS: i32 = 60_000;
const EXPIRATION_MS: i64 = 1_000_000;

/// A transactional id and the time.
#[derive(Debug, Default)]
pub struct Id {
    pub now: Option<Transaction>,
    pub now_ms: i64,
    /// The last fresh producer id that was given.
    pub last_id: i64,
}

pub fn producer(id: i64, epoch: i16) -> ProducerIdentity {
    ProducerIdentity { id, epoch }
}

pub fn partition(number: i32) -> TopicPartition {
    TopicPartition::new("orders", number)
}

impl Id {
    /// An id whose producer was initialised.
    pub fn initialised() -> Self {
        let mut id = Self { now_ms: 1000, ..Self::default() };
        assert_eq!(id.init(None), Ok(producer(1, 0)));
        id
    }

    /// An id with an open transaction of one partition.
    pub fn ongoing() -> Self {
        let mut id = Self::initialised();
        assert_eq!(id.add(producer(1, 0), 0), Ok(()));
        id
    }

    /// The same, at an epoch.
    pub fn ongoing_at(epoch: i16) -> Self {
        let mut id = Self::ongoing();
        id.now.as_mut().unwrap().producer.epoch = epoch;
        id
    }

    pub fn step(&mut self, event: &Event<'_>) -> Result<Outcome, ErrorCode> {
        let at =
            Moment { now_ms: self.now_ms, max_timeout_ms: 900_000, expiration_ms: EXPIRATION_MS };
        let Step { next, outcome } = step(self.now.as_ref(), event, at)?;
        match next {
            Next::Unchanged => {}
            Next::Changed(transaction) => self.now = Some(transaction),
            Next::Removed => self.now = None,
        }
        Ok(outcome)
    }

    pub fn init(
        &mut self,
        expected: Option<ProducerIdentity>,
    ) -> Result<ProducerIdentity, ErrorCode> {
        self.init_for(TIMEOUT_MS, expected)
    }

    pub fn init_for(
        &mut self,
        timeout_ms: i32,
        expected: Option<ProducerIdentity>,
    ) -> Result<ProducerIdentity, ErrorCode> {
        let event = |new_id| Event::InitProducerId { timeout_ms, expected, new_id };
        let mut outcome = self.step(&event(None))?;
        if outcome == Outcome::NeedsProducerId {
            self.last_id += 1;
            outcome = self.step(&event(Some(self.last_id)))?;
        }
        match outcome {
            Outcome::Done(producer) => Ok(producer),
            Outcome::EndsFirst => Err(ErrorCode::ConcurrentTransactions),
            other => panic!("{other:?}"),
        }
    }

    pub fn add(&mut self, producer: ProducerIdentity, number: i32) -> Result<(), ErrorCode> {
        let partitions = &[partition(number)];
        self.step(&Event::AddPartitions { producer, partitions }).map(drop)
    }

    pub fn verify(
        &mut self,
        producer: ProducerIdentity,
        numbers: &[i32],
    ) -> Result<Vec<ErrorCode>, ErrorCode> {
        let partitions: Vec<_> = numbers.iter().copied().map(partition).collect();
        match self.step(&Event::Verify { producer, partitions: &partitions })? {
            Outcome::Verified(codes) => Ok(codes),
            other => panic!("{other:?}"),
        }
    }

    /// Ends the transaction. Returns the producer that the client goes on with.
    pub fn end(
        &mut self,
        version: ClientTransactionVersion,
        producer: ProducerIdentity,
        commit: bool,
    ) -> Result<ProducerIdentity, ErrorCode> {
        let event = |new_id| Event::EndTxn { producer, commit, version, new_id };
        let mut outcome = self.step(&event(None))?;
        if outcome == Outcome::NeedsProducerId {
            self.last_id += 1;
            outcome = self.step(&event(Some(self.last_id)))?;
        }
        match outcome {
            Outcome::Done(producer) | Outcome::WriteMarkers { producer, .. } => Ok(producer),
            other => panic!("{other:?}"),
        }
    }

    pub fn written(&mut self) {
        self.step(&Event::MarkersWritten).unwrap();
    }

    pub fn state(&self) -> TransactionState {
        self.now.as_ref().unwrap().state
    }

    pub fn producer(&self) -> ProducerIdentity {
        self.now.as_ref().unwrap().producer
    }

    /// Brings the id into a state, with the producer (1, 0), or (1, 1) after an end under V2.
    pub fn in_state(state: TransactionState, version: ClientTransactionVersion) -> Self {
        let mut id = match state {
            TransactionState::Empty => return Self::initialised(),
            _ => Self::ongoing(),
        };
        let commits =
            matches!(state, TransactionState::PrepareCommit | TransactionState::CompleteCommit);
        if state != TransactionState::Ongoing {
            id.end(version, producer(1, 0), commits).unwrap();
        }
        if matches!(state, TransactionState::CompleteCommit | TransactionState::CompleteAbort) {
            id.written();
        }
        assert_eq!(id.state(), state);
        id
    }
}
