//! Damage at random places of a log directory, left in order or killed: one flipped bit, a block of
//! zeros, a file cut short or gone. No start on it may show a wrong record or lose something in
//! silence, and `inspect::verify_directory` names the damage before the start.
//!
//! `KRUST_PLACES`: how many places (100), `KRUST_PLACES_SEED`: where they begin. A failure names
//! the place; the same seed makes it again. `make corruption` does thousands.

pub mod captured_lines;
pub mod image;
mod start_check;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use krust::storage::inspect;

use crate::support::{scratch, wanted};

const BLOCK: usize = 512;

/// Pseudo-random numbers (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit.max(1) as u64).unwrap()
    }
}

/// All files below `root`, by kind.
fn files(root: &Path, under: &Path, found: &mut BTreeMap<String, Vec<PathBuf>>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(under).unwrap().map(|it| it.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(root, &path, found);
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == ".lock" || name.ends_with(".deleted") {
            continue;
        }
        let kind = match name.split_once('.') {
            Some((digits, kind)) if digits.len() == 20 => kind.to_owned(),
            _ => name,
        };
        found.entry(kind).or_default().push(path.strip_prefix(root).unwrap().to_owned());
    }
}

/// Damages a file; what was done.
fn damage(path: &Path, rng: &mut Rng) -> String {
    let mut bytes = std::fs::read(path).unwrap();
    let at = rng.below(bytes.len());
    let what = match rng.below(10) {
        0 if !bytes.is_empty() => {
            std::fs::remove_file(path).unwrap();
            return "deleted".to_owned();
        }
        1 if !bytes.is_empty() => {
            bytes.truncate(at);
            format!("cut to {at} bytes")
        }
        2 | 3 if !bytes.is_empty() => {
            let from = at / BLOCK * BLOCK;
            let to = (from + BLOCK).min(bytes.len());
            bytes[from..to].fill(0);
            format!("zeros from {from} to {to}")
        }
        _ if bytes.is_empty() => {
            std::fs::remove_file(path).unwrap();
            return "deleted, and it was empty".to_owned();
        }
        _ => {
            let bit = rng.below(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
    };
    std::fs::write(path, bytes).unwrap();
    what
}

/// Whether verify may miss a damage that no start and no search shows. The comments say why.
fn is_harmless(kind: &str, (how, file): (&str, &Path), is_named: bool) -> bool {
    let is_clean = how == "clean";
    match kind {
        // It costs the next start or a search some reading, and nothing else.
        "index" | "timeindex" | "snapshot" => true,
        // What it tells of is there, and as it was.
        "krust-aborted-transactions" => true,
        // Without it the start checks the logs, as after a kill; nobody reads its number.
        ".kafka_cleanshutdown" => true,
        // Where a broker was killed they may lag by any amount; the start checks more than it must.
        _ if kind.ends_with("-offset-checkpoint") && !is_clean => true,
        // It may be any offset below the end of the log: the leader raises it.
        "replication-offset-checkpoint" => true,
        // An epoch may be said to begin anywhere in a gap that a cleaner left.
        "leader-epoch-checkpoint" => file.starts_with("compacted-0") || !is_clean,
        "partition.metadata" => is_named,
        _ => false,
    }
}

#[test]
fn no_damage_yields_a_wrong_record_or_goes_unreported() {
    let (places, seed) = (wanted("KRUST_PLACES", 100), wanted("KRUST_PLACES_SEED", 14));
    let fixture = scratch();
    let images = [fixture.path().join("clean"), fixture.path().join("killed")];
    image::build(&images[0], &images[1]);
    let expected_logs = images.each_ref().map(|image| {
        let copy = fixture.path().join("truth");
        image::copy_tree(image, &copy);
        assert_eq!(inspect::verify_directory(&copy).unwrap(), [], "an unharmed directory");
        let expected_logs = image::expected_logs(&copy);
        std::fs::remove_dir_all(&copy).unwrap();
        expected_logs
    });
    let mut tally: BTreeMap<(String, &str), [u64; 4]> = BTreeMap::new();
    let mut reported = Vec::new();
    for place in 0..places {
        let mut rng = Rng(seed.wrapping_mul(1 << 32).wrapping_add(place));
        let which = rng.below(2);
        let mut kinds = BTreeMap::new();
        files(&images[which], &images[which], &mut kinds);
        let kind = kinds.keys().nth(rng.below(kinds.len())).unwrap().clone();
        let file = kinds[&kind][rng.below(kinds[&kind].len())].clone();
        let copy = fixture.path().join("copy");
        image::copy_tree(&images[which], &copy);
        let what = damage(&copy.join(&file), &mut rng);
        let how = if which == 0 { "clean" } else { "killed" };
        let found = inspect::verify_directory(&copy).unwrap();
        let (faults, lines) = start_check::check_start(&copy, &expected_logs[which]);
        std::fs::remove_dir_all(&copy).unwrap();
        let row = tally.entry((kind.clone(), how)).or_default();
        row[0] += 1;
        row[1] += u64::from(!found.is_empty());
        row[2] += u64::from(!lines.is_empty());
        row[3] += u64::from(!faults.is_empty());
        let harmless = what.contains("was empty")
            || (faults.is_empty() && is_harmless(&kind, (how, &file), !lines.is_empty()));
        if !faults.is_empty() || (found.is_empty() && !harmless) {
            let unfound = if found.is_empty() { "NOT FOUND by verify; " } else { "" };
            reported.push(format!(
                "place {place} ({how}) {}: {what}: {unfound}{faults:?}\n    {lines:?}",
                file.display()
            ));
        }
    }
    for ((kind, how), [count, verified, named, faults]) in &tally {
        println!(
            "{kind:36} {how:6} places {count:5} verify {verified:5} lines {named:5} faults {faults}"
        );
    }
    assert!(reported.is_empty(), "{} of {places} places:\n{}", reported.len(), reported.join("\n"));
}
