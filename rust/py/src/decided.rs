//! Converts the policy's decisions on groups from Python's tuples and dicts to the core's types.
//!
//! A wrong object is a TypeError or ValueError that names its path:
//! `snapshots.0.members.m-1.session_timeout_ms: ...`. Then the whole call has no effect.
//! Threads: attached.

use std::fmt::Display;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use super::convert::from_python;
use super::settings::SettingsTable;
use krust::broker::{
    GroupKind, GroupOutcome, GroupRecord, GroupSnapshot, GroupState, MemberRole, MemberSnapshot,
    Ticket,
};

/// The record that means: write tombstones for all offsets that a group committed.
const DROP_OFFSETS: &str = "drop_offsets";

/// Reads all three lists.
pub(super) fn read(
    records: &Bound<'_, PyAny>,
    snapshots: &Bound<'_, PyAny>,
    replies: &Bound<'_, PyAny>,
) -> PyResult<GroupOutcome> {
    let replies = each("replies", replies, |item| {
        let (ticket, response, groups): (u64, Bound<'_, PyAny>, Vec<String>) = item.extract()?;
        Ok((Ticket(ticket), from_python(&response)?, groups))
    })?;
    let records = each("records", records, |item| {
        let (group_id, value): (String, Bound<'_, PyAny>) = item.extract()?;
        let records = match value.cast::<PyList>() {
            Ok(list) => items(list, of_consumers)?,
            Err(_) => vec![record(&value)?],
        };
        Ok(records.into_iter().map(|record| (group_id.clone(), record)).collect::<Vec<_>>())
    })?;
    let records = records.into_iter().flatten().collect();
    Ok(GroupOutcome { records, snapshots: each("snapshots", snapshots, row)?, replies })
}

fn record(value: &Bound<'_, PyAny>) -> PyResult<GroupRecord> {
    if value.is_none() {
        return Ok(GroupRecord::Metadata(None));
    }
    if let Ok(word) = value.cast::<PyString>() {
        return match word.to_cow()?.as_ref() {
            DROP_OFFSETS => Ok(GroupRecord::DropOffsets),
            other => Err(PyValueError::new_err(format!("{other:?}: only {DROP_OFFSETS:?}"))),
        };
    }
    let value = value.cast::<PyDict>()?;
    Ok(GroupRecord::Metadata(Some(from_python(value)?)))
}

fn of_consumers(item: &Bound<'_, PyAny>) -> PyResult<GroupRecord> {
    let (kind, key, value): (i16, Bound<'_, PyDict>, Option<Bound<'_, PyDict>>) = item.extract()?;
    let value = value.map(|value| from_python(&value)).transpose()?;
    Ok(GroupRecord::Consumer { kind, key: from_python(&key)?, value })
}

fn row<'py>(item: &Bound<'py, PyAny>) -> PyResult<(String, Option<GroupSnapshot>)> {
    let (group_id, row): (String, Option<Bound<'py, PyDict>>) = item.extract()?;
    Ok((group_id, row.map(|row| snapshot(&SettingsTable(&row))).transpose()?))
}

fn snapshot(table: &SettingsTable<'_, '_>) -> PyResult<GroupSnapshot> {
    let state: String = table.must("state")?;
    let state = GroupState::of(&state)
        .ok_or_else(|| PyValueError::new_err(format!("state: there is no {state:?}")))?;
    let named: Option<String> = table.maybe("type")?;
    let kind = match named.as_deref() {
        None | Some("classic") => GroupKind::Classic,
        Some("consumer") => {
            GroupKind::Consumer { heartbeat_interval_ms: table.must("heartbeat_interval_ms")? }
        }
        Some(other) => {
            return Err(PyValueError::new_err(format!("type: there is no {other:?}")));
        }
    };
    let mut members = Vec::new();
    for (member_id, member) in table.table("members")? {
        let named = |error| under(error, format!("members.{member_id}"));
        let read = || read_member(kind, &member_id, &SettingsTable(member.cast::<PyDict>()?));
        members.push(read().map_err(named)?);
    }
    let (generation, protocol_type) = match kind {
        GroupKind::Classic => ("generation", String::new()),
        GroupKind::Consumer { .. } => ("epoch", "consumer".to_owned()),
    };
    Ok(GroupSnapshot {
        kind,
        state,
        generation: table.must(generation)?,
        protocol_type: table.or("protocol_type", protocol_type)?,
        since_ms: table.must("since_ms")?,
        subscribed: table.maybe("subscribed")?,
        members,
    })
}

fn read_member(
    kind: GroupKind,
    member_id: &Bound<'_, PyAny>,
    table: &SettingsTable<'_, '_>,
) -> PyResult<MemberSnapshot> {
    let role = match kind {
        GroupKind::Classic => MemberRole::Classic,
        GroupKind::Consumer { .. } if table.or("classic", false)? => {
            let rejoin = table.or("rejoin", false)?;
            MemberRole::ClassicMember { generation: table.must("epoch")?, rejoin }
        }
        GroupKind::Consumer { .. } => MemberRole::Consumer {
            epoch: table.must("epoch")?,
            has_current_assignment: table.must("has_current_assignment")?,
        },
    };
    Ok(MemberSnapshot {
        member_id: member_id.extract()?,
        instance_id: table.maybe("instance_id")?,
        session_timeout_ms: table.must("session_timeout_ms")?,
        timed: table.must("timed")?,
        connection: table.maybe("connection")?,
        role,
    })
}

/// Reads each item of the list `name`; an error names the item.
fn each<'py, T>(
    name: &str,
    list: &Bound<'py, PyAny>,
    read: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    items(list, read).map_err(|error| under(error, name))
}

/// Reads each item of a list without a name.
fn items<'py, T>(
    list: &Bound<'py, PyAny>,
    read: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let read_at = |(index, item): (usize, PyResult<Bound<'py, PyAny>>)| {
        item.and_then(|item| read(&item)).map_err(|error| under(error, index))
    };
    list.try_iter()?.enumerate().map(read_at).collect()
}

/// The same error, with the path in front.
fn under(error: PyErr, place: impl Display) -> PyErr {
    Python::attach(|py| {
        let text = error.value(py).to_string();
        let separator = if names_a_field(&text) { "." } else { ": " };
        let text = format!("{place}{separator}{text}");
        match error.is_instance_of::<PyValueError>(py) {
            true => PyValueError::new_err(text),
            false => PyTypeError::new_err(text),
        }
    })
}

/// Whether a message begins with the name of a field.
fn names_a_field(text: &str) -> bool {
    let (first, _) = text.split_once(':').unwrap_or_default();
    !first.is_empty() && !first.contains([' ', '\'', '"'])
}
