//! One connection that speaks Kafka's protocol: versions agreed, answers matched to requests.
//!
//! Opening asks ApiVersions, newest first. A broker that answers UNSUPPORTED_VERSION (35) is asked
//! again with the version that it names. A broker counts as 0.8 or 0.9 only if it hangs up on
//! ApiVersions, answers a request of that time, and hangs up on ApiVersions again: a broker that is
//! stopping hangs up once, and at version 0 records would lose headers and timestamps.
//! Answers come in the order of the requests: the correlation id of each is checked against the
//! oldest request in flight, and any other ends the connection.
//! Threads: one at a time.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;

use super::error::{Error, Result};
use super::login::ConnectionLogin;
use super::options::{Address, ClientOptions, Wait};
use super::socket::Socket;
use crate::protocol::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use crate::protocol::header::{RequestHeader, ResponseHeader};
use crate::protocol::list_offsets::ListOffsetsRequest;
use crate::protocol::{self, api};
use crate::wire::{Reader, Writer};

/// ApiVersions' own key.
const API_VERSIONS: i16 = 18;
/// A request that every broker without ApiVersions answers, even if it names no topic.
const LIST_OFFSETS: i16 = 2;
/// The error of a version that the broker does not know.
const UNSUPPORTED_VERSION: i16 = 35;
/// The feature that says how transactions work.
const TRANSACTION_VERSION: &str = "transaction.version";
/// The APIs of a broker without ApiVersions, each at version 0: Produce, Fetch, ListOffsets,
/// Metadata, and the group's of 0.9.
const BEFORE_API_VERSIONS: [i16; 12] = [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15];

/// The APIs of a broker: for each API key the first and the last version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerApiVersions {
    ranges: Vec<(i16, i16, i16)>,
}

impl BrokerApiVersions {
    /// The ranges as (key, first, last), in the broker's order.
    pub fn ranges(&self) -> &[(i16, i16, i16)] {
        &self.ranges
    }

    /// The newest version of an API that both sides know and that is not above `last`.
    pub fn pick(&self, key: i16, last: i16) -> Option<i16> {
        let ours = api(key)?;
        let (_, first, theirs) = self.ranges.iter().find(|(k, _, _)| *k == key)?;
        let version = last.min(*theirs).min(ours.last);
        (version >= *first && version >= ours.first).then_some(version)
    }
}

/// One request: its API, its version, and the encoder of its body.
pub struct ApiRequest<'a> {
    /// The API's key.
    pub key: i16,
    /// A version that the broker serves.
    pub version: i16,
    /// Appends the body.
    pub encode: &'a dyn Fn(&mut Writer),
}

/// One response.
#[derive(Debug)]
pub struct ApiResponse {
    frame: Bytes,
    body: usize,
    /// Its version.
    pub version: i16,
}

impl ApiResponse {
    /// A reader of the body.
    pub fn body(&self) -> Reader<'_> {
        Reader::new(self.frame.get(self.body..).unwrap_or_default())
    }

    /// A part of the body without a copy. It keeps the whole response in memory.
    pub(super) fn part(&self, bytes: &[u8]) -> Bytes {
        self.frame.slice_ref(bytes)
    }
}

/// A request whose response has not arrived.
#[derive(Clone, Copy, Debug)]
struct InFlightRequest {
    correlation_id: i32,
    key: i16,
    version: i16,
}

/// An open connection whose versions are agreed.
pub struct BrokerConnection {
    socket: Socket,
    client_id: String,
    versions: BrokerApiVersions,
    transaction_version: i16,
    next_correlation_id: i32,
    in_flight: VecDeque<InFlightRequest>,
    /// Responses that came before the connection logged in again.
    early: VecDeque<ApiResponse>,
    pub(super) login: Option<ConnectionLogin>,
}

impl BrokerConnection {
    /// Connects, agrees on versions, and logs in.
    pub fn open(address: &Address, options: &ClientOptions, wait: &Wait) -> Result<Self> {
        let mut connection = Self::connect(address, options, wait)?;
        match connection.negotiate(wait) {
            Err(Error::Closed { .. }) => connection = Self::open_again(address, options, wait)?,
            other => other?,
        }
        connection.log_in(wait)?;
        Ok(connection)
    }

    /// Opens a connection, and notes whether the broker can be reached.
    pub(super) fn open_noted(
        address: &Address,
        options: &ClientOptions,
        wait: &Wait,
    ) -> Result<Self> {
        let opened = Self::open(address, options, wait);
        options.reachability.record_attempt(address, opened.as_ref().err());
        opened
    }

    /// Opens the connection again after the broker hung up on ApiVersions. A broker of 0.8 or 0.9
    /// hangs up on every ApiVersions and answers other requests. A broker that is stopping must not
    /// be taken for such a one, because records would lose headers and timestamps. A broker without
    /// version 0 (Kafka 4) hangs up here too, and the caller tries again.
    fn open_again(address: &Address, options: &ClientOptions, wait: &Wait) -> Result<Self> {
        let mut connection = Self::connect(address, options, wait)?;
        let nothing = ListOffsetsRequest { replica_id: -1, ..Default::default() };
        let encode = |writer: &mut Writer| nothing.encode(writer, 0);
        connection.call(&ApiRequest { key: LIST_OFFSETS, version: 0, encode: &encode }, wait)?;
        match connection.negotiate(wait) {
            Err(Error::Closed { .. }) => {
                connection = Self::connect(address, options, wait)?;
                let ranges = BEFORE_API_VERSIONS.iter().map(|key| (*key, 0, 0)).collect();
                connection.versions = BrokerApiVersions { ranges };
            }
            other => other?,
        }
        Ok(connection)
    }

    fn connect(address: &Address, options: &ClientOptions, wait: &Wait) -> Result<Self> {
        Ok(Self {
            socket: Socket::connect(address, options, wait)?,
            client_id: options.client_id.clone(),
            versions: BrokerApiVersions::default(),
            transaction_version: 0,
            next_correlation_id: 1,
            in_flight: VecDeque::new(),
            early: VecDeque::new(),
            login: options.security.login.clone().map(ConnectionLogin::new),
        })
    }

    /// The APIs and versions that the broker serves.
    pub fn versions(&self) -> &BrokerApiVersions {
        &self.versions
    }

    /// The cluster's finalized feature `transaction.version`; 0: it has none.
    pub fn transaction_version(&self) -> i16 {
        self.transaction_version
    }

    /// The address as the caller gave it.
    pub fn address(&self) -> &Address {
        self.socket.address()
    }

    /// The IP address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.socket.peer()
    }

    /// The number of requests without a response.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len() + self.early.len()
    }

    /// The newest common version of an API, not above `last`.
    pub fn version(&self, key: i16, last: i16) -> Result<i16> {
        self.versions.pick(key, last).ok_or_else(|| Error::Unsupported {
            api: api(key).map_or("this API", |spec| spec.name),
            address: self.address().to_string(),
        })
    }

    /// Sends a request. [`Self::receive`] returns its response.
    pub fn send(&mut self, call: &ApiRequest<'_>, wait: &Wait) -> Result<()> {
        self.renew_login(wait)?;
        self.send_now(call, wait)
    }

    /// Logs in again if that is due.
    fn renew_login(&mut self, wait: &Wait) -> Result<()> {
        if !self.login.as_ref().is_some_and(ConnectionLogin::is_due) {
            return Ok(());
        }
        while !self.in_flight.is_empty() {
            let response = self.receive_next(wait)?;
            self.early.push_back(response);
        }
        self.log_in(wait)
    }

    fn send_now(&mut self, call: &ApiRequest<'_>, wait: &Wait) -> Result<()> {
        let correlation_id = self.write(call, wait)?;
        let (key, version) = (call.key, call.version);
        self.in_flight.push_back(InFlightRequest { correlation_id, key, version });
        Ok(())
    }

    /// Sends a request without a response (Produce with acks=0). Returns its correlation id.
    pub fn send_only(&mut self, call: &ApiRequest<'_>, wait: &Wait) -> Result<i32> {
        self.renew_login(wait)?;
        self.write(call, wait)
    }

    fn write(&mut self, call: &ApiRequest<'_>, wait: &Wait) -> Result<i32> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.checked_add(1).unwrap_or(1);
        let header = RequestHeader {
            api_key: call.key,
            api_version: call.version,
            correlation_id,
            client_id: Some(&self.client_id),
        };
        let mut writer = Writer::new();
        writer.buf.extend_from_slice(&[0; 4]);
        header.encode(&mut writer);
        (call.encode)(&mut writer);
        let mut frame = writer.buf;
        let too_large = |_| Error::Invalid("the request is larger than 2 GiB".to_owned());
        let length = i32::try_from(frame.len() - 4).map_err(too_large)?;
        if let Some(prefix) = frame.first_chunk_mut::<4>() {
            *prefix = length.to_be_bytes();
        }
        self.socket.send(&frame, wait)?;
        Ok(correlation_id)
    }

    /// Waits until the first bytes of a response have arrived. A caller may end this wait without
    /// losing a response.
    pub fn await_response(&mut self, wait: &Wait) -> Result<()> {
        if self.early.is_empty() { self.socket.await_bytes(wait) } else { Ok(()) }
    }

    /// Waits for the response to the oldest request in flight.
    pub fn receive(&mut self, wait: &Wait) -> Result<ApiResponse> {
        match self.early.pop_front() {
            Some(response) => Ok(response),
            None => self.receive_next(wait),
        }
    }

    fn receive_next(&mut self, wait: &Wait) -> Result<ApiResponse> {
        let Some(oldest) = self.in_flight.front().copied() else {
            return Err(Error::Invalid("no request is in flight".to_owned()));
        };
        let frame = self.socket.receive(wait)?;
        self.in_flight.pop_front();
        let mut reader = Reader::new(&frame);
        let header = ResponseHeader::decode(&mut reader, oldest.key, oldest.version)
            .map_err(|error| self.bad(error.to_string()))?;
        if header.correlation_id != oldest.correlation_id {
            let got = header.correlation_id;
            return Err(self.bad(format!("answer {got} to request {}", oldest.correlation_id)));
        }
        let body = frame.len() - reader.remaining();
        Ok(ApiResponse { body, frame, version: oldest.version })
    }

    /// Whether [`Self::receive`] would return without waiting.
    pub fn ready(&mut self) -> Result<bool> {
        Ok(!self.early.is_empty() || self.socket.ready()?)
    }

    /// Sends a request and waits for its response. No other request may be in flight.
    pub fn call(&mut self, call: &ApiRequest<'_>, wait: &Wait) -> Result<ApiResponse> {
        self.send(call, wait)?;
        self.receive(wait)
    }

    /// Sends a request of the login and waits for its response.
    pub(super) fn call_now(&mut self, call: &ApiRequest<'_>, wait: &Wait) -> Result<ApiResponse> {
        self.send_now(call, wait)?;
        self.receive_next(wait)
    }

    /// Sends a token in a frame of its own, and waits for the broker's.
    pub(super) fn exchange_token(&mut self, token: &[u8], wait: &Wait) -> Result<Bytes> {
        let length = u32::try_from(token.len()).unwrap_or(u32::MAX);
        self.socket.send(&[&length.to_be_bytes(), token].concat(), wait)?;
        self.socket.receive_token(wait)
    }

    /// The error for a response that cannot be decoded.
    pub fn bad(&self, reason: impl ToString) -> Error {
        Error::Protocol { address: self.address().to_string(), reason: reason.to_string() }
    }

    pub(super) fn socket(&self) -> &std::net::TcpStream {
        self.socket.stream()
    }

    fn negotiate(&mut self, wait: &Wait) -> Result<()> {
        let newest = api(API_VERSIONS).map_or(0, |spec| spec.last);
        let mut version = newest;
        loop {
            let request = ApiVersionsRequest {
                client_software_name: "krust",
                client_software_version: env!("CARGO_PKG_VERSION"),
            };
            let encode = |writer: &mut Writer| request.encode(writer, version);
            let call = ApiRequest { key: API_VERSIONS, version, encode: &encode };
            let reply = self.call(&call, wait)?;
            // A broker that does not know the version answers in the form of version 0.
            let refused = reply.body().i16().is_ok_and(|code| code == UNSUPPORTED_VERSION);
            let form = if refused { 0 } else { version };
            let response = ApiVersionsResponse::decode(&mut reply.body(), form)
                .map_err(|error| self.bad(error))?;
            let ranges: Vec<_> = response
                .api_keys
                .iter()
                .map(|api| (api.api_key, api.min_version, api.max_version))
                .collect();
            if !refused {
                if response.error_code != 0 {
                    return Err(Error::refused(response.error_code, "ApiVersions"));
                }
                self.versions = BrokerApiVersions { ranges };
                let mut features = response.finalized_features.iter();
                let feature = features.find(|feature| feature.name == TRANSACTION_VERSION);
                self.transaction_version = feature.map_or(0, |found| found.max_version_level);
                return Ok(());
            }
            let named = BrokerApiVersions { ranges }.pick(API_VERSIONS, newest);
            version = match named {
                Some(named) if named < version => named,
                _ if version > 0 => 0,
                _ => return Err(self.bad("ApiVersions is refused at every version")),
            };
        }
    }
}

/// The newest version of an API that this client writes.
pub(super) fn newest(key: i16) -> i16 {
    protocol::api(key).map_or(0, |spec| spec.last)
}
