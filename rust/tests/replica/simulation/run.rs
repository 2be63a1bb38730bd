//! One run of a seed: the clock, the queue of events, the faults, and how the run ends.
//!
//! A run has two halves. In the first, faults come at random. Then everything is mended and every
//! broker started; the cluster must come to rest with all replicas in sync and equal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write;

use krust::broker::replica::leader::{ProposalOutcome, ReplicationSettings};
use krust::protocol::ErrorCode;

use super::broker::{Broker, BrokerEffects};
use super::checks::Checks;
use super::controller::Controller;
use super::messages::{CONTROLLER, Message, hash};
use super::random::Random;

const LAG_MS: i64 = 60;
const SESSION_MS: i64 = 40;
const TICK_MS: i64 = 8;

/// How often what goes wrong, in percent of messages, or of the moments at which it could.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub repeat: u64,
    pub longest_delay_ms: i64,
    pub kill: u64,
    pub power_cut: u64,
    pub network_cut: u64,
    pub session_loss: u64,
}

/// What came of a run, or of many.
#[derive(Debug, Default)]
pub struct Report {
    pub acknowledged: usize,
    pub elections: usize,
    pub kills: usize,
    pub power_cuts: usize,
    pub unclean_elections: usize,
    pub steps: usize,
    /// Equal for two runs of one seed.
    pub trace: u64,
}

impl Report {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.elections += other.elections;
        self.kills += other.kills;
        self.power_cuts += other.power_cuts;
        self.unclean_elections += other.unclean_elections;
        self.steps += other.steps;
        self.trace = hash(self.trace, &other.trace.to_le_bytes());
    }
}

#[derive(Debug)]
enum Event {
    Deliver { from: usize, to: usize, run: u64, message: Message },
    Tick { node: usize, run: u64 },
    Produce,
    Fault,
    Start { node: usize },
    Register { node: usize, run: u64 },
    Expire { node: usize, broker_epoch: i64 },
    Heal { one: usize, other: usize },
    LosesAnswer { node: usize, run: u64, message: Message },
}

struct Run {
    random: Random,
    faults: Faults,
    now_ms: i64,
    queue: BinaryHeap<Reverse<(i64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    next: u64,
    brokers: Vec<Broker>,
    controller: Controller,
    /// Pairs between which nothing arrives, in this direction.
    cuts: Vec<(usize, usize)>,
    checks: Checks,
    is_calm: bool,
    next_value: u64,
    report: Report,
    /// The line of the trace, and whether it is printed (`KRUST_REPLICA_TRACE`).
    line: String,
    prints: bool,
}

/// Runs a seed; what went wrong, if anything.
pub fn run(seed: u64) -> Result<Report, String> {
    let mut random = Random::new(seed);
    let brokers = if random.percent(25) { 5 } else { 3 };
    let min_insync_replicas = if random.percent(80) { 2 } else { 1 };
    let flushes = random.percent(15);
    let of =
        |chance: bool, most: u64, random: &mut Random| if chance { random.below(most) } else { 0 };
    let mut chance = |percent: u64, most: u64| {
        let happens = random.percent(percent);
        of(happens, most, &mut random)
    };
    let faults = Faults {
        loss: chance(60, 30),
        repeat: chance(60, 50),
        longest_delay_ms: 1 + i64::try_from(chance(70, 60)).unwrap(),
        kill: chance(60, 40),
        power_cut: chance(50, 25),
        network_cut: chance(60, 40),
        session_loss: chance(50, 20),
    };
    let settings = ReplicationSettings { lag_time_max_ms: LAG_MS, min_insync_replicas };
    let mut run = Run {
        random,
        faults,
        now_ms: 0,
        queue: BinaryHeap::new(),
        events: std::collections::HashMap::new(),
        next: 0,
        brokers: (0..brokers).map(|node| Broker::new(node, settings, flushes)).collect(),
        controller: Controller::new(brokers, min_insync_replicas),
        cuts: Vec::new(),
        checks: Checks::new(brokers),
        is_calm: false,
        next_value: 1,
        report: Report::default(),
        line: String::new(),
        prints: std::env::var_os("KRUST_REPLICA_TRACE").is_some(),
    };
    run.play().map_err(|what| format!("seed {seed}, {} ms: {what}", run.now_ms))?;
    run.report.elections = run.controller.elections.len();
    run.report.unclean_elections = run.controller.unclean_elections;
    Ok(run.report)
}

impl Run {
    fn play(&mut self) -> Result<(), String> {
        for node in 0..self.brokers.len() {
            self.start(node);
        }
        self.after(5, Event::Produce);
        self.after(40, Event::Fault);
        self.until(600)?;
        self.heal();
        self.until(self.now_ms + 900)?;
        self.must_be_at_rest()
    }

    fn until(&mut self, end_ms: i64) -> Result<(), String> {
        while let Some(Reverse((at, number))) = self.queue.peek().copied() {
            if at > end_ms {
                break;
            }
            self.queue.pop();
            self.now_ms = at;
            let event = self.events.remove(&number).unwrap();
            self.trace(&event);
            self.step(event);
            self.report.steps += 1;
            self.checks.check(&self.brokers, &self.controller)?;
        }
        self.now_ms = end_ms;
        Ok(())
    }

    fn after(&mut self, delay_ms: i64, event: Event) {
        self.next += 1;
        self.queue.push(Reverse((self.now_ms + delay_ms, self.next)));
        self.events.insert(self.next, event);
    }

    /// Mixes an event into the trace.
    fn trace(&mut self, event: &Event) {
        self.line.clear();
        write!(self.line, "{} {event:?}", self.now_ms).unwrap();
        if self.prints {
            println!("{}", self.line);
        }
        self.report.trace = hash(self.report.trace, self.line.as_bytes());
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Deliver { from, to, run, message } => self.deliver((from, to, run), message),
            Event::Tick { node, run } => self.tick(node, run),
            Event::Produce => self.produce(),
            Event::Fault => self.fault(),
            Event::Start { node } => self.start(node),
            Event::Register { node, run } => self.register(node, run),
            Event::Expire { node, broker_epoch } => {
                if self.controller.broker_epoch(node) == Some(broker_epoch) {
                    self.controller.expire(node);
                    self.send_assignments();
                    let run = self.brokers[node].run;
                    self.after(5, Event::Register { node, run });
                }
            }
            Event::Heal { one, other } => {
                self.cuts.retain(|cut| *cut != (one, other));
            }
            Event::LosesAnswer { node, run, message } => {
                if self.brokers[node].is_up && self.brokers[node].run == run {
                    let effects = self.brokers[node].receive(CONTROLLER, message, self.now_ms);
                    self.carry_out(node, effects);
                }
            }
        }
    }

    fn start(&mut self, node: usize) {
        if self.brokers[node].is_up {
            return;
        }
        self.brokers[node].start(self.faults.power_cut > 0);
        let run = self.brokers[node].run;
        let delay = self.random.between(1, 10);
        self.after(delay, Event::Register { node, run });
        self.after(1, Event::Tick { node, run });
    }

    fn register(&mut self, node: usize, run: u64) {
        let broker = &mut self.brokers[node];
        if !broker.is_up || broker.run != run {
            return;
        }
        if self.controller.broker_epoch(node).is_some_and(|epoch| epoch == broker.broker_epoch) {
            return;
        }
        let may_have_lost = std::mem::take(&mut broker.may_have_lost);
        broker.broker_epoch = self.controller.register(node, may_have_lost);
        self.send_assignments();
    }

    fn tick(&mut self, node: usize, run: u64) {
        if !self.brokers[node].is_up || self.brokers[node].run != run {
            return;
        }
        let effects = self.brokers[node].tick(self.now_ms);
        self.carry_out(node, effects);
        if self.random.percent(5) {
            self.brokers[node].checkpoint();
        }
        let delay = self.random.between(1, TICK_MS);
        self.after(delay, Event::Tick { node, run });
    }

    fn produce(&mut self) {
        let node = self.random.index(self.brokers.len());
        let leads = |broker: &Broker| broker.is_up && broker.leader().is_some();
        let leaders: Vec<usize> =
            self.brokers.iter().filter(|it| leads(it)).map(|it| it.node).collect();
        let node = if leaders.is_empty() { node } else { leaders[node % leaders.len()] };
        if self.brokers[node].is_up {
            let value = self.next_value;
            self.next_value += 1;
            if let Some(effects) = self.brokers[node].produce(value, self.now_ms) {
                self.carry_out(node, effects);
            }
        }
        if !self.is_calm {
            let delay = self.random.between(1, 15);
            self.after(delay, Event::Produce);
        }
    }

    fn fault(&mut self) {
        if self.is_calm {
            return;
        }
        let node = self.random.index(self.brokers.len());
        let other = self.random.index(self.brokers.len() + 1);
        let other = if other == self.brokers.len() { CONTROLLER } else { other };
        if self.random.percent(self.faults.network_cut) && node != other {
            let lasts = self.random.between(10, 150);
            let both = self.random.percent(60);
            self.cut(node, other, lasts);
            if both {
                self.cut(other, node, lasts);
            }
        }
        if self.random.percent(self.faults.session_loss)
            && let Some(broker_epoch) = self.controller.broker_epoch(node)
        {
            self.after(0, Event::Expire { node, broker_epoch });
        }
        if self.brokers[node].is_up && self.random.percent(self.faults.kill) {
            self.report.kills += 1;
            self.brokers[node].kill();
            self.crashed(node);
        } else if self.brokers[node].is_up && self.random.percent(self.faults.power_cut) {
            self.report.power_cuts += 1;
            let seed = self.random.below(u64::MAX >> 12);
            self.brokers[node].cut_power(seed);
            self.crashed(node);
        }
        let delay = self.random.between(5, 40);
        self.after(delay, Event::Fault);
    }

    fn crashed(&mut self, node: usize) {
        if let Some(broker_epoch) = self.controller.broker_epoch(node) {
            self.after(SESSION_MS, Event::Expire { node, broker_epoch });
        }
        let delay = self.random.between(1, 200);
        self.after(delay, Event::Start { node });
    }

    fn cut(&mut self, from: usize, to: usize, lasts_ms: i64) {
        if !self.cuts.contains(&(from, to)) {
            self.cuts.push((from, to));
            self.after(lasts_ms, Event::Heal { one: from, other: to });
        }
    }

    fn heal(&mut self) {
        self.is_calm = true;
        self.cuts.clear();
        self.faults =
            Faults { longest_delay_ms: 2, power_cut: self.faults.power_cut, ..Faults::default() };
        for node in 0..self.brokers.len() {
            self.start(node);
        }
        // Watches fire and requests are repeated.
        self.controller.epoch += 1;
        self.send_assignments();
    }

    /// The controller tells every registered broker.
    fn send_assignments(&mut self) {
        for node in 0..self.brokers.len() {
            if let Some(assignment) = self.controller.assignment(node) {
                self.send(CONTROLLER, node, Message::LeaderAndIsr(assignment));
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let is_from_controller = matches!(message, Message::LeaderAndIsr(_));
        let run = self.brokers.get(to).map_or(0, |broker| broker.run);
        if self.cuts.contains(&(from, to)) || self.random.percent(self.faults.loss) {
            if is_from_controller {
                // The controller repeats until the broker's session ends.
                self.after(20, Event::Deliver { from, to, run, message });
            } else if let Message::AlterPartition { proposed, .. } = message {
                let outcome = ProposalOutcome::Unknown;
                let message = Message::Altered { proposed, outcome };
                let run = self.brokers[from].run;
                self.after(30, Event::LosesAnswer { node: from, run, message });
            } else if let Message::Altered { proposed, .. } = message {
                let message = Message::Altered { proposed, outcome: ProposalOutcome::Unknown };
                self.after(30, Event::LosesAnswer { node: to, run, message });
            }
            return;
        }
        let copies = if self.random.percent(self.faults.repeat) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = self.random.between(1, self.faults.longest_delay_ms + 1);
            self.after(delay, Event::Deliver { from, to, run, message: message.clone() });
        }
    }

    fn deliver(&mut self, (from, to, run): (usize, usize, u64), message: Message) {
        if to == CONTROLLER {
            let Message::AlterPartition { broker_epoch, proposed } = message else { return };
            let outcome = self.controller.alter_partition(from, broker_epoch, &proposed);
            match outcome {
                ProposalOutcome::Committed(_) => self.send_assignments(),
                // The leader has not heard of a newer state.
                ProposalOutcome::Refused(ErrorCode::InvalidUpdateVersion) => {
                    if let Some(assignment) = self.controller.assignment(from) {
                        self.send(CONTROLLER, from, Message::LeaderAndIsr(assignment));
                    }
                }
                _ => {}
            }
            return self.send(CONTROLLER, from, Message::Altered { proposed, outcome });
        }
        if !self.brokers[to].is_up || self.brokers[to].run != run {
            return;
        }
        let effects = if let Message::LeaderAndIsr(assignment) = message {
            let by_fetch = self.random.percent(80);
            self.brokers[to].assigned(&assignment, self.now_ms, by_fetch)
        } else {
            self.brokers[to].receive(from, message, self.now_ms)
        };
        self.carry_out(to, effects);
    }

    fn carry_out(&mut self, node: usize, effects: BrokerEffects) {
        for record in effects.acknowledged {
            self.report.acknowledged += 1;
            self.checks.acknowledged.push(record);
        }
        for (to, message) in effects.sends {
            self.send(node, to, message);
        }
    }

    /// After the healing every replica is in sync and has the same records.
    fn must_be_at_rest(&self) -> Result<(), String> {
        let state = &self.controller.state;
        let leader = usize::try_from(self.controller.leader)
            .map_err(|_| format!("liveness: there is no leader: {state:?}"))?;
        if state.isr.len() != self.brokers.len() {
            return Err(format!("liveness: not all are in sync: {state:?}"));
        }
        let leader = &self.brokers[leader];
        for broker in &self.brokers {
            if broker.records_held != leader.records_held {
                return Err(format!("liveness: broker {} differs", broker.node));
            }
            let (high, end) = (broker.high_watermark(), broker.log().log_end_offset().0);
            if high != end {
                return Err(format!("liveness: broker {}: {high} of {end}", broker.node));
            }
        }
        for record in &self.checks.acknowledged {
            if !leader.records_held.contains(record) {
                return Err(format!("D1: {record:?} was acknowledged and is lost"));
            }
        }
        Ok(())
    }
}
