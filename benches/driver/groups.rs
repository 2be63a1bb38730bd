//! Loads of groups: commits, heartbeats, rebalances, and the start of their coordinator.

use std::time::{Duration, Instant};

use crate::Bench;
use crate::crowd::Crowd;
use crate::group_requests::{
    self as groups, FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LOADING, OFFSET_COMMIT, OFFSET_FETCH,
    REBALANCING, SYNC_GROUP,
};
use crate::link::{Link, Run};

/// A coordinator that is not there after so long will not be.
const PATIENCE: Duration = Duration::from_secs(60);
/// Each frame of a connection commits another offset; so many are prepared.
const FRAMES: usize = 256;

/// A member of a group, and the connection it speaks through.
struct Member {
    group: String,
    link: usize,
    name: String,
    generation: i32,
    /// Whether its next reply is that to a SyncGroup.
    syncs: bool,
    owned: Vec<i32>,
}

impl Member {
    fn new(group: &str, link: usize) -> Self {
        let (group, name) = (group.to_owned(), String::new());
        Self { group, link, name, generation: -1, syncs: false, owned: Vec::new() }
    }
}

impl Bench<'_> {
    pub fn commit(&mut self) -> Run {
        let partitions = self.topic(64);
        let (topic, count) = (self.arguments.topic.clone(), self.arguments.connections);
        let names: Vec<String> = (0..count).map(|index| format!("{topic}-{index}")).collect();
        self.find(&names);
        let version = self.version(OFFSET_COMMIT);
        let mut crowd = Crowd::connect(&self.arguments.bootstrap, count);
        let mut frames = Vec::new();
        for (link, group) in crowd.links.iter_mut().zip(&names) {
            let to = |offset: usize| &partitions[offset % partitions.len()..][..1];
            let frame = |it| groups::commit(version, group, (&topic, to(it)), 1000 + it as i64);
            let of_link: Vec<Vec<u8>> = (0..FRAMES).map(frame).collect();
            let deadline = Instant::now() + PATIENCE;
            while groups::committed(&link.call(&of_link[0]), version) != 0 {
                assert!(Instant::now() < deadline, "no commit is taken");
                std::thread::sleep(Duration::from_millis(50));
            }
            frames.push(of_link);
        }
        let check = |reply: &[u8]| assert_eq!(groups::committed(reply, version), 0, "a commit");
        let (requests, window) = (self.arguments.requests, self.arguments.window.div_ceil(count));
        crowd.run(&frames, (requests / 5, window), &self.usage, check);
        crowd.run(&frames, (requests, window), &self.usage, check)
    }

    pub fn heartbeat(&mut self) -> Run {
        let arguments = self.arguments;
        let topic = arguments.topic.clone();
        self.topic(1);
        let names: Vec<String> = (0..arguments.groups).map(|it| format!("{topic}-{it}")).collect();
        self.find(&names);
        let idle = self.usage.resident();
        let mut crowd = Crowd::connect(&arguments.bootstrap, arguments.connections);
        let mut members = Vec::new();
        let each = arguments.members / arguments.groups;
        let rounds = arguments.members / arguments.connections;
        for round in 0..rounds {
            // A connection carries one member of each of its groups, so no join waits for another.
            let of_round = (0..arguments.connections)
                .map(|link| Member::new(&names[link / each * rounds + round], link));
            let mut of_round: Vec<Member> = of_round.collect();
            self.join(&mut crowd, &mut of_round);
            members.extend(of_round);
        }
        let run = self.beat(&mut crowd, &members);
        let above = idle.zip(self.usage.resident()).map(|(idle, now)| now as f64 - idle as f64);
        let cores = run.cpu_s.map(|cpu_s| cpu_s / run.seconds);
        let more = [("cores", cores), ("resident_above_idle", above)];
        let more = more.into_iter().filter_map(|(name, value)| Some((name, value?)));
        Run { more: more.collect(), ..run }
    }

    /// Each member's heartbeat at its time, spread over the interval.
    fn beat(&mut self, crowd: &mut Crowd, members: &[Member]) -> Run {
        let version = self.version(HEARTBEAT);
        let frame = |it: &Member| groups::heartbeat(version, &it.group, (&it.name, it.generation));
        let frames: Vec<Vec<u8>> = members.iter().map(frame).collect();
        let gap = self.arguments.every / members.len() as u32;
        let total = members.len() * self.arguments.seconds * 1000
            / self.arguments.every.as_millis() as usize;
        let (mut run, mut sent) = (Run::default(), 0);
        let mut wrong = 0;
        let before = self.usage.cpu_s();
        let start = Instant::now();
        while run.requests < total {
            while sent < total && start + gap * sent as u32 <= Instant::now() {
                let index = sent % members.len();
                crowd.links[members[index].link].send(&frames[index]);
                run.sent += frames[index].len();
                sent += 1;
            }
            let next = start + gap * sent as u32;
            let wait = next.saturating_duration_since(Instant::now());
            for link in crowd.ready(if sent < total { wait } else { PATIENCE }) {
                let count = |reply: &[u8]| {
                    wrong += usize::from(groups::beaten(reply, version) != 0);
                };
                run.requests += crowd.links[link].read(&mut run, count);
            }
        }
        run.seconds = start.elapsed().as_secs_f64();
        run.cpu_s = before.and_then(|before| self.usage.cpu_s().map(|after| after - before));
        assert_eq!(wrong, 0, "heartbeats that were refused");
        run
    }

    pub fn rebalance(&mut self) -> Run {
        self.topic(5000);
        let group = format!("{}-group", self.arguments.topic);
        self.find(std::slice::from_ref(&group));
        let count = self.arguments.members;
        let mut crowd = Crowd::connect(&self.arguments.bootstrap, count);
        crowd.links.iter_mut().for_each(Link::keep_all);
        let mut members: Vec<Member> = (0..count).map(|link| Member::new(&group, link)).collect();
        self.join(&mut crowd, &mut members);
        let mut run = Run::default();
        let before = self.usage.cpu_s();
        let start = Instant::now();
        for _ in 0..self.arguments.rounds {
            let time = self.join(&mut crowd, &mut members);
            let owned: usize = members.iter().map(|member| member.owned.len()).sum();
            assert_eq!(owned, self.arguments.partitions.unwrap_or(5000) as usize);
            run.latencies.push(time.as_nanos() as u64);
            run.requests += 1;
        }
        run.seconds = start.elapsed().as_secs_f64();
        run.cpu_s = before.and_then(|before| self.usage.cpu_s().map(|after| after - before));
        run
    }

    /// A rebalance of all members, one a connection; the time from the last join to the last sync.
    /// Members that have a name are of one group, and the first one of them leads.
    fn join(&mut self, crowd: &mut Crowd, members: &mut [Member]) -> Duration {
        let (topic, version) = (self.arguments.topic.clone(), self.version(JOIN_GROUP));
        let (mut by_link, mut leader) = (vec![0; crowd.links.len()], 0);
        let frames: Vec<Vec<u8>> = members
            .iter()
            .map(|it| {
                let metadata = groups::subscription(&topic, &it.owned);
                groups::join(version, &it.group, &it.name, &metadata)
            })
            .collect();
        for (index, frame) in frames.iter().enumerate() {
            by_link[members[index].link] = index;
            crowd.links[members[index].link].send(frame);
            if index == 0 && !members[0].name.is_empty() {
                self.until_rebalancing(crowd, &members[1]);
            }
        }
        let last = Instant::now();
        let partitions = self.arguments.partitions.unwrap_or(5000);
        let sync = self.version(SYNC_GROUP);
        crowd.gather(2 * members.len(), |link, index, reply| {
            let member = &mut members[by_link[index]];
            member.syncs = !member.syncs;
            if !member.syncs {
                member.owned = owned(&groups::synced(reply, sync));
                return;
            }
            let joined = groups::joined(reply, version);
            if !joined.members.is_empty() {
                leader = by_link[index];
            }
            let mine = (joined.member.as_str(), joined.generation);
            let assignments = range(&topic, &joined.members, partitions);
            link.send(&groups::sync(sync, &member.group, mine, &assignments));
            (member.name, member.generation) = (joined.member, joined.generation);
        });
        let time = last.elapsed();
        members.swap(0, leader);
        time
    }

    /// Waits until a member hears of the rebalance.
    fn until_rebalancing(&self, crowd: &mut Crowd, member: &Member) {
        let version = self.version(HEARTBEAT);
        let frame = groups::heartbeat(version, &member.group, (&member.name, member.generation));
        let link = &mut crowd.links[member.link];
        while groups::beaten(&link.call(&frame), version) != REBALANCING {
            std::thread::yield_now();
        }
    }

    /// Every record is a commit of its own, as consumers write them.
    pub fn fill(&mut self) -> Run {
        let partitions = self.topic(1000);
        let (arguments, topic) = (self.arguments, self.arguments.topic.clone());
        let names: Vec<String> = (0..arguments.groups).map(|it| format!("{topic}-{it}")).collect();
        self.find(&names);
        let version = self.version(OFFSET_COMMIT);
        let mut crowd = Crowd::connect(&arguments.bootstrap, arguments.connections);
        let mut frames = vec![Vec::new(); arguments.connections];
        let keys = partitions.iter().flat_map(|one| names.iter().map(move |group| (group, *one)));
        for (number, (group, one)) in keys.enumerate() {
            let frame = groups::commit(version, group, (&topic, &[one]), 1);
            frames[number % arguments.connections].push(frame);
        }
        let check = |reply: &[u8]| assert_eq!(groups::committed(reply, version), 0, "a commit");
        crowd.run(&frames, (arguments.requests, 32), &self.usage, check)
    }

    pub fn ready(&mut self) -> Run {
        let (arguments, topic) = (self.arguments, self.arguments.topic.clone());
        let names: Vec<String> = (0..arguments.groups).map(|it| format!("{topic}-{it}")).collect();
        let version = self.version(OFFSET_FETCH);
        let start = Instant::now();
        self.find(&names);
        let found = start.elapsed();
        let mut run = Run::default();
        for group in &names {
            let frame = groups::fetch_offsets(version, group, (&topic, &[0]));
            loop {
                match groups::fetched_offsets(&self.link.call(&frame), version) {
                    Ok(offsets) => assert!(offsets.iter().all(|offset| *offset >= 0), "no offset"),
                    Err(LOADING) => {
                        std::thread::sleep(Duration::from_millis(2));
                        continue;
                    }
                    Err(error) => panic!("OffsetFetch: error {error}"),
                }
                break;
            }
            run.requests += 1;
        }
        run.seconds = start.elapsed().as_secs_f64();
        run.more = vec![("found_s", found.as_secs_f64())];
        run
    }

    /// Waits until each group has a coordinator.
    fn find(&mut self, names: &[String]) {
        let version = self.version(FIND_COORDINATOR);
        let deadline = Instant::now() + PATIENCE;
        let mut link = Link::connect(&self.arguments.bootstrap);
        for group in names {
            let frame = groups::find_coordinator(version, group);
            while groups::found_coordinator(&link.call(&frame), version) != 0 {
                assert!(Instant::now() < deadline, "no coordinator");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Each member's part of the topic, in order; nothing for who does not lead.
fn range(topic: &str, members: &[String], partitions: i32) -> Vec<(String, Vec<u8>)> {
    let count = members.len().max(1) as i32;
    let first = |index: i32| (i64::from(partitions) * i64::from(index) / i64::from(count)) as i32;
    let part = |(index, member): (i32, &String)| {
        let owned: Vec<i32> = (first(index)..first(index + 1)).collect();
        (member.clone(), groups::assignment(topic, &owned))
    };
    (0..).zip(members).map(part).collect()
}

/// The partitions of an assignment to one topic.
fn owned(assignment: &[u8]) -> Vec<i32> {
    let number = |bytes: &[u8]| bytes.try_into().map(i32::from_be_bytes).expect("a number");
    let Some(rest) = assignment.get(6..) else { return Vec::new() };
    let name = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
    let rest = &rest[2 + name..];
    let count = number(&rest[..4]) as usize;
    rest[4..4 + 4 * count].chunks(4).map(number).collect()
}
