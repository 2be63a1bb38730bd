//! A partition that this broker leads. The test sends the requests of its followers, brokers 1 and
//! 2.

use krust::broker::image::{BrokerImage, PartitionState, TopicDelta, TopicSettings};
use krust::broker::{Event, MetadataDelta, Partition, Settings};
use krust::ids::{Epoch, TopicId};
use krust::protocol::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState,
};
use krust::protocol::value::Value;
use krust::storage::LogConfig;
use krust::wire::Reader;

use crate::double::{Conn, Frame, TestBroker, frame, map};
use crate::records::TOPIC;

/// The brokers of the cluster, this one first.
pub const ALL: [i32; 3] = [0, 1, 2];
/// The leader epoch at first.
pub const EPOCH: i32 = 5;
/// `replica.lag.time.max.ms`.
pub const LAG_MS: i64 = 10_000;

/// The state of partition 0 of [`TOPIC`].
#[derive(Clone, Debug)]
pub struct PartitionAssignment {
    pub leader: i32,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    pub isr: Vec<i32>,
    pub replicas: Vec<i32>,
    pub min_insync_replicas: i32,
    pub config: LogConfig,
}

impl Default for PartitionAssignment {
    fn default() -> Self {
        Self {
            leader: 0,
            leader_epoch: EPOCH,
            partition_epoch: 7,
            isr: ALL.to_vec(),
            replicas: ALL.to_vec(),
            min_insync_replicas: 1,
            config: LogConfig::default(),
        }
    }
}

impl PartitionAssignment {
    /// Applies the controller's assignment.
    pub fn to(&self, fixture: &mut TestBroker) {
        let state = PartitionState {
            leader: self.leader,
            leader_epoch: Epoch(self.leader_epoch),
            isr: self.isr.clone(),
            replicas: self.replicas.clone(),
            partition_epoch: self.partition_epoch,
        };
        let topic = TopicDelta {
            id: TopicId([1; 16]),
            internal: false,
            settings: TopicSettings {
                log: self.config.clone(),
                min_insync_replicas: self.min_insync_replicas,
                ..TopicSettings::default()
            },
            partitions: vec![(0, state)],
        };
        fixture.apply(MetadataDelta {
            topics: vec![(TOPIC.into(), Some(topic))],
            ..MetadataDelta::default()
        });
    }
}

/// A broker whose clients and fellow brokers use one listener. All brokers are alive.
pub fn fixture() -> TestBroker {
    let mut fixture = TestBroker::with(Settings {
        inter_broker_listener: Some("PLAINTEXT".into()),
        replica_lag_time_max_ms: LAG_MS,
        ..Settings::default()
    });
    alive(&mut fixture, &ALL);
    fixture
}

/// The same, leading the partition in this state.
pub fn leader(assigned: &PartitionAssignment) -> TestBroker {
    let mut fixture = fixture();
    assigned.to(&mut fixture);
    fixture
}

/// These brokers are alive, and no others.
pub fn alive(fixture: &mut TestBroker, ids: &[i32]) {
    let broker = |id: &i32| BrokerImage { id: *id, rack: None, endpoints: Vec::new() };
    let brokers = Some(ids.iter().map(broker).collect());
    fixture.apply(MetadataDelta { brokers, ..MetadataDelta::default() });
}

/// The partition.
pub fn partition(fixture: &TestBroker) -> std::sync::Arc<Partition> {
    let image = fixture.broker.image();
    image.topic(TOPIC).unwrap().partition(0).unwrap().local.clone().unwrap()
}

/// Log end and high watermark.
pub fn marks(fixture: &TestBroker) -> (i64, i64) {
    let log = &partition(fixture).log;
    (log.log_end_offset().0, log.high_watermark().0)
}

/// A follower's Fetch.
#[derive(Clone, Copy, Debug)]
pub struct FollowerFetch {
    pub version: i16,
    pub replica: i32,
    pub broker_epoch: i64,
    pub offset: i64,
    pub log_start: i64,
    pub leader_epoch: i32,
    pub last_epoch: i32,
    pub max_wait_ms: i32,
    pub session: (i32, i32),
    /// It names the partition; else its session does.
    pub names: bool,
}

impl Default for FollowerFetch {
    fn default() -> Self {
        Self {
            version: 17,
            replica: 1,
            broker_epoch: -1,
            offset: 0,
            log_start: 0,
            leader_epoch: EPOCH,
            last_epoch: -1,
            max_wait_ms: 0,
            session: (0, -1),
            names: true,
        }
    }
}

/// The answer to a follower.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowerAnswer {
    pub session: i32,
    pub error: i16,
    pub high_watermark: i64,
    pub log_start: i64,
    pub bytes: usize,
    pub diverging: (i32, i64),
}

impl FollowerFetch {
    /// The replica `replica` has all below `offset`.
    pub fn at(replica: i32, offset: i64) -> Self {
        let last_epoch = if offset > 0 { EPOCH } else { -1 };
        Self { replica, offset, last_epoch, ..Self::default() }
    }

    pub fn frame(&self) -> Frame {
        let partition = FetchPartition {
            partition: 0,
            current_leader_epoch: self.leader_epoch,
            fetch_offset: self.offset,
            last_fetched_epoch: self.last_epoch,
            log_start_offset: self.log_start,
            partition_max_bytes: 1 << 20,
            ..Default::default()
        };
        let topic =
            FetchTopic { topic: TOPIC, topic_id: TopicId([1; 16]), partitions: vec![partition] };
        let is_old = self.version < 15;
        let (replica_id, replica_epoch) = (self.replica, self.broker_epoch);
        let request = FetchRequest {
            replica_id: if is_old { replica_id } else { -1 },
            replica_state: match is_old {
                true => ReplicaState::default(),
                false => ReplicaState { replica_id, replica_epoch },
            },
            max_wait_ms: self.max_wait_ms,
            min_bytes: 1,
            max_bytes: 1 << 20,
            session_id: self.session.0,
            session_epoch: self.session.1,
            topics: if self.names { vec![topic] } else { Vec::new() },
            ..Default::default()
        };
        frame(1, self.version, |writer, version| request.encode(writer, version))
    }

    /// Sends it; the answer, which must be there at once.
    pub fn ask(&self, fixture: &mut TestBroker, conn: &mut Conn) -> FollowerAnswer {
        let request = self.frame();
        let reply = fixture.ask(conn, &request);
        answer(self.version, &reply)
    }
}

/// The answer of the partition; the default if it is not in the reply.
pub fn answer(version: i16, reply: &[u8]) -> FollowerAnswer {
    let response = FetchResponse::decode(&mut Reader::new(reply), version).unwrap();
    assert_eq!(response.error_code, 0);
    let session = response.session_id;
    let data = response.responses.first().and_then(|topic| topic.partitions.first());
    data.map_or(FollowerAnswer { session, ..FollowerAnswer::default() }, |data| FollowerAnswer {
        session,
        error: data.error_code,
        high_watermark: data.high_watermark,
        log_start: data.log_start_offset,
        bytes: data.records.bytes().map_or(0, <[u8]>::len),
        diverging: (data.diverging_epoch.epoch, data.diverging_epoch.end_offset),
    })
}

/// A proposed in-sync set: its event, and the members with their broker epochs.
#[derive(Debug)]
pub struct ReceivedProposal {
    pub event: Event,
    pub members: Vec<(i64, i64)>,
}

/// The proposals that wait for the policy. Each is of one partition.
pub fn proposals(fixture: &TestBroker) -> Vec<ReceivedProposal> {
    let events = fixture.events().into_iter().filter(|event| event.api == "AlterPartition");
    let proposed = events.map(|event| {
        let partition = first(first(&event.request, "topics"), "partitions");
        let members = list(partition, "new_isr_with_epochs").iter().map(|member| {
            let int = |name| match member.field(name) {
                Some(Value::Int(int)) => *int,
                other => panic!("{other:?}"),
            };
            (int("broker_id"), int("broker_epoch"))
        });
        let members = members.collect();
        ReceivedProposal { event, members }
    });
    proposed.collect()
}

/// The one proposal that waits.
pub fn proposal(fixture: &TestBroker) -> ReceivedProposal {
    let mut all = proposals(fixture);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

impl ReceivedProposal {
    /// The ids of its members.
    pub fn ids(&self) -> Vec<i64> {
        self.members.iter().map(|member| member.0).collect()
    }

    /// The controller accepts it with this partition epoch.
    pub fn commit(&self, fixture: &TestBroker, partition_epoch: i64) {
        let isr = self.ids().into_iter().map(Value::Int).collect();
        self.answer(
            fixture,
            map(vec![
                ("partition_index", Value::Int(0)),
                ("error_code", Value::Int(0)),
                ("leader_id", Value::Int(0)),
                ("leader_epoch", Value::Int(EPOCH.into())),
                ("isr", Value::List(isr)),
                ("partition_epoch", Value::Int(partition_epoch)),
            ]),
        );
    }

    /// The controller refuses it.
    pub fn refuse(&self, fixture: &TestBroker, error: i64) {
        let result = vec![("partition_index", Value::Int(0)), ("error_code", Value::Int(error))];
        self.answer(fixture, map(result));
    }

    /// It is unknown whether the controller received it.
    pub fn lose(&self, fixture: &TestBroker) {
        let answer = map(vec![("error_code", Value::Int(7)), ("topics", Value::List(vec![]))]);
        fixture.broker.answer(self.event.ticket, &answer).unwrap();
    }

    fn answer(&self, fixture: &TestBroker, partition: Value) {
        let topic = map(vec![
            ("topic_id", Value::Str(TopicId([1; 16]).to_string())),
            ("partitions", Value::List(vec![partition])),
        ]);
        let answer = map(vec![("error_code", Value::Int(0)), ("topics", Value::List(vec![topic]))]);
        fixture.broker.answer(self.event.ticket, &answer).unwrap();
    }
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    match value.field(name) {
        Some(Value::List(list)) => list,
        other => panic!("{name} is {other:?}"),
    }
}

fn first<'v>(value: &'v Value, name: &str) -> &'v Value {
    &list(value, name)[0]
}
