//! DescribeCluster (60), v0-2: the cluster's id, its controller and its brokers.
//! Behaviour: answered from the cluster image. Brokers have the same addresses as in Metadata.
//! Version notes: v1 asks for brokers (1) or controllers (2). Controllers cannot be reached here:
//!     MISMATCHED_ENDPOINT_TYPE (114). Other types are UNSUPPORTED_ENDPOINT_TYPE (115). v2 may
//!     include fenced brokers; there are none.
//! Authorization: any client may ask.

use crate::broker::handlers::metadata::{advertised_brokers, operations};
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::protocol::ErrorCode;
use crate::protocol::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = DescribeClusterRequest::decode(&mut call.reader(), call.version())?;
    let (error, error_message) = match request.endpoint_type {
        _ if call.version() == 0 => (ErrorCode::None, None),
        BROKERS => (ErrorCode::None, None),
        CONTROLLERS => {
            (ErrorCode::MismatchedEndpointType, Some("this listener is one for brokers"))
        }
        _ => (ErrorCode::UnsupportedEndpointType, Some("unknown endpoint type")),
    };
    let image = call.image();
    let node = call.broker.settings.load().node_id;
    let advertised = match error {
        ErrorCode::None => advertised_brokers(&image, node, &call.connection.peer),
        _ => Vec::new(),
    };
    let brokers = advertised.iter().map(|broker| DescribeClusterBroker {
        broker_id: broker.node_id,
        host: &broker.host,
        port: broker.port,
        rack: broker.rack,
        is_fenced: false,
    });
    let response = DescribeClusterResponse {
        error_code: error.code(),
        error_message,
        endpoint_type: BROKERS,
        cluster_id: &image.cluster_id,
        controller_id: image.controller_id,
        brokers: brokers.collect(),
        cluster_authorized_operations: operations(
            request.include_cluster_authorized_operations,
            || call.access().cluster_operations(),
        ),
        ..Default::default()
    };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}
