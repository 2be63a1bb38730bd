//! The producer id and epoch of an idempotent producer, which any broker assigns (InitProducerId).

use std::time::Instant;

use super::Producer;
use crate::client::cluster::{ClusterRequest, Target};
use crate::client::options::Wait;
use crate::client::{Error, Result};
use crate::protocol::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use crate::wire::Writer;

const INIT_PRODUCER_ID: i16 = 22;

impl Producer {
    /// Producer id and epoch; (-1, -1) without idempotence. Waits until the delivery time of a
    /// batch opened at `opened` is over.
    pub(super) fn identity(&mut self, opened: Instant) -> Result<(i64, i16)> {
        if !self.config.idempotent {
            return Ok((-1, -1));
        }
        if self.transaction.is_some() {
            return self.transaction_identity();
        }
        if let Some(identity) = self.identity {
            return Ok(identity);
        }
        let request =
            InitProducerIdRequest { transaction_timeout_ms: 60_000, ..Default::default() };
        let encode = |writer: &mut Writer, version: i16| request.encode(writer, version);
        let left =
            (opened + self.config.delivery_timeout).saturating_duration_since(Instant::now());
        let wait = self.cluster.options().wait(left);
        loop {
            let refused = match self.new_identity(&encode, &wait) {
                Ok(identity) => {
                    self.identity = Some(identity);
                    return Ok(identity);
                }
                Err(error) if error.retriable() => error,
                Err(error) => return Err(error),
            };
            wait.pause(self.cluster.options().retry_backoff, &refused)?;
        }
    }

    fn new_identity(
        &mut self,
        encode: &dyn Fn(&mut Writer, i16),
        wait: &Wait,
    ) -> Result<(i64, i16)> {
        let wait = wait.at_most(self.cluster.options().request_timeout);
        let ask = ClusterRequest::new(Target::Any, INIT_PRODUCER_ID, encode);
        let reply = self.cluster.call(&ask, &wait)?;
        let response = InitProducerIdResponse::decode(&mut reply.body(), reply.version)
            .map_err(|error| self.cluster.bad(Target::Any, error))?;
        match response.error_code {
            0 => Ok((response.producer_id, response.producer_epoch)),
            code => Err(Error::refused(code, "InitProducerId")),
        }
    }
}
