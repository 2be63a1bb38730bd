//! One TLS connection: records from the socket become bytes, bytes become records for the socket.
//!
//! A session reads records into buffers of its thread, decrypts them there and copies the bytes to
//! where the caller wants them. It keeps only an incomplete record, bytes that the caller had no
//! room for, and records that the socket did not take, so an idle connection holds nothing.
//! Invariant: records leave in the order in which they were encrypted; a byte is encrypted once.
//! The handshake of a server's session ends with `resumed`.
//! Threads: one at a time.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::server::danger::ClientCertVerifier;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, ServerConfig};

use super::resumed;
use crate::sys;

/// The most bytes that are encrypted for one send.
pub const SEND_BYTES: usize = 64 << 10;
/// The most bytes that one read takes from the socket.
const READ_BYTES: usize = 64 << 10;
/// What a record adds to its 16 KiB of content at most, and the content's size.
const RECORD_COST: usize = 64;
const RECORD_BYTES: usize = 16 << 10;
/// The first guess at the size of a record of the handshake.
const HANDSHAKE_BYTES: usize = 4 << 10;

/// Buffers that all sessions of a thread share: they hold nothing between two calls.
#[derive(Default)]
pub struct TlsBuffers {
    received: Vec<u8>,
    encrypted: Vec<u8>,
}

/// One connection.
pub struct TlsSession {
    side: Side,
    /// The beginning of a record that has not arrived as a whole.
    incomplete: Vec<u8>,
    /// Decrypted bytes that the caller had no room for: `bytes[taken..]`.
    bytes: Vec<u8>,
    taken: usize,
    /// Records that the socket did not take: `unsent[sent..]`.
    unsent: Vec<u8>,
    sent: usize,
    handshaking: bool,
    /// The peer sends nothing more.
    ended: bool,
    /// Verifies certificates of clients; `None`: at a client, and where none are asked for.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// What one read of the socket brought.
struct Received {
    /// Bytes in the caller's room.
    filled: usize,
    /// The socket is empty now.
    drained: bool,
}

/// What rustls wants next.
enum Next {
    /// To be called again.
    Again,
    /// More of the peer's bytes.
    Bytes,
}

/// Where the output of rustls goes while records are processed.
struct Sink<'a> {
    room: &'a mut [u8],
    filled: usize,
    rest: &'a mut Vec<u8>,
    unsent: &'a mut Vec<u8>,
    handshaking: &'a mut bool,
    ended: &'a mut bool,
}

impl TlsSession {
    /// A server's session.
    ///
    /// verifier  the one of `config`; `None`: clients show no certificates
    pub(super) fn server(
        config: Arc<ServerConfig>,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Self, rustls::Error> {
        let side = Side::Server(Box::new(UnbufferedServerConnection::new(config)?));
        Ok(Self { verifier, ..Self::new(side) })
    }

    /// A client's session; its first message waits to be sent.
    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        let connection = UnbufferedClientConnection::new(config, name)?;
        let mut session = Self::new(Side::Client(Box::new(connection)));
        session.process(&mut [], &mut [])?;
        Ok(session)
    }

    fn new(side: Side) -> Self {
        Self {
            side,
            incomplete: Vec::new(),
            bytes: Vec::new(),
            taken: 0,
            unsent: Vec::new(),
            sent: 0,
            handshaking: true,
            ended: false,
            verifier: None,
        }
    }

    /// Whether the handshake goes on: nothing can be encrypted yet.
    pub fn is_handshaking(&self) -> bool {
        self.handshaking
    }

    /// Whether records wait for the socket.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// The memory that the session holds beside rustls' own.
    pub fn memory(&self) -> usize {
        self.incomplete.capacity() + self.bytes.capacity() + self.unsent.capacity()
    }

    /// The peer's certificates, its own first; empty without any. They are verified once the
    /// handshake is complete.
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        let certificates = match &self.side {
            Side::Server(connection) => connection.peer_certificates(),
            Side::Client(connection) => connection.peer_certificates(),
        };
        certificates.unwrap_or_default()
    }

    /// Reads into `room` until it is full or the socket is empty, like [`Read::read`]: 0 is the
    /// end, `WouldBlock` means that nothing came. An answer of the handshake may wait to be sent
    /// after it, also after an error.
    pub fn read(
        &mut self,
        socket: &mut impl Read,
        room: &mut [u8],
        buffers: &mut TlsBuffers,
    ) -> io::Result<usize> {
        let mut filled = self.take_bytes(room);
        while filled < room.len() && !self.ended {
            let rest = room.get_mut(filled..).unwrap_or_default();
            match self.receive(socket, rest, buffers) {
                Ok(received) => {
                    filled += received.filled;
                    // Part of a record says nothing about what follows it: the peer may have left.
                    if received.drained && filled > 0 {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock || filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        match filled {
            0 if !self.ended && !room.is_empty() => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(filled),
        }
    }

    /// Reads records of the handshake once. Errors: the handshake failed; `WouldBlock`: nothing
    /// came; `UnexpectedEof`: the peer disconnected. What it answers waits to be sent.
    pub fn read_handshake(
        &mut self,
        socket: &mut impl Read,
        buffers: &mut TlsBuffers,
    ) -> io::Result<()> {
        self.receive(socket, &mut [], buffers)?;
        match self.ended && self.handshaking {
            true => Err(ErrorKind::UnexpectedEof.into()),
            false => Ok(()),
        }
    }

    /// Reads the socket once and processes the records.
    fn receive(
        &mut self,
        socket: &mut impl Read,
        room: &mut [u8],
        buffers: &mut TlsBuffers,
    ) -> io::Result<Received> {
        let held = self.incomplete.len();
        let records = &mut buffers.received;
        if records.len() < held + READ_BYTES {
            records.resize(held + READ_BYTES, 0);
        }
        let (before, free) = records.split_at_mut(held);
        before.copy_from_slice(&self.incomplete);
        let free = free.get_mut(..READ_BYTES).unwrap_or_default();
        let count = socket.read(free)?;
        if count == 0 {
            self.ended = true;
            return Ok(Received { filled: 0, drained: true });
        }
        self.incomplete.clear();
        let records = records.get_mut(..held + count).unwrap_or_default();
        let filled = self.process(records, room).map_err(io::Error::other)?;
        Ok(Received { filled, drained: count < READ_BYTES })
    }

    /// Moves bytes that were decrypted earlier to `room`.
    fn take_bytes(&mut self, room: &mut [u8]) -> usize {
        let waiting = self.bytes.get(self.taken..).unwrap_or_default();
        let count = waiting.len().min(room.len());
        if let (Some(to), Some(from)) = (room.get_mut(..count), waiting.get(..count)) {
            to.copy_from_slice(from);
        }
        self.taken += count;
        if self.taken == self.bytes.len() {
            (self.bytes, self.taken) = (Vec::new(), 0);
        }
        count
    }

    /// Processes the records in `records`, keeps an incomplete one, and returns how many bytes
    /// were put into `room`. After an error the alert for the peer waits to be sent. A panic inside
    /// rustls is an error of this connection alone.
    fn process(&mut self, records: &mut [u8], room: &mut [u8]) -> Result<usize, rustls::Error> {
        let processed = catch_unwind(AssertUnwindSafe(|| {
            let began = self.handshaking;
            let filled = self.process_records(records, room)?;
            if began && !self.handshaking {
                self.verify_again().inspect_err(|_| self.ended = true)?;
            }
            Ok(filled)
        }));
        processed.unwrap_or_else(|_| {
            self.ended = true;
            Err(rustls::Error::General("rustls panicked on a record".to_owned()))
        })
    }

    /// Verifies the certificate of a client that resumed an earlier session.
    fn verify_again(&mut self) -> Result<(), rustls::Error> {
        let (Some(verifier), Side::Server(connection)) = (self.verifier.take(), &self.side) else {
            return Ok(());
        };
        resumed::verify_again(connection, &*verifier)
    }

    fn process_records(
        &mut self,
        records: &mut [u8],
        room: &mut [u8],
    ) -> Result<usize, rustls::Error> {
        let mut at = 0;
        let mut sink = Sink {
            room,
            filled: 0,
            rest: &mut self.bytes,
            unsent: &mut self.unsent,
            handshaking: &mut self.handshaking,
            ended: &mut self.ended,
        };
        let mut failed = None;
        loop {
            let left = records.get_mut(at..).unwrap_or_default();
            let step = match &mut self.side {
                Side::Server(side) => sink.step(side.process_tls_records(left)),
                Side::Client(side) => sink.step(side.process_tls_records(left)),
            };
            match step {
                // After an error, the next call has the alert.
                (_, _) if failed.is_some() => break,
                (discard, Ok(next)) => {
                    at += discard;
                    if matches!(next, Next::Bytes) {
                        break;
                    }
                }
                (discard, Err(error)) => {
                    at += discard;
                    failed = Some(error);
                }
            }
        }
        let filled = sink.filled;
        if let Some(error) = failed {
            self.ended = true;
            return Err(error);
        }
        self.incomplete.extend_from_slice(records.get(at..).unwrap_or_default());
        if self.incomplete.is_empty() {
            self.incomplete = Vec::new();
        }
        Ok(filled)
    }

    /// Sends the records that wait. Returns whether all are sent.
    pub fn send_waiting(&mut self, socket: &impl AsFd) -> io::Result<bool> {
        while let Some(waiting) = self.unsent.get(self.sent..)
            && !waiting.is_empty()
        {
            match sys::send(socket, &[IoSlice::new(waiting)], false) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        (self.unsent, self.sent) = (Vec::new(), 0);
        Ok(true)
    }

    /// Encrypts all of `bytes` and sends the records as far as the socket has room; the rest waits.
    /// Only when nothing waits. Errors: the handshake goes on.
    pub fn send(
        &mut self,
        socket: &impl AsFd,
        bytes: &[u8],
        buffers: &mut TlsBuffers,
    ) -> io::Result<()> {
        let encrypted = &mut buffers.encrypted;
        let most = bytes.len() + (bytes.len() / RECORD_BYTES + 1) * RECORD_COST;
        if encrypted.len() < most {
            encrypted.resize(most, 0);
        }
        let size = self.encrypt(bytes, encrypted).map_err(io::Error::other)?;
        let mut records = encrypted.get(..size).unwrap_or_default();
        while !records.is_empty() && !self.has_unsent() {
            match sys::send(socket, &[IoSlice::new(records)], false) {
                Ok(count) => records = records.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.unsent.extend_from_slice(records);
        Ok(())
    }

    /// Tells the peer that no more bytes follow, as far as the socket has room.
    pub fn close(&mut self, socket: &impl AsFd) {
        if self.handshaking || self.ended || self.has_unsent() {
            return;
        }
        let mut record = [0; RECORD_COST];
        let size = match &mut self.side {
            Side::Server(side) => {
                close_notify(side.process_tls_records(&mut self.incomplete), &mut record)
            }
            Side::Client(side) => {
                close_notify(side.process_tls_records(&mut self.incomplete), &mut record)
            }
        };
        // A peer that has left does not need it.
        drop(sys::send(socket, &[IoSlice::new(record.get(..size).unwrap_or_default())], false));
    }

    /// Encrypts `bytes` into `encrypted` and returns the size of the records. What rustls wants to
    /// send before them (a change of keys) goes to the unsent records.
    fn encrypt(&mut self, bytes: &[u8], encrypted: &mut [u8]) -> Result<usize, rustls::Error> {
        let mut sink = Sink {
            room: &mut [],
            filled: 0,
            rest: &mut self.bytes,
            unsent: &mut self.unsent,
            handshaking: &mut self.handshaking,
            ended: &mut self.ended,
        };
        macro_rules! encrypt {
            ($side:expr) => {
                loop {
                    // rustls counts from the beginning of an incomplete record.
                    let status = $side.process_tls_records(&mut self.incomplete);
                    let UnbufferedStatus { discard, state } = status;
                    match state? {
                        ConnectionState::WriteTraffic(mut traffic) => {
                            break traffic.encrypt(bytes, encrypted);
                        }
                        other => match sink.handle(other)? {
                            Next::Again => {}
                            Next::Bytes => return Err(rustls::Error::HandshakeNotComplete),
                        },
                    }
                    self.incomplete.drain(..discard.min(self.incomplete.len()));
                }
            };
        }
        let size = match &mut self.side {
            Side::Server(side) => encrypt!(side),
            Side::Client(side) => encrypt!(side),
        };
        size.map_err(|error| match error {
            EncryptError::EncryptExhausted => rustls::Error::EncryptError,
            other => rustls::Error::General(other.to_string()),
        })
    }
}

/// Encodes the last record of a session, if it can be said now.
fn close_notify<Data>(status: UnbufferedStatus<'_, '_, Data>, record: &mut [u8]) -> usize {
    match status.state {
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            traffic.queue_close_notify(record).unwrap_or(0)
        }
        _ => 0,
    }
}

impl Sink<'_> {
    /// Handles one status; the number is how many bytes of the input are done with.
    fn step<Data>(
        &mut self,
        status: UnbufferedStatus<'_, '_, Data>,
    ) -> (usize, Result<Next, rustls::Error>) {
        let UnbufferedStatus { discard, state } = status;
        (discard, state.and_then(|state| self.handle(state)))
    }

    fn handle<Data>(
        &mut self,
        state: ConnectionState<'_, '_, Data>,
    ) -> Result<Next, rustls::Error> {
        match state {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    self.put(record?.payload);
                }
            }
            ConnectionState::EncodeTlsData(mut data) => {
                let start = self.unsent.len();
                let mut size = HANDSHAKE_BYTES;
                loop {
                    self.unsent.resize(start + size, 0);
                    match data.encode(self.unsent.get_mut(start..).unwrap_or_default()) {
                        Ok(count) => {
                            self.unsent.truncate(start + count);
                            break;
                        }
                        Err(EncodeError::InsufficientSize(needed)) => size = needed.required_size,
                        Err(EncodeError::AlreadyEncoded) => {
                            self.unsent.truncate(start);
                            break;
                        }
                    }
                }
            }
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => *self.ended = true,
            ConnectionState::Closed => {
                *self.ended = true;
                return Ok(Next::Bytes);
            }
            ConnectionState::WriteTraffic(_) => {
                *self.handshaking = false;
                return Ok(Next::Bytes);
            }
            // Early data is never offered, so what is left is a handshake that needs more bytes.
            _ => return Ok(Next::Bytes),
        }
        Ok(Next::Again)
    }

    fn put(&mut self, payload: &[u8]) {
        let free = self.room.get_mut(self.filled..).unwrap_or_default();
        let count = if self.rest.is_empty() { payload.len().min(free.len()) } else { 0 };
        let (now, later) = payload.split_at(count);
        if let Some(to) = free.get_mut(..count) {
            to.copy_from_slice(now);
        }
        self.filled += count;
        self.rest.extend_from_slice(later);
    }
}
