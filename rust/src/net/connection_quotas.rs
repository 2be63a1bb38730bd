//! Counts connections and holds them to their limits (Kafka's ConnectionQuotas; KIP-402, KIP-612).
//!
//! A listener takes a new connection while it has fewer than its own `max.connections`, the server
//! has fewer than the broker's, and both took fewer lately than `max.connection.creation.rate`.
//! Otherwise connections wait in the kernel's queue. An address above its limit is refused.
//! The listeners between brokers, if there are others too, obey only limits of their own. For what
//! they take above the broker's limit, as after that limit was lowered, the connections of the
//! other listeners that were used least recently are closed: those of the thread that comes first.
//! Invariant: `all` is the sum of `by_address` and of the listeners' `open`.
//! Threads: the accepting thread increments, all threads decrement; a lock for each connection,
//! none for a request.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use super::options::{ConnectionLimits, NetworkOptions, UNLIMITED};
use crate::broker::quotas::bucket::{Bucket, QuotaWindows};

/// The open connections of one server, counted over all its threads, and their limits.
pub(super) struct ConnectionQuotas {
    all: AtomicUsize,
    counts: Mutex<Counts>,
    listeners: HashMap<Arc<str>, Arc<ListenerQuota>>,
    limits: RwLock<Arc<ConnectionLimits>>,
    created: Bucket,
    windows: QuotaWindows,
    /// Whether the accepting thread waits for a connection to close.
    pub(super) paused: AtomicBool,
}

#[derive(Default)]
struct Counts {
    by_address: HashMap<IpAddr, usize>,
    /// The limits of single addresses.
    overrides: HashMap<IpAddr, usize>,
    /// Connections that are being closed to make room.
    closing: usize,
}

/// The connections of one listener.
pub(super) struct ListenerQuota {
    pub(super) name: Arc<str>,
    /// Whether the broker's limits are for other listeners only.
    pub(super) is_protected: bool,
    open: AtomicUsize,
    created: Bucket,
}

/// Whether a listener may take a connection now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionSlot {
    Free,
    /// A limit is reached: when a connection closes, `paused` is false again.
    Full,
    /// Too many came lately: in so many milliseconds.
    After(i64),
}

impl ConnectionQuotas {
    /// The quotas of a server with these options.
    pub(super) fn new(options: &NetworkOptions) -> Self {
        let names = || options.endpoints.iter().map(|endpoint| &endpoint.name);
        let is_between = |name: &Arc<str>| options.inter_broker_listeners.contains(name);
        let has_others = names().any(|name| !is_between(name));
        let quota = |name: &Arc<str>| ListenerQuota {
            name: Arc::clone(name),
            is_protected: has_others && is_between(name),
            open: AtomicUsize::new(0),
            created: Bucket::default(),
        };
        let quotas = Self {
            all: AtomicUsize::new(0),
            counts: Mutex::default(),
            listeners: names().map(|name| (Arc::clone(name), Arc::new(quota(name)))).collect(),
            limits: RwLock::default(),
            created: Bucket::default(),
            windows: options.connection_rate_windows,
            paused: AtomicBool::new(false),
        };
        quotas.set_limits(&options.limits);
        quotas
    }

    /// The quota of the listener `name`, which is one of the options'.
    pub(super) fn listener(&self, name: &str) -> Option<Arc<ListenerQuota>> {
        self.listeners.get(name).map(Arc::clone)
    }

    /// Changes the limits. Returns whether the accepting thread waits for a change.
    pub(super) fn set_limits(&self, limits: &ConnectionLimits) -> bool {
        let before = self.limits.read().max_per_ip_overrides.clone();
        if before != limits.max_per_ip_overrides {
            let overrides = addresses(&limits.max_per_ip_overrides);
            self.counts.lock().overrides = overrides;
        }
        *self.limits.write() = Arc::new(limits.clone());
        self.paused.swap(false, Ordering::SeqCst)
    }

    /// How many connections are open.
    pub(super) fn count(&self) -> usize {
        self.all.load(Ordering::SeqCst)
    }

    /// Whether `listener` may take a connection.
    pub(super) fn slot(&self, listener: &ListenerQuota, now_ms: i64) -> ConnectionSlot {
        let limits = Arc::clone(&self.limits.read());
        let own = limits.of_listener(&listener.name);
        let is_full = || {
            listener.open.load(Ordering::SeqCst) >= own.max
                || (!listener.is_protected && self.count() >= limits.max)
        };
        if is_full() {
            self.paused.store(true, Ordering::SeqCst);
            if is_full() {
                return ConnectionSlot::Full;
            }
        }
        let mut wait_ms = self.wait_ms(&listener.created, own.creation_rate, now_ms);
        if !listener.is_protected {
            wait_ms = wait_ms.max(self.wait_ms(&self.created, limits.creation_rate, now_ms));
        }
        if wait_ms > 0 { ConnectionSlot::After(wait_ms) } else { ConnectionSlot::Free }
    }

    /// How long the rate asks to wait; at most a window, because earlier connections are forgotten.
    fn wait_ms(&self, created: &Bucket, rate: usize, now_ms: i64) -> i64 {
        match rate {
            UNLIMITED => 0,
            rate => {
                let wait_ms = created.wait_ms(rate as f64, (self.windows, now_ms));
                wait_ms.min(self.windows.size_ms)
            }
        }
    }

    /// Counts a new connection from `address`; false if that address has reached its limit. Such a
    /// connection counts towards the rate all the same.
    pub(super) fn try_increment(
        &self,
        listener: &ListenerQuota,
        address: IpAddr,
        now_ms: i64,
    ) -> bool {
        let limits = Arc::clone(&self.limits.read());
        if limits.of_listener(&listener.name).creation_rate != UNLIMITED {
            listener.created.add(1.0, (self.windows, now_ms));
        }
        if !listener.is_protected && limits.creation_rate != UNLIMITED {
            self.created.add(1.0, (self.windows, now_ms));
        }
        let address = address.to_canonical();
        let mut counts = self.counts.lock();
        let max = counts.overrides.get(&address).copied().unwrap_or(limits.max_per_ip);
        let count = counts.by_address.get(&address).copied().unwrap_or_default();
        if count >= max {
            return false;
        }
        counts.by_address.insert(address, count + 1);
        listener.open.fetch_add(1, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Counts a closed connection. Returns whether the accepting thread waits for it.
    pub(super) fn decrement(&self, listener: &ListenerQuota, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let mut counts = self.counts.lock();
        if let Some(count) = counts.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&address);
            }
        }
        listener.open.fetch_sub(1, Ordering::SeqCst);
        self.all.fetch_sub(1, Ordering::SeqCst);
        self.paused.swap(false, Ordering::SeqCst)
    }

    /// Whether more connections are open than the broker's limit allows.
    pub(super) fn is_exceeded(&self) -> bool {
        self.count() > self.limits.read().max
    }

    /// Calls `close` if a connection has to be closed to make room; it decrements. Returns whether
    /// it did.
    pub(super) fn close_excess(&self, close: impl FnOnce()) -> bool {
        let max = self.limits.read().max;
        {
            let mut counts = self.counts.lock();
            if self.count().saturating_sub(counts.closing) <= max {
                return false;
            }
            counts.closing += 1;
        }
        close();
        self.counts.lock().closing -= 1;
        true
    }
}

/// The addresses of hosts, each with its limit. A host without an address is left out.
fn addresses(hosts: &[(String, usize)]) -> HashMap<IpAddr, usize> {
    let mut found = HashMap::new();
    for (host, max) in hosts {
        match (host.as_str(), 0).to_socket_addrs() {
            Ok(of_host) => {
                found.extend(of_host.map(|address| (address.ip().to_canonical(), *max)));
            }
            Err(error) => tracing::warn!(
                %host,
                %error,
                "no address for a host of max.connections.per.ip.overrides, it has no limit of its \
                 own; correct it or set it again when its name is known"
            ),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::net::ListenAddress;
    use crate::net::options::ListenerLimits;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

    fn quotas(limits: ConnectionLimits) -> ConnectionQuotas {
        let endpoint =
            |name: &str| ListenAddress { name: name.into(), host: String::new(), port: 0 };
        ConnectionQuotas::new(&NetworkOptions {
            endpoints: vec![endpoint("CLIENTS"), endpoint("BROKERS")],
            inter_broker_listeners: vec!["BROKERS".into()],
            limits,
            ..NetworkOptions::default()
        })
    }

    fn limits(max: usize, max_per_ip: usize) -> ConnectionLimits {
        ConnectionLimits { max, max_per_ip, ..ConnectionLimits::default() }
    }

    #[test]
    fn each_address_has_its_own_limit_of_connections() {
        let overrides = vec![("127.0.0.2".to_owned(), 2)];
        let quotas = quotas(ConnectionLimits { max_per_ip_overrides: overrides, ..limits(9, 1) });
        let clients = quotas.listener("CLIENTS").unwrap();
        let connect = |address| quotas.try_increment(&clients, address, 0);
        assert!(connect(HERE) && !connect(HERE));
        assert!(connect(THERE) && connect(THERE) && !connect(THERE));
        assert_eq!(quotas.count(), 3);
        quotas.decrement(&clients, HERE);
        assert!(connect(HERE));
    }

    #[test]
    fn a_changed_limit_counts_the_connections_that_are_open() {
        let quotas = quotas(limits(UNLIMITED, usize::MAX));
        let clients = quotas.listener("CLIENTS").unwrap();
        let connect = || quotas.try_increment(&clients, HERE, 0);
        let slot = || quotas.slot(&clients, 0);
        assert!(connect() && connect());
        assert_eq!(slot(), ConnectionSlot::Free);
        assert!(!quotas.set_limits(&limits(2, 2)));
        assert!(slot() == ConnectionSlot::Full && !connect());
        assert!(quotas.decrement(&clients, HERE));
        assert!(slot() == ConnectionSlot::Free && connect() && slot() == ConnectionSlot::Full);
        assert!(quotas.set_limits(&limits(3, 2)));
        assert!(slot() == ConnectionSlot::Free && !connect());
    }

    #[test]
    fn the_listener_between_brokers_obeys_its_own_limit_alone() {
        let own = ListenerLimits { max: 2, creation_rate: UNLIMITED };
        let by_listener = HashMap::from([("BROKERS".into(), own)]);
        let quotas = quotas(ConnectionLimits { by_listener, ..limits(1, usize::MAX) });
        let [clients, brokers] = ["CLIENTS", "BROKERS"].map(|name| quotas.listener(name).unwrap());
        assert!(quotas.try_increment(&clients, HERE, 0));
        assert_eq!(quotas.slot(&clients, 0), ConnectionSlot::Full);
        assert_eq!(quotas.slot(&brokers, 0), ConnectionSlot::Free);
        assert!(!quotas.is_exceeded());
        assert!(quotas.try_increment(&brokers, HERE, 0) && quotas.is_exceeded());
        assert!(quotas.try_increment(&brokers, HERE, 0));
        assert_eq!(quotas.slot(&brokers, 0), ConnectionSlot::Full);
    }

    #[test]
    fn as_many_connections_are_closed_as_are_too_many() {
        let quotas = quotas(limits(3, usize::MAX));
        let [clients, brokers] = ["CLIENTS", "BROKERS"].map(|name| quotas.listener(name).unwrap());
        let closed = AtomicUsize::new(0);
        let close = || {
            closed.fetch_add(1, Ordering::SeqCst);
            quotas.decrement(&clients, HERE);
        };
        for _ in 0..3 {
            assert!(quotas.try_increment(&clients, HERE, 0));
        }
        assert!(!quotas.close_excess(close));
        assert!(quotas.try_increment(&brokers, HERE, 0));
        assert!(quotas.try_increment(&brokers, HERE, 0));
        assert!(quotas.close_excess(|| {
            // Another thread that looks now finds one left, not two.
            assert!(quotas.close_excess(close) && !quotas.close_excess(close));
            close();
        }));
        assert!(!quotas.close_excess(close));
        assert_eq!((closed.into_inner(), quotas.count()), (2, 3));
    }

    #[test]
    fn connections_above_the_rate_of_creation_wait() {
        let by_listener = HashMap::from([(
            "BROKERS".into(),
            ListenerLimits { max: UNLIMITED, creation_rate: 1 },
        )]);
        let quotas = quotas(ConnectionLimits {
            creation_rate: 2,
            by_listener,
            ..ConnectionLimits::default()
        });
        let [clients, brokers] = ["CLIENTS", "BROKERS"].map(|name| quotas.listener(name).unwrap());
        let burst = |listener: &ListenerQuota, now_ms| {
            (0..1_000)
                .take_while(|_| {
                    quotas.slot(listener, now_ms) == ConnectionSlot::Free
                        && quotas.try_increment(listener, HERE, now_ms)
                })
                .count()
        };
        // Two a second over ten seconds, one a second over ten, and the one that goes over.
        assert_eq!((burst(&clients, 0), burst(&brokers, 0)), (21, 11));
        assert_eq!(quotas.slot(&clients, 0), ConnectionSlot::After(500));
        assert_eq!(quotas.slot(&brokers, 0), ConnectionSlot::After(1_000));
        assert_eq!(burst(&clients, 20_000), 21);
    }
}
