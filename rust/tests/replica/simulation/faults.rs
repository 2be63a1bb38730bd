//! What goes wrong in a run, and what operators do meanwhile. Each kind has its own chance, which
//! the seed decides; the moments at which it could happen come every 5 to 40 ms.

use super::messages::{Command, ZOOKEEPER};
use super::plan::SESSION_MS;
use super::run::{Event, Run};
use super::zookeeper::node_id;

impl Run {
    pub fn fault(&mut self) -> Result<(), String> {
        if self.is_calm {
            return Ok(());
        }
        let node = self.random.index(self.brokers.len());
        self.fail_network(node);
        self.fail_process(node)?;
        self.operate(node);
        let delay = self.random.between(5, 40);
        self.after(delay, Event::Fault);
        Ok(())
    }

    fn fail_network(&mut self, node: usize) {
        let other = self.random.index(self.brokers.len() + 1);
        let other = if other == self.brokers.len() { ZOOKEEPER } else { other };
        if node != other && self.random.percent(self.faults.network_cut) {
            let lasts_ms = self.random.between(10, 150);
            self.report.network_cuts += 1;
            match self.random.below(5) {
                0 => self.cut(node, other, lasts_ms),
                1 => self.cut(other, node, lasts_ms),
                2..=3 => {
                    self.cut(node, other, lasts_ms);
                    self.cut(other, node, lasts_ms);
                }
                _ => self.isolate(node, lasts_ms),
            }
        }
        if self.random.percent(self.faults.session_loss) {
            self.report.sessions_lost += 1;
            let session = self.brokers[node].session;
            self.after(0, Event::Expire { session });
        }
    }

    /// A broker is cut off from all others, and from ZooKeeper.
    fn isolate(&mut self, node: usize, lasts_ms: i64) {
        for other in (0..self.brokers.len()).filter(|it| *it != node).chain([ZOOKEEPER]) {
            self.cut(node, other, lasts_ms);
            self.cut(other, node, lasts_ms);
        }
    }

    fn cut(&mut self, from: usize, to: usize, lasts_ms: i64) {
        if self.cuts.contains(&(from, to)) {
            return;
        }
        self.cuts.push((from, to));
        self.after(lasts_ms, Event::Heal { one: from, other: to });
        let cut_off = if to == ZOOKEEPER { from } else { to };
        if (from == ZOOKEEPER || to == ZOOKEEPER) && lasts_ms > SESSION_MS {
            let session = self.brokers[cut_off].session;
            self.after(SESSION_MS, Event::Expire { session });
        }
    }

    fn fail_process(&mut self, node: usize) -> Result<(), String> {
        let is_up = self.brokers[node].is_up;
        if self.random.percent(self.faults.power_cut_of_all) {
            for node in 0..self.brokers.len() {
                self.cut_power(node);
            }
        } else if is_up && self.random.percent(self.faults.kill) {
            self.report.kills += 1;
            self.note(|| format!("broker {node} is killed"));
            self.brokers[node].kill();
            self.ended(node);
        } else if self.random.percent(self.faults.power_cut) {
            self.cut_power(node);
        } else if is_up && self.random.percent(self.faults.pause) {
            self.report.pauses += 1;
            let lasts_ms = self.random.between(5, 150);
            self.brokers[node].paused_until_ms = self.now_ms + lasts_ms;
            if lasts_ms > SESSION_MS {
                let session = self.brokers[node].session;
                self.after(SESSION_MS, Event::Expire { session });
            }
        } else if is_up && self.random.percent(self.faults.disk_error) {
            self.brokers[node].machine.fail_disk(&mut self.random);
        }
        if self.random.percent(self.faults.clock_jump) {
            self.brokers[node].machine.jump_clock(&mut self.random);
        }
        Ok(())
    }

    fn cut_power(&mut self, node: usize) {
        self.report.power_cuts += 1;
        self.note(|| format!("the power of broker {node} is cut"));
        let (zxid, was_up) = (self.zookeeper.brokers.zxid, self.brokers[node].is_up);
        self.brokers[node].cut_power(zxid, &mut self.random);
        if was_up {
            self.ended(node);
        }
    }

    pub fn disk_failed(&mut self, node: usize) {
        self.report.disk_failures += 1;
        self.note(|| format!("the disk of broker {node} failed"));
        let zxid = self.zookeeper.brokers.zxid;
        self.brokers[node].disk_failed(zxid, &mut self.random);
        self.ended(node);
    }

    /// The process stops in order, or the power goes while it does.
    pub fn stop(&mut self, node: usize) {
        let zxid = self.zookeeper.brokers.zxid;
        let interrupted = self.random.percent(30) && !self.is_calm;
        self.note(|| format!("broker {node} stops, interrupted: {interrupted}"));
        self.brokers[node].stop(interrupted, zxid, &mut self.random);
        self.ended(node);
        if !interrupted {
            let session = self.brokers[node].session;
            self.after(0, Event::Expire { session });
        }
    }

    /// A process ended: its session does so later, and it comes back.
    fn ended(&mut self, node: usize) {
        let session = self.brokers[node].session;
        self.after(SESSION_MS, Event::Expire { session });
        let delay = self.random.between(1, 200);
        self.after(delay, Event::Start { node });
    }

    fn operate(&mut self, node: usize) {
        if self.random.percent(self.faults.leader_move) {
            self.command(Command::Lead(node_id(node)));
        }
        if self.random.percent(self.faults.reassignment) {
            let count = 1 + self.random.index(self.brokers.len().min(4));
            let first = self.random.index(self.brokers.len());
            let at = |number| node_id((first + number) % self.brokers.len());
            let target = (0..count).map(at).collect();
            self.report.reassignments += 1;
            self.command(Command::Reassign(target));
        }
        if self.random.percent(self.faults.deletion) {
            self.delete_records(node);
        }
        if self.brokers[node].is_up && self.random.percent(self.faults.stop) {
            self.report.stops += 1;
            self.command(Command::Leave(node_id(node)));
            let run = self.brokers[node].run;
            let delay = self.random.between(5, 60);
            self.after(delay, Event::Stop { node, run });
        }
    }

    /// DeleteRecords at a leader. What producers may repeat stays: a follower that begins at the
    /// new log start would not know it.
    fn delete_records(&mut self, node: usize) {
        let broker = &self.brokers[node];
        if !broker.is_up || broker.leader().is_none() {
            return;
        }
        let newest = broker.high_watermark() - 12;
        let needed = self.clients.iter().filter_map(|it| it.oldest_needed(&broker.held));
        let before = needed.fold(newest, i64::min);
        let broker = &mut self.brokers[node];
        if before > broker.held.first().map_or(i64::MAX, |it| it.offset) {
            broker.delete_records(before);
            self.checks.deleted_below = self.checks.deleted_below.max(before);
        }
    }
}
