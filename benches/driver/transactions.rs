//! Transactional producers, each with a connection and a partition of its own, from one thread.
//!
//! A producer does what a client does: AddPartitionsToTxn, Produce, and when all is acknowledged
//! EndTxn. While the broker still writes the markers of its last transaction, it asks again after
//! the 20 ms that Java's client waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::crowd::Crowd;
use crate::group_requests::{FIND_COORDINATOR, found_coordinator};
use crate::link::{Link, Run};
use crate::requests::{Dialect, PRODUCE, Shape, produced};
use crate::transaction_requests::{
    self as transactions, ADD_PARTITIONS_TO_TXN, CONCURRENT_TRANSACTIONS, END_TXN,
    INIT_PRODUCER_ID, ProducerFrames,
};
use crate::usage::Usage;

/// A broker that does not answer for so long will not.
const PATIENCE: Duration = Duration::from_secs(60);
const BACKOFF: Duration = Duration::from_millis(20);

/// What the producers do.
pub struct Plan {
    /// Batches of all producers together.
    pub batches: usize,
    /// A transaction ends when this time is over, and has one batch at least; `None`: the producers
    /// are idempotent alone.
    pub lasts: Option<Duration>,
    /// Batches of a producer that are in flight.
    pub window: usize,
    /// From the end of a transaction to the next of its producer.
    pub pause: Duration,
    /// Each so many transactions are aborted; 0: none.
    pub abort_every: usize,
}

/// What a producer waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Nothing,
    Added,
    Produced,
    Ended,
}

struct Producer {
    frames: ProducerFrames,
    waits: Waits,
    in_flight: usize,
    /// Whether the transaction lacks its first batch.
    lacks_first: bool,
    began: Instant,
    ends: Instant,
}

pub struct Producers {
    crowd: Crowd,
    producers: Vec<Producer>,
    versions: Versions,
    /// Who does something later.
    later: BinaryHeap<Reverse<(Instant, usize)>>,
}

#[derive(Clone, Copy)]
struct Versions {
    add: i16,
    produce: i16,
    end: i16,
}

/// The state of a run.
struct Progress<'a> {
    plan: &'a Plan,
    /// Batches that are still to be sent.
    left: usize,
    run: Run,
    /// Nanoseconds of EndTxn.
    end_times: Vec<u64>,
    /// AddPartitionsToTxn that came too early.
    refused: usize,
    ended: usize,
}

/// Asks until the broker coordinates transactions.
pub fn find(link: &mut Link, dialect: &Dialect) {
    let version = dialect.version(FIND_COORDINATOR);
    let deadline = Instant::now() + PATIENCE;
    let frame = transactions::find_coordinator(version, "bench");
    while found_coordinator(&link.call(&frame), version) != 0 {
        assert!(Instant::now() < deadline, "no coordinator of transactions");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The id and epoch of a producer.
pub fn init(link: &mut Link, dialect: &Dialect, name: Option<&str>) -> (i64, i16) {
    let version = dialect.version(INIT_PRODUCER_ID);
    let frame = transactions::init(version, name);
    let deadline = Instant::now() + PATIENCE;
    loop {
        match transactions::initialised(&link.call(&frame), version) {
            Ok(producer) => return producer,
            Err(error) => assert!(Instant::now() < deadline, "InitProducerId: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Producers {
    /// `count` producers that write to `partitions` of a topic in turn.
    pub fn connect(
        (address, dialect): (&str, &Dialect),
        count: usize,
        (topic, partitions): (&str, &[i32]),
        (shape, is_transactional): (&Shape, bool),
    ) -> Self {
        let mut crowd = Crowd::connect(address, count);
        find(&mut crowd.links[0], dialect);
        let to = partitions.iter().cycle();
        let producer = |(index, (link, partition)): (usize, (&mut Link, &i32))| {
            let name = format!("bench-{index}");
            let (id, epoch) = init(link, dialect, is_transactional.then_some(&*name));
            let to = (topic, *partition);
            let what = (shape, is_transactional);
            let frames = ProducerFrames::new(dialect, (&name, id, epoch), to, what);
            let now = Instant::now();
            let waits = Waits::Nothing;
            Producer { frames, waits, in_flight: 0, lacks_first: false, began: now, ends: now }
        };
        let producers = crowd.links.iter_mut().zip(to).enumerate().map(producer).collect();
        let versions = Versions {
            add: dialect.version(ADD_PARTITIONS_TO_TXN),
            produce: dialect.version(PRODUCE),
            end: dialect.version(END_TXN),
        };
        Self { crowd, producers, versions, later: BinaryHeap::new() }
    }

    /// Sends the batches of a plan. `latencies` of the result are those of whole transactions,
    /// `requests` counts transactions or, without any, batches.
    pub fn run(&mut self, plan: &Plan, usage: &Usage) -> Run {
        let mut progress = Progress {
            plan,
            left: plan.batches,
            run: Run::default(),
            end_times: Vec::new(),
            refused: 0,
            ended: 0,
        };
        let before = usage.cpu_s();
        let start = Instant::now();
        for index in 0..self.producers.len() {
            self.begin(index, &mut progress);
        }
        loop {
            let now = Instant::now();
            while let Some(&Reverse((due, index))) = self.later.peek()
                && due <= now
            {
                self.later.pop();
                match self.producers[index].waits {
                    Waits::Added => self.add(index, &mut progress),
                    _ => self.begin(index, &mut progress),
                }
            }
            if self.is_over() {
                break;
            }
            let next = self.later.peek().map(|Reverse((due, _))| *due - now.min(*due));
            let ready = self.crowd.ready(next.unwrap_or(PATIENCE));
            assert!(!ready.is_empty() || next.is_some(), "no reply in {PATIENCE:?}");
            for index in ready {
                self.read(index, &mut progress);
            }
        }
        let mut run = progress.run;
        run.seconds = start.elapsed().as_secs_f64();
        run.cpu_s = before.and_then(|before| usage.cpu_s().map(|after| after - before));
        if plan.lasts.is_none() {
            run.requests = plan.batches;
            return run;
        }
        run.requests = progress.ended;
        progress.end_times.sort_unstable();
        let refused = progress.refused as f64 / progress.ended as f64;
        run.more.push(("refused_a_transaction", refused));
        for (name, share) in [("end_p50_us", 0.5), ("end_p99_us", 0.99)] {
            let at = (progress.end_times.len() as f64 * share) as usize;
            run.more.push((name, progress.end_times[at] as f64 / 1e3));
        }
        run
    }

    fn is_over(&self) -> bool {
        self.later.is_empty() && self.producers.iter().all(|it| it.waits == Waits::Nothing)
    }

    fn begin(&mut self, index: usize, progress: &mut Progress<'_>) {
        let producer = &mut self.producers[index];
        producer.waits = Waits::Nothing;
        if progress.left == 0 {
            return;
        }
        progress.left -= 1;
        producer.lacks_first = true;
        producer.began = Instant::now();
        match progress.plan.lasts {
            Some(_) => self.add(index, progress),
            None => self.produce(index, progress),
        }
    }

    fn add(&mut self, index: usize, progress: &mut Progress<'_>) {
        let producer = &mut self.producers[index];
        producer.waits = Waits::Added;
        progress.run.sent += producer.frames.add.len();
        self.crowd.links[index].send(&producer.frames.add);
    }

    /// Sends what may be sent; ends the transaction if nothing is left to send or to wait for.
    fn produce(&mut self, index: usize, progress: &mut Progress<'_>) {
        let producer = &mut self.producers[index];
        producer.waits = Waits::Produced;
        let is_time_over = progress.plan.lasts.is_some_and(|it| producer.began.elapsed() >= it);
        while producer.in_flight < progress.plan.window {
            if !std::mem::take(&mut producer.lacks_first) {
                if is_time_over || progress.left == 0 {
                    break;
                }
                progress.left -= 1;
            }
            producer.in_flight += 1;
            let frame = producer.frames.next_produce();
            progress.run.sent += frame.len();
            self.crowd.links[index].send(frame);
        }
        if producer.in_flight > 0 {
            return;
        }
        if progress.plan.lasts.is_none() {
            producer.waits = Waits::Nothing;
            return;
        }
        let every = progress.plan.abort_every;
        let aborts = every > 0 && progress.ended % every == every - 1;
        let frame = if aborts { &producer.frames.abort } else { &producer.frames.commit };
        producer.waits = Waits::Ended;
        producer.ends = Instant::now();
        progress.run.sent += frame.len();
        self.crowd.links[index].send(frame);
    }

    fn read(&mut self, index: usize, progress: &mut Progress<'_>) {
        let (waits, versions) = (self.producers[index].waits, self.versions);
        let (mut done, mut code) = (0, 0);
        self.crowd.links[index].read(&mut progress.run, |reply| {
            done += 1;
            match waits {
                Waits::Added => code = transactions::added(reply, versions.add),
                Waits::Produced => {
                    produced(reply, versions.produce);
                }
                Waits::Ended => code = transactions::ended(reply, versions.end),
                Waits::Nothing => panic!("a reply that nobody waits for"),
            }
        });
        if done == 0 {
            return;
        }
        let producer = &mut self.producers[index];
        match (waits, code) {
            (Waits::Added, CONCURRENT_TRANSACTIONS) => {
                progress.refused += 1;
                self.later.push(Reverse((Instant::now() + BACKOFF, index)));
            }
            (Waits::Ended, 0) => {
                let now = Instant::now();
                progress.ended += 1;
                progress.run.latencies.push((now - producer.began).as_nanos() as u64);
                progress.end_times.push((now - producer.ends).as_nanos() as u64);
                if progress.plan.pause.is_zero() {
                    return self.begin(index, progress);
                }
                producer.waits = Waits::Nothing;
                self.later.push(Reverse((now + progress.plan.pause, index)));
            }
            (Waits::Produced, _) => {
                producer.in_flight -= done;
                self.produce(index, progress);
            }
            (Waits::Added, 0) => self.produce(index, progress),
            (_, error) => panic!("a transaction got the error {error}"),
        }
    }
}
