//! A service whose requests say how they are handled, and a client that sends them.
//!
//! The first byte of a frame: `a` log in, and echo; `e` echo the frame; `p` delay; `h` delay and
//! hold; `b` answer with as many bytes as the next four say; `l` leave it the first time and mute
//! for a second, then echo; `t` leave it the first time, delay and hold, then echo; `m` echo, and
//! mute for as many ms as they say; `w` count as much work as they say, no reply; `r` answer with
//! the test's file range; `n` no reply; `c` echo and close; `x` panic; `g` stand still until the
//! test opens that gate, no reply; all else echo. The test fills delayed slots by posting
//! [`TestWake::Fill`] with the frame's second byte as its name.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use krust::broker::{
    ConnId, DelayedReply, EventContext, Flow, Mailbox, Output, Peer, ReceivedFrames, Replies,
    Service, Slot,
};
use krust::clock::{Clock, ManualClock};
use krust::net::{ListenAddress, Mailboxes, NetworkOptions, Server};
use krust::storage::FileRange;
use krust::work;

/// How long a test waits for an expected event, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// A message of the test to a network thread.
pub enum TestWake {
    /// Answer the delayed request of this name.
    Fill(u8),
    /// Nothing: the thread runs a turn.
    Turn,
}

/// The state of one network thread.
pub struct NetworkThread {
    index: usize,
    delayed: HashMap<u8, (ConnId, Slot)>,
}

#[derive(Default)]
pub struct TestService {
    pub frames: AtomicUsize,
    pub opened: AtomicUsize,
    pub closed: AtomicUsize,
    /// How often the first thread came to do what is due, and how often it is to come there
    /// without waiting for anything.
    turns: AtomicUsize,
    wanted_turns: AtomicUsize,
    /// How often threads asked what is due: at least once whenever they go round.
    pub looks: AtomicUsize,
    /// Gates that were come to, and how many of them are open.
    pub gates: AtomicUsize,
    pub opened_gates: AtomicUsize,
    /// Connections are turned away so long, if that is not 0.
    pub away_ms: AtomicI64,
    pub away: AtomicUsize,
    /// A frame was left once.
    has_left: AtomicBool,
    /// Connections have to log in.
    pub asks_for_logins: AtomicBool,
    logged_in: Mutex<HashSet<ConnId>>,
    /// The certificates that clients showed, with the number of frames that came before; they are
    /// refused.
    pub certificates: Mutex<Vec<(Vec<u8>, usize)>>,
    pub refuses_certificates: AtomicBool,
    /// What `r` is answered with.
    pub range: OnceLock<FileRange>,
}

impl Service for TestService {
    type Thread = NetworkThread;
    type ConnectionContext = ConnId;
    type Wake = TestWake;

    fn thread(&self, index: usize) -> Self::Thread {
        NetworkThread { index, delayed: HashMap::new() }
    }

    fn opened(&self, _thread: &mut Self::Thread, peer: Peer) -> ConnId {
        self.opened.fetch_add(1, Ordering::SeqCst);
        peer.conn
    }

    fn connection_throttle_ms(&self, _thread: &mut Self::Thread, _address: IpAddr) -> Option<i64> {
        let away_ms = Some(self.away_ms.load(Ordering::SeqCst)).filter(|ms| *ms > 0);
        self.away.fetch_add(usize::from(away_ms.is_some()), Ordering::SeqCst);
        away_ms
    }

    fn is_authenticated(&self, connection: &ConnId) -> bool {
        !self.asks_for_logins.load(Ordering::SeqCst)
            || self.logged_in.lock().unwrap().contains(connection)
    }

    fn certified(&self, _connection: &mut ConnId, certificate: &[u8]) -> Flow {
        let shown = (certificate.to_vec(), self.frames.load(Ordering::SeqCst));
        self.certificates.lock().unwrap().push(shown);
        if self.refuses_certificates.load(Ordering::SeqCst) { Flow::Close } else { Flow::Go }
    }

    fn event(
        &self,
        at: EventContext<'_, Self>,
        received: ReceivedFrames<'_>,
        replies: &mut Replies,
    ) -> Flow {
        let (mut flow, before) = (Flow::Go, work::done());
        for (done, frame) in received.iter().enumerate() {
            let had_its_share = work::since(before) >= work::SHARE;
            if replies.is_full() || replies.is_muted() || had_its_share {
                replies.leave(received.frames.len() - done);
                break;
            }
            self.frames.fetch_add(1, Ordering::SeqCst);
            match frame {
                [kind @ (b'p' | b'h'), name, ..] => {
                    at.thread.delayed.insert(*name, (*at.connection, replies.reserve()));
                    if *kind == b'h' {
                        flow = Flow::Hold;
                    }
                }
                [b't', name, ..] if !self.has_left.swap(true, Ordering::SeqCst) => {
                    at.thread.delayed.insert(*name, (*at.connection, replies.reserve()));
                    replies.leave(received.frames.len() - done);
                    flow = Flow::Hold;
                    break;
                }
                [b'a', ..] => {
                    self.logged_in.lock().unwrap().insert(*at.connection);
                    put(replies.ready(), frame);
                }
                [b'b', size @ ..] => {
                    let size = u32::from_be_bytes(size.try_into().unwrap());
                    put(replies.ready(), &vec![b'b'; size as usize]);
                }
                [b'l', ..] if !self.has_left.swap(true, Ordering::SeqCst) => {
                    replies.leave(received.frames.len() - done);
                    replies.mute(1_000);
                    break;
                }
                [b'm', ms @ ..] => {
                    put(replies.ready(), frame);
                    replies.mute(i32::from_be_bytes(ms.try_into().unwrap()));
                }
                [b'r', ..] => {
                    let range = self.range.get().unwrap().clone();
                    let output = replies.ready();
                    output.buf.extend_from_slice(&(range.len as u32).to_be_bytes());
                    output.files.push((output.buf.len(), range));
                }
                [b'n', ..] => {}
                [b'w', bytes @ ..] => {
                    work::add(u32::from_be_bytes(bytes.try_into().unwrap()) as usize);
                }
                [b'g', ..] => {
                    let gate = self.gates.fetch_add(1, Ordering::SeqCst);
                    while self.opened_gates.load(Ordering::SeqCst) <= gate {
                        std::thread::yield_now();
                    }
                }
                [b'x', ..] => panic!("the test asked for it"),
                [b'c', ..] => {
                    put(replies.ready(), frame);
                    return Flow::Close;
                }
                _ => put(replies.ready(), frame),
            }
        }
        flow
    }

    fn wake(
        &self,
        thread: &mut Self::Thread,
        wakes: &mut Vec<TestWake>,
        done: &mut Vec<DelayedReply>,
    ) {
        for word in wakes.drain(..) {
            match word {
                TestWake::Turn => {}
                TestWake::Fill(name) => {
                    let (conn, slot) = thread.delayed.remove(&name).unwrap();
                    let mut output = Output::default();
                    put(&mut output, &[b'f', name]);
                    done.push(DelayedReply { conn, slot, output, flow: Flow::Go });
                }
            }
        }
    }

    fn expire(&self, _thread: &mut Self::Thread, _now_ms: i64, _done: &mut Vec<DelayedReply>) {
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    fn next_deadline(&self, thread: &Self::Thread) -> Option<i64> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let missing =
            || self.turns.load(Ordering::SeqCst) < self.wanted_turns.load(Ordering::SeqCst);
        (thread.index == 0 && missing()).then_some(0)
    }

    fn closed(&self, _thread: &mut Self::Thread, _conn: ConnId, _session: ConnId) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn put(output: &mut Output, body: &[u8]) {
    output.buf.extend_from_slice(&framed(body));
}

/// `body` with its length in front.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// A running server with the double, and a clock that moves only when the test moves it.
pub struct TestServer {
    pub server: Server<TestService>,
    pub double: Arc<TestService>,
    pub mailboxes: Arc<Mailboxes<TestWake>>,
    pub clock: ManualClock,
}

impl TestServer {
    pub fn start() -> Self {
        Self::with(1, |_| {})
    }

    pub fn with(threads: usize, change: impl FnOnce(&mut NetworkOptions)) -> Self {
        let endpoint =
            ListenAddress { name: "PLAINTEXT".into(), host: "127.0.0.1".into(), port: 0 };
        let mut options = NetworkOptions { endpoints: vec![endpoint], ..NetworkOptions::default() };
        change(&mut options);
        let (double, mailboxes) = (Arc::new(TestService::default()), Mailboxes::new(threads));
        let clock = ManualClock::default();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let server =
            Server::start(options, Arc::clone(&double), Arc::clone(&mailboxes), shared).unwrap();
        Self { server, double, mailboxes, clock }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.bound()[0].address
    }

    pub fn connect(&self) -> Client {
        Client::new(self.address())
    }

    pub fn fill(&self, name: u8) {
        self.mailboxes.post(0, TestWake::Fill(name));
    }

    /// Waits until the first thread has gone round once more, from looking at its sockets and the
    /// clock to the end of what is due. It may be anywhere in a round now: of three times that it
    /// comes to what is due, the second ends the first whole round, and the third says so.
    pub fn turn(&self) {
        let turns = || self.double.turns.load(Ordering::SeqCst);
        let wanted = turns() + 3;
        self.double.wanted_turns.store(wanted, Ordering::SeqCst);
        self.mailboxes.post(0, TestWake::Turn);
        until(|| turns() >= wanted);
    }

    /// Moves the clock and lets the loop see it.
    pub fn advance(&self, ms: i64) {
        self.clock.advance(ms);
        self.turn();
    }
}

/// A client whose patience ends.
pub struct Client(pub TcpStream);

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub fn send(&mut self, body: &[u8]) {
        self.0.write_all(&framed(body)).unwrap();
    }

    pub fn reply(&mut self) -> Vec<u8> {
        self.try_reply().unwrap()
    }

    pub fn try_reply(&mut self) -> io::Result<Vec<u8>> {
        let mut prefix = [0; 4];
        self.0.read_exact(&mut prefix)?;
        let mut body = vec![0; u32::from_be_bytes(prefix) as usize];
        self.0.read_exact(&mut body)?;
        Ok(body)
    }

    /// Waits until all that was sent lies where the server can read it: its kernel has said so.
    pub fn delivered(&self) {
        let ports = [self.0.local_addr(), self.0.peer_addr()]
            .map(|address| format!(":{:04X}", address.unwrap().port()));
        until(|| {
            let Ok(table) = std::fs::read_to_string("/proc/self/net/tcp") else { return true };
            table.lines().any(|line| {
                let fields: Vec<&str> = line.split_whitespace().take(5).collect();
                let [_, local, remote, _, queues] = fields[..] else { return false };
                let is_ours = local.ends_with(&ports[0]) && remote.ends_with(&ports[1]);
                is_ours && queues.starts_with("00000000:")
            })
        });
    }

    pub fn call(&mut self, body: &[u8]) -> Vec<u8> {
        self.send(body);
        self.reply()
    }

    /// True once the server has closed this connection, whatever it sent before.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.0.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }
}

/// Yields until `fact` holds; fails when patience ends.
pub fn until(fact: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !fact() {
        assert!(start.elapsed() < PATIENCE, "it did not come about");
        std::thread::yield_now();
    }
}

/// Runs the body of test `name` in a process of its own, where it counts what belongs to the whole
/// process: memory, descriptors.
pub fn alone(name: &str, body: impl FnOnce()) {
    const CHILD: &str = "KRUST_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
