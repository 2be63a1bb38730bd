//! `_krust.Server`: the broker's core, which Python starts and stops.
//!
//! A broker starts in this order: open the log directories, load, join the cluster, apply the first
//! delta, listen. Then it takes events and answers them until `stop`.
//! Threads: any. One thread at a time changes the image (`apply`). Calls that touch the disk or
//! wait are detached from the interpreter.
//! After `stop`, only `stop` may be called.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::acls::{self, PyAclQuestions};
use super::client::client_login;
use super::convert::{from_python, to_python};
use super::decided;
use super::errors::{config_error, of_start, of_storage, server};
use super::events::EventQueue;
use super::principals::PyPrincipalRules;
use super::sasl::{self, LoginRows};
use super::settings::{self, SettingsTable};
use super::tls::PyServerTls;
use krust::broker::{
    AskTimes, Broker, Event, LoadedLog, LogManager, Partition, Settings, Ticket, Wake,
};
use krust::clock::SystemClock;
use krust::fetcher::Fetchers;
use krust::ids::{Epoch, Offset, TopicPartition};
use krust::inter_broker::InterBrokerThreads;
use krust::memory::{Lease, PoolUse};
use krust::net::{self, Mailboxes};
use krust::storage::epochs::Epochs;
use krust::storage::files::{Disk, RealDisk};
use krust::storage::{
    CleanerOptions, Descriptors, DirKind, DirOptions, IndexCache, Intervals, LogDir,
    OpeningProgress, StorageError, TemporaryDisk,
};
use krust::sys;
use krust::transport::ClientSecurity;
use krust::transport::sasl::{KeySet, SaslLogin};
use krust::transport::tls::{ClientTls, TlsSettings};

/// Open files that are not logs: sockets, checkpoints, the interpreter's own.
const RESERVED_DESCRIPTORS: u64 = 512;
/// The most log files that are kept open.
const MOST_DESCRIPTORS: u64 = 8192;

/// Log directory, topic, partition, high watermark, and the segments: base offset, next offset,
/// bytes, largest timestamp.
type SegmentRow = (String, String, i32, i64, Vec<(i64, i64, u64, i64)>);

/// Path of a log directory, whether it is online, and its replicas: topic, partition, whether it is
/// a future replica.
type DirRow = (String, bool, Vec<(String, i32, bool)>);

/// The broker's core.
#[pyclass(frozen, name = "Server", module = "krust._krust")]
pub(super) struct PyServer {
    broker: Arc<Broker>,
    events: Arc<EventQueue>,
    mailboxes: Arc<Mailboxes<Wake>>,
    net: Mutex<Option<net::Server<Broker>>>,
    dirs: Vec<Arc<LogDir>>,
    settings: Settings,
    options: Mutex<net::NetworkOptions>,
    intervals: Intervals,
    cleaner: Option<CleanerOptions>,
    pid: u32,
}

/// The memory lease of an event's objects. It is part of the event's client, and returns the memory
/// when Python drops that.
#[pyclass(frozen, module = "krust._krust")]
struct PaidMemory {
    _lease: Arc<Lease>,
}

#[pymethods]
impl PyServer {
    #[new]
    fn new(py: Python<'_>, config: &Bound<'_, PyDict>) -> PyResult<Self> {
        let table = SettingsTable(config);
        let node_id: i32 = table.must("node_id")?;
        let given = table.table("settings")?;
        let options = settings::network(&SettingsTable(&given))?;
        let intervals = settings::intervals(&SettingsTable(&given))?;
        let cleaner = settings::cleaner(&SettingsTable(&given))?;
        let settings = settings::broker(&SettingsTable(&given), node_id)?;
        let paths: Vec<PathBuf> = table.must("log_dirs")?;
        let disk: Arc<dyn Disk> = match table.or("temporary", false)? {
            true => Arc::new(TemporaryDisk),
            false => Arc::new(RealDisk),
        };
        let dir_options = DirOptions {
            cluster_id: table.maybe("cluster_id")?,
            broker_id: node_id,
            disk,
            descriptors: Descriptors::new(descriptors()),
            index_cache: IndexCache::new(settings::index_cache(&SettingsTable(&given))?),
        };
        let threads = match table.or("threads", 0)? {
            0 => std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1)),
            count => count,
        };
        let opened = py.detach(|| open_dirs(&paths, &dir_options));
        let dirs = opened.map_err(|error| of_storage(py, &error))?;
        let events = Arc::new(EventQueue::default());
        let store = LogManager::new(dirs.clone());
        let policy = Arc::clone(&events);
        let broker = Broker::new(settings.clone(), store, policy, Arc::new(SystemClock));
        let mailboxes = Mailboxes::new(threads);
        broker.connect(Arc::clone(&mailboxes) as _);
        let pid = std::process::id();
        let net = Mutex::default();
        Ok(Self {
            broker,
            events,
            mailboxes,
            net,
            dirs,
            settings,
            options: Mutex::new(options),
            intervals,
            cleaner,
            pid,
        })
    }

    /// The cluster that the log directories belong to.
    #[getter]
    fn cluster_id(&self) -> Option<String> {
        self.dirs.iter().find_map(|dir| dir.cluster_id())
    }

    fn join(&self, py: Python<'_>, cluster_id: &str) -> PyResult<()> {
        self.guard(py)?;
        let online = || self.dirs.iter().filter(|dir| !dir.is_offline());
        let join = || online().try_for_each(|dir| dir.join(cluster_id));
        py.detach(join).map_err(|error| of_storage(py, &error))
    }

    fn load<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.guard(py)?;
        let load = || {
            let found = self.broker.load()?;
            let epochs: Vec<i32> =
                found.iter().map(|each| latest_epoch(&each.found.path)).collect();
            Ok((found, epochs))
        };
        let (found, epochs) = py.detach(load).map_err(|error| of_storage(py, &error))?;
        let list = PyList::empty(py);
        for (LoadedLog { found, dir }, leader_epoch) in found.iter().zip(epochs) {
            let entry = PyDict::new(py);
            entry.set_item("topic", &*found.name.topic)?;
            entry.set_item("partition", found.name.partition)?;
            entry.set_item("topic_id", found.topic_id.map(|id| id.to_string()))?;
            entry.set_item("leader_epoch", leader_epoch)?;
            entry.set_item("clean", self.dirs.get(*dir).is_some_and(|dir| dir.was_clean()))?;
            entry.set_item("kind", kind(found.kind))?;
            list.append(entry)?;
        }
        Ok(list)
    }

    fn apply(
        &self,
        py: Python<'_>,
        delta: &Bound<'_, PyDict>,
    ) -> PyResult<Vec<(String, i32, String)>> {
        self.guard(py)?;
        let table = SettingsTable(delta);
        if let Some(changed) = table.maybe::<Bound<'_, PyDict>>("settings")? {
            self.broker
                .set_settings(settings::broker(&SettingsTable(&changed), self.settings.node_id)?);
            self.set_limits(settings::network(&SettingsTable(&changed))?);
            if let Some(options) = settings::cleaner(&SettingsTable(&changed))? {
                self.broker.set_cleaner(options);
            }
        }
        let delta = settings::delta(&table)?;
        let failures = py.detach(|| self.broker.apply(delta));
        if self.broker.progress().is_given_up() {
            return Err(server(py, &"the start was given up", None));
        }
        let row = |failure: krust::broker::ApplyError| {
            let TopicPartition { topic, partition } = failure.partition;
            (topic.to_string(), partition, failure.error.to_string())
        };
        Ok(failures.into_iter().map(row).collect())
    }

    fn recovered_ids(&self) -> (i64, Vec<(String, i32, i32)>) {
        let newer = self.broker.take_newer_epochs().into_iter();
        let row = |(name, epoch): (TopicPartition, Epoch)| {
            (name.topic.to_string(), name.partition, epoch.0)
        };
        (self.broker.first_free_producer_id(), newer.map(row).collect())
    }

    fn recovery_progress(&self) -> (u64, u64, u64, u64) {
        let OpeningProgress { logs, opened, to_check, checked } = self.broker.progress().snapshot();
        (opened, logs, checked, to_check)
    }

    fn cancel_start(&self) {
        self.broker.progress().give_up();
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        self.guard(py)?;
        let start = || -> std::io::Result<()> {
            self.broker.start_syncing(self.intervals, self.cleaner.clone())?;
            Fetchers::start(&self.broker);
            InterBrokerThreads::start(&self.broker);
            Ok(())
        };
        py.detach(start)
            .map_err(|error| server(py, &error, Some("raise the limit on threads (ulimit -u)")))
    }

    fn listen(
        &self,
        py: Python<'_>,
        listeners: Vec<(String, String, u16)>,
        tls: HashMap<String, Py<PyServerTls>>,
    ) -> PyResult<Vec<(String, String, u16)>> {
        self.guard(py)?;
        let options = net::NetworkOptions {
            endpoints: settings::endpoints(listeners),
            tls: tls.iter().map(|(name, tls)| (name.as_str().into(), tls.get().shared())).collect(),
            ..self.options.lock().clone()
        };
        let mailboxes = Arc::clone(&self.mailboxes);
        let broker = Arc::clone(&self.broker);
        let start = || net::Server::start(options, broker, mailboxes, Arc::new(SystemClock));
        let started = py.detach(start).map_err(|error| of_start(py, &error))?;
        let bound = started.bound().iter();
        let row = bound.map(|b| (b.name.to_string(), b.address.ip().to_string(), b.address.port()));
        let row = row.collect();
        *self.net.lock() = Some(started);
        Ok(row)
    }

    #[pyo3(signature = (tls, login, tokens=None))]
    fn set_inter_broker_security(
        &self,
        py: Python<'_>,
        tls: Option<TlsSettings>,
        login: Option<(String, String, String)>,
        tokens: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let tls = tls.map(|settings| ClientTls::new(&settings)).transpose();
        let tls = tls.map_err(|error| config_error(py, &error))?;
        let login = login.map(|(mechanism, user, password)| match tokens {
            Some(function) => Ok(SaslLogin::by_tokens(sasl::token_source(function)?)),
            None => client_login(Some(mechanism), Some(user), Some(password)),
        });
        let login = login.transpose().map_err(|error| config_error(py, &error))?;
        self.broker.set_inter_broker_security(ClientSecurity { tls, login });
        Ok(())
    }

    fn set_logins(&self, py: Python<'_>, listeners: HashMap<String, LoginRows>) -> PyResult<()> {
        let listeners = listeners
            .into_iter()
            .map(|(name, rows)| Ok((Arc::from(name), Arc::new(sasl::listener_logins(py, rows)?))));
        self.broker.set_logins(listeners.collect::<PyResult<_>>()?);
        Ok(())
    }

    fn set_token_keys(&self, py: Python<'_>, listener: &str, keys: &[u8]) -> PyResult<usize> {
        let keys = KeySet::read(keys).map_err(|error| config_error(py, &error))?;
        let count = keys.len();
        self.broker.set_token_keys(listener, keys);
        Ok(count)
    }

    /// How many tokens of OAUTHBEARER had a key that is in no set, since the start.
    #[getter]
    fn missing_token_keys(&self) -> u64 {
        self.broker.missing_token_keys()
    }

    fn set_principal_rules(&self, listeners: HashMap<String, Py<PyPrincipalRules>>) {
        let rules =
            listeners.iter().map(|(name, rules)| (Arc::from(&**name), rules.get().shared()));
        self.broker.set_principal_rules(rules.collect());
    }

    fn set_authorizer(
        &self,
        py: Python<'_>,
        super_users: Vec<String>,
        allow_everyone: bool,
    ) -> PyResult<()> {
        self.broker.set_authorizer(acls::users(py, super_users)?, allow_everyone);
        Ok(())
    }

    fn set_authorizer_class(
        &self,
        py: Python<'_>,
        super_users: Vec<String>,
        allow_everyone: bool,
        times: (i64, i64),
    ) -> PyResult<PyAclQuestions> {
        let users = acls::users(py, super_users)?;
        let times = AskTimes { cache_ms: times.0, timeout_ms: times.1 };
        self.broker.set_authorizer_class(users, allow_everyone, times);
        Ok(PyAclQuestions(Arc::clone(&self.broker)))
    }

    /// How many logins have failed since the start.
    #[getter]
    fn failed_logins(&self) -> u64 {
        self.broker.failed_logins()
    }

    fn events<'py>(
        &self,
        py: Python<'py>,
        timeout_ms: u64,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        self.guard(py)?;
        let timeout = Duration::from_millis(timeout_ms);
        let Some(events) = py.detach(|| self.events.take(&self.broker, timeout)) else {
            return Ok(None);
        };
        if self.net.lock().as_ref().is_some_and(net::Server::has_failed) {
            return Err(server(
                py,
                &"a network thread panicked: nobody is answered any more",
                None,
            ));
        }
        if let Some(thread) = self.broker.failed_thread() {
            let what = format!("a {thread} thread panicked: what it does is not done any more");
            return Err(server(py, &what, None));
        }
        let list = PyList::empty(py);
        for Event { ticket, api, version, request, client, lease } in events {
            let who = PyDict::new(py);
            who.set_item("id", client.id)?;
            who.set_item("host", client.host)?;
            who.set_item("user", &*client.user)?;
            who.set_item("proof", client.proof.name())?;
            who.set_item("listener", &*client.listener)?;
            who.set_item("connection", client.connection)?;
            if let Some(lease) = lease {
                who.set_item("memory", PaidMemory { _lease: lease })?;
            }
            list.append((ticket.0, api, version, to_python(py, &request)?, who))?;
        }
        Ok(Some(list))
    }

    fn wakeup(&self) {
        self.events.wakeup();
    }

    fn answer(&self, py: Python<'_>, ticket: u64, response: &Bound<'_, PyAny>) -> PyResult<()> {
        let response = from_python(response)?;
        py.detach(|| self.broker.answer(Ticket(ticket), &response))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn apply_group_outcome(
        &self,
        py: Python<'_>,
        records: &Bound<'_, PyAny>,
        snapshots: &Bound<'_, PyAny>,
        replies: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<String>> {
        self.guard(py)?;
        let decided = decided::read(records, snapshots, replies)?;
        py.detach(|| self.broker.apply_group_outcome(decided))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn has_offsets(&self, py: Python<'_>, group_id: &str) -> PyResult<bool> {
        self.guard(py)?;
        Ok(py.detach(|| self.broker.has_offsets(group_id)))
    }

    fn groups_with_offsets(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.guard(py)?;
        Ok(py.detach(|| self.broker.groups_with_offsets()))
    }

    fn match_topics(&self, py: Python<'_>, pattern: &str) -> PyResult<Vec<String>> {
        self.guard(py)?;
        py.detach(|| self.broker.image().match_topics(pattern)).map_err(PyValueError::new_err)
    }

    fn lags(
        &self,
        py: Python<'_>,
        group_id: &str,
        topics: Vec<String>,
    ) -> PyResult<Vec<(String, i32, i64)>> {
        self.guard(py)?;
        Ok(py.detach(|| self.broker.lags(group_id, &topics)))
    }

    fn segments(&self, py: Python<'_>, topics: Vec<String>) -> PyResult<Vec<SegmentRow>> {
        self.guard(py)?;
        Ok(py.detach(|| {
            let mut rows = Vec::new();
            for partition in self.broker.partitions() {
                let (name, log) = (&partition.name, &partition.log);
                if !topics.iter().any(|topic| **topic == *name.topic) {
                    continue;
                }
                let Ok(summaries) = log.segment_summaries() else { continue };
                let segments = summaries
                    .iter()
                    .map(|s| (s.base_offset.0, s.next_offset.0, s.size, s.largest_timestamp))
                    .collect();
                let dir = log.dir().path().display().to_string();
                let high = log.high_watermark().0;
                rows.push((dir, name.topic.to_string(), name.partition, high, segments));
            }
            rows
        }))
    }

    fn disk_space(&self, py: Python<'_>, directory: PathBuf) -> PyResult<(u64, u64)> {
        let dir = self.dirs.iter().find(|dir| dir.path() == directory);
        let offline = || StorageError::Offline(directory.display().to_string().into());
        let space = dir.ok_or_else(offline).and_then(|dir| dir.disk_space());
        space.map_err(|error| of_storage(py, &error))
    }

    fn drop_segments(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        below: i64,
    ) -> PyResult<usize> {
        self.guard(py)?;
        let dropped = || {
            let all = self.broker.partitions();
            let is_it =
                |it: &&Arc<Partition>| *it.name.topic == *topic && it.name.partition == partition;
            all.iter().find(is_it).map_or(Ok(0), |it| it.log.drop_segments_below(Offset(below)))
        };
        py.detach(dropped).map_err(|error| of_storage(py, &error))
    }

    fn log_dirs(&self, py: Python<'_>) -> PyResult<Vec<DirRow>> {
        self.guard(py)?;
        let row = |(dir, replicas): (Arc<LogDir>, Vec<(TopicPartition, bool)>)| {
            let row = |(name, is_future): (TopicPartition, bool)| {
                (name.topic.to_string(), name.partition, is_future)
            };
            let replicas = replicas.into_iter().map(row).collect();
            (dir.path().display().to_string(), !dir.is_offline(), replicas)
        };
        Ok(py.detach(|| self.broker.log_dirs().into_iter().map(row).collect()))
    }

    fn place_replica(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        directory: PathBuf,
    ) -> PyResult<()> {
        self.guard(py)?;
        let name = TopicPartition::new(topic, partition);
        py.detach(|| self.broker.place_replica(&name, &directory))
            .map_err(|error| of_storage(py, &error))
    }

    fn reload_groups(&self, py: Python<'_>, group_ids: Vec<String>) -> PyResult<()> {
        self.guard(py)?;
        py.detach(|| self.broker.reload_groups(&group_ids));
        Ok(())
    }

    fn memory(&self) -> (usize, usize, usize, u64) {
        let PoolUse { limit, used, peak, refused } = self.broker.memory().usage();
        (limit, used, peak, refused)
    }

    fn reset_memory_peak(&self) {
        self.broker.memory().reset_peak();
    }

    fn take_longest_work(&self) -> u64 {
        self.broker.work().take_longest()
    }

    #[getter]
    fn connections(&self) -> usize {
        self.net.lock().as_ref().map_or(0, net::Server::connections)
    }

    fn pause(&self, py: Python<'_>) -> PyResult<()> {
        self.guard(py)?;
        self.broker.peer_reach().set_paused(true);
        py.detach(|| self.net.lock().as_ref().map_or((), net::Server::pause));
        Ok(())
    }

    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        self.guard(py)?;
        self.broker.peer_reach().set_paused(false);
        py.detach(|| self.net.lock().as_ref().map_or((), net::Server::resume));
        Ok(())
    }

    fn cut_off(&self, brokers: BTreeSet<i32>) {
        self.broker.peer_reach().cut_off(brokers);
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.guard(py)?;
        let stop = || {
            if let Some(net) = self.net.lock().take() {
                net.stop();
            }
            self.events.close();
            self.broker.close()
        };
        py.detach(stop).map_err(|error| of_storage(py, &error))
    }
}

impl PyServer {
    /// Refuses calls in a forked child, which has the memory of its parent but none of its threads.
    fn guard(&self, py: Python<'_>) -> PyResult<()> {
        if std::process::id() == self.pid {
            return Ok(());
        }
        let class = py.import("krust.errors")?.getattr("ForkedError")?;
        let text = "this broker runs in the parent process; make one in this process";
        Err(PyErr::from_value(class.call1((text,))?))
    }

    /// Applies the network settings that can change at run time.
    fn set_limits(&self, options: net::NetworkOptions) {
        if let Some(net) = &*self.net.lock() {
            net.set_limits(&options.limits);
        }
        *self.options.lock() = options;
    }
}

/// Opens the log directories. A directory with a broken disk is offline; if all are, that is an
/// error.
fn open_dirs(paths: &[PathBuf], options: &DirOptions) -> Result<Vec<Arc<LogDir>>, StorageError> {
    let open = |path: &PathBuf| LogDir::open_or_offline(path, options);
    let dirs: Vec<_> = paths.iter().map(open).collect::<Result<_, _>>()?;
    match paths.first() {
        Some(first) if dirs.iter().all(|dir| dir.is_offline()) => {
            LogDir::open(first, options).map(|dir| vec![dir])
        }
        _ => Ok(dirs),
    }
}

fn latest_epoch(partition: &Path) -> i32 {
    let text = std::fs::read_to_string(partition.join("leader-epoch-checkpoint"));
    text.ok().and_then(|text| Epochs::parse(&text)).map_or(-1, |epochs| epochs.latest().0)
}

fn kind(kind: DirKind) -> &'static str {
    match kind {
        DirKind::Live => "live",
        DirKind::Delete => "delete",
        DirKind::Future => "future",
        DirKind::Stray => "stray",
    }
}

/// How many log files may be open: half of the process limit without the reserve.
fn descriptors() -> usize {
    let limit = sys::descriptor_limit();
    let share = limit.saturating_sub(RESERVED_DESCRIPTORS).max(limit / 4) / 2;
    usize::try_from(share.clamp(16, MOST_DESCRIPTORS)).unwrap_or(16)
}
