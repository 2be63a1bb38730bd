//! DescribeAcls (29), v0-3: there is no authorizer, so there are no ACLs.
//! Behaviour: SECURITY_DISABLED (54) with Kafka's message. Tools then show that there is no
//!     authorizer.
//! Version notes: v1 adds the pattern type, v2 is flexible, v3 adds user resources.
//! Not done: ACLs.

use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::protocol::ErrorCode;
use crate::protocol::describe_acls::{DescribeAclsRequest, DescribeAclsResponse};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    DescribeAclsRequest::decode(&mut call.reader(), call.version())?;
    let response = DescribeAclsResponse {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some("No Authorizer is configured on the broker"),
        ..Default::default()
    };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}
