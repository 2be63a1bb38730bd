//! Fetch (1), v0-18: returns batches of partitions from given offsets on, and waits for them if
//! asked.
//! Behaviour: records are file ranges that are sent without passing through here. A Fetch is
//!     answered at once if `min_bytes` are available, a partition has an error, or it must not
//!     wait; otherwise it is delayed until enough bytes arrived or `max_wait_ms` passed. A reply
//!     holds at most `max_bytes`, and `partition_max_bytes` for each partition; the first partition
//!     with records returns at least one whole batch. Consumers read up to the high watermark. With
//!     read_committed they read up to the last stable offset and receive the list of aborted
//!     transactions. Incremental sessions (KIP-227): see `fetch_sessions`; errors 70, 71, 106. A
//!     client over its quota (KIP-219) receives a reply without partitions. A partition that is
//!     named twice is answered once. A network thread reads from the page cache only. A worker
//!     reads what is only on disk, and replies (see `storage/cold`).
//! Authorization: Read on the topic, else TOPIC_AUTHORIZATION_FAILED (29). What a session reads is
//!     checked again when ACLs change, or another client goes on with it.
//! Followers: a Fetch with a replica id is served on the listener between brokers alone, and to who
//!     may do ClusterAction; else its partitions are TOPIC_AUTHORIZATION_FAILED. It reads to the
//!     log end. Its fetch offset tells the leader what it has. No client quota concerns it. In a
//!     session it is answered as soon as the high watermark moves. Replica id -2 (a tool that
//!     compares replicas) reads any replica to the log end.
//! Version notes: v0-v1 are converted to magic 0, v2-v3 to magic 1, at most 4 MiB a reply; a worker
//!     does long conversions. v3 adds `max_bytes`, v4 the isolation level, v5 the log start offset,
//!     v7 sessions. v9 adds the leader epoch: an older one is FENCED_LEADER_EPOCH (74), a newer one
//!     UNKNOWN_LEADER_EPOCH (75). Below v10, zstd is UNSUPPORTED_COMPRESSION_TYPE (76) if the topic
//!     is configured for it or a batch must be converted. v11 adds the rack; consumers may read
//!     followers. v12 adds the epoch of the last fetch; the reply says where the logs diverge. v13
//!     adds topic ids. v15 moves the replica id into the replica state, with the broker epoch of
//!     the follower (KIP-903).
//! Racks (KIP-392): a leader answers a consumer that names its rack with the replica to read, and
//!     no records, at once (see `nearest`). A follower serves consumers up to the high watermark
//!     that its leader sent it. A Fetch from an offset above that, but not above its log end,
//!     waits. One above its log end that the leader may have committed is OFFSET_NOT_AVAILABLE
//!     (78): the client asks again, or asks the leader. Kafka answers OFFSET_OUT_OF_RANGE (1), on
//!     which a client with old metadata starts over.
//! Not done: tiered storage.

mod convert;
mod nearest;
mod read;
mod reader;
mod reply;
mod target;

use std::sync::Arc;

use crate::broker::handlers::fetch::nearest::ReplicaChoice;
use crate::broker::handlers::fetch::read::{ReadResult, ReadRules};
use crate::broker::handlers::fetch::reader::{FetchReader, FollowerReport, ReaderRole, refusal};
use crate::broker::handlers::fetch::target::{FetchTarget, target};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult, POOL_WAIT_MS};
use crate::broker::requests::delayed::{
    DelayedContext, DelayedOperation, OperationProgress, WorkResult, WorkerTask,
};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::ClusterAction;
use crate::broker::state::fetch_sessions::FetchContext;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::quotas::account::{FetchThrottle, QuotaAccount};
use crate::broker::state::read_replicas::ConsumerLocation;
use crate::broker::state::waking::{DelayedId, Wakes};
use crate::protocol::ErrorCode;
use crate::protocol::fetch::{FetchRequest, FetchResponse};
use crate::storage::cold::without_waiting;

/// A Fetch with the partitions it reads.
#[derive(Debug)]
struct DelayedFetch {
    target: FetchTarget,
    rules: ReadRules,
    min_bytes: usize,
    account: Option<Arc<QuotaAccount>>,
    /// The consumer's rack and listener, if another replica may be nearer.
    location: Option<ConsumerLocation>,
    /// A follower's progress was reported to the partitions.
    is_reported: bool,
}

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let version = call.version();
    let request = FetchRequest::decode(&mut call.reader(), version)?;
    if FetchReader::of(&request).is_follower() {
        if !call.connection.is_brokers_own || !call.access().check_cluster(ClusterAction) {
            let response = refusal(&request);
            call.reply(|writer, version| response.encode(writer, version));
            return Ok(Flow::Go);
        }
        call.connection.account = None;
    }
    call.throttle_for_time();
    let settings = call.broker.settings.load();
    let account = call.connection.account.clone();
    let most = account.as_ref().map_or(usize::MAX, |account| account.fetch_max_bytes());
    let mut rules = ReadRules::of(&request, version, settings.fetch_max_bytes).at_most(most);
    let target = match target(call, &request, settings.node_id) {
        Ok(target) => target,
        Err(error) => {
            let response = FetchResponse { error_code: error.code(), ..Default::default() };
            call.reply(|writer, version| response.encode(writer, version));
            return Ok(Flow::Go);
        }
    };
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0).min(most);
    rules.hurries = rules.reader.is_follower() && matches!(target, FetchTarget::Session { .. });
    let now_ms = call.broker.clock.monotonic_ms();
    rules.is_over_quota =
        rules.reader.is_follower() && call.broker.leader_quota.wait_ms(now_ms) > 0;
    let location = nearest::location(call, &request, rules.reader);
    let mut waiting =
        DelayedFetch { target, rules, min_bytes, account, location, is_reported: false };
    let wait_ms = i64::from(request.max_wait_ms.max(0));
    let (node, number) = (settings.node_id, call.thread.image_number);
    let view = FetchView { broker: call.broker, node, image: &call.thread.image, number };
    let head = call.request.head;
    if head.throttle_time_ms > 0 {
        waiting.write_nothing(call.broker, head, call.replies.ready());
        return Ok(Flow::Go);
    }
    waiting.rules.arrived_ms = now_ms;
    let deadline_ms = now_ms + wait_ms;
    let here = Some((call.thread.index, &mut call.thread.to_retry));
    let wakes = &mut Wakes { here, waker: call.broker };
    let seen = without_waiting(|| waiting.read_partitions(&view, wait_ms == 0, wakes));
    if seen.is_cold() {
        let image = (Arc::clone(&call.thread.image), call.thread.image_number);
        call.hand_over(None, Box::new(waiting).cold_read((head, image), deadline_ms));
        return Ok(Flow::Hold);
    }
    if let FetchReadiness::Enough(mut found) = seen {
        if convert::is_long(&found) {
            let waiting = Box::new(waiting);
            call.hand_over(None, waiting.conversion((head, found), deadline_ms));
            return Ok(Flow::Hold);
        }
        if waiting.convert(&mut found) || wait_ms == 0 {
            let mute_ms = waiting.answer(call.broker, head, call.replies.ready(), found);
            call.replies.mute(mute_ms);
            return Ok(Flow::Go);
        }
    }
    let id = call.thread.delayed.name();
    if !waiting.watch(call.thread.index, id) {
        // Records may have arrived between the read and the start of the watch.
        call.thread.to_retry.push(id);
    }
    call.delay_as(id, Some(deadline_ms), Box::new(waiting));
    Ok(Flow::Hold)
}

/// The result of reading the partitions.
enum FetchReadiness {
    /// These results are the reply.
    Enough(Vec<ReadResult>),
    /// Fewer than `min_bytes` are available.
    TooLittle,
    /// Some bytes are not in the page cache.
    Cold,
}

impl FetchReadiness {
    /// Whether a worker has to finish it.
    fn is_cold(&self) -> bool {
        match self {
            Self::Enough(found) => !read::is_cached(found),
            Self::TooLittle => false,
            Self::Cold => true,
        }
    }
}

/// The broker and the image that a read of the partitions uses.
struct FetchView<'a> {
    broker: &'a Broker,
    node: i32,
    image: &'a ClusterImage,
    number: u64,
}

impl DelayedFetch {
    /// Reads the partitions. `late`: the reply is due, with whatever is available.
    fn read_partitions(
        &mut self,
        view: &FetchView<'_>,
        late: bool,
        wakes: &mut Wakes<'_>,
    ) -> FetchReadiness {
        let (rules, min_bytes) = (self.rules, self.min_bytes);
        let role = match (rules.reader, &self.location) {
            (FetchReader::Follower { replica, broker_epoch }, _) if !self.is_reported => {
                ReaderRole::Reports(FollowerReport { replica, broker_epoch, wakes })
            }
            (_, Some(location)) => ReaderRole::Chooses(ReplicaChoice {
                broker: view.broker,
                image: view.image,
                location,
            }),
            _ => ReaderRole::Reads,
        };
        let seen = |context: &mut FetchContext, all, late| {
            context.resolve(view.node, (view.image, view.number));
            context.collect_changes();
            let results = read::read_partitions(context, (&rules, all), role);
            let over = late || context.entries.is_empty() || results.is_enough(min_bytes);
            match results.is_cold {
                true => FetchReadiness::Cold,
                false if over => FetchReadiness::Enough(results.partitions),
                false => FetchReadiness::TooLittle,
            }
        };
        let seen = match &mut self.target {
            FetchTarget::Once(context) => seen(context, true, late),
            FetchTarget::Session { session, full, epoch, forgotten, .. } => {
                let mut session = session.lock();
                *forgotten = session.forgotten();
                let overtaken = session.epoch != *epoch;
                seen(&mut session.context, *full, late || overtaken)
            }
        };
        // A cold read may have stopped before the last partition.
        self.is_reported |= !matches!(seen, FetchReadiness::Cold);
        seen
    }

    /// Converts the records if the request's version needs that. False if none is left, for example
    /// because all were transaction markers: the client has to wait.
    fn convert(&self, found: &mut [ReadResult]) -> bool {
        let (FetchTarget::Once(context), Some(magic)) = (&self.target, self.rules.magic) else {
            return true;
        };
        let was_something = read::is_something(found);
        convert::all(context, found, magic, convert::LIMIT);
        !was_something || read::is_something(found)
    }

    /// The work of a worker if the disk must be read. It reads the partitions again, loads the
    /// records into the page cache, and replies, or lets the client wait until `deadline_ms`.
    fn cold_read(
        mut self: Box<Self>,
        (head, (image, number)): (Head, (Arc<ClusterImage>, u64)),
        deadline_ms: i64,
    ) -> impl FnOnce(&Broker) -> WorkResult + Send + 'static {
        move |broker| {
            let node = broker.settings.load().node_id;
            let view = FetchView { broker, node, image: &image, number };
            let late = broker.clock.monotonic_ms() >= deadline_ms;
            let wakes = &mut Wakes { here: None, waker: broker };
            let FetchReadiness::Enough(found) = self.read_partitions(&view, late, wakes) else {
                return WorkResult::wait(self, deadline_ms);
            };
            read::warm(&found);
            if self.rules.magic.is_some() {
                return self.conversion((head, found), deadline_ms)(broker);
            }
            self.forget();
            let mut output = Output::default();
            self.answer(broker, head, &mut output, found);
            WorkResult::Answer(output)
        }
    }

    /// The work of a worker for old consumers. It converts the records within the memory for such
    /// replies, and replies, or lets the client wait until `deadline_ms`.
    fn conversion(
        mut self: Box<Self>,
        (head, mut found): (Head, Vec<ReadResult>),
        deadline_ms: i64,
    ) -> impl FnOnce(&Broker) -> WorkResult + Send + 'static {
        move |broker| {
            let now_ms = broker.clock.monotonic_ms();
            let pool = &broker.converted_memory;
            let Some((limit, mut lease)) = convert::allotment(pool, &found) else {
                return WorkResult::wait(self, now_ms + i64::from(POOL_WAIT_MS));
            };
            if let (FetchTarget::Once(context), Some(magic)) = (&self.target, self.rules.magic) {
                convert::all(context, &mut found, magic, limit);
            }
            if !read::is_something(&found) && now_ms < deadline_ms {
                return WorkResult::wait(self, deadline_ms);
            }
            let mut output = Output::default();
            self.answer(broker, head, &mut output, found);
            lease.shrink_to(output.buf.capacity());
            output.lease = Some(lease);
            WorkResult::Answer(output)
        }
    }

    /// Writes the reply, or an empty one if it exceeds a quota. Returns for how long the connection
    /// is muted.
    fn answer(
        &mut self,
        broker: &Broker,
        mut head: Head,
        output: &mut Output,
        found: Vec<ReadResult>,
    ) -> i32 {
        let throttled = read::throttled_bytes(&found);
        if throttled > 0 {
            broker.leader_quota.add(throttled, broker.clock.monotonic_ms());
        }
        let Some(account) = &self.account else {
            self.write(head, output, found);
            return 0;
        };
        let bytes = if account.reads_are_counted() { self.size(head.version, &found) } else { 0 };
        let FetchThrottle { throttle_time_ms, is_empty } =
            account.fetched(bytes, broker.clock.monotonic_ms());
        head.throttle_time_ms = throttle_time_ms;
        if is_empty {
            reply::give_back(found);
            self.write_nothing(broker, head, output);
        } else {
            self.write(head, output, found);
        }
        throttle_time_ms
    }

    /// The size of the reply in bytes.
    fn size(&self, version: i16, found: &[ReadResult]) -> usize {
        match &self.target {
            FetchTarget::Once(context) => reply::size(version, context, found),
            FetchTarget::Session { session, .. } => {
                reply::size(version, &session.lock().context, found)
            }
        }
    }

    /// Writes a reply without partitions. It begins no session, because the client has not received
    /// any partition yet.
    fn write_nothing(&self, broker: &Broker, head: Head, output: &mut Output) {
        let session_id = match &self.target {
            FetchTarget::Once(_) => 0,
            FetchTarget::Session { id, full: false, .. } => *id,
            FetchTarget::Session { id, full: true, .. } => {
                broker.fetch_sessions.end(*id);
                0
            }
        };
        let response = FetchResponse { session_id, ..Default::default() };
        head.reply(output, |writer, version| response.encode(writer, version));
    }

    /// Writes the reply. As in Kafka it is an error if a later request of the session removed
    /// partitions after they were read.
    fn write(&mut self, head: Head, output: &mut Output, found: Vec<ReadResult>) {
        match &mut self.target {
            FetchTarget::Once(context) => reply::write(head, output, (context, found, 0)),
            FetchTarget::Session { session, id, forgotten, .. } => {
                let mut session = session.lock();
                if session.forgotten() == *forgotten {
                    return reply::write(head, output, (&mut session.context, found, *id));
                }
                reply::give_back(found);
                let error_code = ErrorCode::InvalidFetchSessionEpoch.code();
                let response = FetchResponse { error_code, session_id: *id, ..Default::default() };
                head.reply(output, |writer, version| response.encode(writer, version));
            }
        }
    }

    /// Watches the partitions for changes. False if one has changed in the meantime.
    fn watch(&mut self, thread: usize, id: DelayedId) -> bool {
        match &mut self.target {
            FetchTarget::Once(context) => match &context.watch {
                Some(watch) => watch.wake_on_change(thread, id),
                None => {
                    let watch = context.start_watch();
                    watch.wake_on_change(thread, id);
                    false
                }
            },
            FetchTarget::Session { session, .. } => {
                session.lock().context.start_watch().wake_on_change(thread, id)
            }
        }
    }

    /// Stops waiting.
    fn forget(&self) {
        if let FetchTarget::Session { session, .. } = &self.target
            && let Some(watch) = &session.lock().context.watch
        {
            watch.cancel_wake();
        }
    }
}

impl DelayedOperation for DelayedFetch {
    fn try_complete(
        mut self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        let view = FetchView {
            broker: at.broker,
            node: at.broker.settings.load().node_id,
            image: &at.thread.image,
            number: at.thread.image_number,
        };
        let (account, head) = (self.account.clone(), at.head);
        let deadline_ms = at.deadline_ms.unwrap_or_default();
        let wakes =
            &mut Wakes { here: Some((at.thread.index, &mut at.thread.to_retry)), waker: at.broker };
        let seen = without_waiting(|| self.read_partitions(&view, is_late, wakes));
        if seen.is_cold() {
            let image = (Arc::clone(&at.thread.image), at.thread.image_number);
            let run = Box::new(self.cold_read((head, image), deadline_ms));
            return OperationProgress::Works(WorkerTask { account, run });
        }
        if let FetchReadiness::Enough(mut found) = seen {
            if convert::is_long(&found) {
                let run = Box::new(self.conversion((head, found), deadline_ms));
                return OperationProgress::Works(WorkerTask { account, run });
            }
            if self.convert(&mut found) || is_late {
                self.forget();
                let mut output = Output::default();
                self.answer(at.broker, at.head, &mut output, found);
                return OperationProgress::Answered(output);
            }
        }
        if !self.watch(at.thread.index, at.id) {
            at.thread.to_retry.push(at.id);
        }
        OperationProgress::Waits(self)
    }

    fn begin(&mut self, thread: usize, id: DelayedId) -> bool {
        !self.watch(thread, id)
    }

    fn cancel(&self, _: &Broker, _: usize, _: DelayedId) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::policy::{Event, Policy};
    use crate::broker::requests::apis;
    use crate::broker::requests::broker::Settings;
    use crate::broker::state::fetch_sessions::{
        CachedPartition, ConnectionSessions, FetchSessions, ReadRequest, SessionLimits,
    };
    use crate::broker::state::log_manager::LogManager;
    use crate::clock::SystemClock;
    use crate::ids::{Epoch, TopicId};
    use crate::wire::Reader;

    const VERSION: i16 = 11;

    struct Nobody;

    impl Policy for Nobody {
        fn submit(&self, _: Event) {}
    }

    fn unknown(partition: i32) -> CachedPartition {
        CachedPartition {
            topic: "t".into(),
            id: TopicId::default(),
            partition,
            request: ReadRequest {
                fetch_offset: 0,
                max_bytes: 1,
                current_leader_epoch: -1,
                last_fetched_epoch: -1,
                log_start: -1,
            },
            local: Err(ErrorCode::UnknownTopicOrPartition),
            leader: (-1, Epoch::NONE),
            zstd: false,
            is_active: true,
            sent_high_watermark: -1,
            sent_log_start: -1,
        }
    }

    #[test]
    fn results_of_a_partition_that_was_forgotten_since_are_not_sent() {
        let (policy, clock) = (Arc::new(Nobody), Arc::new(SystemClock));
        let broker = Broker::new(Settings::default(), LogManager::new(vec![]), policy, clock);
        for forgets in [false, true] {
            let mut context = FetchContext::new(false);
            for partition in 0..2 {
                context.push(unknown(partition));
            }
            let (sessions, mut own) =
                (FetchSessions::new(SessionLimits::default()), ConnectionSessions::default());
            let (id, session) = sessions.create(context, (&mut own, 0), (1, 0)).unwrap();
            let target = FetchTarget::Session {
                session: Arc::clone(&session),
                id,
                full: true,
                epoch: 1,
                forgotten: 0,
            };
            let rules = ReadRules::of(&FetchRequest::default(), VERSION, 1 << 20);
            let mut delayed = DelayedFetch {
                target,
                rules,
                min_bytes: 0,
                account: None,
                location: None,
                is_reported: false,
            };
            let wakes = &mut Wakes { here: None, waker: &*broker };
            let image = ClusterImage::default();
            let view = FetchView { broker: &broker, node: 0, image: &image, number: 0 };
            let FetchReadiness::Enough(found) = delayed.read_partitions(&view, true, wakes) else {
                unreachable!()
            };
            if forgets {
                session.lock().forget("t", TopicId::default(), 0);
            }
            let api = apis::find(1).unwrap();
            let head = Head { api, version: VERSION, correlation_id: 0, throttle_time_ms: 0 };
            let mut output = Output::default();
            delayed.write(head, &mut output, found);
            let mut reader = Reader::new(&output.buf[8..]);
            let response = FetchResponse::decode(&mut reader, VERSION).unwrap();
            let topics: Vec<usize> =
                response.responses.iter().map(|topic| topic.partitions.len()).collect();
            match forgets {
                true => assert_eq!((response.error_code, &*topics), (71, &[][..])),
                false => assert_eq!((response.error_code, &*topics), (0, &[2][..])),
            }
        }
    }
}
