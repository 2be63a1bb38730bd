//! The API table for Python: what this broker serves, to whom, and where it runs.

use pyo3::prelude::*;

use crate::broker::apis::{Asker, Run, served};

/// A row: key, name, oldest and newest version, who may send it, where it is handled.
type Row = (i16, &'static str, i16, i16, &'static str, &'static str);

#[pyfunction]
pub(super) fn served_apis() -> Vec<Row> {
    let row = |api: &crate::broker::apis::Api| {
        let asker = match api.asker {
            Asker::Client => "client",
            Asker::Broker => "broker",
            Asker::Controller => "controller",
        };
        let run = match api.run {
            Run::Staged | Run::Network => "network",
            Run::Policy => "policy",
        };
        (api.key, api.name, api.first, api.last, asker, run)
    };
    served().iter().map(row).collect()
}
