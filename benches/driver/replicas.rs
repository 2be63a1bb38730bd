//! Topics with replicas on several brokers: their making, Produce to the leader of each partition,
//! and for how long a partition acknowledges nothing while brokers stop, die and come back.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use krust::protocol::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
    CreateTopicsResponse,
};
use krust::protocol::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use krust::protocol::produce::ProduceResponse;

use crate::link::{Link, Load, Run};
use crate::requests::{self, CREATE_TOPICS, Dialect, METADATA, PRODUCE};
use crate::usage::Usage;

/// Replicas that are not in sync after so long will not be.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a broker that is suspended may keep a connection waiting.
const ANSWER: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(2);

/// What a broker says of the brokers and of one topic.
struct View {
    controller: i32,
    addresses: BTreeMap<i32, String>,
    /// The leader of each partition, and how many replicas are in sync.
    partitions: BTreeMap<i32, (i32, usize)>,
}

impl View {
    fn leader(&self, partition: i32) -> Option<&String> {
        self.partitions.get(&partition).and_then(|(leader, _)| self.addresses.get(leader))
    }
}

fn metadata_frame(version: i16, topic: &str) -> Vec<u8> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: Some(topic), ..Default::default() }]),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    requests::frame(METADATA, version, |w| request.encode(w, version))
}

fn view_of(reply: &[u8], version: i16) -> View {
    let mut r = requests::body(reply, METADATA, version);
    let response = MetadataResponse::decode(&mut r, version).expect("Metadata");
    let address = |broker: &krust::protocol::metadata::MetadataResponseBroker<'_>| {
        (broker.node_id, format!("{}:{}", broker.host, broker.port))
    };
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    View {
        controller: response.controller_id,
        addresses: response.brokers.iter().map(address).collect(),
        partitions: partitions
            .map(|one| (one.partition_index, (one.leader_id, one.isr_nodes.len())))
            .collect(),
    }
}

/// Makes a topic whose partitions are led by the brokers in turn, each followed by the next
/// brokers, and waits until all replicas are in sync; or finds one that is there. Returns the address of each leader and the
/// controller's.
pub fn create(
    link: &mut Link,
    dialect: &Dialect,
    topic: &str,
    (partitions, replicas): (i32, usize),
) -> (Vec<String>, String) {
    let version = dialect.version(METADATA);
    let ask = metadata_frame(version, topic);
    let view = view_of(&link.call(&ask), version);
    let controller = view.addresses[&view.controller].clone();
    let brokers: Vec<i32> = view.addresses.keys().copied().collect();
    let assignments = (0..partitions).map(|index| CreatableReplicaAssignment {
        partition_index: index,
        broker_ids: brokers
            .iter()
            .cycle()
            .skip(index as usize % brokers.len())
            .take(replicas)
            .copied()
            .collect(),
    });
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: topic,
            num_partitions: -1,
            replication_factor: -1,
            assignments: assignments.collect(),
            configs: vec![CreatableTopicConfig { name: "file.delete.delay.ms", value: Some("1") }],
        }],
        ..Default::default()
    };
    let create_version = dialect.version(CREATE_TOPICS);
    let frame =
        requests::frame(CREATE_TOPICS, create_version, |w| request.encode(w, create_version));
    let reply = Link::connect(&controller).call(&frame);
    let mut r = requests::body(&reply, CREATE_TOPICS, create_version);
    let response = CreateTopicsResponse::decode(&mut r, create_version).expect("CreateTopics");
    let code = response.topics.first().map_or(-1, |topic| topic.error_code);
    assert!(code == 0 || code == 36, "creating topic {topic}: error {code}");
    let start = Instant::now();
    // One that is kept may have a follower that is away on purpose.
    let wanted = if code == 0 { replicas } else { 1 };
    loop {
        let view = view_of(&link.call(&ask), version);
        let in_sync = view.partitions.values().filter(|(_, isr)| *isr >= wanted).count();
        if in_sync == partitions as usize {
            let leader = |index| view.leader(index).expect("a leader").clone();
            return ((0..partitions).map(leader).collect(), controller);
        }
        assert!(start.elapsed() < PATIENCE, "{in_sync} of {partitions} partitions are in sync");
        std::thread::sleep(RETRY);
    }
}

/// A thread for each partition sends its frames to its leader; the CPU is of all together.
pub fn run(leaders: &[String], frames: &[Vec<u8>], load: (usize, usize), usage: &Usage) -> Run {
    let (requests, window) = (load.0 / leaders.len(), load.1);
    let mut links: Vec<Link> = leaders.iter().map(|leader| Link::connect(leader)).collect();
    let before = usage.cpu_s();
    let start = Instant::now();
    let runs: Vec<Run> = std::thread::scope(|scope| {
        let started: Vec<_> = links
            .iter_mut()
            .zip(frames)
            .map(|(link, frame)| {
                let frames = std::slice::from_ref(frame);
                let load = Load { frames, requests, window, gap: None };
                scope.spawn(move || link.run(&load, &Usage::of(Vec::new())))
            })
            .collect();
        started.into_iter().map(|thread| thread.join().expect("a load")).collect()
    });
    let mut all = Run { seconds: start.elapsed().as_secs_f64(), ..Run::default() };
    all.cpu_s = before.and_then(|before| usage.cpu_s().map(|after| after - before));
    for run in runs {
        all.requests += run.requests;
        all.sent += run.sent;
        all.received += run.received;
        all.latencies.extend(run.latencies);
        all.last = run.last;
    }
    all
}

/// The partitions of a topic, each written to by a thread that finds the leader again and again.
pub struct Gaps<'a> {
    pub bootstrap: Vec<String>,
    pub topic: &'a str,
    pub frames: Vec<Vec<u8>>,
    pub produce_version: i16,
    pub metadata_version: i16,
    /// From one record to the next.
    pub every: Duration,
    pub lasts: Duration,
}

impl Gaps<'_> {
    /// Writes for so long; of each partition, the longest time between two acknowledgements is a
    /// latency of the result.
    pub fn run(&self) -> Run {
        let start = Instant::now();
        let found: Vec<(usize, Duration)> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..self.frames.len())
                .map(|partition| scope.spawn(move || self.longest(partition)))
                .collect();
            started.into_iter().map(|thread| thread.join().expect("a writer")).collect()
        });
        let longest = found.iter().map(|(_, gap)| gap.as_secs_f64() * 1e3).fold(0.0, f64::max);
        Run {
            requests: found.iter().map(|(count, _)| count).sum(),
            seconds: start.elapsed().as_secs_f64(),
            latencies: found.iter().map(|(_, gap)| gap.as_nanos() as u64).collect(),
            more: vec![("longest_gap_ms", longest)],
            ..Run::default()
        }
    }

    /// How many records a partition acknowledged, and its longest gap.
    fn longest(&self, partition: usize) -> (usize, Duration) {
        let (start, mut last) = (Instant::now(), None::<Instant>);
        let (mut count, mut longest) = (0, Duration::ZERO);
        let mut open = None;
        while start.elapsed() < self.lasts {
            if self.write(partition, &mut open).is_none() {
                open = None;
                std::thread::sleep(RETRY);
                continue;
            }
            let now = Instant::now();
            longest = longest.max(last.map_or(Duration::ZERO, |last| now - last));
            last = Some(now);
            count += 1;
            std::thread::sleep(self.every);
        }
        (count, longest.max(last.unwrap_or(start).elapsed().saturating_sub(self.every)))
    }

    /// Has one record acknowledged; `None` if it is not.
    fn write(&self, partition: usize, open: &mut Option<TcpStream>) -> Option<()> {
        if open.is_none() {
            *open = Some(connect(&self.leader(partition as i32)?)?);
        }
        let reply = call(open.as_mut()?, &self.frames[partition])?;
        let version = self.produce_version;
        let mut r = requests::body(&reply, PRODUCE, version);
        let response = ProduceResponse::decode(&mut r, version).ok()?;
        let mut partitions = response.responses.iter().flat_map(|one| &one.partition_responses);
        partitions.all(|one| one.error_code == 0).then_some(())
    }

    /// The leader of a partition, as the first broker that answers names it.
    fn leader(&self, partition: i32) -> Option<String> {
        let frame = metadata_frame(self.metadata_version, self.topic);
        let replies = self.bootstrap.iter().filter_map(|at| call(&mut connect(at)?, &frame));
        let views = replies.map(|reply| view_of(&reply, self.metadata_version));
        views.filter_map(|view| view.leader(partition).cloned()).next()
    }
}

fn connect(address: &str) -> Option<TcpStream> {
    let address: SocketAddr = address.parse().ok()?;
    let stream = TcpStream::connect_timeout(&address, ANSWER).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    Some(stream)
}

fn call(stream: &mut TcpStream, frame: &[u8]) -> Option<Vec<u8>> {
    stream.write_all(frame).ok()?;
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).ok()?;
    let mut body = vec![0; u32::from_be_bytes(prefix) as usize];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}
