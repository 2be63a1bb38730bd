//! One broker: its process on its machine, its session with ZooKeeper, and its controller.

use crate::replica::leader::{ProposalOutcome, ProposedIsr, ReplicationSettings};
use krust::ids::Epoch;
use krust::protocol::ErrorCode;

use super::controller::{Controller, ControllerEffect};
use super::decisions::Policy;
use super::machine::{Machine, StoredRecord};
use super::messages::{Message, ZOOKEEPER};
use super::plan::Plan;
use super::random::Random;
use super::replica::{Acknowledged, Role, TruncatedLog};
use super::zookeeper::{StoreAnswer, StoreRequest};

/// What a broker wants done after a step, and what the checks must know of it.
#[derive(Debug, Default)]
pub struct Effects {
    pub sends: Vec<(usize, Message)>,
    /// Requests to ZooKeeper, by their numbers, that are to be given up if no answer comes.
    pub asked: Vec<u64>,
    pub acknowledged: Vec<Acknowledged>,
    pub truncated: Option<TruncatedLog>,
}

/// What a broker asks ZooKeeper for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnRequest {
    Registration,
    Election,
}

/// What must be left of the log at the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Everything,
    /// The end may be lost.
    Beginning,
    /// The same, and what could not be appended may be there all the same.
    BeginningAndMore,
}

pub struct Broker {
    pub node: usize,
    pub machine: Machine,
    /// A process runs.
    pub is_up: bool,
    /// Rises with each start: what was sent to an earlier process does not arrive.
    pub run: u64,
    /// It is suspended until then.
    pub paused_until_ms: i64,
    pub session: u64,
    is_registered: bool,
    /// Its newest registration; -1: it has had none since it started.
    pub broker_epoch: i64,
    /// What it will say when it registers: `None`: it may have lost records since it ran last.
    lossless_since: Option<i64>,
    /// ZooKeeper's zxid when it lost records last; `i64::MIN`: never. Only the checks read this.
    pub lost_at: i64,
    lost_before: i64,
    expected: Expected,
    /// Where its log began when its last process ended.
    log_start: i64,
    pub role: Role,
    /// The newest leader epoch that it received since its start.
    pub leader_epoch: Option<Epoch>,
    /// What its log holds, as far as the simulation knows.
    pub held: Vec<StoredRecord>,
    /// How often its log started again because its leader had deleted what it held.
    pub log_restarts: u64,
    /// An append failed since its start. What the disk took of it may be there after a power cut.
    pub append_failed: bool,
    pub settings: ReplicationSettings,
    pub flushes: bool,
    distrusts_kills: bool,
    /// What a controller on it will be like.
    controller_settings: (Policy, bool),
    pub controller: Option<Controller>,
    wants_election: bool,
    own_request: Option<(u64, OwnRequest)>,
    controller_request: Option<u64>,
    requests: u64,
    /// Who is the controller, by the newest control request.
    pub known_controller: Option<usize>,
    pub controller_epoch: i32,
    /// The live brokers, by the newest control request.
    pub alive: Vec<i32>,
    pub metadata_serial: u64,
    /// Its clock was so far ahead of the simulation's, and runs so many percent as fast.
    clock: (i64, i64),
}

impl Broker {
    pub fn new(node: usize, plan: &Plan, random: &mut Random) -> Self {
        Self {
            node,
            machine: Machine::new(plan.records_disks(), plan.flushes),
            is_up: false,
            run: 0,
            log_restarts: 0,
            append_failed: false,
            paused_until_ms: 0,
            session: (node as u64) << 32,
            is_registered: false,
            broker_epoch: -1,
            lossless_since: Some(-1),
            lost_at: i64::MIN,
            lost_before: i64::MIN,
            expected: Expected::Everything,
            log_start: 0,
            role: Role::None,
            leader_epoch: None,
            held: Vec::new(),
            settings: plan.settings(),
            flushes: plan.flushes,
            distrusts_kills: plan.distrusts_kills,
            controller_settings: (plan.policy, plan.names_registrations),
            controller: None,
            wants_election: false,
            own_request: None,
            controller_request: None,
            requests: 0,
            known_controller: None,
            controller_epoch: 0,
            alive: Vec::new(),
            metadata_serial: 0,
            clock: (random.between(0, 100_000), random.between(90, 110)),
        }
    }

    /// ZooKeeper has registered a session. The request may come from a process that ended since:
    /// what it says of the records was true before they were lost.
    pub fn registered(&mut self, session: u64, broker_epoch: i64) {
        let is_of_present = self.is_up && self.session == session;
        if !is_of_present && self.lost_at > i64::MIN {
            self.lost_at = self.lost_at.max(broker_epoch);
        }
    }

    /// Whether it says, or will say, that it may have lost records since it had a registration.
    pub fn may_have_lost_since(&self, broker_epoch: i64) -> bool {
        self.lossless_since.is_none_or(|since| since > broker_epoch)
    }

    /// Its monotonic clock.
    pub fn clock_ms(&self, now_ms: i64) -> i64 {
        let (ahead, percent) = self.clock;
        ahead + now_ms * percent / 100
    }

    /// Starts a process, which recovers the log. Errors: records are gone that cannot be.
    pub fn start(&mut self) -> Result<(), String> {
        let started = self.machine.start();
        let was_clean =
            started.map_err(|error| format!("L3: broker {} cannot start: {error}", self.node))?;
        let found = self.machine.records();
        self.check_found(&found, was_clean)?;
        if was_clean {
            self.lost_at = self.lost_before;
        } else {
            self.lost_before = self.lost_at;
            let may_have_lost = self.expected != Expected::Everything && !self.flushes;
            if self.distrusts_kills || may_have_lost {
                self.lossless_since = None;
            }
        }
        self.expected = Expected::Everything;
        self.append_failed = false;
        self.held = found;
        self.is_up = true;
        self.run += 1;
        self.begin_session();
        self.broker_epoch = -1;
        self.role = Role::None;
        self.leader_epoch = None;
        self.controller_epoch = 0;
        self.metadata_serial = 0;
        self.alive.clear();
        Ok(())
    }

    /// Compares what the log holds with what it held. Deleted records may be back: the log start
    /// is written down only now and then.
    fn check_found(&self, found: &[StoredRecord], was_clean: bool) -> Result<(), String> {
        let deleted = found.partition_point(|it| it.offset < self.log_start);
        let (found, held, node) = (&found[deleted..], &self.held[..], self.node);
        let expected = if was_clean { Expected::Everything } else { self.expected };
        match expected {
            Expected::Everything if found != held => {
                let how = if was_clean { "R7: marked clean" } else { "L3: killed" };
                Err(format!("{how}: broker {node} has {found:?}, and had {held:?}"))
            }
            Expected::Beginning if !held.starts_with(found) => {
                Err(format!("L3: broker {node} has {found:?}, and never had more than {held:?}"))
            }
            Expected::BeginningAndMore if !held.starts_with(found) && !found.starts_with(held) => {
                Err(format!("L3: broker {node} has {found:?}, and had {held:?}"))
            }
            _ => Ok(()),
        }
    }

    /// A new session, in which it must register, and may become the controller.
    fn begin_session(&mut self) {
        self.session += 1;
        self.is_registered = false;
        self.controller = None;
        self.wants_election = true;
        self.own_request = None;
        self.controller_request = None;
    }

    /// The process ends at once.
    pub fn kill(&mut self) {
        self.note_log_start();
        self.machine.kill();
        self.end();
    }

    /// The machine loses its power, whether a process runs or not; `zxid` is ZooKeeper's.
    pub fn cut_power(&mut self, zxid: i64, random: &mut Random) {
        self.note_log_start();
        self.machine.cut_power(random);
        self.may_lose(zxid);
        if self.append_failed {
            self.expected = Expected::BeginningAndMore;
        }
        self.end();
    }

    /// What was not synced may be gone. In flush mode it keeps every acknowledged record.
    fn may_lose(&mut self, zxid: i64) {
        if !self.flushes {
            self.lost_at = zxid;
            if self.expected == Expected::Everything {
                self.expected = Expected::Beginning;
            }
        }
    }

    /// The disk failed: what was written may be lost, and the process ends.
    pub fn disk_failed(&mut self, zxid: i64, random: &mut Random) {
        self.note_log_start();
        self.machine.cut_power(random);
        self.may_lose(zxid);
        self.expected = Expected::BeginningAndMore;
        self.end();
    }

    /// The process stops in order; if `interrupted`, the power goes meanwhile.
    pub fn stop(&mut self, interrupted: bool, zxid: i64, random: &mut Random) {
        self.note_log_start();
        let stopped = self.machine.stop(interrupted, random);
        if interrupted || stopped.is_err() {
            self.may_lose(zxid);
            self.expected = Expected::BeginningAndMore;
        }
        self.end();
    }

    fn note_log_start(&mut self) {
        if self.is_up {
            self.log_start = self.log_start();
        }
    }

    fn end(&mut self) {
        self.is_up = false;
        self.role = Role::None;
        self.controller = None;
    }

    /// Time passed.
    pub fn tick(&mut self, now_ms: i64, random: &mut Random, effects: &mut Effects) {
        self.tick_replica(self.clock_ms(now_ms), effects);
        if self.own_request.is_none() && !self.is_registered {
            let replaces = random.percent(70);
            let request = StoreRequest::Register { lossless_since: self.lossless_since, replaces };
            let number = self.ask_store(request, effects);
            self.own_request = Some((number, OwnRequest::Registration));
        } else if self.own_request.is_none() && self.wants_election {
            let number = self.ask_store(StoreRequest::Elect, effects);
            self.own_request = Some((number, OwnRequest::Election));
        }
    }

    fn ask_store(&mut self, request: StoreRequest, effects: &mut Effects) -> u64 {
        self.requests += 1;
        let (session, number) = (self.session, self.requests);
        let message = Message::Store { session, number, request: Box::new(request) };
        effects.sends.push((ZOOKEEPER, message));
        effects.asked.push(number);
        number
    }

    /// A watch fired: brokers came or went, or the controller went.
    pub fn watch_fired(&mut self, effects: &mut Effects) {
        match &mut self.controller {
            Some(controller) => controller.brokers_changed(),
            None => self.wants_election = true,
        }
        self.run_controller(effects);
    }

    /// Its session with ZooKeeper ended, and it has learnt of it. It goes on as leader or follower.
    pub fn session_expired(&mut self) {
        self.begin_session();
    }

    /// ZooKeeper answered, or the answer to the request of this number did not come.
    pub fn stored(&mut self, number: u64, stored: StoreAnswer, effects: &mut Effects) {
        let own = self.own_request.filter(|(asked, _)| *asked == number);
        if own.is_none() && self.controller_request != Some(number) {
            return;
        }
        if matches!(stored, StoreAnswer::SessionExpired) {
            return self.session_expired();
        }
        if let Some((_, asked)) = own {
            self.own_request = None;
            self.answered_by_store(asked, stored);
        } else {
            self.controller_request = None;
            if let Some(controller) = &mut self.controller {
                let mut wanted = Vec::new();
                if !controller.stored(stored, &mut wanted) {
                    self.controller = None;
                    self.wants_election = true;
                }
                self.carry_out_controller(wanted, effects);
            }
        }
        self.run_controller(effects);
    }

    fn answered_by_store(&mut self, asked: OwnRequest, stored: StoreAnswer) {
        match (asked, stored) {
            (OwnRequest::Registration, StoreAnswer::Registered(Some(registration))) => {
                self.is_registered = true;
                self.broker_epoch = registration.broker_epoch;
                self.lossless_since = Some(registration.lossless_since);
            }
            (OwnRequest::Election, StoreAnswer::Elected(elected)) => {
                self.wants_election = false;
                self.controller = elected
                    .map(|epoch| Controller::new(self.node, epoch, self.controller_settings));
            }
            _ => {}
        }
    }

    /// A leader proposes an in-sync set to the controller here; without one it is refused.
    pub fn propose_to_controller(
        &mut self,
        by: (usize, i64),
        (proposed, refuses): (ProposedIsr, bool),
        effects: &mut Effects,
    ) {
        match &mut self.controller {
            Some(controller) => controller.alter(by, proposed, refuses),
            None => {
                let outcome = ProposalOutcome::Refused(ErrorCode::NotController);
                effects.sends.push((by.0, Message::Altered { proposed, outcome }));
            }
        }
        self.run_controller(effects);
    }

    /// Lets the controller go on, if there is one here.
    pub fn run_controller(&mut self, effects: &mut Effects) {
        let mut wanted = Vec::new();
        if let Some(controller) = &mut self.controller {
            controller.run(&mut wanted);
        }
        self.carry_out_controller(wanted, effects);
    }

    fn carry_out_controller(&mut self, wanted: Vec<ControllerEffect>, effects: &mut Effects) {
        for effect in wanted {
            match effect {
                ControllerEffect::Send(node, message) => effects.sends.push((node, message)),
                ControllerEffect::Store(request) => {
                    self.controller_request = Some(self.ask_store(request, effects));
                }
            }
        }
    }
}
