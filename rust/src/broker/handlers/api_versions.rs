//! ApiVersions (18), v0-4: lists the APIs and versions that this broker serves, from the API table.
//! Behaviour: a request in an unknown version is answered in the layout of v0 with
//!     UNSUPPORTED_VERSION (35) and one entry, the range of key 18. The client then asks again.
//!     APIs between brokers are listed on the brokers' own listener only.
//! Version notes: the response header is v0 in every version. v1 adds the throttle time. v3 adds
//!     the client's name and version; names that break Kafka's pattern are refused with
//!     INVALID_REQUEST (42). Tagged fields with default values are not written, because old
//!     versions of librdkafka misread them.
//!     v3 adds the features: `transaction.version` alone (KIP-890). v4 says that its lowest level
//!     is 0; v3 says 1, because Java clients before 3.9 refuse an answer with 0 (KAFKA-17011).

use crate::broker::requests::apis;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::broker::state::transactions::TransactionSettings;
use crate::protocol::ErrorCode;
use crate::protocol::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let api = call.request.head.api;
    if !api.serves(call.version()) {
        let response = ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            api_keys: vec![entry(api)],
            ..Default::default()
        };
        call.reply(|writer, _| response.encode(writer, 0));
        return Ok(Flow::Go);
    }
    let request = ApiVersionsRequest::decode(&mut call.reader(), call.version())?;
    let throttle_time_ms = call.request.head.throttle_time_ms;
    let named = call.version() < 3
        || is_name(request.client_software_name) && is_name(request.client_software_version);
    let response = if named {
        ApiVersionsResponse {
            api_keys: apis::served().iter().filter(|api| call.may_ask(api)).map(entry).collect(),
            throttle_time_ms,
            ..features(&call.broker.settings.load().transactions, call.version())
        }
    } else {
        let error_code = ErrorCode::InvalidRequest.code();
        ApiVersionsResponse { error_code, throttle_time_ms, ..Default::default() }
    };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}

/// The features that this broker supports, and those that are finalized in its cluster.
fn features(settings: &TransactionSettings, version: i16) -> ApiVersionsResponse<'static> {
    let (name, level) = ("transaction.version", settings.version);
    if settings.features_epoch < 0 {
        return ApiVersionsResponse::default();
    }
    let finalized =
        FinalizedFeatureKey { name, max_version_level: level, min_version_level: level };
    let min_version = i16::from(version < 4);
    ApiVersionsResponse {
        supported_features: vec![SupportedFeatureKey { name, min_version, max_version: 2 }],
        finalized_features_epoch: settings.features_epoch,
        finalized_features: if level > 0 { vec![finalized] } else { Vec::new() },
        ..Default::default()
    }
}

fn entry(api: &apis::Api) -> ApiVersion {
    ApiVersion { api_key: api.key, min_version: api.first, max_version: api.last }
}

/// Kafka's `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?`.
fn is_name(name: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inner)
}
