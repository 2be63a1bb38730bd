//! A broker without sockets: the test passes frames in and gets replies as bytes, and a double of
//! the policy decides. The clock moves only when the test moves it.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use krust::broker::image::{BrokerImage, PartitionState, TopicDelta, TopicSettings};
use krust::broker::{
    Broker, ConnId, ConnectionContext, DelayedReply, Event, EventContext, Flow, LogManager,
    Mailbox, MetadataDelta, NetworkThread, Output, Peer, Policy, ReceivedFrames, Replies, Service,
    Settings, Wake,
};
use krust::clock::{Clock, ManualClock};
use krust::ids::{Epoch, TopicId};
use krust::protocol::header::{RequestHeader, ResponseHeader};
use krust::protocol::value::Value;
use krust::storage::{DirOptions, Intervals, LogConfig, LogDir, LogReadRequest};
use krust::wire::{Reader, Sink, Writer};
use tempfile::TempDir;

/// The time at the start, in milliseconds since 1970.
pub const NOW_MS: i64 = 1_700_000_000_000;
/// How long a test waits for another thread, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);
/// The API key of Produce.
const PRODUCE: i16 = 0;
/// The client id of these tests.
pub const CLIENT_ID: &str = "test";

/// Keeps events until the test decides.
#[derive(Default)]
pub struct Decisions {
    waiting: Mutex<Vec<Event>>,
    /// While a test holds this, no partition of groups becomes ready, because its events are not
    /// accepted.
    pub loading: Mutex<()>,
    /// How often the policy was woken because something is due earlier.
    pub hurried: AtomicUsize,
}

impl Policy for Decisions {
    fn submit(&self, event: Event) {
        if event.api == "GroupsLoaded" {
            drop(self.loading.lock().unwrap());
        }
        self.waiting.lock().unwrap().push(event);
    }

    fn hurry(&self) {
        self.hurried.fetch_add(1, Ordering::SeqCst);
    }
}

/// Keeps the messages to other threads.
#[derive(Default)]
pub struct Mail(Mutex<Vec<(usize, Wake)>>);

impl Mailbox<Wake> for Mail {
    fn post(&self, thread: usize, wake: Wake) {
        self.0.lock().unwrap().push((thread, wake));
    }
}

/// A broker with one network thread, and a directory of its own.
pub struct TestBroker {
    pub broker: Arc<Broker>,
    pub policy: Arc<Decisions>,
    pub clock: ManualClock,
    pub thread: NetworkThread,
    mail: Arc<Mail>,
    version: u64,
    conns: u64,
    broken: bool,
    /// Replies for connections that no turn was given yet.
    done: Vec<DelayedReply>,
    /// Removed with the last fixture that uses it.
    dir: Arc<TempDir>,
}

/// A connection.
pub struct Conn {
    pub id: ConnId,
    context: Option<ConnectionContext>,
    replies: Replies,
    /// Frames that wait until the replies before them were sent.
    left: Vec<Vec<u8>>,
    /// The bytes that were sent to the client.
    pub sent: Vec<u8>,
    pub flow: Flow,
    /// For how long it was last muted, and the end of that time.
    pub muted_ms: i32,
    until_ms: i64,
}

/// The properties of a test's topic.
#[derive(Clone, Debug)]
pub struct Made {
    pub partitions: i32,
    pub id: u8,
    pub config: LogConfig,
}

impl Default for Made {
    fn default() -> Self {
        Self { partitions: 1, id: 1, config: LogConfig::default() }
    }
}

impl TestBroker {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        Self::at(Arc::new(tempfile::tempdir().unwrap()), settings)
    }

    /// Closes cleanly and opens again. The test creates the topics again, with their old ids.
    pub fn again(self) -> Self {
        self.again_after(|_| {})
    }

    /// Restarts, and calls `change` on the log directory in between.
    pub fn again_after(self, change: impl FnOnce(&std::path::Path)) -> Self {
        let (dir, settings) = (self.dir.clone(), Settings::clone(&self.broker.settings()));
        drop(self);
        change(dir.path());
        Self::at(dir, settings)
    }

    /// A fixture over a directory that may have logs.
    pub fn at(dir: Arc<TempDir>, settings: Settings) -> Self {
        Self::on(dir, settings, &DirOptions::default())
    }

    /// The same, with these options of the directory.
    pub fn on(dir: Arc<TempDir>, settings: Settings, options: &DirOptions) -> Self {
        let log_dir = LogDir::open(dir.path(), options).unwrap();
        let (policy, clock) = (Arc::<Decisions>::default(), ManualClock::at(NOW_MS));
        let store = LogManager::new(vec![log_dir]);
        let broker = Broker::new(settings, store, policy.clone(), Arc::new(clock.clone()));
        broker.start_syncing(Intervals::default(), None).unwrap();
        let mail = Arc::<Mail>::default();
        broker.connect(mail.clone());
        let thread = broker.thread(0);
        let mut fixture = Self {
            broker,
            policy,
            clock,
            thread,
            mail,
            version: 0,
            conns: 0,
            broken: false,
            done: Vec::new(),
            dir,
        };
        fixture.broker.load().unwrap();
        fixture.apply(MetadataDelta {
            cluster_id: Some("krustkrustkrustkrustkr".into()),
            controller_id: Some(0),
            brokers: Some(vec![BrokerImage { id: 0, rack: None, endpoints: Vec::new() }]),
            ..MetadataDelta::default()
        });
        fixture
    }

    /// The bytes of a partition's log.
    pub fn log(&self, topic: &str, partition: i32) -> Vec<u8> {
        let image = self.broker.image();
        let partition = image.topic(topic).unwrap().partition(partition).unwrap();
        let log = &partition.local.as_ref().unwrap().log;
        let (offset, upper) = (log.log_start_offset(), log.log_end_offset());
        let read = LogReadRequest { offset, max_bytes: usize::MAX >> 1, upper, min_one: true };
        log.read(read).unwrap().to_vec().unwrap()
    }

    pub fn apply(&mut self, delta: MetadataDelta) {
        self.version += 1;
        let failures = self.broker.apply(MetadataDelta { version: self.version, ..delta });
        assert!(failures.is_empty(), "{failures:?}");
    }

    /// Notes that the test broke the disk, so that the fixture need not close cleanly.
    pub fn breaks(&mut self) {
        self.broken = true;
    }

    /// Creates a topic, or changes it.
    pub fn topic(&mut self, name: &str, made: Made) {
        self.topic_of(name, TopicId([made.id; 16]), made);
    }

    /// Creates a topic with any id.
    pub fn topic_of(&mut self, name: &str, id: TopicId, made: Made) {
        let state = PartitionState {
            leader: 0,
            leader_epoch: Epoch(0),
            isr: vec![0],
            replicas: vec![0],
            partition_epoch: 0,
        };
        let delta = TopicDelta {
            id,
            internal: name.starts_with("__"),
            settings: TopicSettings { log: made.config, ..TopicSettings::default() },
            partitions: (0..made.partitions).map(|number| (number, state.clone())).collect(),
        };
        self.apply(MetadataDelta {
            topics: vec![(name.into(), Some(delta))],
            ..MetadataDelta::default()
        });
    }

    pub fn connect(&mut self) -> Conn {
        self.conns += 1;
        let id = ConnId(self.conns);
        let connection = self.broker.opened(
            &mut self.thread,
            Peer {
                conn: id,
                listener: "PLAINTEXT".into(),
                local: "127.0.0.1:9092".parse().unwrap(),
                remote: "127.0.0.1:50000".parse().unwrap(),
            },
        );
        let (replies, sent) = (Replies::default(), Vec::new());
        let context = Some(connection);
        let (left, flow) = (Vec::new(), Flow::Go);
        Conn { id, context, replies, left, sent, flow, muted_ms: 0, until_ms: 0 }
    }

    /// One readable event with these frames.
    pub fn event(&mut self, conn: &mut Conn, frames: &[Vec<u8>]) {
        let buf: Vec<u8> = frames.concat();
        let mut at = 0;
        let ranges: Vec<Range<usize>> = frames
            .iter()
            .map(|frame| {
                at += frame.len();
                at - frame.len()..at
            })
            .collect();
        let received = ReceivedFrames { buf: &buf, frames: &ranges };
        let place =
            EventContext { thread: &mut self.thread, connection: conn.context.as_mut().unwrap() };
        conn.flow = self.broker.event(place, received, &mut conn.replies);
        let left = conn.replies.left();
        conn.left = frames.get(frames.len() - left..).unwrap_or_default().to_vec();
        conn.mute(Clock::monotonic_ms(&self.clock));
        conn.drain();
    }

    /// Runs one turn of the network thread: its mailbox and timers.
    pub fn turn(&mut self, conns: &mut [&mut Conn]) {
        let mut done = std::mem::take(&mut self.done);
        let mut wakes: Vec<Wake> =
            self.mail.0.lock().unwrap().drain(..).map(|(_, wake)| wake).collect();
        self.broker.wake(&mut self.thread, &mut wakes, &mut done);
        let now_ms = Clock::monotonic_ms(&self.clock);
        self.broker.expire(&mut self.thread, now_ms, &mut done);
        for reply in done {
            let Some(conn) = conns.iter_mut().find(|other| other.id == reply.conn) else {
                self.done.push(reply);
                continue;
            };
            let DelayedReply { slot, output, flow, .. } = reply;
            assert!(conn.replies.fill(slot, output));
            conn.flow = flow;
            conn.mute(now_ms);
            conn.drain();
        }
        for conn in conns {
            let may_go_on = conn.replies.delayed() == 0 && conn.until_ms <= now_ms;
            if may_go_on && !conn.left.is_empty() {
                let left = std::mem::take(&mut conn.left);
                self.event(conn, &left);
            }
        }
    }

    /// Runs turns until a reply was sent to `conn`, however long the disk takes.
    pub fn turn_until_sent(&mut self, conn: &mut Conn) {
        until("nothing was sent", || {
            self.turn(&mut [conn]);
            !conn.sent.is_empty()
        });
    }

    /// Turns until no request of `conn` waits.
    pub fn turn_until_idle(&mut self, conn: &mut Conn) {
        until("a request waits for ever", || {
            self.turn(&mut [conn]);
            !conn.is_waiting()
        });
    }

    pub fn close(&mut self, mut conn: Conn) {
        let context = conn.context.take().unwrap();
        self.broker.closed(&mut self.thread, conn.id, context);
    }

    /// Sends one request and takes its reply, which must be ready at once. A worker may do a
    /// Produce: it makes the files of a log.
    pub fn ask(&mut self, conn: &mut Conn, request: &Frame) -> Vec<u8> {
        self.event(conn, std::slice::from_ref(&request.bytes));
        if request.key == PRODUCE && conn.is_waiting() {
            self.turn_until_sent(conn);
        }
        conn.reply(request)
    }

    /// Sends one request and takes its reply, which may come from a worker.
    pub fn ask_a_worker(&mut self, conn: &mut Conn, request: &Frame) -> Vec<u8> {
        self.event(conn, std::slice::from_ref(&request.bytes));
        self.turn_until_sent(conn);
        conn.reply(request)
    }

    /// The events that wait for a decision.
    pub fn events(&self) -> Vec<Event> {
        std::mem::take(&mut self.policy.waiting.lock().unwrap())
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        let closed = self.broker.close();
        assert!(self.broken || closed.is_ok(), "{closed:?}");
    }
}

impl Conn {
    fn mute(&mut self, now_ms: i64) {
        self.muted_ms = self.replies.muted_ms();
        self.until_ms = self.until_ms.max(now_ms + i64::from(self.muted_ms));
    }

    fn drain(&mut self) {
        while let Some(output) = self.replies.take() {
            self.sent.extend(whole(&output));
        }
    }

    /// Takes the reply to `request` from the sent bytes.
    pub fn reply(&mut self, request: &Frame) -> Vec<u8> {
        assert!(self.sent.len() >= 4, "no reply to {request:?}; flow {:?}", self.flow);
        let size = u32::from_be_bytes(self.sent[..4].try_into().unwrap()) as usize;
        let rest = self.sent.split_off(4 + size);
        let reply = std::mem::replace(&mut self.sent, rest).split_off(4);
        let mut reader = Reader::new(&reply);
        let header = ResponseHeader::decode(&mut reader, request.key, request.version).unwrap();
        assert_eq!(header.correlation_id, request.correlation_id);
        reader.rest().to_vec()
    }

    pub fn is_authenticated(&self, broker: &Broker) -> bool {
        broker.is_authenticated(self.context.as_ref().unwrap())
    }

    pub fn is_waiting(&self) -> bool {
        self.replies.delayed() > 0
    }
}

/// Yields until `fact` holds. After the longest wait it fails with `wrong`.
pub fn until(wrong: &str, mut fact: impl FnMut() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < PATIENCE, "{wrong}");
        std::thread::yield_now();
    }
}

/// A request's bytes, with its API and version.
#[derive(Clone, Debug)]
pub struct Frame {
    pub key: i16,
    pub version: i16,
    pub correlation_id: i32,
    pub bytes: Vec<u8>,
}

/// A request.
pub fn frame(key: i16, version: i16, encode: impl FnOnce(&mut Writer, i16)) -> Frame {
    let correlation_id = i32::from(key) * 1000 + i32::from(version);
    let mut writer = Writer::new();
    let client_id = Some(CLIENT_ID);
    RequestHeader { api_key: key, api_version: version, correlation_id, client_id }
        .encode(&mut writer);
    encode(&mut writer, version);
    Frame { key, version, correlation_id, bytes: writer.buf }
}

/// The same request of another client.
pub fn of_client(mut frame: Frame, client_id: &str) -> Frame {
    let name = [&(client_id.len() as u16).to_be_bytes(), client_id.as_bytes()].concat();
    frame.bytes.splice(8..10 + CLIENT_ID.len(), name);
    frame
}

/// A request with any bytes after its header.
pub fn raw(key: i16, version: i16, body: &[u8]) -> Frame {
    frame(key, version, |writer, _| writer.raw(body))
}

/// An output as the client gets it.
pub fn whole(output: &Output) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = 0;
    for (position, range) in &output.files {
        bytes.extend_from_slice(&output.buf[at..*position]);
        bytes.extend(range.to_vec().unwrap());
        at = *position;
    }
    bytes.extend_from_slice(&output.buf[at..]);
    bytes
}

/// `{name: value}`.
pub fn map(fields: Vec<(&'static str, Value)>) -> Value {
    Value::Map(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
}
