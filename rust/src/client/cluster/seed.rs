//! The broker that gets the requests which any broker answers, Metadata above all.
//!
//! It is one of the bootstrap list or of the latest metadata. It stays the same until it fails or
//! is doubted; then the next address has its turn, so that neither a broker that hangs nor one
//! whose metadata are old is asked for ever.

use std::time::{Duration, Instant};

use super::request::{ClusterRequest, Target};
use crate::client::connection::{ApiRequest, ApiResponse, BrokerConnection};
use crate::client::error::{Error, Result};
use crate::client::metadata::Metadata;
use crate::client::options::{Address, ClientOptions, Wait};
use crate::protocol::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use crate::wire::Writer;

const METADATA: i16 = 3;
/// An address gets at least this much of a wait, and more if the wait has more for each address.
const ATTEMPT_MIN: Duration = Duration::from_secs(1);
/// How long a seed is kept at least, so that doubts cost one connection in this time.
const KEPT_MIN: Duration = Duration::from_secs(1);

/// The topics of a Metadata request (`None`: all), and whether the broker may create them.
pub(super) struct MetadataQuery<'a> {
    pub(super) topics: Option<&'a [&'a str]>,
    pub(super) create: bool,
}

/// The connection to the seed, and whose turn it is.
#[derive(Default)]
pub(super) struct Seed {
    connection: Option<(BrokerConnection, Instant)>,
    /// The number of the address that is tried first.
    turn: usize,
}

impl Seed {
    /// The connection, opened to one of `addresses` if there is none.
    pub(super) fn connect(
        &mut self,
        addresses: &[Address],
        options: &ClientOptions,
        wait: &Wait,
    ) -> Result<&mut BrokerConnection> {
        if self.connection.is_none() {
            let connection = self.open_first(addresses, options, wait)?;
            self.connection = Some((connection, Instant::now()));
        }
        self.connection
            .as_mut()
            .map(|(connection, _)| connection)
            .ok_or_else(|| Error::Invalid("no broker is named".to_owned()))
    }

    /// The open connection.
    pub(super) fn connection(&self) -> Option<&BrokerConnection> {
        self.connection.as_ref().map(|(connection, _)| connection)
    }

    /// Closes the connection after a failure: it is the next address's turn.
    pub(super) fn fail(&mut self) {
        self.connection = None;
        self.turn = self.turn.wrapping_add(1);
    }

    /// Closes the connection.
    pub(super) fn close(&mut self) {
        self.connection = None;
    }

    /// What it said led to an error: its metadata may be old, and the next address has its turn.
    pub(super) fn doubt(&mut self) {
        if self.connection.as_ref().is_some_and(|(_, since)| since.elapsed() >= KEPT_MIN) {
            self.fail();
        }
    }

    /// Requests metadata.
    pub(super) fn metadata(
        &mut self,
        query: &MetadataQuery<'_>,
        (addresses, options): (&[Address], &ClientOptions),
        wait: &Wait,
    ) -> Result<Metadata> {
        let topic = |name| MetadataRequestTopic { name: Some(name), ..Default::default() };
        let encode = |writer: &mut Writer, version: i16| {
            let named = query.topics.map(|names| names.iter().copied().map(topic).collect());
            let request = MetadataRequest {
                topics: if version == 0 { named.or_else(|| Some(Vec::new())) } else { named },
                allow_auto_topic_creation: query.create,
                ..Default::default()
            };
            request.encode(writer, version);
        };
        let request = ClusterRequest::new(Target::Any, METADATA, &encode);
        let reply = self.call(&request, (addresses, options), wait)?;
        let response = MetadataResponse::decode(&mut reply.body(), reply.version).map_err(|e| {
            let address = self.connection().map(|it| it.address().to_string());
            self.fail();
            Error::Protocol { address: address.unwrap_or_default(), reason: e.to_string() }
        })?;
        if response.error_code != 0 {
            return Err(Error::refused(response.error_code, "Metadata"));
        }
        Ok(Metadata::of(&response))
    }

    /// Sends a request and waits for the response.
    pub(super) fn call(
        &mut self,
        request: &ClusterRequest<'_>,
        (addresses, options): (&[Address], &ClientOptions),
        wait: &Wait,
    ) -> Result<ApiResponse> {
        match self.try_call(request, (addresses, options), wait) {
            // An idle connection may have ended long ago.
            Err(Error::Closed { .. }) => self.try_call(request, (addresses, options), wait),
            reply => reply,
        }
    }

    fn try_call(
        &mut self,
        request: &ClusterRequest<'_>,
        (addresses, options): (&[Address], &ClientOptions),
        wait: &Wait,
    ) -> Result<ApiResponse> {
        let connection = self.connect(addresses, options, wait)?;
        let (key, version) = (request.key, connection.version(request.key, request.last)?);
        let encode = |writer: &mut Writer| (request.encode)(writer, version);
        let reply = connection.call(&ApiRequest { key, version, encode: &encode }, wait);
        if reply.is_err() {
            self.fail();
        }
        reply
    }

    /// Connects to the first address that answers, beginning with the one whose turn it is. Each
    /// gets its share of the time.
    fn open_first(
        &mut self,
        addresses: &[Address],
        options: &ClientOptions,
        wait: &Wait,
    ) -> Result<BrokerConnection> {
        let mut last = Error::Invalid("no broker is named".to_owned());
        for left in (1..=addresses.len()).rev() {
            let Some(address) = addresses.get(self.turn % addresses.len()) else { break };
            let share = wait.left() / u32::try_from(left).unwrap_or(u32::MAX);
            match BrokerConnection::open_noted(
                address,
                options,
                &wait.at_most(share.max(ATTEMPT_MIN)),
            ) {
                Ok(connection) => return Ok(connection),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => last = error,
            }
            self.turn = self.turn.wrapping_add(1);
            if wait.left().is_zero() {
                break;
            }
        }
        Err(last)
    }
}
