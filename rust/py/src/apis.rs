//! The API table for Python: the APIs that this broker serves, who may send them, and which thread
//! handles them.

use pyo3::prelude::*;

use krust::broker::apis::{HandlerKind, Requester, served};

/// A row: key, name, oldest and newest version, who may send it, where it is handled.
type ServedApiRow = (i16, &'static str, i16, i16, &'static str, &'static str);

#[pyfunction]
pub(super) fn served_apis() -> Vec<ServedApiRow> {
    let row = |api: &krust::broker::apis::Api| {
        let requester = match api.requester {
            Requester::Client => "client",
            Requester::Broker => "broker",
            Requester::Controller => "controller",
            Requester::Administrator => "administrator",
        };
        let run = match api.run {
            HandlerKind::Staged | HandlerKind::Network => "network",
            HandlerKind::Policy => "policy",
        };
        (api.key, api.name, api.first, api.last, requester, run)
    };
    served().iter().map(row).collect()
}
