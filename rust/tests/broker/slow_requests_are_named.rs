//! Requests that keep a network thread for a second are named in the log; quicker ones are not.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use krust::protocol::api_versions::ApiVersionsRequest;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::double::{Frame, TestBroker, frame, of_client};

const SECOND_MS: i64 = 1_000;

/// Keeps the fields of each line.
#[derive(Clone, Default)]
struct CapturedLines(Arc<Mutex<Vec<String>>>);

struct LineFields(String);

impl Visit for LineFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for CapturedLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "krust::broker::handlers::dispatch"
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = LineFields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn request() -> Frame {
    let request = ApiVersionsRequest { client_software_name: "x", client_software_version: "1" };
    of_client(frame(18, 3, |writer, version| request.encode(writer, version)), "loader")
}

/// The lines about two requests, where `ms` pass between two looks at the clock.
fn lines(ms: i64) -> Vec<String> {
    let kept = CapturedLines::default();
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    fixture.clock.tick(ms);
    tracing::subscriber::with_default(kept.clone(), || {
        fixture.event(&mut conn, &[request().bytes, request().bytes]);
    });
    assert!(!conn.sent.is_empty());
    kept.0.lock().unwrap().clone()
}

#[test]
fn a_slow_request_is_logged_with_its_client_and_duration() {
    let [line] = &lines(SECOND_MS)[..] else { panic!("one line for both") };
    for part in ["first=\"ApiVersions\"", "requests=2", "client=\"loader\"", "requests took "] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn a_quick_request_is_not_logged() {
    assert_eq!(lines(1), [""; 0]);
}
