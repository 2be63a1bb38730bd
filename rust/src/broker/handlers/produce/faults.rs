//! Builds the record errors of a refused batch (KIP-467), with Kafka's messages.
//!
//! Limits: a reply names at most [`LISTED`] records; the message counts all.

use std::borrow::Cow;
use std::fmt::Write;

use crate::protocol::ErrorCode;
use crate::record::faults::{RecordFault, RecordFaults};

/// The most bad records that one reply names.
pub(crate) const LISTED: usize = 10_000;
/// The most bad records that the message shows.
const SHOWN: usize = 3;

/// Why the records for a partition were refused.
#[derive(Debug)]
pub(crate) struct RecordErrors {
    pub(crate) message: Cow<'static, str>,
    /// Index of each bad record, and what is wrong with it.
    pub(crate) records: Vec<(i32, String)>,
}

impl RecordErrors {
    /// One reason, for a record or (-1) for the whole batch.
    pub(crate) fn one(index: i32, reason: &'static str) -> Self {
        let records = if index >= 0 { vec![(index, reason.to_owned())] } else { Vec::new() };
        Self { message: reason.into(), records }
    }

    /// All faults of the records for a partition, and their error code.
    pub(crate) fn all(faults: &RecordFaults, partition: (&str, i32)) -> (ErrorCode, Self) {
        let texts =
            faults.listed.iter().map(|(index, fault)| (*index, text((*index, fault), partition)));
        let records: Vec<_> = texts.collect();
        if faults.has_timestamps {
            let message = "One or more records have been rejected due to invalid timestamp";
            return (ErrorCode::InvalidTimestamp, Self { message: message.into(), records });
        }
        let mut message = format!(
            "One or more records have been rejected due to {} record errors in total, and only \
             showing the first three errors at most: [",
            faults.count
        );
        for (number, (index, text)) in records.iter().take(SHOWN).enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            let _ = write!(message, "{comma}RecordError(batchIndex={index}, message='{text}')");
        }
        message.push(']');
        (ErrorCode::InvalidRecord, Self { message: message.into(), records })
    }
}

fn text((index, fault): (i32, &RecordFault), (topic, partition): (&str, i32)) -> String {
    match fault {
        RecordFault::NoKey => format!(
            "Compacted topic cannot accept message without key in topic partition \
             {topic}-{partition}"
        ),
        RecordFault::Timestamp(timestamp, bounds) => format!(
            "Timestamp {timestamp} of message with offset {index} is out of range. The timestamp \
             should be within [{}, {}]",
            bounds.earliest(),
            bounds.latest()
        ),
    }
}
