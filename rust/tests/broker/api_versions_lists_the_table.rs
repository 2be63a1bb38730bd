//! ApiVersions lists exactly the APIs that are served.

use krust::broker::{Flow, apis};
use krust::protocol::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use krust::wire::Reader;

use crate::double::{TestBroker, frame, raw};

#[test]
fn every_version_lists_the_table() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    for version in 0..=4 {
        let request =
            ApiVersionsRequest { client_software_name: "krust", client_software_version: "1.0" };
        let request = frame(18, version, |writer, version| request.encode(writer, version));
        let reply = fixture.ask(&mut conn, &request);
        let response = ApiVersionsResponse::decode(&mut Reader::new(&reply), version).unwrap();
        let listed: Vec<(i16, i16, i16)> = response
            .api_keys
            .iter()
            .map(|api| (api.api_key, api.min_version, api.max_version))
            .collect();
        let table: Vec<(i16, i16, i16)> = apis::served()
            .iter()
            .filter(|api| !api.is_between_brokers())
            .map(|api| (api.key, api.first, api.last))
            .collect();
        assert_eq!((response.error_code, listed), (0, table));
    }
}

#[test]
fn an_unknown_version_is_answered_in_the_oldest_layout() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let reply = fixture.ask(&mut conn, &raw(18, 77, &[]));
    assert_eq!(reply, [0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4]);
    assert_eq!(conn.flow, Flow::Go);
}

#[test]
fn an_api_that_is_not_listed_closes_the_connection() {
    for (key, version) in [(999, 0), (4, 0), (0, 14), (-1, 0)] {
        let mut fixture = TestBroker::new();
        let mut conn = fixture.connect();
        let mut bytes = Vec::new();
        for number in [key, version] {
            bytes.extend(i16::to_be_bytes(number));
        }
        bytes.extend([0, 0, 0, 1, 255, 255]);
        fixture.event(&mut conn, &[bytes]);
        assert_eq!((conn.flow, conn.sent.len()), (Flow::Close, 0));
    }
}
