//! Checks the files of a whole log directory: `meta.properties`, the checkpoints and the
//! clean-shutdown marker, each against the partitions in the directory.
//!
//! Not promised: that every wrong checkpoint is found. After a kill, a recovery point or a high
//! watermark may have any value between a partition's start and end.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::super::checkpoints;
use super::super::dirs::CLEAN;
use super::super::epochs::Epochs;
use super::super::file_names::parse_name;
use super::super::meta::{META, wrong_in_meta};
use super::super::names::{self, DirKind};
use super::partition::{self, read_if_there};
use super::{FileProblem, dump};
use crate::ids::{Offset, TopicPartition};

/// The offsets of a partition, according to its segments.
struct OffsetExtent {
    bases: Vec<i64>,
    end: i64,
    /// The offset where the oldest leader epoch begins.
    first_epoch: Option<i64>,
}

/// Checks a log directory or a partition's directory. Returns the problems.
pub fn verify_directory(directory: &Path) -> io::Result<Vec<FileProblem>> {
    let mut problems = verify_files(directory)?;
    for found in names::list(directory)? {
        if found.kind == DirKind::Live {
            problems.extend(partition::verify(&found.path)?);
        }
    }
    Ok(problems)
}

/// Checks the files of a log directory that belong to no partition.
pub fn verify_files(root: &Path) -> io::Result<Vec<FileProblem>> {
    let mut problems = Vec::new();
    let clean = read_if_there(&root.join(CLEAN))?;
    let modern = names::list(root)?.iter().any(|found| found.topic_id.is_some());
    meta(root, modern, &mut problems)?;
    // Older brokers left the marker empty.
    if let Some(text) = clean.as_ref().filter(|text| !text.is_empty()) {
        marker(root, text, &mut problems);
    }
    let mut extents = BTreeMap::new();
    for found in names::list(root)? {
        if found.kind == DirKind::Live
            && let Some(extent) = extent(&found.path)?
        {
            extents.insert(found.name, extent);
        }
    }
    for file in checkpoints::FILES {
        checkpoint(root, file, clean.is_some(), &extents, &mut problems)?;
    }
    Ok(problems)
}

fn meta(root: &Path, modern: bool, problems: &mut Vec<FileProblem>) -> io::Result<()> {
    let path = root.join(META);
    let what = match read_if_there(&path)? {
        None if !modern => None,
        None => Some("is missing: nothing tells which cluster the directory belongs to".to_owned()),
        Some(bytes) => wrong_in_meta(&bytes),
    };
    let remedy = "write it as another log directory of the broker has it";
    problems.extend(what.map(|what| FileProblem { path, position: 0, what, remedy }));
    Ok(())
}

fn marker(root: &Path, bytes: &[u8], problems: &mut Vec<FileProblem>) {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let squeezed: String = text.split_whitespace().collect();
    let number = squeezed
        .strip_prefix("{\"version\":0,\"brokerEpoch\":")
        .and_then(|rest| rest.strip_suffix('}'));
    if number.is_none_or(|number| number.parse::<i64>().is_err()) {
        let (path, what) = (root.join(CLEAN), "is no marker of a shutdown in order".to_owned());
        let remedy = "delete it: the next start checks the logs";
        problems.push(FileProblem { path, position: 0, what, remedy });
    }
}

fn extent(partition: &Path) -> io::Result<Option<OffsetExtent>> {
    let mut bases: Vec<i64> = std::fs::read_dir(partition)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| parse_name(&name).filter(|(_, kind)| *kind == "log").map(|it| it.0))
        .collect();
    bases.sort_unstable();
    let Some(last) = bases.last().copied() else { return Ok(None) };
    let batches = dump(&partition.join(format!("{last:020}.log")))?;
    let end = batches.map_while(Result::ok).last().map_or(last, |batch| batch.last_offset + 1);
    let text = std::fs::read_to_string(partition.join("leader-epoch-checkpoint")).ok();
    let epochs = text.and_then(|text| Epochs::parse(&text));
    let first_epoch = epochs.and_then(|it| it.entries().first().map(|first| first.1.0));
    Ok(Some(OffsetExtent { bases, end, first_epoch }))
}

fn checkpoint(
    root: &Path,
    file: &'static str,
    clean: bool,
    extents: &BTreeMap<TopicPartition, OffsetExtent>,
    problems: &mut Vec<FileProblem>,
) -> io::Result<()> {
    let path = root.join(file);
    let mut complain = |position: usize, what: String, remedy: &'static str| {
        let position = position as u64;
        problems.push(FileProblem { path: path.clone(), position, what, remedy });
    };
    let everybody = [checkpoints::RECOVERY, checkpoints::HIGH_WATERMARK].contains(&file);
    let found = read_if_there(&path)?;
    if found.is_none() && clean && everybody && !extents.is_empty() {
        let what = "is missing: the next start checks all logs from their beginning".to_owned();
        complain(0, what, "none is needed: the broker writes it again");
    }
    // Without deletions there is no file of log starts; the leader epochs show whether there should
    // be one.
    let bytes = match found {
        None if file == checkpoints::LOG_START => b"0\n0\n".to_vec(),
        None => return Ok(()),
        Some(bytes) => bytes,
    };
    if bytes.is_empty() && file == checkpoints::CLEANED {
        return Ok(()); // Kafka leaves it empty before its first compaction
    }
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let Some(offsets) = checkpoints::parse(text) else {
        let what = "is no list of offsets: it counts as empty".to_owned();
        let remedy = match file {
            checkpoints::LOG_START => "delete it: records that were deleted may be seen again",
            _ => "delete it: the broker writes it again",
        };
        complain(0, what, remedy);
        return Ok(());
    };
    for (name, offset) in &offsets {
        let at = text.find(&format!("{} {} ", name.topic, name.partition)).unwrap_or(0);
        let what = match extents.get(name) {
            None if root.join(name.to_string()).is_dir() => None,
            None => Some(format!("{name} is at {offset} here, and no such partition is there")),
            Some(extent) => wrong_offset(file, clean, extent, *offset)
                .map(|what| format!("{name} is at {offset} here, {what}")),
        };
        if let Some(what) = what {
            complain(at, what, "correct the line, or delete it");
        }
    }
    for (name, extent) in extents.iter().filter(|(name, _)| !offsets.contains_key(*name)) {
        let first = extent.bases.first().copied().unwrap_or(0);
        let deleted = extent.first_epoch.filter(|start| *start > first);
        if let (checkpoints::LOG_START, Some(start)) = (file, deleted) {
            let what = format!("has no line of {name}, whose leader epochs begin at {start}");
            complain(0, what, "add the line, or records that were deleted are seen again");
        } else if clean && everybody {
            complain(0, format!("has no line of {name}"), "none is needed: the log is checked");
        }
    }
    Ok(())
}

/// Why a partition cannot be at `offset` in a checkpoint.
fn wrong_offset(
    file: &str,
    clean: bool,
    extent: &OffsetExtent,
    Offset(offset): Offset,
) -> Option<String> {
    let (first, end) = (extent.bases.first().copied().unwrap_or(0), extent.end);
    if offset > end {
        return Some(format!("beyond the end of its log, {end}"));
    }
    match file {
        checkpoints::RECOVERY if clean && offset != end => {
            Some(format!("and was shut down cleanly at the end of its log, {end}"))
        }
        checkpoints::LOG_START => {
            let known = extent.first_epoch.filter(|known| *known != offset)?;
            Some(format!("and its leader epochs begin at {known}"))
        }
        checkpoints::CLEANED if !extent.bases.contains(&offset) && offset != end => {
            Some("where no segment begins".to_owned())
        }
        _ if offset < first => Some(format!("below the start of its log, {first}")),
        _ => None,
    }
}
