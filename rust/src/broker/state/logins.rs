//! What clients must prove on listeners with SASL, and to whom this broker proves itself.
//!
//! Threads: any. The listeners are swapped as a whole; a connection keeps the one it was opened
//! with, but the keys of its tokens are always the newest. SCRAM users are in the cluster image.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::HashMap;
use arc_swap::ArcSwap;

use crate::broker::state::principals::PrincipalRules;
use crate::transport::sasl::{KeySet, Mechanism, PlainUsers, TokenRules};

/// The name of every client without a login and without a certificate.
pub(crate) const ANONYMOUS: &str = "ANONYMOUS";

/// Characters of a subject in a log line.
const SUBJECT_SHOWN: usize = 200;

/// A mechanism that a listener offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedMechanism {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// `connections.max.reauth.ms`: how long a login lasts; 0: as long as the connection.
    pub max_reauth_ms: i64,
}

/// What a listener with SASL asks of its clients.
#[derive(Clone, Debug, Default)]
pub struct ListenerLogins {
    /// `sasl.enabled.mechanisms`.
    pub offered: Vec<OfferedMechanism>,
    /// The users that log in by PLAIN.
    pub plain_users: PlainUsers,
    /// Which tokens log in by OAUTHBEARER; `None`: none.
    pub tokens: Option<Arc<TokenRules>>,
}

/// The logins of one broker.
pub(crate) struct Logins {
    listeners: ArcSwap<HashMap<Arc<str>, Arc<ListenerLogins>>>,
    /// How the subjects of certificates become names, by listener.
    rules: ArcSwap<HashMap<Arc<str>, Arc<PrincipalRules>>>,
    /// Random bytes that hide which users there are.
    pub(crate) secret: [u8; 32],
    failed: AtomicU64,
}

impl Logins {
    pub(crate) fn new() -> Self {
        let mut secret = [0; 32];
        // Without them unknown users could be told from known ones; nobody could log in as one.
        let _ = getrandom::fill(&mut secret);
        Self {
            listeners: ArcSwap::default(),
            rules: ArcSwap::default(),
            secret,
            failed: AtomicU64::new(0),
        }
    }

    /// Sets the listeners with SASL, by name, for connections that begin from now on. The keys of
    /// their tokens stay.
    pub(crate) fn set(&self, listeners: HashMap<Arc<str>, Arc<ListenerLogins>>) {
        for (name, listener) in &listeners {
            let before = self.at(name).and_then(|listener| listener.tokens.clone());
            if let Some((before, rules)) = before.zip(listener.tokens.as_ref()) {
                rules.keys.store(before.keys.load_full());
                let missing = before.missing_keys.load(Ordering::Relaxed);
                rules.missing_keys.store(missing, Ordering::Relaxed);
            }
        }
        self.listeners.store(Arc::new(listeners));
    }

    /// What a listener asks; `None`: nothing.
    pub(crate) fn at(&self, listener: &str) -> Option<Arc<ListenerLogins>> {
        self.listeners.load().get(listener).cloned()
    }

    /// Sets the keys that sign a listener's tokens, for logins from now on.
    pub(crate) fn set_keys(&self, listener: &str, keys: KeySet) {
        if let Some(rules) = self.at(listener).and_then(|listener| listener.tokens.clone()) {
            rules.keys.store(Arc::new(keys));
        }
    }

    /// How many tokens had a key that their listener does not know.
    pub(crate) fn missing_keys(&self) -> u64 {
        let listeners = self.listeners.load();
        let rules = listeners.values().filter_map(|listener| listener.tokens.as_ref());
        rules.map(|rules| rules.missing_keys.load(Ordering::Relaxed)).sum()
    }

    /// Sets the rules for certificates, by listener; without any, a name is the subject.
    pub(crate) fn set_rules(&self, rules: HashMap<Arc<str>, Arc<PrincipalRules>>) {
        self.rules.store(Arc::new(rules));
    }

    /// The name of a client whose certificate has this subject. Errors: no rule matches it, in
    /// words for people.
    pub(crate) fn certified_name(&self, listener: &str, subject: &str) -> Result<String, String> {
        let name = match self.rules.load().get(listener) {
            Some(rules) => rules.name(subject),
            None => Some(subject.to_owned()),
        };
        name.ok_or_else(|| {
            let shown: String = subject.chars().take(SUBJECT_SHOWN).collect();
            format!("no rule of ssl.principal.mapping.rules matches its subject {shown:?}")
        })
    }

    /// Counts a login that failed.
    pub(crate) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// How many logins have failed since the start.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}
