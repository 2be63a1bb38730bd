//! Who acts next, by the seed: a client, the network, the coordinator, its disk or its timer.

use crate::broker::transactions::transaction::ClientTransactionVersion;
use krust::protocol::ErrorCode;

use super::client::Client;
use super::coordinator::{Coordinator, TIMEOUT_MS};
use super::group::Group;
use super::messages::{Asked, Message, Request, Write};
use super::oracle::Oracle;
use super::partition::{Partition, Written};
use super::random::Random;

/// Those of the data, and after them that of the group's offsets.
const PARTITIONS: usize = 3;
const STEPS: usize = 1_000;
/// How many steps all transactions may take to end when nothing fails any more.
const HEALING: usize = 20_000;

struct World {
    random: Random,
    coordinator: Coordinator,
    partitions: Vec<Partition>,
    clients: Vec<Client>,
    network: Vec<Message>,
    oracle: Oracle,
    /// In so many of a hundred cases a message is lost, or arrives twice.
    loses: usize,
    repeats: usize,
    summary: Summary,
}

/// What a run saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Transactions that are seen as a whole.
    pub committed: usize,
    /// Coordinators that died.
    pub failures: usize,
    /// Messages that were delivered.
    pub delivered: usize,
}

/// Runs one seed. Panics with the name of the invariant that does not hold.
pub fn run(seed: u64) -> Summary {
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let dir = Partition::dir(place.path());
    let mut random = Random::new(seed);
    let ids = 1 + random.below(2);
    let clients = (0..ids + 1 + random.below(2))
        .map(|number| {
            let version = match random.percent(50) {
                true => ClientTransactionVersion::V2,
                false => ClientTransactionVersion::V0,
            };
            Client::new(number, format!("id-{}", number % ids), version, PARTITIONS + 1)
        })
        .collect();
    let mut world = World {
        coordinator: Coordinator::new(),
        partitions: (0..=PARTITIONS)
            .map(|number| {
                let group = (number == PARTITIONS).then(Group::default);
                Partition::new(&dir, number, group)
            })
            .collect(),
        clients,
        network: Vec::new(),
        oracle: Oracle::default(),
        loses: random.below(15),
        repeats: random.below(15),
        summary: Summary::default(),
        random,
    };
    for _ in 0..STEPS {
        world.step();
        world.oracle.check_offsets(&world.partitions);
        world.check_group();
    }
    world.heal();
    world.check_group();
    world.oracle.check_markers(&world.partitions);
    world.summary.committed = world.oracle.check_end(&world.partitions);
    world.summary
}

impl World {
    fn step(&mut self) {
        match self.random.below(100) {
            0..35 => self.client_acts(),
            35..75 => self.deliver(),
            75..88 => self.commit(),
            88..92 => self.coordinator.complete(),
            92..94 => self.coordinator.repeat_markers(&mut self.network),
            94..97 => {
                let most = usize::try_from(TIMEOUT_MS).unwrap();
                self.coordinator.now_ms += self.random.below(most) as i64 / 20;
                self.coordinator.time_out();
            }
            97 if self.random.percent(30) => self.fail_over(),
            98 if self.random.percent(30) => self.fail_over_group(),
            _ => self.deliver(),
        }
    }

    fn client_acts(&mut self) {
        let number = self.random.below(self.clients.len());
        let request = self.clients[number].act(&mut self.random, &mut self.oracle);
        self.network.extend(request.map(Message::Request));
    }

    fn commit(&mut self) {
        if self.coordinator.has_uncommitted() {
            let logged = self.coordinator.commit(&mut self.network);
            self.oracle.logged(&logged);
        }
    }

    fn fail_over(&mut self) {
        self.summary.failures += 1;
        let kept = self.random.below(3);
        let logged = self.coordinator.fail_over(kept, &mut self.network);
        self.oracle.logged(&logged);
    }

    fn fail_over_group(&mut self) {
        let partition = &mut self.partitions[PARTITIONS];
        let batches = partition.read();
        partition.group.as_mut().unwrap().fail_over(&batches);
    }

    fn check_group(&mut self) {
        let partition = &mut self.partitions[PARTITIONS];
        // Each batch has one record.
        let count = usize::try_from(partition.log.log_end_offset().0).unwrap();
        if partition.group.as_ref().unwrap().is_checked(count) {
            return;
        }
        let batches = partition.read();
        partition.group.as_mut().unwrap().check(&batches);
    }

    /// Delivers any message that is on its way, perhaps not for the last time, or loses it.
    fn deliver(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let at = self.random.below(self.network.len());
        let message = match self.random.percent(self.repeats) {
            true => self.network[at].clone(),
            false => self.network.swap_remove(at),
        };
        if !self.random.percent(self.loses) {
            self.summary.delivered += 1;
            self.arrive(message);
        }
    }

    fn arrive(&mut self, message: Message) {
        match message {
            Message::Request(Request { what: Asked::Write(write), ref client, number, ref id }) => {
                let request =
                    Request { client: *client, number, id: id.clone(), what: Asked::Write(write) };
                self.write(request, write, None);
            }
            // Under protocol 1 an EndTxn or a marker says nothing of its transaction but the
            // producer's epoch, which the next one shares: one that is late by a transaction ends
            // the next one. Kafka has the same hole; protocol 2 (KIP-890) was made to close it.
            Message::Request(request) if self.clients[request.client].is_past(&request) => {}
            Message::Request(request) => {
                if let Some(answer) = self.coordinator.request(&request) {
                    let Request { client, number, .. } = request;
                    self.network.push(Message::Answer { client, number, answer });
                }
            }
            Message::Answer { client, number, answer } => {
                self.clients[client].answered(number, answer, &mut self.random, &mut self.oracle);
            }
            Message::Verify { request, write, guard } => {
                let adds = write.version == ClientTransactionVersion::V2;
                let code = self.coordinator.verify(&request, write.producer, write.partition, adds);
                self.network.push(Message::Verified { request, write, guard, code });
            }
            Message::Verified { request, write, guard, code: ErrorCode::None } => {
                self.write(request, write, Some(guard));
            }
            Message::Verified { request: Request { client, number, .. }, code, .. } => {
                self.network.push(Message::Answer { client, number, answer: Err(code) });
            }
            Message::Marker(marker)
                if marker.version == ClientTransactionVersion::V0
                    && !self.coordinator.is_ending(&marker) => {}
            Message::Marker(marker) => {
                let code = self.partitions[marker.partition].mark(&marker);
                self.network.push(Message::MarkerAnswer { marker, code });
            }
            Message::MarkerAnswer { marker, code } => self.coordinator.marked(&marker, code),
        }
    }

    fn write(
        &mut self,
        request: Request,
        write: Write,
        guard: Option<krust::storage::VerificationGuard>,
    ) {
        let Request { client, number, .. } = request;
        match self.partitions[write.partition].write(&write, guard) {
            Written::Done => {
                let answer = Ok(write.producer);
                self.network.push(Message::Answer { client, number, answer });
            }
            Written::Ask(guard) => self.network.push(Message::Verify { request, write, guard }),
            Written::Refused(code) => {
                self.network.push(Message::Answer { client, number, answer: Err(code) });
            }
        }
    }

    /// Nothing fails any more, and clients do nothing: all transactions end.
    fn heal(&mut self) {
        (self.loses, self.repeats) = (0, 0);
        for _ in 0..HEALING {
            if self.network.is_empty() && self.coordinator.is_settled() {
                return;
            }
            self.deliver();
            self.commit();
            self.coordinator.complete();
            if self.network.is_empty() {
                self.coordinator.now_ms += i64::from(TIMEOUT_MS) + 1;
                self.coordinator.time_out();
                self.coordinator.repeat_markers(&mut self.network);
            }
        }
        panic!("T2: transactions do not end");
    }
}
