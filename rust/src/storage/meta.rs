//! `meta.properties`: the cluster and the broker that a log directory belongs to.
//! Format: Java properties, version 0 (a newer Kafka's version 1 reads alike): broker.id (or
//! node.id), version, cluster.id. The first line is a comment to Kafka; krust keeps the checksum of
//! the other lines there: `#crc32c=` and eight hex digits. A file without it was written by another
//! program and is trusted.
//! Not promised: that damage in a file without a checksum is noticed. It is noticed only if the
//! file is malformed.

use crate::record::crc::crc32c;

/// The file's name.
pub(crate) const META: &str = "meta.properties";

const CHECKSUM: &str = "#crc32c=";
const KEYS: [&str; 5] = ["broker.id", "node.id", "version", "cluster.id", "directory.id"];

/// The values in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MetaProperties {
    pub broker_id: Option<String>,
    pub cluster_id: Option<String>,
}

/// The file's text.
pub(crate) fn text(broker_id: i32, cluster_id: &str) -> String {
    let body = format!("broker.id={broker_id}\nversion=0\ncluster.id={cluster_id}\n");
    format!("{CHECKSUM}{:08x}\n{body}", crc32c(body.as_bytes()))
}

/// Reads the file. Errors: what is wrong with it.
pub(crate) fn parse(bytes: &[u8]) -> Result<MetaProperties, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is damaged: it is no text".to_owned())?;
    let (head, body) = text.split_once('\n').unwrap_or((text, ""));
    let is_checksum = head.starts_with(CHECKSUM) || head.len() == CHECKSUM.len() + 8;
    if is_checksum && head != format!("{CHECKSUM}{:08x}", crc32c(body.as_bytes())) {
        return Err("is damaged: its lines do not have the checksum of its first line".to_owned());
    }
    let pairs =
        || text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once('='));
    let value = |key: &str| {
        let found = pairs().flatten().find(|(found, _)| found.trim() == key);
        found.map(|(_, value)| value.trim().to_owned())
    };
    match value("version").as_deref() {
        Some("0" | "1") => {}
        Some(other) => return Err(format!("has version {other}: only 0 and 1 are known")),
        None => return Err("is damaged: it has no version".to_owned()),
    }
    let broker_id = value("broker.id").or_else(|| value("node.id"));
    Ok(MetaProperties { broker_id, cluster_id: value("cluster.id") })
}

/// What is wrong with the file, in a strict check: unknown lines are wrong too.
pub(crate) fn wrong_in_meta(bytes: &[u8]) -> Option<String> {
    let meta = match parse(bytes) {
        Err(what) => return Some(what),
        Ok(meta) => meta,
    };
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let is_known = |line: &str| line.split_once('=').is_some_and(|it| KEYS.contains(&it.0.trim()));
    if let Some(line) = lines.find(|line| !is_known(line)) {
        return Some(format!("has a line that nobody knows: {line:?}"));
    }
    let number = meta.broker_id.map(|id| id.parse::<i32>());
    number.is_none_or(|number| number.is_err()).then(|| "tells no broker's number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let whole = text(1, "abcdefghijklmnopqrstuv");
        assert_eq!(wrong_in_meta(whole.as_bytes()), None);
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                assert!(parse(&bytes).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_file_that_kafka_wrote_is_taken_as_it_is() {
        let text = "#\n#Mon Nov 23 01:00:00 UTC 2026\nbroker.id=3\nversion=0\ncluster.id=one\n";
        let meta =
            MetaProperties { broker_id: Some("3".to_owned()), cluster_id: Some("one".to_owned()) };
        assert_eq!(parse(text.as_bytes()), Ok(meta));
        assert_eq!(wrong_in_meta(text.as_bytes()), None);
    }
}
