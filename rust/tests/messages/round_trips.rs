//! Random messages of every API and version there and back: value, bytes, value; against the second
//! encoder of `sample`, with unknown tagged fields, with defaults.

use super::sample::{self, Frame, Random};
use super::schema::{Api, Struct, is_flexible};
use krust::protocol::value::Value;
use krust::protocol::{AnyCodec, Direction, RecordsField, api, decode_any, encode_any};
use krust::wire::{Reader, Writer};

/// Calls `check` with every message at every version.
fn every(mut check: impl FnMut(&Api, &Struct, (i16, &AnyCodec))) {
    for one in sample::apis() {
        let schema = api(one.key).unwrap();
        for version in one.versions.first..=one.versions.last {
            check(&one, &one.request, (version, &schema.request));
            check(&one, &one.response, (version, &schema.response));
        }
    }
}

#[test]
fn messages_have_the_bytes_of_a_second_encoder() {
    let mut random = Random::seeded(1);
    every(|api, message, (version, codec)| {
        for _ in 0..20 {
            let value = random.message(message, version);
            let expected = Frame::of(api, message, (version, &value)).bytes;
            let mut writer = Writer::new();
            (codec.encode)(&value, version, &mut writer).unwrap();
            assert_eq!(writer.buf, expected, "{} v{version} {value:?}", message.name);
            assert_eq!((codec.decode)(&expected, version).as_ref(), Ok(&value));
            assert_eq!((codec.size)(&value, version), Ok(expected.len()));
            assert_eq!((codec.skip)(&expected, version), Ok(expected.len()));
        }
    });
}

#[test]
fn unknown_tagged_fields_are_skipped_and_not_kept() {
    let mut random = Random::seeded(2);
    every(|api, message, (version, codec)| {
        let value = random.message(message, version);
        let mut frame = Frame { unknown_tags: true, ..Frame::default() };
        frame.message(message, version, (is_flexible(api.flexible, version), &value));
        assert_eq!((codec.decode)(&frame.bytes, version).as_ref(), Ok(&value));
        assert_eq!((codec.skip)(&frame.bytes, version), Ok(frame.bytes.len()));
    });
}

#[test]
fn an_empty_tree_encodes_a_message_of_defaults() {
    every(|api, message, (version, codec)| {
        let fields = message.fields.iter().filter(|field| field.versions.contains(version));
        let spelled = fields.map(|field| {
            let value = match sample::default(field, version) {
                Value::Null if !field.nullable_in(version) => empty(field.array),
                value => value,
            };
            (field.name.clone().into(), value)
        });
        let spelled = Value::Map(spelled.collect());
        let mut writer = Writer::new();
        (codec.encode)(&Value::Map(Vec::new()), version, &mut writer).unwrap();
        let expected = Frame::of(api, message, (version, &spelled)).bytes;
        assert_eq!(writer.buf, expected, "{} v{version}", message.name);
    });
}

/// What is written for null where the version knows none.
fn empty(array: bool) -> Value {
    if array { Value::List(Vec::new()) } else { Value::Str(String::new()) }
}

#[test]
fn skipped_records_leave_only_their_length_and_position() {
    use krust::protocol::fetch::{FetchResponse, FetchableTopicResponse, PartitionData};
    for version in 0..=18 {
        let partition = |records| PartitionData { records, ..PartitionData::default() };
        let response = |records: [RecordsField<'static>; 2]| FetchResponse {
            responses: vec![FetchableTopicResponse {
                partitions: records.map(partition).into(),
                ..FetchableTopicResponse::default()
            }],
            ..FetchResponse::default()
        };
        let whole = response([RecordsField::Bytes(&[7; 300]), RecordsField::Bytes(&[8; 5])]);
        let holed = response([RecordsField::Hole(300), RecordsField::Hole(5)]);
        let (mut full, mut split) = (Writer::new(), Writer::new());
        whole.encode(&mut full, version);
        holed.encode(&mut split, version);
        assert_eq!(holed.size(version), full.buf.len());
        let mut joined = split.buf.clone();
        joined.splice(split.holes[1]..split.holes[1], [8; 5]);
        joined.splice(split.holes[0]..split.holes[0], [7; 300]);
        assert_eq!(joined, full.buf);
        let back = FetchResponse::decode(&mut Reader::new(&joined), version).unwrap();
        assert_eq!(back.responses[0].partitions[1].records, RecordsField::Bytes(&[8; 5]));
    }
}

#[test]
fn versions_outside_the_schema_are_refused() {
    for (key, version) in [(0, 14), (0, -1), (3, 99), (999, 0)] {
        assert!(decode_any(key, version, Direction::Request, &[]).is_err());
        let empty = Value::Map(Vec::new());
        assert!(encode_any(key, version, Direction::Response, &empty).is_err());
    }
}

#[test]
fn a_misspelled_field_is_an_error_with_its_path() {
    let topic = Value::Map(vec![("nmae".into(), Value::Str("t".into()))]);
    let value = Value::Map(vec![("topics".into(), Value::List(vec![topic]))]);
    let error = encode_any(19, 7, Direction::Request, &value).unwrap_err();
    assert_eq!(error.to_string(), "topics.0.nmae: no such field");
}
