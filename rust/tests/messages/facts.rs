//! The schema against `tests/data/facts`, read off Apache Kafka: every field of every version by
//! name, type, order, nullability and tag; version ranges; error codes. What has a tag from 10000
//! on is krust's own, and Kafka's clients pass it over.

use super::sample;
use super::schema::{Field, Kind, Struct, is_flexible};
use krust::protocol::{APIS, ErrorCode};
use serde_json::{Map, Value as Json, json};
use std::fs;
use std::path::Path;

const KRUSTS_OWN: u32 = 10_000;

fn read(name: &str) -> String {
    let facts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/facts");
    fs::read_to_string(facts.join(name)).unwrap()
}

/// A struct at a version in the form of `layouts.json`.
fn layout(from: Option<i16>, one: &Struct, version: i16) -> Json {
    let flexible = is_flexible(from, version);
    let fields: Vec<_> = one.fields.iter().filter(|f| f.versions.contains(version)).collect();
    let plain = fields.iter().filter(|field| field.tag.is_none());
    let mut rows: Vec<Json> =
        plain.map(|field| json!([field.name, field_type(from, field, version)])).collect();
    if flexible {
        let mut tags = Map::new();
        for field in &fields {
            if let Some(tag) = field.tag.filter(|tag| *tag < KRUSTS_OWN) {
                tags.insert(format!("{tag} {}", field.name), field_type(from, field, version));
            }
        }
        rows.push(json!(["_tagged_fields", { "tags": tags }]));
    }
    Json::Array(rows)
}

fn field_type(from: Option<i16>, field: &Field, version: i16) -> Json {
    let compact = if is_flexible(from, version) { "compact_" } else { "" };
    let nullable = if field.nullable_in(version) { "nullable_" } else { "" };
    let element = |nullable: &str| match &field.kind {
        Kind::Struct(inner) => layout(from, inner, version),
        Kind::Bool => json!("boolean"),
        Kind::String | Kind::Bytes | Kind::Records => {
            json!(format!("{compact}{nullable}{}", field.kind.word()))
        }
        kind => json!(kind.word()),
    };
    if field.array {
        json!({ format!("{nullable}{compact}array"): element("") })
    } else {
        element(nullable)
    }
}

#[test]
fn every_message_has_kafkas_layout() {
    let facts: Json = serde_json::from_str(&read("layouts.json")).unwrap();
    let facts = facts.as_array().unwrap();
    let mut compared = 0;
    for api in sample::apis() {
        let fact = facts.iter().find(|fact| fact["key"] == api.key).unwrap();
        assert_eq!(fact["name"], api.name);
        for version in api.versions.first..=api.versions.last {
            for (word, message) in [("request", &api.request), ("response", &api.response)] {
                let expected = &fact[word][version.to_string()];
                let found = layout(api.flexible, message, version);
                assert_eq!(&found, expected, "{} v{version}", message.name);
                compared += 1;
            }
        }
    }
    assert!(compared > 300, "{compared} layouts");
}

#[test]
fn every_record_schema_equals_kafkas() {
    let facts: Json = serde_json::from_str(&read("record_layouts.json")).unwrap();
    let facts = facts.as_array().unwrap();
    let records = sample::records();
    assert_eq!(records.len(), facts.len());
    for record in &records {
        let root = &record.root;
        let fact = facts.iter().find(|fact| fact["name"] == root.name).unwrap();
        let versions = fact["versions"].as_object().unwrap();
        let all = root.versions.first..=root.versions.last;
        assert_eq!(versions.len(), all.clone().count(), "{}", root.name);
        for version in all {
            let found = layout(record.flexible, root, version);
            assert_eq!(&found, &versions[&version.to_string()], "{} v{version}", root.name);
        }
    }
}

#[test]
fn schemas_cover_every_version_that_kafka_had() {
    let table = read("api_versions.tsv");
    for api in APIS {
        let row = table.lines().find(|row| row.split('\t').next() == Some(&api.key.to_string()));
        let row: Vec<_> = row.unwrap().split('\t').collect();
        let flexible = if api.flexible == i16::MAX { "-1" } else { &api.flexible.to_string() };
        let flexible = if ["", "-"].contains(&row[5]) { row[5] } else { flexible };
        let found = [api.name, &api.first.to_string(), &api.last.to_string(), flexible];
        assert_eq!(found, [row[1], row[2], row[3], row[5]]);
    }
}

#[test]
fn error_codes_equal_kafkas() {
    let table = read("error_codes.tsv");
    let rows: Vec<Vec<_>> = table.lines().skip(1).map(|row| row.split('\t').collect()).collect();
    assert_eq!(rows.len(), ErrorCode::ALL.len());
    for (row, error) in rows.iter().zip(ErrorCode::ALL) {
        // The list has the name this error bore before Kafka 2.6.
        let name = if row[0] == "6" { "NOT_LEADER_OR_FOLLOWER" } else { row[1] };
        let retriable = error.is_retriable().to_string();
        let found = [error.code().to_string(), error.name().to_owned(), retriable];
        assert_eq!(found, [row[0], name, row[2]]);
        assert_eq!(ErrorCode::from(error.code()), *error);
    }
    assert_eq!(ErrorCode::from(9999), ErrorCode::UnknownServerError);
}
