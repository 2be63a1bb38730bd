//! Logs each transactional id that a client asks for once, because krust has no transactions and
//! clients seldom report the refusal clearly.
//!
//! Threads: any; a short lock, taken for refused requests only.
//! Limits: [`NAMED`] ids. One more line says that further ids are not logged.

use ahash::{HashSet, RandomState};
use parking_lot::Mutex;

use crate::protocol::ErrorCode;

/// The most ids that are logged.
const NAMED: usize = 1000;
/// The most characters of an id that a log line shows.
const SHOWN: usize = 200;

/// The hashes of transactional ids that were logged.
#[derive(Debug, Default)]
pub(crate) struct UnservedIds(Mutex<HashSet<u64>>, RandomState);

impl UnservedIds {
    /// Whether to log the id, and whether it is the last one.
    fn take(&self, transactional_id: &str) -> Option<bool> {
        let hash = self.1.hash_one(transactional_id);
        let mut named = self.0.lock();
        let is_new = named.len() < NAMED && named.insert(hash);
        is_new.then(|| named.len() == NAMED)
    }

    /// Logs a transactional id the first time.
    #[cold]
    pub(crate) fn warn(&self, client_id: Option<&str>, transactional_id: &str) {
        let Some(is_last) = self.take(transactional_id) else { return };
        let (client_id, transactional_id) =
            (start(client_id.unwrap_or_default()), start(transactional_id));
        tracing::warn!(
            client_id,
            transactional_id,
            "a producer asked for transactions, which krust does not have yet: it is refused \
             ({}); take transactional.id out of its configuration, or send it to another cluster",
            ErrorCode::TransactionalIdAuthorizationFailed.name()
        );
        if is_last {
            tracing::warn!("other producers that ask for transactions are not named");
        }
    }
}

fn start(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_named_once_and_so_many_at_most() {
        let ids = UnservedIds::default();
        assert_eq!((ids.take("a"), ids.take("a")), (Some(false), None));
        let named = (0..2 * NAMED).filter(|number| ids.take(&number.to_string()).is_some());
        assert_eq!(named.count(), NAMED - 1);
        assert_eq!(ids.take("b"), None);
    }
}
