//! ApiVersions lists exactly the APIs that are served.

use krust::broker::{Flow, Settings, TransactionSettings, apis};
use krust::protocol::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use krust::wire::Reader;

use crate::double::{Conn, TestBroker, frame, raw};

fn asked(fixture: &mut TestBroker, conn: &mut Conn, version: i16) -> Vec<u8> {
    let request =
        ApiVersionsRequest { client_software_name: "krust", client_software_version: "1.0" };
    let request = frame(18, version, |writer, version| request.encode(writer, version));
    fixture.ask(conn, &request)
}

#[test]
fn every_version_lists_the_table() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    for version in 0..=4 {
        let reply = asked(&mut fixture, &mut conn, version);
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
fn features_are_listed_from_version_3_with_the_levels_that_old_java_clients_accept() {
    let transactions = TransactionSettings { version: 2, features_epoch: 7, ..Default::default() };
    let mut fixture = TestBroker::with(Settings { transactions, ..Default::default() });
    let mut conn = fixture.connect();
    for (version, lowest) in [(2, None), (3, Some(1)), (4, Some(0))] {
        let reply = asked(&mut fixture, &mut conn, version);
        let response = ApiVersionsResponse::decode(&mut Reader::new(&reply), version).unwrap();
        let supported = response.supported_features.iter().map(|each| each.min_version);
        assert_eq!(supported.collect::<Vec<_>>(), Vec::from_iter(lowest));
        let finalized = response.finalized_features.iter();
        let levels: Vec<_> = finalized.map(|each| (each.name, each.max_version_level)).collect();
        let wanted = lowest.map(|_| ("transaction.version", 2));
        assert_eq!(levels, Vec::from_iter(wanted));
        assert_eq!(response.finalized_features_epoch, if lowest.is_some() { 7 } else { -1 });
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
