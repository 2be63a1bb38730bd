//! The producer id and epoch of an idempotent producer, which any broker assigns (InitProducerId).
//! It is requested when a batch is to be sent for the first time, and arrives in the background.

use std::time::Instant;

use super::Producer;
use super::batches::{IdentityRequest, PartitionBatches};
use crate::client::cluster::Target;
use crate::client::connection::ApiResponse;
use crate::client::metadata::PartitionKey;
use crate::client::{Error, Result};
use crate::protocol::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use crate::wire::Writer;

const INIT_PRODUCER_ID: i16 = 22;

impl Producer {
    /// Has a producer id requested if batches wait for one. A refusal fails these batches.
    pub(super) fn prepare_identity(&mut self) {
        let has_own = self.config.idempotent && self.transaction.is_none();
        if !has_own || self.identity.is_some() {
            return;
        }
        if !self.accumulator.values().any(needs_identity) {
            self.identity_request = IdentityRequest::default();
            return;
        }
        let answer = match self.await_identity() {
            Ok(None) => return,
            Ok(Some(answer)) => self.read_identity(&answer),
            Err(error) => Err(error),
        };
        let request = &mut self.identity_request;
        match answer {
            Ok(identity) => {
                *request = IdentityRequest::default();
                self.identity = Some(identity);
                for batches in self.accumulator.values_mut().filter(|it| needs_identity(it)) {
                    batches.last_error = None;
                }
            }
            Err(error) if error.retriable() => {
                request.failed = request.failed.saturating_add(1);
                request.retry_at = Some(Instant::now() + self.cluster.options().retry_backoff);
                for batches in self.accumulator.values_mut().filter(|it| needs_identity(it)) {
                    batches.last_error.get_or_insert_with(|| error.clone());
                }
            }
            Err(error) => {
                *request = IdentityRequest::default();
                let waiting = self.accumulator.iter().filter(|(_, it)| needs_identity(it));
                let keys: Vec<PartitionKey> = waiting.map(|(key, _)| key.clone()).collect();
                self.fail_queued(&error, |key| keys.contains(key));
            }
        }
    }

    /// The answer of the request under way, which is begun if there is none and no pause.
    fn await_identity(&mut self) -> Result<Option<ApiResponse>> {
        let request = &mut self.identity_request;
        if request.current.is_none() {
            if request.retry_at.is_some_and(|at| Instant::now() < at) {
                return Ok(None);
            }
            let asked =
                InitProducerIdRequest { transaction_timeout_ms: 60_000, ..Default::default() };
            let encode = move |writer: &mut Writer, version: i16| asked.encode(writer, version);
            let call = self.cluster.begin_call(INIT_PRODUCER_ID, encode, request.failed)?;
            request.current = Some(call);
        }
        self.cluster.end_call(&mut request.current).transpose()
    }

    fn read_identity(&mut self, answer: &ApiResponse) -> Result<(i64, i16)> {
        let response = InitProducerIdResponse::decode(&mut answer.body(), answer.version)
            .map_err(|error| self.cluster.bad(Target::Any, error))?;
        match response.error_code {
            0 => Ok((response.producer_id, response.producer_epoch)),
            code => Err(Error::refused(code, "InitProducerId")),
        }
    }
}

/// Whether the next batch was never sent, and so has no sequence number.
fn needs_identity(batches: &PartitionBatches) -> bool {
    batches.queue.front().is_some_and(|head| head.identity.is_none())
}
