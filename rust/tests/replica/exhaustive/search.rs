//! Breadth-first search over all states, on all cores.
//!
//! A state that was seen is known by 64 bits of hash. With n states the chance that two of them
//! share a hash, so that one is overlooked, is about n * n / 2^65: 1 in 300,000 for 10^7 states.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Mutex;

use super::cluster::Cluster;
use super::steps::{Search, Step};
use crate::simulation::random::TraceHasher;

/// What a search found.
#[derive(Debug)]
pub struct SearchResult {
    pub states: usize,
    pub transitions: usize,
    /// The longest way to a state.
    pub depth: usize,
    /// What does not hold, and the shortest way there.
    pub violation: Option<(String, Vec<Step>)>,
    /// Whether all states within the bounds were visited.
    pub is_complete: bool,
}

/// A state, where it came from, and by which step.
struct Visited {
    parent: u32,
    step: Option<Step>,
}

const SHARDS: usize = 64;

struct Seen(Vec<Mutex<HashSet<u64, std::hash::BuildHasherDefault<Identity>>>>);

/// The keys are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl Seen {
    fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    /// Whether the state is new.
    fn insert(&self, cluster: &Cluster) -> bool {
        let mut hasher = TraceHasher::default();
        cluster.hash(&mut hasher);
        let hash = hasher.finish();
        let shard = usize::try_from(hash % SHARDS as u64).unwrap();
        self.0[shard].lock().unwrap().insert(hash)
    }
}

/// What a part of a level leads to.
#[derive(Default)]
struct Expanded {
    next: Vec<(u32, Step, Cluster)>,
    transitions: usize,
    violation: Option<(u32, Step, String)>,
}

impl Search {
    /// Visits all states, or those up to `most`.
    pub fn run(&self, most: usize, threads: usize) -> SearchResult {
        let seen = Seen::new();
        let start = Cluster::new(self.replicas);
        seen.insert(&start);
        let mut visited = vec![Visited { parent: 0, step: None }];
        let mut level = vec![(0_u32, start)];
        let mut found = SearchResult {
            states: 1,
            transitions: 0,
            depth: 0,
            violation: None,
            is_complete: true,
        };
        while !level.is_empty() {
            let parts = self.expand_level(&level, &seen, threads);
            let mut next = Vec::new();
            for part in parts {
                found.transitions += part.transitions;
                if let Some((parent, step, what)) = part.violation {
                    let mut way = way_to(&visited, parent);
                    way.push(step);
                    found.violation = Some((what, way));
                    found.states = visited.len();
                    return found;
                }
                for (parent, step, cluster) in part.next {
                    let number = u32::try_from(visited.len()).unwrap();
                    visited.push(Visited { parent, step: Some(step) });
                    next.push((number, cluster));
                }
            }
            found.states = visited.len();
            if found.states > most {
                found.is_complete = false;
                return found;
            }
            found.depth += usize::from(!next.is_empty());
            level = next;
        }
        found
    }

    fn expand_level(&self, level: &[(u32, Cluster)], seen: &Seen, threads: usize) -> Vec<Expanded> {
        let size = level.len().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            let parts = level.chunks(size);
            let running: Vec<_> =
                parts.map(|part| scope.spawn(move || self.expand(part, seen))).collect();
            running.into_iter().map(|it| it.join().unwrap()).collect()
        })
    }

    fn expand(&self, part: &[(u32, Cluster)], seen: &Seen) -> Expanded {
        let mut expanded = Expanded::default();
        let mut steps = Vec::new();
        for (number, cluster) in part {
            steps.clear();
            self.steps(cluster, &mut steps);
            for step in &steps {
                let taken = self.take(cluster, *step);
                let checked = taken.and_then(|next| match next {
                    Some(next) if seen.insert(&next) => {
                        next.check(&self.policy).map(|()| Some(next))
                    }
                    Some(_) => {
                        expanded.transitions += 1;
                        Ok(None)
                    }
                    None => Ok(None),
                });
                match checked {
                    Ok(Some(next)) => {
                        expanded.transitions += 1;
                        expanded.next.push((*number, *step, next));
                    }
                    Ok(None) => {}
                    Err(what) => {
                        expanded.violation = Some((*number, *step, what));
                        return expanded;
                    }
                }
            }
        }
        expanded
    }
}

/// The steps that lead to a state.
fn way_to(visited: &[Visited], mut number: u32) -> Vec<Step> {
    let mut way = Vec::new();
    while let Some(step) = visited[usize::try_from(number).unwrap()].step {
        way.push(step);
        number = visited[usize::try_from(number).unwrap()].parent;
    }
    way.reverse();
    way
}
