//! Consumers with a rack, and brokers with a rack.

use krust::broker::MetadataDelta;
use krust::broker::image::{BrokerImage, Endpoint};
use krust::ids::TopicId;
use krust::protocol::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic,
};
use krust::wire::Reader;

use crate::double::{Conn, Frame, TestBroker, frame};
use crate::records::TOPIC;
use crate::replicas::EPOCH;

/// A consumer's Fetch of partition 0.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerFetch {
    pub version: i16,
    pub rack: &'static str,
    pub offset: i64,
    pub leader_epoch: i32,
    pub max_wait_ms: i32,
    pub read_committed: bool,
    pub session: (i32, i32),
    /// What it says of the partition; else its session does.
    pub names: bool,
    pub forgets: bool,
}

impl ConsumerFetch {
    /// The first Fetch of a consumer without a rack.
    pub const FIRST: Self = Self {
        version: 17,
        rack: "",
        offset: 0,
        leader_epoch: EPOCH,
        max_wait_ms: 0,
        read_committed: false,
        session: (0, -1),
        names: true,
        forgets: false,
    };
}

/// The answer of the partition; `None` if it is not in the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRead {
    pub error: i16,
    pub preferred: i32,
    pub high_watermark: i64,
    pub bytes: Vec<u8>,
    pub aborted: Option<Vec<(i64, i64)>>,
}

impl ConsumerFetch {
    pub fn frame(&self) -> Frame {
        let partition = FetchPartition {
            partition: 0,
            current_leader_epoch: self.leader_epoch,
            fetch_offset: self.offset,
            last_fetched_epoch: -1,
            partition_max_bytes: 1 << 20,
            ..Default::default()
        };
        let topic_id = TopicId([1; 16]);
        let topic = FetchTopic { topic: TOPIC, topic_id, partitions: vec![partition] };
        let forgotten = ForgottenTopic { topic: TOPIC, topic_id, partitions: vec![0] };
        let request = FetchRequest {
            max_wait_ms: self.max_wait_ms,
            min_bytes: 1,
            max_bytes: 1 << 20,
            isolation_level: i8::from(self.read_committed),
            session_id: self.session.0,
            session_epoch: self.session.1,
            topics: if self.names { vec![topic] } else { Vec::new() },
            forgotten_topics_data: if self.forgets { vec![forgotten] } else { Vec::new() },
            rack_id: self.rack,
            ..Default::default()
        };
        frame(1, self.version, |writer, version| request.encode(writer, version))
    }

    /// Sends it; the answer, which must be there at once.
    pub fn ask(&self, fixture: &mut TestBroker, conn: &mut Conn) -> PartitionRead {
        let request = self.frame();
        let reply = fixture.ask(conn, &request);
        self.read(&reply).1.unwrap()
    }

    /// Begins to wait for the answer.
    pub fn begin(&self, fixture: &mut TestBroker, conn: &mut Conn) {
        fixture.event(conn, std::slice::from_ref(&self.frame().bytes));
        assert!(conn.is_waiting());
    }

    /// The answer, after one turn of the network thread.
    pub fn end(&self, fixture: &mut TestBroker, conn: &mut Conn) -> PartitionRead {
        fixture.turn(&mut [conn]);
        let reply = conn.reply(&self.frame());
        self.read(&reply).1.unwrap()
    }

    /// The session, and the answer of the partition.
    pub fn read(&self, reply: &[u8]) -> (i32, Option<PartitionRead>) {
        let response = FetchResponse::decode(&mut Reader::new(reply), self.version).unwrap();
        assert_eq!(response.error_code, 0);
        let data = response.responses.first().and_then(|topic| topic.partitions.first());
        let read = data.map(|data| PartitionRead {
            error: data.error_code,
            preferred: data.preferred_read_replica,
            high_watermark: data.high_watermark,
            bytes: data.records.bytes().unwrap_or_default().to_vec(),
            aborted: data.aborted_transactions.as_ref().map(|aborted| {
                aborted.iter().map(|one| (one.producer_id, one.first_offset)).collect()
            }),
        });
        (response.session_id, read)
    }
}

/// Brokers with these racks are alive; clients reach them all.
pub fn racks(fixture: &mut TestBroker, racks: &[(i32, &str)]) {
    let broker = |&(id, rack): &(i32, &str)| BrokerImage {
        id,
        rack: (!rack.is_empty()).then(|| rack.into()),
        endpoints: vec![Endpoint { listener: "PLAINTEXT".into(), host: "far".into(), port: 9092 }],
    };
    let brokers = Some(racks.iter().map(broker).collect());
    fixture.apply(MetadataDelta { brokers, ..MetadataDelta::default() });
}
