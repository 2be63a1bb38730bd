//! Brokers in this process, each with a real server, fetchers and log directory. The test takes the
//! controller's part: it assigns leaders.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use krust::broker::fetching::FetcherSettings;
use krust::broker::image::{BrokerImage, Endpoint, PartitionState, TopicDelta, TopicSettings};
use krust::broker::quotas::replication::ReplicaThrottles;
use krust::broker::{Broker, Event, LogManager, MetadataDelta, Partition, Policy, Settings, Wake};
use krust::client::connection::{ApiRequest, BrokerConnection};
use krust::client::{Address, ClientOptions};
use krust::clock::SystemClock;
use krust::fetcher::Fetchers;
use krust::ids::{Epoch, Offset, TopicId};
use krust::net::{self, ListenAddress, Mailboxes};
use krust::protocol::RecordsField;
use krust::protocol::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use krust::record::batch::{BatchBuilder, BatchFields, NewRecord};
use krust::storage::files::{Disk, RealDisk};
use krust::storage::{DirOptions, Intervals, LogConfig, LogDir, LogReadRequest};
use krust::wire::Writer;
use parking_lot::{Condvar, Mutex};

/// For how long a test waits, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
pub const TOPIC: &str = "orders";
pub const LISTENER: &str = "PLAINTEXT";

/// Decides nothing.
struct NoPolicy;

impl Policy for NoPolicy {
    fn submit(&self, _event: Event) {}
}

/// The properties of a node.
#[derive(Clone)]
pub struct Made {
    pub fetchers: FetcherSettings,
    pub log: LogConfig,
    pub throttles: ReplicaThrottles,
    /// A log directory on each.
    pub disks: Vec<Arc<dyn Disk>>,
}

impl Default for Made {
    fn default() -> Self {
        let fetchers = FetcherSettings { backoff_ms: 100, ..FetcherSettings::default() };
        Self {
            fetchers,
            log: LogConfig::default(),
            throttles: ReplicaThrottles::default(),
            disks: vec![Arc::new(RealDisk)],
        }
    }
}

/// A running broker.
pub struct Node {
    pub id: i32,
    pub broker: Arc<Broker>,
    pub fetchers: Arc<Fetchers>,
    pub dirs: Vec<Arc<LogDir>>,
    pub made: Made,
    server: net::Server<Broker>,
    version: u64,
    path: PathBuf,
    is_closed: bool,
}

impl Node {
    /// Starts broker `id` on a port, over the directory `path`.
    pub fn start(id: i32, port: u16, path: &Path, made: Made) -> Self {
        let open = |(number, disk): (usize, &Arc<dyn Disk>)| {
            let disk = Arc::clone(disk);
            let options = DirOptions { broker_id: id, disk, ..DirOptions::default() };
            LogDir::open(&path.join(number.to_string()), &options).unwrap()
        };
        let dirs: Vec<_> = made.disks.iter().enumerate().map(open).collect();
        let settings = Settings {
            node_id: id,
            inter_broker_listener: Some(LISTENER.into()),
            fetchers: made.fetchers.clone(),
            ..Settings::default()
        };
        let clock = Arc::new(SystemClock);
        let store = LogManager::new(dirs.clone());
        let broker = Broker::new(settings, store, Arc::new(NoPolicy), clock);
        let mailboxes = Mailboxes::<Wake>::new(1);
        broker.connect(Arc::clone(&mailboxes) as _);
        broker.load().unwrap();
        broker.start_syncing(Intervals::default(), None).unwrap();
        let fetchers = Fetchers::start(&broker);
        let endpoint = ListenAddress { name: LISTENER.into(), host: "127.0.0.1".into(), port };
        let options =
            net::NetworkOptions { endpoints: vec![endpoint], ..net::NetworkOptions::default() };
        let server =
            net::Server::start(options, Arc::clone(&broker), mailboxes, Arc::new(SystemClock))
                .unwrap();
        let path = path.to_owned();
        Self { id, broker, fetchers, dirs, made, server, version: 0, path, is_closed: false }
    }

    pub fn port(&self) -> u16 {
        self.server.bound()[0].address.port()
    }

    /// Ends the server and the broker, in order.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.server.stop();
        self.broker.close().unwrap();
    }

    /// Ends in order and starts again on the same port; it knows nothing of the cluster then.
    pub fn again(mut self) -> Self {
        self.close();
        let (id, port, path, made) = (self.id, self.port(), self.path.clone(), self.made.clone());
        drop(self);
        Self::start(id, port, &path, made)
    }

    pub fn apply(&mut self, delta: MetadataDelta) {
        self.version += 1;
        let failures = self.broker.apply(MetadataDelta { version: self.version, ..delta });
        assert!(failures.is_empty(), "{failures:?}");
    }

    /// The brokers of the cluster, by id and port.
    pub fn meet(&mut self, brokers: &[(i32, u16)]) {
        let image = |(id, port): &(i32, u16)| {
            let endpoint =
                Endpoint { listener: LISTENER.into(), host: "127.0.0.1".into(), port: *port };
            BrokerImage { id: *id, rack: None, endpoints: vec![endpoint] }
        };
        let brokers = Some(brokers.iter().map(image).collect());
        self.apply(MetadataDelta { brokers, broker_epoch: Some(7), ..MetadataDelta::default() });
    }

    /// The leader of the first `count` partitions of the topic, in an epoch.
    pub fn lead_by(&mut self, leader: i32, epoch: i32, count: i32) {
        self.assign((0..count).map(|number| (number, leader, epoch)));
    }

    /// Partitions with their leaders and epochs.
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = (i32, i32, i32)>) {
        let state = |(number, leader, epoch)| {
            let state = PartitionState {
                leader,
                leader_epoch: Epoch(epoch),
                isr: vec![leader],
                replicas: vec![0, 1],
                partition_epoch: epoch,
            };
            (number, state)
        };
        let delta = TopicDelta {
            id: TopicId([1; 16]),
            internal: false,
            settings: TopicSettings {
                log: self.made.log.clone(),
                throttles: self.made.throttles.clone(),
                ..TopicSettings::default()
            },
            partitions: partitions.into_iter().map(state).collect(),
        };
        self.apply(MetadataDelta {
            topics: vec![(TOPIC.into(), Some(delta))],
            ..MetadataDelta::default()
        });
    }

    /// Changes its settings.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = Settings::clone(&self.broker.settings());
        change(&mut settings);
        self.broker.set_settings(settings);
    }

    pub fn partition(&self, number: i32) -> Arc<Partition> {
        let image = self.broker.image();
        let partition = image.topic(TOPIC).unwrap().partition(number).unwrap();
        Arc::clone(partition.local.as_ref().unwrap())
    }

    pub fn end(&self, number: i32) -> i64 {
        self.partition(number).log.log_end_offset().0
    }

    /// The bytes of a partition's log.
    pub fn bytes(&self, number: i32) -> Vec<u8> {
        let partition = self.partition(number);
        let log = &partition.log;
        let (offset, upper) = (log.log_start_offset(), log.log_end_offset());
        let read = LogReadRequest { offset, max_bytes: usize::MAX >> 1, upper, min_one: true };
        log.read(read).unwrap().to_vec().unwrap()
    }

    /// A client of this broker.
    pub fn client(&self) -> Client {
        Client::new(self.port())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.is_closed {
            self.server.stop();
            let _ = self.broker.close();
        }
    }
}

/// Two brokers, 0 and 1, that know each other.
pub struct Pair {
    pub nodes: [Node; 2],
    pub epoch: i32,
    pub partitions: i32,
    _dir: tempfile::TempDir,
}

impl Pair {
    /// Broker 0 leads all partitions, and broker 1 follows.
    pub fn new(partitions: i32, made: Made) -> Self {
        Self::with(partitions, [made.clone(), made])
    }

    pub fn with(partitions: i32, [first, second]: [Made; 2]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let nodes = [
            Node::start(0, 0, &dir.path().join("0"), first),
            Node::start(1, 0, &dir.path().join("1"), second),
        ];
        let mut pair = Self { nodes, epoch: -1, partitions, _dir: dir };
        pair.meet();
        pair.elect(0);
        pair
    }

    /// Gives both brokers the addresses of both.
    pub fn meet(&mut self) {
        self.meet_at(self.nodes[0].port());
    }

    /// The same; broker 0 is at this port.
    pub fn meet_at(&mut self, port: u16) {
        let brokers = [(0, port), (1, self.nodes[1].port())];
        self.nodes.iter_mut().for_each(|node| node.meet(&brokers));
    }

    /// Makes a broker the leader of all partitions, in the next epoch.
    pub fn elect(&mut self, leader: i32) {
        self.epoch += 1;
        // The leader knows first.
        let mut nodes: Vec<&mut Node> = self.nodes.iter_mut().collect();
        nodes.sort_by_key(|node| node.id != leader);
        for node in nodes {
            node.lead_by(leader, self.epoch, self.partitions);
        }
    }

    /// Broker 1 cannot reach broker 0 any more, or can again.
    pub fn cut_off(&self, is_cut_off: bool) {
        let cut_off = if is_cut_off { BTreeSet::from([0]) } else { BTreeSet::new() };
        self.nodes[1].broker.peer_reach().cut_off(cut_off);
    }

    /// Broker 0 appends records that broker 1 does not get. Then broker 1 leads for an epoch and
    /// appends others. At last broker 0 leads again.
    pub fn diverge(&mut self) {
        self.cut_off(true);
        for number in 0..self.partitions {
            self.nodes[0].client().produce(number, &batch(&[b"on the first only"])).unwrap();
        }
        self.epoch += 1;
        self.nodes[1].lead_by(1, self.epoch, self.partitions);
        for number in 0..self.partitions {
            for value in [b"on the second only".as_slice(), b"and one more"] {
                self.nodes[1].client().produce(number, &batch(&[value])).unwrap();
            }
        }
        self.cut_off(false);
        self.elect(0);
    }

    /// Waits until both logs of all partitions hold the same bytes, at least `records` in all.
    pub fn agree(&self, records: i64) {
        let ends = |node: &Node| (0..self.partitions).map(|it| node.end(it)).collect::<Vec<_>>();
        until(
            || {
                let all = [ends(&self.nodes[0]), ends(&self.nodes[1])];
                all[0] == all[1] && all[0].iter().sum::<i64>() >= records
            },
            || format!("{:?} and {:?}", ends(&self.nodes[0]), ends(&self.nodes[1])),
        );
        for number in 0..self.partitions {
            assert_eq!(self.nodes[0].bytes(number), self.nodes[1].bytes(number), "{number}");
        }
    }
}

/// A connection of a client.
pub struct Client {
    connection: BrokerConnection,
    options: ClientOptions,
}

impl Client {
    pub fn new(port: u16) -> Self {
        let address = Address { host: "127.0.0.1".to_owned(), port };
        let options = ClientOptions::new(vec![address.clone()]);
        let connection =
            BrokerConnection::open(&address, &options, &options.wait(PATIENCE)).unwrap();
        Self { connection, options }
    }

    /// Produces batches to a partition with acks=1.
    pub fn produce(&mut self, partition: i32, batches: &[u8]) -> Result<i64, i16> {
        let request = ProduceRequest {
            acks: 1,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: TOPIC,
                partition_data: vec![PartitionProduceData {
                    index: partition,
                    records: RecordsField::Bytes(batches),
                }],
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        };
        let version = 9;
        let encode = |writer: &mut Writer| request.encode(writer, version);
        let call = ApiRequest { key: 0, version, encode: &encode };
        let reply = self.connection.call(&call, &self.options.wait(PATIENCE)).unwrap();
        let response = ProduceResponse::decode(&mut reply.body(), version).unwrap();
        let answer = &response.responses[0].partition_responses[0];
        if answer.error_code == 0 { Ok(answer.base_offset) } else { Err(answer.error_code) }
    }
}

/// A batch of records with these values.
pub fn batch(values: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        let record =
            NewRecord { timestamp: 1_700_000_000_000, key: None, value: Some(value), headers: &[] };
        builder.add(&record);
    }
    builder.to_bytes(&BatchFields::default()).unwrap()
}

/// Sleeps and looks until `fact` holds; fails with `state` when patience ends.
pub fn until(fact: impl Fn() -> bool, state: impl Fn() -> String) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < PATIENCE, "{}", state());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A port that nobody listens on.
pub fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The high watermark of a partition.
pub fn high_watermark(node: &Node, number: i32) -> Offset {
    node.partition(number).log.high_watermark()
}

/// A disk that fails on request.
#[derive(Debug, Default)]
pub struct FaultyDisk {
    /// So many writes are refused with this error number.
    refusals: AtomicUsize,
    error: AtomicI32,
    panics: AtomicBool,
}

impl FaultyDisk {
    /// Refuses the next `count` writes.
    pub fn refuse(&self, error: i32, count: usize) {
        self.error.store(error, Ordering::SeqCst);
        self.refusals.store(count, Ordering::SeqCst);
    }

    pub fn is_healed(&self) -> bool {
        self.refusals.load(Ordering::SeqCst) == 0
    }

    /// Panics at the next write.
    pub fn panic(&self) {
        self.panics.store(true, Ordering::SeqCst);
    }
}

impl Disk for FaultyDisk {
    fn write_at(&self, file: &File, bufs: &[&[u8]], position: u64) -> io::Result<()> {
        assert!(!self.panics.load(Ordering::SeqCst), "planted in a write");
        let less = |left: usize| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(io::Error::from_raw_os_error(self.error.load(Ordering::SeqCst)));
        }
        RealDisk.write_at(file, bufs, position)
    }
}

/// A disk on which a sync ends only after two of them have run at the same time.
#[derive(Debug, Default)]
pub struct MeetingDisk {
    is_on: AtomicBool,
    syncs: Mutex<RunningSyncs>,
    met: Condvar,
}

#[derive(Debug, Default)]
struct RunningSyncs {
    running: usize,
    have_met: bool,
}

impl MeetingDisk {
    /// Has the syncs wait for each other from now on.
    pub fn start(&self) {
        self.is_on.store(true, Ordering::SeqCst);
    }

    pub fn have_met(&self) -> bool {
        self.syncs.lock().have_met
    }
}

impl Disk for MeetingDisk {
    fn sync_data(&self, file: &File) -> io::Result<()> {
        if self.is_on.load(Ordering::SeqCst) {
            let mut syncs = self.syncs.lock();
            syncs.running += 1;
            if syncs.running == 2 {
                syncs.have_met = true;
                self.met.notify_all();
            }
            let is_alone = |syncs: &mut RunningSyncs| !syncs.have_met;
            self.met.wait_while_for(&mut syncs, is_alone, PATIENCE);
            syncs.running -= 1;
        }
        RealDisk.sync_data(file)
    }
}
