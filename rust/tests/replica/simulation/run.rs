//! One run of a seed: the clock, the queue of events, the network, and how the run ends.
//!
//! A run has two halves. In the first, faults come at random (`faults`). Then everything is
//! repaired and every broker started; the cluster must come to rest with all replicas in sync and
//! equal, and everything that clients wrote acknowledged. At the end of some runs a follower falls
//! silent: it must leave the in-sync set, writes must go on, and the cluster come to rest again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{Hash, Hasher};

use crate::replica::leader::{ProposalOutcome, ProposedIsr};

use super::broker::{Broker, Effects};
use super::checks::Checks;
use super::clients::Client;
use super::messages::{CLIENTS, Command, Message, ZOOKEEPER};
use super::plan::{Faults, LAG_MS, Plan, SESSION_MS, TICK_MS};
use super::random::{Random, TraceHasher};
use super::zookeeper::{StoreAnswer, ZooKeeper, node_id};

/// How long things go wrong, and how long the cluster may then take to come to rest.
const FAULTY_MS: i64 = 600;
const REST_MS: i64 = 4_000;
/// Clients write until then, if they write on when everything is repaired.
const WRITES_END_MS: i64 = FAULTY_MS + 100;
/// A follower that falls silent has left the in-sync set after so long, and the high watermark has
/// passed what was written then after as long again.
const SILENT_MS: i64 = 4 * LAG_MS;
/// How often it is looked at whether the cluster is at rest.
const LOOK_MS: i64 = 25;
/// An operator waits so long for a leader before the unclean election is asked for.
const UNCLEAN_AFTER_MS: i64 = 400;
/// An answer to AlterPartition is given up after so long, one from ZooKeeper too.
const ALTER_TIMEOUT_MS: i64 = 35;
const STORE_TIMEOUT_MS: i64 = 25;

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub acknowledged: usize,
    pub leader_epochs: usize,
    pub controllers: usize,
    pub unclean_elections: usize,
    pub kills: usize,
    pub power_cuts: usize,
    pub stops: usize,
    pub pauses: usize,
    pub sessions_lost: usize,
    pub network_cuts: usize,
    pub disk_failures: usize,
    pub reassignments: usize,
    pub truncations: usize,
    pub steps: usize,
    /// Equal for two runs of one seed.
    pub trace: u64,
}

#[derive(Clone, Debug, Hash)]
pub enum Event {
    Deliver { from: usize, to: usize, run: u64, message: Message },
    Tick { node: usize, run: u64 },
    Client { number: usize },
    Fault,
    Start { node: usize },
    Stop { node: usize, run: u64 },
    Expire { session: u64 },
    HearOfExpiry { node: usize, run: u64, session: u64 },
    NotifyWatcher { node: usize, run: u64 },
    StoreTimeout { node: usize, run: u64, number: u64 },
    AlterTimeout { node: usize, run: u64, proposed: ProposedIsr },
    Heal { one: usize, other: usize },
}

pub struct Run {
    pub plan: Plan,
    pub random: Random,
    pub faults: Faults,
    pub now_ms: i64,
    queue: BinaryHeap<Reverse<(i64, u64, usize)>>,
    /// The events of the queue, by their last number, and the numbers that are free.
    events: Vec<Option<Event>>,
    free: Vec<usize>,
    next: u64,
    pub brokers: Vec<Broker>,
    pub zookeeper: ZooKeeper,
    pub clients: Vec<Client>,
    /// Pairs between which nothing arrives, in this direction.
    pub cuts: Vec<(usize, usize)>,
    pub checks: Checks,
    pub is_calm: bool,
    /// A follower is silent, and clients write.
    is_silent: bool,
    pub report: Report,
    trace: TraceHasher,
    /// Whether the trace is printed (`KRUST_REPLICA_TRACE`).
    prints: bool,
}

/// Runs a seed; what went wrong, if anything.
pub fn run(seed: u64) -> Result<Report, String> {
    let mut random = Random::new(seed);
    let plan = Plan::of(&mut random);
    let zookeeper = ZooKeeper::new(plan.brokers, plan.replicas);
    let mut run = Run {
        faults: plan.faults,
        now_ms: 0,
        queue: BinaryHeap::new(),
        events: Vec::new(),
        free: Vec::new(),
        next: 0,
        brokers: (0..plan.brokers).map(|node| Broker::new(node, &plan, &mut random)).collect(),
        checks: Checks::new(plan.brokers, plan.policy, &zookeeper),
        zookeeper,
        clients: (0..3).map(|number| Client::new(number, number > 0)).collect(),
        cuts: Vec::new(),
        is_calm: false,
        is_silent: false,
        report: Report::default(),
        trace: TraceHasher::default(),
        prints: std::env::var_os("KRUST_REPLICA_TRACE").is_some(),
        random,
        plan,
    };
    if run.prints {
        println!("{:?}", run.plan);
    }
    let outcome = run.play();
    outcome.map_err(|what| format!("seed {seed}, {} ms: {what}", run.now_ms))?;
    Ok(run.into_report())
}

impl Run {
    fn play(&mut self) -> Result<(), String> {
        for node in 0..self.brokers.len() {
            self.after(0, Event::Start { node });
        }
        for number in 0..self.clients.len() {
            self.after(5, Event::Client { number });
        }
        self.after(40, Event::Fault);
        self.until(FAULTY_MS)?;
        self.repair();
        self.rest()?;
        if self.plan.ends_with_silence {
            self.silence_a_follower()?;
            self.rest()?;
        }
        Ok(())
    }

    /// The cluster comes to rest.
    fn rest(&mut self) -> Result<(), String> {
        let calm_since = self.now_ms;
        while let Err(what) = self.is_at_rest() {
            if self.now_ms >= calm_since + REST_MS {
                return Err(format!("liveness: {what}: {:?}", self.zookeeper.state));
            }
            if self.now_ms - calm_since > UNCLEAN_AFTER_MS && self.zookeeper.state.leader < 0 {
                self.command(Command::ElectUncleanly);
            }
            self.until(self.now_ms + LOOK_MS)?;
        }
        Ok(())
    }

    /// A follower that is not the controller does nothing for a time, while clients write.
    fn silence_a_follower(&mut self) -> Result<(), String> {
        let state = &self.zookeeper.state;
        let (leader, controller) = (state.leader, self.zookeeper.controller.map(node_id));
        let terms = (state.leader_epoch, self.zookeeper.controller_epoch);
        let is_other = |it: &&i32| **it != leader && Some(**it) != controller;
        let Some(silent) = state.replicas.iter().find(is_other).copied() else { return Ok(()) };
        self.note(|| format!("broker {silent} falls silent"));
        let end = self.now_ms + 2 * SILENT_MS;
        let follower = usize::try_from(silent).unwrap();
        let run = self.brokers[follower].run;
        self.brokers[follower].paused_until_ms = end;
        self.is_silent = true;
        self.until(self.now_ms + SILENT_MS)?;
        self.is_silent = false;
        let state = &self.zookeeper.state;
        let is_same_term = |it: &ZooKeeper| (it.state.leader_epoch, it.controller_epoch) == terms;
        let was_silent = self.brokers[follower].run == run;
        if was_silent && is_same_term(&self.zookeeper) && state.is_in_sync(silent) {
            return Err(format!("liveness: {silent} is silent and in sync: {state:?}"));
        }
        let leader = usize::try_from(leader).unwrap();
        let written = self.brokers[leader].log_end();
        self.until(end)?;
        let (state, high_watermark) =
            (&self.zookeeper.state, self.brokers[leader].high_watermark());
        let is_enough = state.isr.len() >= state.least_in_sync(&self.plan.policy);
        if is_same_term(&self.zookeeper) && is_enough && high_watermark < written {
            return Err(format!("liveness: {high_watermark} waits for {silent}: {state:?}"));
        }
        Ok(())
    }

    fn into_report(mut self) -> Report {
        for broker in &self.brokers {
            broker.held.hash(&mut self.trace);
        }
        self.report.acknowledged = self.checks.acknowledged.len();
        self.report.leader_epochs = usize::try_from(self.zookeeper.state.leader_epoch).unwrap();
        self.report.controllers = usize::try_from(self.zookeeper.controller_epoch).unwrap();
        self.report.unclean_elections = self.zookeeper.state.unclean_elections;
        self.report.trace = self.trace.finish();
        self.report
    }

    fn until(&mut self, end_ms: i64) -> Result<(), String> {
        while let Some(Reverse((at, _, place))) = self.queue.peek().copied() {
            if at > end_ms {
                break;
            }
            self.queue.pop();
            self.now_ms = at;
            let event = self.events[place].take().unwrap();
            self.free.push(place);
            if self.prints {
                println!("{at} {event:?}");
            }
            (at, &event).hash(&mut self.trace);
            self.report.steps += 1;
            self.step(event)?;
        }
        self.now_ms = end_ms;
        Ok(())
    }

    pub fn after(&mut self, delay_ms: i64, event: Event) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.next += 1;
        self.queue.push(Reverse((self.now_ms + delay_ms, self.next, place)));
    }

    /// Adds a line to the trace that is printed.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if self.prints {
            println!("{} {}", self.now_ms, line());
        }
    }

    /// Whether this process of the broker still runs; a paused one gets the event later.
    fn runs(&mut self, node: usize, run: u64, event: &Event) -> bool {
        let broker = &self.brokers[node];
        if !broker.is_up || broker.run != run {
            return false;
        }
        let waits_ms = broker.paused_until_ms - self.now_ms;
        if waits_ms > 0 {
            self.after(waits_ms, event.clone());
        }
        waits_ms <= 0
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Deliver { to: ZOOKEEPER, from, message, .. } => self.ask_store(from, message),
            Event::Deliver { to: CLIENTS, from, message, .. } => {
                self.answer_client(from, message);
                Ok(())
            }
            Event::Client { number } => {
                self.client_turn(number);
                Ok(())
            }
            Event::Fault => self.fault(),
            Event::Start { node } => self.start(node),
            Event::Stop { node, run } => {
                if self.brokers[node].is_up && self.brokers[node].run == run {
                    self.stop(node);
                }
                Ok(())
            }
            Event::Expire { session } => {
                self.expire(session);
                Ok(())
            }
            Event::Heal { one, other } => {
                self.cuts.retain(|cut| *cut != (one, other));
                Ok(())
            }
            Event::Deliver { to: node, run, .. }
            | Event::Tick { node, run }
            | Event::HearOfExpiry { node, run, .. }
            | Event::NotifyWatcher { node, run }
            | Event::StoreTimeout { node, run, .. }
            | Event::AlterTimeout { node, run, .. } => {
                if !self.runs(node, run, &event) {
                    return Ok(());
                }
                let is_assigned =
                    matches!(&event, Event::Deliver { message: Message::Assign(_), .. });
                if is_assigned && self.brokers[node].broker_epoch < 0 {
                    // A broker listens to others once it knows its registration.
                    self.after(5, event);
                    return Ok(());
                }
                self.step_of_broker(node, event)
            }
        }
    }

    /// A broker takes a step; then its effects are carried out, and everything is checked.
    fn step_of_broker(&mut self, node: usize, event: Event) -> Result<(), String> {
        let mut effects = Effects::default();
        let broker = &mut self.brokers[node];
        let clock_ms = broker.clock_ms(self.now_ms);
        match event {
            Event::Tick { run, .. } => {
                broker.tick(self.now_ms, &mut self.random, &mut effects);
                if self.random.percent(5) {
                    let _ = broker.machine.checkpoint();
                }
                let delay = self.random.between(1, TICK_MS);
                self.after(delay, Event::Tick { node, run });
            }
            Event::HearOfExpiry { run, session, .. } if broker.session == session => {
                if self.cuts.contains(&(ZOOKEEPER, node)) {
                    self.after(10, Event::HearOfExpiry { node, run, session });
                } else {
                    broker.session_expired();
                }
            }
            Event::NotifyWatcher { run, .. } => {
                if self.cuts.contains(&(ZOOKEEPER, node)) {
                    self.after(10, Event::NotifyWatcher { node, run });
                } else {
                    broker.watch_fired(&mut effects);
                }
            }
            Event::StoreTimeout { number, .. } => {
                broker.stored(number, StoreAnswer::ConnectionLoss, &mut effects);
            }
            Event::AlterTimeout { proposed, .. } => {
                let context = (clock_ms, &mut effects);
                broker.proposal_ended(&proposed, ProposalOutcome::Unknown, context);
            }
            Event::Deliver { from, message, .. } => {
                let by_fetch = !self.random.percent(self.plan.old_leaders);
                let refuses = self.random.percent(self.faults.refusal);
                let chances = Chances { by_fetch, refuses };
                receive(broker, (from, message), (clock_ms, chances), &mut effects);
            }
            _ => {}
        }
        self.carry_out(node, effects)
    }

    fn carry_out(&mut self, node: usize, mut effects: Effects) -> Result<(), String> {
        let run = self.brokers[node].run;
        for number in effects.asked.drain(..) {
            let delay = STORE_TIMEOUT_MS;
            self.queue_timeout(delay, Event::StoreTimeout { node, run, number });
        }
        for (to, message) in std::mem::take(&mut effects.sends) {
            if let Message::AlterPartition { proposed, .. } = &message {
                let proposed = proposed.clone();
                self.queue_timeout(ALTER_TIMEOUT_MS, Event::AlterTimeout { node, run, proposed });
            }
            self.send(node, to, message);
        }
        self.report.truncations += usize::from(effects.truncated.is_some());
        if self.brokers[node].machine.is_offline() {
            self.disk_failed(node);
        }
        let context = (&self.brokers[..], &self.zookeeper);
        self.checks.check_broker(&self.brokers[node], &effects, context)
    }

    fn queue_timeout(&mut self, delay_ms: i64, event: Event) {
        self.after(delay_ms, event);
    }

    fn start(&mut self, node: usize) -> Result<(), String> {
        let broker = &mut self.brokers[node];
        if broker.is_up {
            return Ok(());
        }
        broker.start()?;
        broker.paused_until_ms = 0;
        let run = broker.run;
        self.after(1, Event::Tick { node, run });
        self.carry_out(node, Effects::default())
    }

    /// ZooKeeper gets a request.
    fn ask_store(&mut self, from: usize, message: Message) -> Result<(), String> {
        let Message::Store { session, number, request } = message else { return Ok(()) };
        let answer = self.zookeeper.handle(from, (session, number), *request);
        self.tell_watchers();
        if let Some(answer) = answer {
            if let StoreAnswer::Registered(Some(registration)) = &answer {
                self.brokers[from].registered(session, registration.broker_epoch);
            }
            self.send(ZOOKEEPER, from, Message::Stored { number, answer: Box::new(answer) });
        }
        self.checks.check_state(&self.brokers, &self.zookeeper)
    }

    /// A session ends; its broker learns it later.
    fn expire(&mut self, session: u64) {
        if self.zookeeper.is_expired(session) {
            return;
        }
        self.zookeeper.expire(session);
        self.tell_watchers();
        if let Some(broker) = self.brokers.iter().find(|it| it.is_up && it.session == session) {
            let (node, run) = (broker.node, broker.run);
            let delay = self.random.between(1, self.faults.longest_watch_ms);
            self.after(delay, Event::HearOfExpiry { node, run, session });
        }
    }

    fn tell_watchers(&mut self) {
        for node in std::mem::take(&mut self.zookeeper.fired) {
            let run = self.brokers[node].run;
            let delay = self.random.between(1, self.faults.longest_watch_ms);
            self.after(delay, Event::NotifyWatcher { node, run });
        }
    }

    fn client_turn(&mut self, number: usize) {
        let mut sends = Vec::new();
        let is_over = self.is_calm && self.plan.ends_silently || self.now_ms > WRITES_END_MS;
        let is_over = is_over && !self.is_silent;
        let brokers = (self.brokers.len(), &mut self.random);
        self.clients[number].turn((self.now_ms, is_over), brokers, &mut sends);
        for (to, message) in sends {
            self.send(CLIENTS, to, message);
        }
        let delay = self.random.between(3, 20);
        self.after(delay, Event::Client { number });
    }

    fn answer_client(&mut self, from: usize, message: Message) {
        if let Message::Produced { batch, outcome } = message {
            let begins_anew = self.checks.unclean_epoch.is_some();
            let context = (self.brokers.len(), begins_anew);
            let client = &mut self.clients[batch.client];
            client.answered((from, batch), outcome, context, &mut self.random);
        }
    }

    /// An operator asks the controller for something.
    pub fn command(&mut self, command: Command) {
        if let Some(controller) = self.zookeeper.controller {
            self.send(CLIENTS, controller, Message::Command(command));
        }
    }

    pub fn send(&mut self, from: usize, to: usize, message: Message) {
        let run = self.brokers.get(to).map_or(0, |broker| broker.run);
        if from == to {
            return self.after(1, Event::Deliver { from, to, run, message });
        }
        if self.cuts.contains(&(from, to)) || self.random.percent(self.faults.loss) {
            if matches!(message, Message::Assign(_)) {
                // The controller repeats it until it arrives, or the broker's process ends.
                self.after(20, Event::Deliver { from, to, run, message });
            }
            return;
        }
        let is_for_store = from == ZOOKEEPER || to == ZOOKEEPER;
        // A proposal is sent once on one connection; the leader repeats it where it must.
        let is_once = matches!(message, Message::AlterPartition { .. } | Message::Altered { .. });
        if !is_for_store && !is_once && self.random.percent(self.faults.repeat) {
            let delay = self.delay();
            self.after(delay, Event::Deliver { from, to, run, message: message.clone() });
        }
        let delay = self.delay();
        let delay = if is_for_store { 1 + delay / 8 } else { delay };
        self.after(delay, Event::Deliver { from, to, run, message });
    }

    fn delay(&mut self) -> i64 {
        if self.random.percent(self.faults.late) {
            return self.random.between(50, 400);
        }
        self.random.between(1, self.faults.longest_delay_ms)
    }

    /// Everything is repaired, every broker started.
    fn repair(&mut self) {
        self.is_calm = true;
        self.cuts.clear();
        self.faults = Faults::none();
        for node in 0..self.brokers.len() {
            self.brokers[node].paused_until_ms = 0;
            self.brokers[node].machine.repair_disk();
            self.after(0, Event::Start { node });
            // A session whose process is gone ends at last.
            let broker = &self.brokers[node];
            if !broker.is_up {
                let session = broker.session;
                self.after(SESSION_MS, Event::Expire { session });
            }
        }
    }

    /// Whether every replica is in sync and has the same records, and every client is done.
    fn is_at_rest(&self) -> Result<(), String> {
        let state = &self.zookeeper.state;
        let leader = usize::try_from(state.leader).map_err(|_| "there is no leader")?;
        if !state.target.is_empty() {
            return Err("a reassignment does not end".into());
        }
        if state.isr.len() != state.replicas.len() {
            return Err("not all replicas are in sync".into());
        }
        if !self.brokers.iter().all(|it| it.is_up) {
            return Err("not all brokers are up".into());
        }
        let leader = &self.brokers[leader];
        if leader.leads_in().is_none_or(|it| it.0 != state.leader_epoch) {
            return Err("the leader does not lead".into());
        }
        for replica in &state.replicas {
            let broker = &self.brokers[usize::try_from(*replica).unwrap()];
            let end = broker.log_end();
            let last = |it: &Broker| it.held.last().copied();
            // They were deleted here before an unclean election made a leader that still has them.
            let is_deleted = broker.held.is_empty() && end <= self.checks.deleted_below;
            if end != leader.log_end() || (last(broker) != last(leader) && !is_deleted) {
                return Err(format!("broker {replica} differs from its leader"));
            }
            if broker.high_watermark() != end {
                return Err(format!("the high watermark of {replica} is not the log end, {end}"));
            }
            if broker.machine.log().log_start_offset() < leader.machine.log().log_start_offset() {
                return Err(format!("broker {replica} has records that its leader deleted"));
            }
        }
        if let Some(client) = self.clients.iter().position(|client| !client.is_done()) {
            return Err(format!("client {client} waits for an acknowledgement"));
        }
        Ok(())
    }
}

/// What chance decides about a message.
struct Chances {
    by_fetch: bool,
    refuses: bool,
}

/// A broker gets a message.
fn receive(
    broker: &mut Broker,
    (from, message): (usize, Message),
    (clock_ms, Chances { by_fetch, refuses }): (i64, Chances),
    effects: &mut Effects,
) {
    match message {
        Message::Ask { broker_epoch, request } => {
            broker.asked((from, broker_epoch), request, (clock_ms, effects));
        }
        Message::Answer { request, answer, records } => {
            broker.answered(from, (request, answer, &records.0), (clock_ms, effects));
        }
        Message::Produce(batch) => broker.produce(batch, clock_ms, effects),
        Message::Assign(assignment) => broker.assigned(&assignment, (clock_ms, by_fetch), effects),
        Message::AlterPartition { broker_epoch, proposed } => {
            broker.propose_to_controller((from, broker_epoch), (proposed, refuses), effects);
        }
        Message::Altered { proposed, outcome } => {
            broker.proposal_ended(&proposed, outcome, (clock_ms, effects));
        }
        Message::Command(command) => {
            if let Some(controller) = &mut broker.controller {
                controller.command(command);
            }
            broker.run_controller(effects);
        }
        Message::Stored { number, answer } => broker.stored(number, *answer, effects),
        Message::Store { .. } | Message::Produced { .. } => {}
    }
}
