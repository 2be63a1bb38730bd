//! Against the `kafka-protocol` crate, generated from Kafka 4.1's own message definitions: what
//! krust writes it reads and writes back, byte for byte, in every version that both know.

use super::sample::{self, Random};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message};
use krust::protocol::{AnyCodec, api};
use krust::wire::Writer;

/// Their decoder and encoder in one: from bytes to bytes.
type CodecRoundTrip = fn(Bytes, i16) -> Result<BytesMut, String>;

fn there_and_back<M: Decodable + Encodable>(
    mut bytes: Bytes,
    version: i16,
) -> Result<BytesMut, String> {
    let message = M::decode(&mut bytes, version).map_err(|error| format!("decode: {error:#}"))?;
    if !bytes.is_empty() {
        return Err(format!("{} bytes left", bytes.len()));
    }
    let mut back = BytesMut::new();
    message.encode(&mut back, version).map_err(|error| format!("encode: {error:#}"))?;
    Ok(back)
}

macro_rules! foreign {
    ($($api:ident $request:ident $response:ident),* $(,)?) => {
        /// Name, codec and versions of every message they know.
        const THEIRS: &[(&str, [CodecRoundTrip; 2], [(i16, i16); 2])] = &[$((
            stringify!($api),
            [there_and_back::<theirs::$request>, there_and_back::<theirs::$response>],
            [
                (theirs::$request::VERSIONS.min, theirs::$request::VERSIONS.max),
                (theirs::$response::VERSIONS.min, theirs::$response::VERSIONS.max),
            ],
        )),*];
    };
}

foreign! {
    Produce ProduceRequest ProduceResponse,
    Fetch FetchRequest FetchResponse,
    ListOffsets ListOffsetsRequest ListOffsetsResponse,
    Metadata MetadataRequest MetadataResponse,
    AlterPartition AlterPartitionRequest AlterPartitionResponse,
    AllocateProducerIds AllocateProducerIdsRequest AllocateProducerIdsResponse,
    OffsetCommit OffsetCommitRequest OffsetCommitResponse,
    OffsetFetch OffsetFetchRequest OffsetFetchResponse,
    FindCoordinator FindCoordinatorRequest FindCoordinatorResponse,
    JoinGroup JoinGroupRequest JoinGroupResponse,
    Heartbeat HeartbeatRequest HeartbeatResponse,
    LeaveGroup LeaveGroupRequest LeaveGroupResponse,
    SyncGroup SyncGroupRequest SyncGroupResponse,
    DescribeGroups DescribeGroupsRequest DescribeGroupsResponse,
    ListGroups ListGroupsRequest ListGroupsResponse,
    SaslHandshake SaslHandshakeRequest SaslHandshakeResponse,
    SaslAuthenticate SaslAuthenticateRequest SaslAuthenticateResponse,
    ApiVersions ApiVersionsRequest ApiVersionsResponse,
    CreateTopics CreateTopicsRequest CreateTopicsResponse,
    DeleteTopics DeleteTopicsRequest DeleteTopicsResponse,
    DeleteRecords DeleteRecordsRequest DeleteRecordsResponse,
    OffsetDelete OffsetDeleteRequest OffsetDeleteResponse,
    InitProducerId InitProducerIdRequest InitProducerIdResponse,
    AddPartitionsToTxn AddPartitionsToTxnRequest AddPartitionsToTxnResponse,
    AddOffsetsToTxn AddOffsetsToTxnRequest AddOffsetsToTxnResponse,
    EndTxn EndTxnRequest EndTxnResponse,
    WriteTxnMarkers WriteTxnMarkersRequest WriteTxnMarkersResponse,
    TxnOffsetCommit TxnOffsetCommitRequest TxnOffsetCommitResponse,
    DescribeTransactions DescribeTransactionsRequest DescribeTransactionsResponse,
    ListTransactions ListTransactionsRequest ListTransactionsResponse,
    OffsetForLeaderEpoch OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse,
    DescribeAcls DescribeAclsRequest DescribeAclsResponse,
    CreateAcls CreateAclsRequest CreateAclsResponse,
    DeleteAcls DeleteAclsRequest DeleteAclsResponse,
    DescribeConfigs DescribeConfigsRequest DescribeConfigsResponse,
    AlterConfigs AlterConfigsRequest AlterConfigsResponse,
    AlterReplicaLogDirs AlterReplicaLogDirsRequest AlterReplicaLogDirsResponse,
    DescribeLogDirs DescribeLogDirsRequest DescribeLogDirsResponse,
    CreatePartitions CreatePartitionsRequest CreatePartitionsResponse,
    CreateDelegationToken CreateDelegationTokenRequest CreateDelegationTokenResponse,
    RenewDelegationToken RenewDelegationTokenRequest RenewDelegationTokenResponse,
    ExpireDelegationToken ExpireDelegationTokenRequest ExpireDelegationTokenResponse,
    DescribeDelegationToken DescribeDelegationTokenRequest DescribeDelegationTokenResponse,
    DeleteGroups DeleteGroupsRequest DeleteGroupsResponse,
    ElectLeaders ElectLeadersRequest ElectLeadersResponse,
    IncrementalAlterConfigs IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse,
    AlterPartitionReassignments AlterPartitionReassignmentsRequest
        AlterPartitionReassignmentsResponse,
    ListPartitionReassignments ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse,
    DescribeClientQuotas DescribeClientQuotasRequest DescribeClientQuotasResponse,
    AlterClientQuotas AlterClientQuotasRequest AlterClientQuotasResponse,
    DescribeUserScramCredentials DescribeUserScramCredentialsRequest
        DescribeUserScramCredentialsResponse,
    AlterUserScramCredentials AlterUserScramCredentialsRequest
        AlterUserScramCredentialsResponse,
    UpdateFeatures UpdateFeaturesRequest UpdateFeaturesResponse,
    DescribeCluster DescribeClusterRequest DescribeClusterResponse,
    DescribeProducers DescribeProducersRequest DescribeProducersResponse,
    ConsumerGroupHeartbeat ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse,
    ConsumerGroupDescribe ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse,
    ListConfigResources ListConfigResourcesRequest ListConfigResourcesResponse,
    DescribeTopicPartitions DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse,
}

/// Kafka 4 has no ZooKeeper and dropped these, and they with it.
const DROPPED: [i16; 4] = [4, 5, 6, 7];

#[test]
fn another_codec_reads_what_krust_writes_and_writes_the_same() {
    let mut random = Random::seeded(3);
    let mut compared = 0;
    for one in sample::apis().into_iter().filter(|one| !DROPPED.contains(&one.key)) {
        let schema = api(one.key).unwrap();
        let known = THEIRS.iter().find(|(name, ..)| *name == one.name);
        let (_, codecs, versions) = known.unwrap();
        let ours: [(_, &AnyCodec); 2] =
            [(&one.request, &schema.request), (&one.response, &schema.response)];
        for ((theirs, range), (message, codec)) in codecs.iter().zip(versions).zip(ours) {
            for version in range.0.max(schema.first)..=range.1.min(schema.last) {
                for _ in 0..10 {
                    let value = random.message(message, version);
                    let mut writer = Writer::new();
                    (codec.encode)(&value, version, &mut writer).unwrap();
                    let back = theirs(Bytes::copy_from_slice(&writer.buf), version);
                    let back = back.unwrap_or_else(|error| {
                        panic!("{} v{version}: {error} {value:?}", message.name)
                    });
                    assert_eq!(back, writer.buf, "{} v{version} {value:?}", message.name);
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 2000, "{compared} messages");
}
