//! The replica that a consumer reads (KIP-392), as chosen by `replica.selector.class`.
//!
//! A consumer that names its rack fetches from the leader, and the leader chooses. The candidates
//! are the in-sync followers that have the consumer's offset and an address on its listener, and
//! the leader itself. Kafka's rack-aware selector is [`most_caught_up`]. A selector that a user
//! wrote runs in a process of its own; it is asked once for a partition and a rack.
//! [`SelectedReplicas`] keeps its answers until the partition epoch rises (with each change of the
//! leader or the in-sync set), or until the registered brokers change. Without an answer the
//! consumer reads the leader.
//! Threads: any. The lock of the answers is the last one taken.
//! Limits: [`ANSWERS_MAX`] answers, then all are forgotten; [`WAITING_MAX`] questions wait, others
//!     are asked with a later Fetch; one request of [`BATCH`] questions is on its way.

use std::sync::Arc;

use ahash::{HashMap, HashMapExt};
use parking_lot::Mutex;

use crate::broker::policy::Ticket;
use crate::broker::replica::leader::{Leadership, ReadableFollower};
use crate::broker::state::image::{BrokerImage, ClusterImage};
use crate::ids::TopicPartition;

/// The longest name of a rack that is considered.
const RACK_MAX: usize = 255;
const ANSWERS_MAX: usize = 10_000;
const WAITING_MAX: usize = 1000;
const BATCH: usize = 200;

/// The selector that chooses the replicas that consumers read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicaSelector {
    /// Consumers read leaders.
    #[default]
    Leader,
    /// Kafka's RackAwareReplicaSelector.
    RackAware,
    /// A user's class, which Python calls in another process.
    UserClass,
}

/// A consumer's rack and listener.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerLocation {
    /// Its rack, not empty.
    pub(crate) rack: Box<str>,
    /// The listener that it uses.
    pub(crate) listener: Arc<str>,
}

/// A question for a user's selector.
#[derive(Clone, Debug)]
pub(crate) struct SelectionQuestion {
    pub(crate) partition: TopicPartition,
    pub(crate) rack: Box<str>,
    pub(crate) isr: Vec<i32>,
    pub(crate) replicas: Vec<i32>,
    partition_epoch: i32,
}

/// The answers of a user's selector, and the questions that wait (see the module).
#[derive(Debug, Default)]
pub(crate) struct SelectedReplicas(Mutex<Selections>);

#[derive(Debug, Default)]
struct Selections {
    /// The brokers that the answers were given for.
    brokers: Arc<[BrokerImage]>,
    /// By rack and partition.
    answers: HashMap<Box<str>, HashMap<TopicPartition, Selection>>,
    count: usize,
    waiting: Vec<SelectionQuestion>,
    sent: Option<(Ticket, Vec<SelectionQuestion>)>,
}

#[derive(Clone, Copy, Debug)]
struct Selection {
    /// The partition epoch that it was made for.
    partition_epoch: i32,
    /// `None`: the leader, or not yet answered.
    replica: Option<i32>,
}

impl ConsumerLocation {
    /// The location of a connection's consumer; `None` if its rack is empty or too long.
    pub(crate) fn of(rack: &str, listener: &Arc<str>) -> Option<Self> {
        let location = || Self { rack: rack.into(), listener: Arc::clone(listener) };
        (1..=RACK_MAX).contains(&rack.len()).then(location)
    }

    /// Whether the broker is in the consumer's rack, and can be reached.
    fn is_near(&self, broker: &BrokerImage) -> bool {
        broker.rack.as_deref() == Some(&self.rack) && self.reaches(broker)
    }

    fn reaches(&self, broker: &BrokerImage) -> bool {
        broker.endpoints.iter().any(|endpoint| endpoint.listener == self.listener)
    }
}

/// Whether another broker than `node` may be nearer to a consumer: one is in its rack, and `node`
/// is not.
pub(crate) fn may_be_nearer(rack: &str, (node, image): (i32, &ClusterImage)) -> bool {
    let mut near = image.brokers.iter().filter(|broker| broker.rack.as_deref() == Some(rack));
    let mut is_any = false;
    near.all(|broker| {
        is_any = true;
        broker.id != node
    }) && is_any
}

/// Kafka's rack-aware choice among the followers: the most caught up in the consumer's rack.
pub(crate) fn most_caught_up(
    followers: impl Iterator<Item = ReadableFollower>,
    (location, image): (&ConsumerLocation, &ClusterImage),
) -> Option<i32> {
    let is_near = |follower: &ReadableFollower| {
        image.broker(follower.replica).is_some_and(|broker| location.is_near(broker))
    };
    let near = followers.filter(is_near);
    let best =
        near.max_by_key(|follower| (follower.log_end, follower.caught_up_ms, follower.replica));
    best.map(|follower| follower.replica)
}

/// The chosen replica, if the consumer can reach it and it is among the followers.
pub(crate) fn if_readable(
    chosen: i32,
    mut followers: impl Iterator<Item = ReadableFollower>,
    (location, image): (&ConsumerLocation, &ClusterImage),
) -> Option<i32> {
    let is_reached = image.broker(chosen).is_some_and(|broker| location.reaches(broker));
    (is_reached && followers.any(|follower| follower.replica == chosen)).then_some(chosen)
}

impl SelectedReplicas {
    /// The replica that was selected for a rack. Without an answer a question is added; the flag
    /// tells the caller to send it.
    pub(crate) fn selected(
        &self,
        (partition, rack): (&TopicPartition, &str),
        leadership: &Leadership,
        brokers: &Arc<[BrokerImage]>,
    ) -> (Option<i32>, bool) {
        let partition_epoch = leadership.partition_epoch;
        let mut selections = self.0.lock();
        let selections = &mut *selections;
        if !Arc::ptr_eq(&selections.brokers, brokers) {
            selections.forget();
            selections.brokers = Arc::clone(brokers);
        }
        let known = selections.answers.get(rack).and_then(|answers| answers.get(partition));
        if let Some(known) = known.filter(|known| known.partition_epoch == partition_epoch) {
            return (known.replica, false);
        }
        if selections.waiting.len() >= WAITING_MAX {
            return (None, false);
        }
        selections.keep((partition, rack), Selection { partition_epoch, replica: None });
        selections.waiting.push(SelectionQuestion {
            partition: partition.clone(),
            rack: rack.into(),
            isr: leadership.isr.iter().map(|member| member.replica).collect(),
            replicas: leadership.replicas.clone(),
            partition_epoch,
        });
        (None, true)
    }

    /// The questions for the next request, whose ticket `open` returns; `None` if none waits or a
    /// request is on its way.
    pub(crate) fn next(
        &self,
        open: impl FnOnce() -> Ticket,
    ) -> Option<(Ticket, Vec<SelectionQuestion>)> {
        let mut selections = self.0.lock();
        if selections.sent.is_some() || selections.waiting.is_empty() {
            return None;
        }
        let count = selections.waiting.len().min(BATCH);
        let questions: Vec<_> = selections.waiting.drain(..count).collect();
        selections.sent = Some((open(), questions));
        selections.sent.clone()
    }

    /// Takes the answers to a request, in the order of its questions; `None`: the leader. If a
    /// partition has changed since, the next Fetch asks again.
    pub(crate) fn answered(&self, ticket: Ticket, replicas: impl Iterator<Item = Option<i32>>) {
        let mut selections = self.0.lock();
        let Some((_, questions)) = selections.sent.take_if(|(sent, _)| *sent == ticket) else {
            return;
        };
        for (question, replica) in questions.into_iter().zip(replicas) {
            let answers = selections.answers.get_mut(&question.rack);
            let known = answers.and_then(|answers| answers.get_mut(&question.partition));
            let is_same =
                |known: &&mut Selection| known.partition_epoch == question.partition_epoch;
            if let Some(known) = known.filter(is_same) {
                known.replica = replica;
            }
        }
    }
}

impl Selections {
    fn keep(&mut self, (partition, rack): (&TopicPartition, &str), selection: Selection) {
        if self.count >= ANSWERS_MAX {
            self.forget();
        }
        if !self.answers.contains_key(rack) {
            self.answers.insert(rack.into(), HashMap::new());
        }
        let Some(answers) = self.answers.get_mut(rack) else { return };
        if answers.insert(partition.clone(), selection).is_none() {
            self.count += 1;
        }
    }

    fn forget(&mut self) {
        self.answers.clear();
        self.count = 0;
        self.waiting.clear();
    }
}
