//! One TCP connection that sends and receives whole frames, with a deadline on every wait.
//!
//! Frame: i32 length, then that many bytes. A length below 4 or above the limit ends the
//! connection before memory is reserved. The buffer grows with the bytes that have arrived, at most
//! twofold. A large frame is returned in the buffer that received it, without a copy, and that
//! buffer is reused when the frame is dropped (`frame_buffers`).
//! Invariant: `start <= end <= inbox.len()`; the bytes between `start` and `end` are received and
//! not returned yet.
//! With TLS a session stands between the stream and both directions; the handshake is part of
//! connecting.
//! Threads: one at a time. Waits are cut into slices so that the caller can be interrupted.

use std::fmt::Display;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::{Error, Result};
use super::frame_buffers::FrameBuffers;
use super::options::{Address, ClientOptions, Wait};
use crate::transport::tls::{ClientTls, SEND_BYTES, TlsBuffers, TlsSession};

/// How many bytes to read while the length of a frame is unknown; a buffer grows by at least that.
const CHUNK: usize = 256 << 10;
/// A frame of at least this size keeps its buffer; a smaller one is copied.
const LARGE: usize = 64 << 10;

/// The length of the shortest response: its correlation id.
const MIN_FRAME_BYTES: usize = 4;

/// How the alert of a TLS server begins that was spoken to in plain text.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// An open connection.
pub(super) struct Socket {
    stream: TcpStream,
    tls: Option<Box<Tls>>,
    address: Address,
    peer: SocketAddr,
    min_frame_bytes: usize,
    max_frame_bytes: usize,
    /// Bytes read and not yet returned: `inbox[start..end]`.
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    buffers: FrameBuffers,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(tls) = self.tls.as_deref_mut() {
            tls.session.close(&self.stream);
        }
    }
}

/// The session of a connection with TLS.
struct Tls {
    session: TlsSession,
    buffers: TlsBuffers,
}

impl Socket {
    /// Connects to the first address of `address` that answers.
    pub(super) fn connect(address: &Address, options: &ClientOptions, wait: &Wait) -> Result<Self> {
        let failed = |reason: String| Error::Connect {
            address: address.to_string(),
            reason,
            advertised: false,
        };
        let mut last = failed("the name has no address".to_owned());
        for peer in resolve(address, wait)? {
            let wait = wait.at_most(options.connect_timeout);
            let connected = connect_one(peer, address, &wait).and_then(|stream| {
                let tls = options.security.tls.as_ref();
                let tls = tls.map(|tls| handshake(tls, &stream, address, &wait)).transpose()?;
                Ok((stream, tls))
            });
            match connected {
                Ok((stream, tls)) => {
                    let max_frame_bytes = options.max_frame_bytes;
                    return Ok(Self {
                        stream,
                        tls,
                        address: address.clone(),
                        peer,
                        min_frame_bytes: MIN_FRAME_BYTES,
                        max_frame_bytes,
                        inbox: Vec::new(),
                        start: 0,
                        end: 0,
                        buffers: FrameBuffers::default(),
                    });
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(Error::Timeout { .. }) => last = failed("no answer in time".to_owned()),
                Err(Error::Connect { reason, .. }) => last = failed(reason),
                Err(other) => last = other,
            }
        }
        Err(last)
    }

    /// The address as the caller gave it.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// The IP address of the peer.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends all of `bytes`.
    pub(super) fn send(&mut self, mut bytes: &[u8], wait: &Wait) -> Result<()> {
        if let Some(Tls { session, buffers }) = self.tls.as_deref_mut() {
            for part in bytes.chunks(SEND_BYTES) {
                let closed = |_| Error::Closed { address: self.address.to_string() };
                session.send(&self.stream, part, buffers).map_err(closed)?;
                send_waiting(session, &self.stream, &self.address, wait)?;
            }
            return Ok(());
        }
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(self.closed()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) => self.block(&error, PollFlags::OUT, wait)?,
            }
        }
        Ok(())
    }

    /// Waits for one whole frame and returns its bytes, without the length.
    pub(super) fn receive(&mut self, wait: &Wait) -> Result<Bytes> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(frame);
            }
            self.fill(wait)?;
        }
    }

    /// Waits for one frame that is no response but a token, which may be empty.
    pub(super) fn receive_token(&mut self, wait: &Wait) -> Result<Bytes> {
        self.min_frame_bytes = 0;
        let token = self.receive(wait);
        self.min_frame_bytes = MIN_FRAME_BYTES;
        token
    }

    /// Waits until some bytes of a frame have arrived.
    pub(super) fn await_bytes(&mut self, wait: &Wait) -> Result<()> {
        if self.held().is_empty() { self.fill(wait) } else { Ok(()) }
    }

    /// Whether a whole frame has arrived. It reads the socket without waiting.
    pub(super) fn ready(&mut self) -> Result<bool> {
        loop {
            if self.frame_length()?.is_some_and(|len| self.held().len() >= 4 + len) {
                return Ok(true);
            }
            if !self.read_some()? {
                return Ok(false);
            }
        }
    }

    /// The stream, to wait on.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn held(&self) -> &[u8] {
        self.inbox.get(self.start..self.end).unwrap_or_default()
    }

    fn frame_length(&self) -> Result<Option<usize>> {
        let Some(prefix) = self.held().first_chunk::<4>() else { return Ok(None) };
        let stated = i32::from_be_bytes(*prefix);
        match usize::try_from(stated) {
            Ok(len) if (self.min_frame_bytes..=self.max_frame_bytes).contains(&len) => {
                Ok(Some(len))
            }
            _ if self.tls.is_none() && prefix.starts_with(&TLS_ALERT) => Err(Error::Protocol {
                address: self.address.to_string(),
                reason: "it answers in TLS (security.protocol=SSL)".to_owned(),
            }),
            _ => Err(Error::Protocol {
                address: self.address.to_string(),
                reason: format!("a frame of {stated} bytes"),
            }),
        }
    }

    fn take_frame(&mut self) -> Result<Option<Bytes>> {
        let Some(len) = self.frame_length()? else { return Ok(None) };
        let Some(frame) = self.held().get(4..4 + len) else { return Ok(None) };
        if self.start == 0 && self.end == 4 + len && len >= LARGE {
            let filled = std::mem::take(&mut self.inbox);
            self.end = 0;
            return Ok(Some(self.buffers.lend(filled, 4 + len).slice(4..)));
        }
        let frame = Bytes::copy_from_slice(frame);
        self.start += 4 + len;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.inbox.truncate(CHUNK);
            self.inbox.shrink_to(CHUNK);
        }
        Ok(Some(frame))
    }

    fn fill(&mut self, wait: &Wait) -> Result<()> {
        while !self.read_some()? {
            self.block(&ErrorKind::WouldBlock.into(), PollFlags::IN, wait)?;
        }
        Ok(())
    }

    /// Reads once; `false`: nothing has arrived yet.
    fn read_some(&mut self) -> Result<bool> {
        if self.start > 0 {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let missing = self.frame_length()?.map(|len| (4 + len).saturating_sub(self.end));
        let missing = missing.filter(|missing| *missing > 0);
        if self.inbox.is_empty() {
            self.inbox = self.buffers.take();
        }
        let wanted = self.end + missing.unwrap_or(CHUNK).min(self.end.max(CHUNK));
        if self.inbox.len() < wanted {
            self.inbox.resize(wanted, 0);
        }
        // Reads only to the end of the frame, so that its buffer holds nothing else.
        let room = match missing {
            Some(missing) => self.inbox.len().min(self.end + missing),
            None => self.inbox.len().min(self.end + CHUNK),
        };
        let room = self.inbox.get_mut(self.end..room).unwrap_or_default();
        let got = match self.tls.as_deref_mut() {
            Some(Tls { session, buffers }) => session.read(&mut self.stream, room, buffers),
            None => self.stream.read(room),
        };
        self.end += got.as_ref().map_or(0, |count| *count);
        match got {
            Ok(0) => Err(self.closed()),
            Ok(_) => Ok(true),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(false)
            }
            Err(_) => Err(self.closed()),
        }
    }

    /// Waits until the socket is ready again, if `error` is `WouldBlock`.
    fn block(&self, error: &std::io::Error, flags: PollFlags, wait: &Wait) -> Result<()> {
        match error.kind() {
            ErrorKind::WouldBlock => await_ready(&self.stream, flags, wait, &self.address),
            ErrorKind::Interrupted => Ok(()),
            _ => Err(self.closed()),
        }
    }

    fn closed(&self) -> Error {
        Error::Closed { address: self.address.to_string() }
    }
}

/// Sleeps until the socket is ready for `flags`.
fn await_ready(stream: &TcpStream, flags: PollFlags, wait: &Wait, subject: &Address) -> Result<()> {
    await_fds(&mut [PollFd::new(stream, flags)], wait, subject)
}

/// Sleeps until one of several sockets is ready.
pub(super) fn await_any(fds: &mut [PollFd<'_>], wait: &Wait) -> Result<()> {
    await_fds(fds, wait, &"an answer")
}

fn await_fds(fds: &mut [PollFd<'_>], wait: &Wait, subject: &dyn Display) -> Result<()> {
    loop {
        let slice = wait.slice(subject)?;
        let time = Timespec { tv_sec: 0, tv_nsec: slice.subsec_nanos().max(1_000_000).into() };
        match poll(fds, Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(_) => return Err(Error::Closed { address: subject.to_string() }),
        }
    }
}

fn connect_one(peer: SocketAddr, address: &Address, wait: &Wait) -> Result<TcpStream> {
    let failed = |error: std::io::Error| Error::Connect {
        address: address.to_string(),
        reason: reason(&error),
        advertised: false,
    };
    let stream = TcpStream::from(mio::net::TcpStream::connect(peer).map_err(failed)?);
    await_ready(&stream, PollFlags::OUT, wait, address)?;
    match stream.take_error() {
        Ok(None) => {}
        Ok(Some(error)) | Err(error) => return Err(failed(error)),
    }
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// Makes the TLS session of a new connection.
fn handshake(
    tls: &ClientTls,
    stream: &TcpStream,
    address: &Address,
    wait: &Wait,
) -> Result<Box<Tls>> {
    let failed = |reason: String| Error::Tls { address: address.to_string(), reason };
    let session = tls.connect(&address.host).map_err(|error| failed(error.to_string()))?;
    let mut made = Box::new(Tls { session, buffers: TlsBuffers::default() });
    let Tls { session, buffers } = &mut *made;
    loop {
        send_waiting(session, stream, address, wait)?;
        if !session.is_handshaking() {
            return Ok(made);
        }
        match session.read_handshake(&mut &*stream, buffers) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                await_ready(stream, PollFlags::IN, wait, address)?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(failed("it closed the connection during the handshake".to_owned()));
            }
            Err(error) => {
                // The alert tells the peer why.
                drop(session.send_waiting(stream));
                return Err(failed(error.to_string()));
            }
        }
    }
}

/// Sends the records that wait, all of them.
fn send_waiting(
    session: &mut TlsSession,
    stream: &TcpStream,
    address: &Address,
    wait: &Wait,
) -> Result<()> {
    loop {
        match session.send_waiting(stream) {
            Ok(true) => return Ok(()),
            Ok(false) => await_ready(stream, PollFlags::OUT, wait, address)?,
            Err(_) => return Err(Error::Closed { address: address.to_string() }),
        }
    }
}

/// The system's message without its number.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Looks the name up. The system's resolver has no deadline, so it runs on its own thread, which is
/// abandoned if the wait ends first.
fn resolve(address: &Address, wait: &Wait) -> Result<Vec<SocketAddr>> {
    if let Ok(ip) = address.host.parse() {
        return Ok(vec![SocketAddr::new(ip, address.port)]);
    }
    let (sender, receiver) = mpsc::channel();
    let (host, port) = (address.host.clone(), address.port);
    std::thread::spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        drop(sender.send(found)); // nobody may be waiting any more
    });
    loop {
        let slice: Duration = wait.slice(address)?;
        match receiver.recv_timeout(slice) {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(_)) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                let reason = "the name is not known".to_owned();
                let address = address.to_string();
                return Err(Error::Connect { address, reason, advertised: false });
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}
