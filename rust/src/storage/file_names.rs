//! The names of a segment's files: 20 digits of the base offset, a dot, and the kind of the file.
//!
//! Threads: constants and pure functions.
//!     The names of partition directories are in `names`.

/// The kinds of files that belong to a segment.
pub(crate) const LOG: &str = "log";
pub(crate) const INDEX: &str = "index";
pub(crate) const TIME_INDEX: &str = "timeindex";
pub(crate) const TXN_INDEX: &str = "txnindex";
pub(crate) const SNAPSHOT: &str = "snapshot";
/// A `.log` file that has no name yet.
pub(crate) const LOG_TMP: &str = "log.tmp";

/// All of them, in the order in which they are removed: the log last, because an index without its
/// log is reported as a lost segment.
pub(crate) const LOG_LAST: [&str; 5] = [INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT, LOG];

/// `00000000000000000042.log` as 42 and `log`.
pub(crate) fn parse_name(name: &str) -> Option<(i64, &str)> {
    let (digits, kind) = name.split_once('.')?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((digits.parse().ok()?, kind))
}
