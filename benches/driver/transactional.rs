//! Loads of transactions: commits, saturating producers, readers, open ids, the coordinator's start.

use std::time::{Duration, Instant};

use krust::protocol::RecordsField;
use krust::protocol::fetch::FetchResponse;

use crate::Bench;
use crate::crowd::Crowd;
use crate::link::{Link, Run};
use crate::requests::{self, Ask, FETCH, PRODUCE, Shape, body};
use crate::transaction_requests::{
    self as transactions, ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID, LIST_TRANSACTIONS,
    ProducerFrames,
};
use crate::transactions::{Plan, Producers, find, init};

/// What does not happen in this time does not happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// So many transactional ids are opened together.
const TOGETHER: usize = 1000;
/// So many transactional ids lie in all partitions of their topic.
const SOME: usize = 500;

impl Bench<'_> {
    fn producers(&mut self, shape: &Shape, is_transactional: bool, partitions: i32) -> Producers {
        let partitions = self.topic(partitions);
        let arguments = self.arguments;
        let dialect = self.dialect.as_ref().expect("no --raw");
        let to = (arguments.topic.as_str(), partitions.as_slice());
        let at = (arguments.bootstrap.as_str(), dialect);
        Producers::connect(at, arguments.connections, to, (shape, is_transactional))
    }

    pub fn transactions(&mut self) -> Run {
        let shape = Shape { batch_bytes: 0, ..self.arguments.shape.clone() };
        let mut producers = self.producers(&shape, true, 1);
        let plan = |batches| Plan {
            batches,
            lasts: Some(Duration::ZERO),
            window: 1,
            pause: self.arguments.pause,
            abort_every: 0,
        };
        producers.run(&plan(self.arguments.requests / 5 + 1), &self.usage);
        producers.run(&plan(self.arguments.requests), &self.usage)
    }

    pub fn stream(&mut self) -> Run {
        let lasts = Some(self.arguments.every).filter(|every| !every.is_zero());
        let shape = self.arguments.shape.clone();
        let partitions = self.arguments.connections as i32;
        let mut producers = self.producers(&shape, lasts.is_some(), partitions);
        let batches = self.arguments.bytes / shape.batch_bytes;
        let window = self.arguments.window;
        let plan = |batches| Plan { batches, lasts, window, pause: Duration::ZERO, abort_every: 0 };
        producers.run(&plan(batches / 10 + 1), &self.usage);
        let mut run = producers.run(&plan(batches), &self.usage);
        run.more.push(("batches_s", batches as f64 / run.seconds));
        run
    }

    /// What transactions left is read in both isolation levels by turns, `--rounds` times.
    pub fn fetch_isolated(&mut self) -> Run {
        let shape = self.arguments.shape.clone();
        let mut producers = self.producers(&shape, true, 1);
        let batches = self.arguments.bytes / shape.batch_bytes;
        let lasts = Some(self.arguments.every);
        let window = self.arguments.window;
        let plan = Plan { batches, lasts, window, pause: Duration::ZERO, abort_every: 10 };
        producers.run(&plan, &self.usage);
        let version = self.version(FETCH);
        let offsets = self.walk();
        let frames = |read_committed| -> Vec<Vec<u8>> {
            let max_bytes = self.arguments.fetch_bytes as i32;
            let ask = |offset| Ask { offset, max_bytes, read_committed, ..Ask::default() };
            let frame =
                |offset: &i64| requests::fetch(version, ask(*offset), &self.arguments.topic, &[0]);
            offsets.iter().map(frame).collect()
        };
        let (plain, committed) = (frames(false), frames(true));
        self.load(&plain, plain.len(), 1);
        self.load(&committed, committed.len(), 1);
        let (mut all, mut of_plain) = (Run::default(), Run::default());
        for _ in 0..self.arguments.rounds {
            for (frames, total) in [(&plain, &mut of_plain), (&committed, &mut all)] {
                let run = self.load(frames, frames.len(), 1);
                total.requests += run.requests;
                total.received += run.received;
                total.seconds += run.seconds;
                total.cpu_s = Some(total.cpu_s.unwrap_or(0.0) + run.cpu_s.unwrap_or(0.0));
            }
        }
        assert!(all.received >= of_plain.received, "read_committed has missed some batches");
        let cpu_s = of_plain.cpu_s.unwrap_or(0.0);
        all.more.push(("uncommitted_cpu_s_gb", cpu_s * 1e9 / of_plain.received as f64));
        all.more.push(("uncommitted_mb_s", of_plain.received as f64 / 1e6 / of_plain.seconds));
        all
    }

    /// The offsets at which Fetches of partition 0 go on, once all its transactions have ended.
    fn walk(&mut self) -> Vec<i64> {
        let version = self.version(FETCH);
        let mut link = Link::connect(&self.arguments.bootstrap);
        let (mut offsets, mut offset) = (Vec::new(), 0);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let max_bytes = self.arguments.fetch_bytes as i32;
            let ask =
                Ask { offset, max_bytes, max_wait_ms: 0, read_committed: true, ..Ask::default() };
            let reply = link.call(&requests::fetch(version, ask, &self.arguments.topic, &[0]));
            let mut r = body(&reply, FETCH, version);
            let response = FetchResponse::decode(&mut r, version).expect("a Fetch response");
            let mut partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
            let partition = partitions.next().expect("a partition");
            assert_eq!(partition.error_code, 0, "Fetch");
            let end = partition.high_watermark;
            if partition.last_stable_offset < end {
                assert!(Instant::now() < deadline, "a transaction stays open");
                std::thread::sleep(Duration::from_millis(20));
            } else if offset == end {
                return offsets;
            } else if let RecordsField::Bytes(bytes) = partition.records {
                offsets.push(offset);
                offset = end_of(bytes);
            }
        }
    }

    /// Opens `--requests` transactional ids, each with a record in an open transaction, or in one
    /// that is committed.
    pub fn open(&mut self) -> Run {
        let partitions = self.topic(50);
        let dialect = self.dialect.as_ref().expect("no --raw");
        find(&mut self.link, dialect);
        for number in 0..SOME {
            init(&mut self.link, dialect, Some(&format!("first-{number}")));
        }
        let idle = self.usage.resident();
        let mut crowd = Crowd::connect(&self.arguments.bootstrap, self.arguments.connections);
        let total = self.arguments.requests;
        let start = Instant::now();
        for first in (0..total).step_by(TOGETHER) {
            let last = total.min(first + TOGETHER);
            let names: Vec<String> = (first..last).map(|it| format!("open-{it}")).collect();
            self.open_some(&mut crowd, &names, &partitions);
        }
        let above = idle.zip(self.usage.resident()).map(|(idle, now)| now as f64 - idle as f64);
        let more = above.map(|above| ("resident_above_idle", above)).into_iter().collect();
        Run { requests: total, seconds: start.elapsed().as_secs_f64(), more, ..Run::default() }
    }

    fn open_some(&self, crowd: &mut Crowd, names: &[String], partitions: &[i32]) {
        let dialect = self.dialect.as_ref().expect("no --raw");
        let [init, add, produce, end] =
            [INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, PRODUCE, END_TXN].map(|it| self.version(it));
        let shape = Shape { batch_bytes: 0, ..self.arguments.shape.clone() };
        let (count, links) = (names.len(), crowd.links.len());
        let mut found: Vec<Option<ProducerFrames>> = names.iter().map(|_| None).collect();
        let deadline = Instant::now() + PATIENCE;
        // A broker refuses some while it gets a block of producer ids.
        while found.iter().any(Option::is_none) {
            assert!(Instant::now() < deadline, "InitProducerId is refused");
            let missing: Vec<usize> = (0..count).filter(|it| found[*it].is_none()).collect();
            let mut came = vec![0; links];
            let frame = |it: usize| transactions::init(init, Some(&names[missing[it]]));
            send_all(crowd, missing.len(), frame);
            crowd.gather(missing.len(), |_, link, reply| {
                let it = missing[link + came[link] * links];
                came[link] += 1;
                let to = (self.arguments.topic.as_str(), partitions[it % partitions.len()]);
                let given = transactions::initialised(reply, init).ok();
                found[it] = given.map(|(id, epoch)| {
                    let producer = (names[it].as_str(), id, epoch);
                    ProducerFrames::new(dialect, producer, to, (&shape, true))
                });
            });
        }
        let mut frames: Vec<ProducerFrames> = found.into_iter().flatten().collect();
        send_all(crowd, count, |it| frames[it].add.clone());
        crowd.gather(count, |_, _, reply| {
            assert_eq!(transactions::added(reply, add), 0, "AddPartitionsToTxn");
        });
        send_all(crowd, count, |it| frames[it].next_produce().to_vec());
        crowd.gather(count, |_, _, reply| {
            requests::produced(reply, produce);
        });
        if self.arguments.commits {
            send_all(crowd, count, |it| frames[it].commit.clone());
            crowd.gather(count, |_, _, reply| {
                assert_eq!(transactions::ended(reply, end), 0, "EndTxn");
            });
        }
    }

    /// Waits until the broker lists all `--requests` transactional ids.
    pub fn listed(&mut self) -> Run {
        let version = self.version(LIST_TRANSACTIONS);
        let start = Instant::now();
        loop {
            let reply = self.link.call(&transactions::list(version));
            if transactions::listed(&reply, version).is_ok_and(|it| it >= self.arguments.requests) {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "some transactional ids are missing");
            std::thread::sleep(Duration::from_millis(5));
        }
        Run { requests: 1, seconds: start.elapsed().as_secs_f64(), ..Run::default() }
    }

    /// From the reply to an EndTxn until a read_committed Fetch that waits has the record.
    pub fn visible(&mut self) -> Run {
        self.topic(1);
        let dialect = self.dialect.as_ref().expect("no --raw");
        let topic = self.arguments.topic.as_str();
        let shape = Shape { batch_bytes: 0, ..self.arguments.shape.clone() };
        find(&mut self.link, dialect);
        let (id, epoch) = init(&mut self.link, dialect, Some("bench-visible"));
        let producer = ("bench-visible", id, epoch);
        let mut frames = ProducerFrames::new(dialect, producer, (topic, 0), (&shape, true));
        let version = [ADD_PARTITIONS_TO_TXN, PRODUCE, END_TXN, FETCH].map(|it| self.version(it));
        let mut waiting = Link::connect(&self.arguments.bootstrap);
        let (mut run, mut offset) = (Run::default(), 0);
        let start = Instant::now();
        for _ in 0..self.arguments.requests {
            let ask = Ask { offset, max_wait_ms: 30_000, read_committed: true, ..Ask::default() };
            waiting.send(&requests::fetch(version[3], ask, topic, &[0]));
            while transactions::added(&self.link.call(&frames.add), version[0]) != 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
            requests::produced(&self.link.call(frames.next_produce()), version[1]);
            let ended = self.link.call(&frames.commit);
            let at = Instant::now();
            assert_eq!(transactions::ended(&ended, version[2]), 0, "EndTxn");
            let reply = waiting.reply();
            run.latencies.push(at.elapsed().as_nanos() as u64);
            let (_, size) = requests::fetched(&reply, version[3]);
            assert!(size > 0, "the Fetch came back empty");
            run.received += reply.len();
            run.requests += 1;
            offset += 2; // the record and the marker
        }
        run.seconds = start.elapsed().as_secs_f64();
        run
    }
}

/// Sends `count` frames, one to each connection in turn.
fn send_all(crowd: &mut Crowd, count: usize, mut frame: impl FnMut(usize) -> Vec<u8>) {
    let links = crowd.links.len();
    for link in 0..links {
        let burst: Vec<u8> = (link..count).step_by(links).flat_map(&mut frame).collect();
        crowd.links[link].send(&burst);
    }
}

/// One past the last offset of the whole batches in `bytes`.
fn end_of(bytes: &[u8]) -> i64 {
    let (mut at, mut end) = (0, None);
    while let Some(head) = bytes.get(at..at + 27) {
        let field =
            |from: usize| i32::from_be_bytes(head[from..from + 4].try_into().expect("four"));
        let size = 12 + field(8) as usize;
        if at + size > bytes.len() {
            break;
        }
        let base = i64::from_be_bytes(head[..8].try_into().expect("eight"));
        end = Some(base + i64::from(field(23)) + 1);
        at += size;
    }
    end.expect("a whole batch")
}
