//! One connection: decides when it is read, when its requests are handled, what it sends, and when
//! it closes.
//!
//! States, with their action and transitions:
//! - reading: reads bytes and passes all whole frames to the service together. A long poll -> held.
//!   Too many bytes to send, or too many delayed requests -> full. Bytes that are no Kafka frame ->
//!   closing
//! - muted (KIP-219): reads and handles nothing, sends the replies that are ready. Throttle time
//!   over -> reading. A peer that disconnects is noticed only then, because bytes may precede it
//! - held: reads nothing; a peer that disconnects closes it at once. All replies filled -> reading
//! - full: reads nothing. Enough bytes sent, or enough delayed requests answered -> reading
//! - closing: reads nothing, sends the replies that are ready. All sent, or peer gone -> closed
//!
//! Readiness comes once per edge, so the connection remembers it until a read finds the socket
//! empty or a send finds it full. A read that returns fewer bytes than it asked for has emptied the
//! socket, so no second call is needed. Only when the peer has disconnected is the socket read
//! again.
//! On a listener with TLS a session stands between the socket and the read buffer, and between the
//! replies and the socket. Handshake and login have a deadline of their own.
//! Threads: one network thread owns it.

use std::io::{self, Read};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::event::Event;
use mio::net::TcpStream;

use super::connection_quotas::ListenerQuota;
use super::mailbox::AcceptedConnection;
use super::options::NetworkOptions;
use super::read_buffer::{ReadBuffer, ReadBufferPool, ReadOutcome, SPARSE_BUFFERS};
use super::send_queue::{FlushResult, SHARE, SMALL_SHARE, SendQueue};
use super::shared::SharedState;
use crate::broker::{EventContext, Flow, Output, ReceivedFrames, Replies, Service, Slot};
use crate::transport::tls::{TlsBuffers, TlsSession};
use crate::work;

/// The most bytes that one connection reads in one turn, so that the others get their turn.
const TURN_BYTES: usize = 4 << 20;

/// How long a connection may say nothing while others wait for its place.
const SILENT_MS: i64 = 3_000;

/// For this long after a short reply a peer may be waiting for the next one.
const SHORT_MS: i64 = 1;

/// The part of a network thread that a connection uses while it is served.
pub(super) struct ReactorContext<S: Service> {
    pub(super) shared: Arc<SharedState<S>>,
    pub(super) thread: S::Thread,
    pub(super) pool: ReadBufferPool,
    pub(super) scratch: Vec<u8>,
    pub(super) tls_buffers: TlsBuffers,
    pub(super) frames: Vec<Range<usize>>,
    /// This turn's time, and that of the last turn in which a short reply left.
    pub(super) now_ms: i64,
    pub(super) short_ms: i64,
}

impl<S: Service> ReactorContext<S> {
    /// The most bytes that one connection sends in this turn.
    fn send_share(&self) -> usize {
        if self.now_ms.saturating_sub(self.short_ms) <= SHORT_MS { SMALL_SHARE } else { SHARE }
    }
}

pub(super) struct Connection<S: Service> {
    pub(super) stream: TcpStream,
    pub(super) address: IpAddr,
    pub(super) listener: Arc<ListenerQuota>,
    pub(super) context: S::ConnectionContext,
    /// On a listener with TLS.
    tls: Option<Box<TlsSession>>,
    replies: Replies,
    read_buffer: ReadBuffer,
    send_queue: SendQueue,
    /// The socket may have bytes for us.
    readable: bool,
    /// The peer has disconnected; the socket may still hold bytes.
    peer_finished: bool,
    /// The socket's send buffer is full.
    blocked: bool,
    held: bool,
    closing: bool,
    /// It has sent a whole frame.
    has_spoken: bool,
    /// What it counts for in the memory of logins; `None`: it has logged in, or need not.
    login_held: Option<usize>,
    /// The end of its muting.
    muted_until_ms: Option<i64>,
    /// When the thread serves it again after it was muted.
    pub(super) timer_ms: Option<i64>,
    /// It is on the thread's list of connections to serve without an event; it is on the list of
    /// those that wait for a read buffer.
    pub(super) listed: bool,
    pub(super) starving: bool,
    /// When it was accepted.
    opened_ms: i64,
    /// When bytes last moved; when the incomplete frame would have begun if all of it had arrived
    /// at the minimum rate, or now if it arrived faster; when bytes were last sent.
    active_ms: i64,
    frame_ms: i64,
    sent_ms: i64,
}

/// What the thread does next with a connection that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServeOutcome {
    /// Wait for its next event.
    Wait,
    /// Wait for its next event, and serve it at this time.
    Muted(i64),
    /// Serve it again next turn: it used up its share of this one.
    Again,
    /// Serve it again when read buffers have been returned.
    Starved,
    /// Close it.
    Close,
}

/// The result of handling the bytes that were read.
enum HandleResult {
    Frames,
    Nothing,
    Invalid,
}

/// The bytes of a TLS connection, decrypted as they are read.
struct Decrypting<'a> {
    session: &'a mut TlsSession,
    socket: &'a mut TcpStream,
    buffers: &'a mut TlsBuffers,
}

impl Read for Decrypting<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.session.read(self.socket, room, self.buffers)
    }
}

impl<S: Service> Connection<S> {
    pub(super) fn new(
        accepted: AcceptedConnection,
        context: S::ConnectionContext,
        tls: Option<Box<TlsSession>>,
        now_ms: i64,
    ) -> Self {
        let AcceptedConnection { stream, listener, remote } = accepted;
        Self {
            stream,
            address: remote.ip(),
            listener,
            context,
            tls,
            replies: Replies::default(),
            read_buffer: ReadBuffer::default(),
            send_queue: SendQueue::default(),
            readable: true,
            peer_finished: false,
            blocked: false,
            held: false,
            closing: false,
            has_spoken: false,
            login_held: None,
            muted_until_ms: None,
            timer_ms: None,
            listed: false,
            starving: false,
            opened_ms: now_ms,
            active_ms: now_ms,
            frame_ms: now_ms,
            sent_ms: now_ms,
        }
    }

    /// Remembers the readiness that an event reports.
    pub(super) fn record_event(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.peer_finished |= event.is_read_closed() || event.is_error();
        if event.is_writable() {
            self.blocked = false;
        }
    }

    /// Fills in the reply of a delayed request.
    pub(super) fn fill(&mut self, slot: Slot, output: Output, flow: Flow) {
        self.replies.fill(slot, output);
        self.closing |= flow == Flow::Close;
    }

    /// Sends the replies that are ready, then reads and handles requests.
    pub(super) fn serve(&mut self, context: &mut ReactorContext<S>) -> ServeOutcome {
        let outcome = self.serve_turn(context).unwrap_or_else(|error| {
            tracing::debug!(peer = %self.address, %error, "connection lost");
            ServeOutcome::Close
        });
        let sparse_buffers = if self.login_held.is_some() { 0 } else { SPARSE_BUFFERS };
        self.read_buffer.end_turn(&mut context.pool, sparse_buffers);
        match self.count_login_memory(&context.shared) {
            true => outcome,
            false => ServeOutcome::Close,
        }
    }

    /// Counts the connection among those that have not logged in.
    pub(super) fn begin_login(&mut self, shared: &SharedState<S>) {
        if self.is_logging_in(shared) {
            shared.login_memory.begin();
            self.login_held = Some(0);
        }
    }

    /// Whether the handshake or the login is not complete.
    fn is_logging_in(&self, shared: &SharedState<S>) -> bool {
        self.tls.as_ref().is_some_and(|session| session.is_handshaking())
            || !shared.service.is_authenticated(&self.context)
    }

    /// Counts what the connection holds until it has logged in. False if it has to be closed,
    /// because all such connections hold too much and this one more than its share.
    fn count_login_memory(&mut self, shared: &SharedState<S>) -> bool {
        let Some(before) = self.login_held else { return true };
        if !self.is_logging_in(shared) {
            self.end_login(shared);
            return true;
        }
        let held = self.read_buffer.memory()
            + self.send_queue.memory()
            + self.replies.held()
            + self.tls.as_ref().map_or(0, |session| session.memory());
        shared.login_memory.change(before, held);
        self.login_held = Some(held);
        if held <= before || !shared.login_memory.is_exceeded() {
            return true;
        }
        shared.ask_for_room();
        held <= shared.login_memory.share()
    }

    /// What the connection counts for in the memory of logins; 0 once it has logged in.
    pub(super) fn login_held(&self) -> usize {
        self.login_held.unwrap_or_default()
    }

    /// It has logged in, or is closed.
    pub(super) fn end_login(&mut self, shared: &SharedState<S>) {
        if let Some(held) = self.login_held.take() {
            shared.login_memory.end(held);
        }
    }

    /// When it was last used, if it may be closed to make room for other brokers.
    pub(super) fn last_used_ms(&self) -> Option<i64> {
        (!self.listener.is_protected).then_some(self.active_ms)
    }

    fn serve_turn(&mut self, context: &mut ReactorContext<S>) -> io::Result<ServeOutcome> {
        if self.held && self.replies.delayed() == 0 {
            self.held = false;
            self.frame_ms = context.now_ms;
        }
        self.update_muted(context.now_ms);
        let mut again = self.send(context)?;
        let (mut read, before) = (0, work::done());
        while self.may_read(&context.shared.options) {
            match self.handle(context) {
                HandleResult::Frames => {
                    again |= self.send(context)?;
                    if work::since(before) >= work::SHARE {
                        again = true;
                        break;
                    }
                    continue;
                }
                HandleResult::Invalid => self.closing = true,
                HandleResult::Nothing if read >= TURN_BYTES => return Ok(ServeOutcome::Again),
                HandleResult::Nothing if self.readable => {
                    let before = self.read_buffer.filled();
                    if let Some(outcome) = self.read(context)? {
                        return Ok(outcome);
                    }
                    read += self.read_buffer.filled() - before;
                    continue;
                }
                HandleResult::Nothing => {}
            }
            break;
        }
        let gone = (self.held && self.peer_finished) || (self.closing && !self.has_unsent());
        Ok(match (gone, again, self.muted_until_ms) {
            (true, ..) => ServeOutcome::Close,
            (false, true, _) => ServeOutcome::Again,
            (false, false, Some(until_ms)) => ServeOutcome::Muted(until_ms),
            (false, false, None) => ServeOutcome::Wait,
        })
    }

    /// Mutes the connection if the service asked for it, and unmutes it after the throttle time.
    fn update_muted(&mut self, now_ms: i64) {
        if self.replies.is_muted() {
            let until_ms = now_ms.saturating_add(i64::from(self.replies.muted_ms()));
            self.muted_until_ms = self.muted_until_ms.max(Some(until_ms));
        } else if self.muted_until_ms.is_some_and(|until_ms| until_ms <= now_ms) {
            self.muted_until_ms = None;
            self.frame_ms = now_ms;
        }
    }

    /// The longest frame that the client may send now.
    fn frame_max_bytes(&self, context: &ReactorContext<S>) -> usize {
        let options = &context.shared.options;
        match context.shared.service.is_authenticated(&self.context) {
            true => options.request_max_bytes,
            false => options.request_max_bytes.min(options.login_frame_max_bytes),
        }
    }

    /// Reads once. `Some`: the connection cannot continue now.
    fn read(&mut self, context: &mut ReactorContext<S>) -> io::Result<Option<ServeOutcome>> {
        let limit = self.frame_max_bytes(context);
        let before = self.read_buffer.filled();
        let outcome = match &mut self.tls {
            None => self.read_buffer.fill(&mut self.stream, &mut context.pool, limit),
            Some(session) => {
                let (socket, was_handshaking) = (&mut self.stream, session.is_handshaking());
                let mut records = Decrypting { session, socket, buffers: &mut context.tls_buffers };
                let outcome = self.read_buffer.fill(&mut records, &mut context.pool, limit);
                // An answer of the handshake, or the alert that says why it failed.
                self.blocked = !session.send_waiting(&self.stream)?;
                if was_handshaking
                    && !session.is_handshaking()
                    && let Some(certificate) = session.peer_certificates().first()
                    && context.shared.service.certified(&mut self.context, certificate)
                        == Flow::Close
                {
                    return Ok(Some(ServeOutcome::Close));
                }
                outcome
            }
        };
        match outcome? {
            ReadOutcome::Full => {}
            ReadOutcome::Drained => self.readable = self.peer_finished,
            ReadOutcome::Empty => self.readable = false,
            ReadOutcome::Ended => return Ok(Some(ServeOutcome::Close)),
            ReadOutcome::Starved => return Ok(Some(ServeOutcome::Starved)),
        }
        let came = self.read_buffer.filled().saturating_sub(before);
        let earned = came.saturating_mul(1000) / context.shared.options.frame_rate.max(1);
        self.frame_ms = match before {
            0 => context.now_ms,
            _ => self.frame_ms.saturating_add(earned as i64).min(context.now_ms),
        };
        self.active_ms = context.now_ms;
        Ok(None)
    }

    /// Passes all whole frames to the service.
    fn handle(&mut self, context: &mut ReactorContext<S>) -> HandleResult {
        let limit = self.frame_max_bytes(context);
        if let Err(error) = self.read_buffer.frames(limit, &mut context.frames) {
            tracing::debug!(peer = %self.address, %error, "not a Kafka frame: closing");
            return HandleResult::Invalid;
        }
        if context.frames.is_empty() {
            return HandleResult::Nothing;
        }
        let at = EventContext { thread: &mut context.thread, connection: &mut self.context };
        let received = ReceivedFrames { buf: self.read_buffer.bytes(), frames: &context.frames };
        let flow = context.shared.service.event(at, received, &mut self.replies);
        let handled = context.frames.len().saturating_sub(self.replies.left());
        let end = handled.checked_sub(1).and_then(|last| context.frames.get(last));
        self.read_buffer.consume(end.map_or(0, |range| range.end));
        self.has_spoken = true;
        self.frame_ms = context.now_ms;
        self.update_muted(context.now_ms);
        self.closing |= flow == Flow::Close;
        self.held = flow == Flow::Hold && self.replies.delayed() > 0;
        let may_leave_all = self.held || self.replies.is_full() || self.muted_until_ms.is_some();
        if handled == 0 && !may_leave_all { HandleResult::Invalid } else { HandleResult::Frames }
    }

    /// Sends the replies that are ready. Returns whether there is more and the socket has room.
    fn send(&mut self, context: &mut ReactorContext<S>) -> io::Result<bool> {
        let begins = !self.has_unsent();
        if begins {
            self.sent_ms = context.now_ms;
        }
        while let Some(output) = self.replies.take() {
            self.send_queue.push(output);
        }
        if self.blocked || !self.has_unsent() {
            return Ok(false);
        }
        let share = context.send_share();
        let scratch = &mut context.scratch;
        let (flushed, sent) = match &mut self.tls {
            None => self.send_queue.flush(&self.stream, scratch, share)?,
            Some(session) => {
                let buffers = (scratch, &mut context.tls_buffers);
                self.send_queue.flush_encrypted(session, &self.stream, buffers, share)?
            }
        };
        self.blocked = flushed == FlushResult::Blocked;
        if begins && flushed == FlushResult::All && sent < SMALL_SHARE {
            context.short_ms = context.now_ms;
        }
        if sent > 0 {
            self.sent_ms = context.now_ms;
            self.active_ms = context.now_ms;
        }
        Ok(flushed == FlushResult::Enough)
    }

    /// Whether bytes wait for the socket.
    fn has_unsent(&self) -> bool {
        !self.send_queue.is_empty() || self.tls.as_ref().is_some_and(|session| session.has_unsent())
    }

    fn may_read(&self, options: &NetworkOptions) -> bool {
        !self.closing
            && !self.held
            && self.muted_until_ms.is_none()
            && self.send_queue.memory() + self.replies.held() < options.out_max_bytes
            && self.replies.delayed() < options.delayed_max
    }

    /// When this connection is closed if nothing more happens on it (monotonic milliseconds).
    pub(super) fn deadline_ms(&self, shared: &SharedState<S>) -> i64 {
        let options = &shared.options;
        let mut deadline = i64::MAX;
        if self.replies.delayed() == 0 {
            deadline = self.active_ms.saturating_add(options.idle_ms);
        }
        if self.read_buffer.is_pending() && self.may_read(options) {
            deadline = deadline.min(self.frame_ms.saturating_add(options.frame_ms));
        }
        if self.has_unsent() {
            deadline = deadline.min(self.sent_ms.saturating_add(options.stalled_ms));
        }
        if !self.has_spoken && shared.crowded.load(Ordering::Relaxed) {
            deadline = deadline.min(self.opened_ms.saturating_add(SILENT_MS));
        }
        if self.is_logging_in(shared) {
            deadline = deadline.min(self.opened_ms.saturating_add(options.login_ms));
        }
        deadline
    }

    /// By how many milliseconds an incomplete large frame is behind the minimum rate.
    pub(super) fn lag_ms(&self, options: &NetworkOptions, now_ms: i64) -> Option<i64> {
        let waits_for_peer =
            self.read_buffer.is_large() && !self.starving && self.may_read(options);
        waits_for_peer.then(|| now_ms.saturating_sub(self.frame_ms))
    }

    /// Sends the ready replies once, and reads nothing more.
    pub(super) fn finish(&mut self, context: &mut ReactorContext<S>) {
        self.closing = true;
        if let Err(error) = self.send(context) {
            tracing::debug!(peer = %self.address, %error, "connection lost at the end");
        }
    }

    /// Tells a peer that has all replies that no more follow.
    pub(super) fn end_session(&mut self) {
        if let Some(session) = &mut self.tls
            && self.send_queue.is_empty()
        {
            session.close(&self.stream);
        }
    }

    /// Returns the read buffer before the connection is dropped.
    pub(super) fn release(&mut self, pool: &mut ReadBufferPool) {
        self.read_buffer.release(pool);
    }
}
