//! Converts dicts of typed settings, under Kafka's keys, to the settings of the lower modules.
//!
//! An absent key has the struct's default. Keys that no module reads are ignored, because Python
//! holds the table of settings. A value of a wrong type is a TypeError that names the key.
//! Threads: attached.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{acls, quotas, sasl};
use krust::broker::fetching::FetcherSettings;
use krust::broker::image::{
    BrokerImage, Endpoint, MetadataDelta, PartitionState, TopicDelta, TopicSettings,
};
use krust::broker::inter_broker::InterBrokerSettings;
use krust::broker::quotas::bucket::QuotaWindows;
use krust::broker::quotas::replication::{ReplicaThrottles, ThrottledReplicas};
use krust::broker::{ReplicaSelector, SessionLimits, Settings, TransactionSettings};
use krust::ids::{Epoch, TopicPartition};
use krust::net::{ConnectionLimits, ListenAddress, ListenerLimits, NetworkOptions};
use krust::record::batch::TimestampType;
use krust::storage::{CleanerOptions, INDEX_CACHE_BYTES, Intervals, LogConfig};

/// A dict of settings, read by key.
pub(super) struct SettingsTable<'a, 'py>(pub(super) &'a Bound<'py, PyDict>);

impl<'py> SettingsTable<'_, 'py> {
    /// The value of `key`; `None` if it is absent or None.
    pub(super) fn maybe<T>(&self, key: &str) -> PyResult<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
    {
        let Some(value) = self.0.get_item(key)?.filter(|value| !value.is_none()) else {
            return Ok(None);
        };
        value.extract().map(Some).map_err(|error: T::Error| {
            let error: PyErr = error.into();
            PyTypeError::new_err(format!("{key}: {error}"))
        })
    }

    /// The value of `key`, which must be there.
    pub(super) fn must<T>(&self, key: &str) -> PyResult<T>
    where
        T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
    {
        self.maybe(key)?.ok_or_else(|| PyTypeError::new_err(format!("{key} is missing")))
    }

    /// The value of `key`, or `default`.
    pub(super) fn or<T>(&self, key: &str, default: T) -> PyResult<T>
    where
        T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
    {
        Ok(self.maybe(key)?.unwrap_or(default))
    }

    /// A count or size; a negative one is 0.
    fn size(&self, key: &str, default: usize) -> PyResult<usize> {
        Ok(self.maybe::<i64>(key)?.map_or(default, |it| usize::try_from(it).unwrap_or(0)))
    }

    /// A size of a file, or an interval; a negative one is 0.
    fn bytes(&self, key: &str, default: u64) -> PyResult<u64> {
        Ok(self.maybe::<i64>(key)?.map_or(default, |it| u64::try_from(it).unwrap_or(0)))
    }

    /// The dict at `key`, or an empty one.
    pub(super) fn table(&self, key: &str) -> PyResult<Bound<'py, PyDict>> {
        let empty = || PyDict::new(self.0.py());
        Ok(self.maybe::<Bound<'py, PyDict>>(key)?.unwrap_or_else(empty))
    }
}

/// The settings that handlers read.
pub(super) fn broker(table: &SettingsTable<'_, '_>, node_id: i32) -> PyResult<Settings> {
    let default = Settings::default();
    let slots = "max.incremental.fetch.session.cache.slots";
    let limit = "max.request.partition.size.limit";
    Ok(Settings {
        node_id,
        inter_broker_listener: table.maybe::<String>("inter.broker.listener.name")?.map(Into::into),
        also_inter_broker: also_inter_broker(table)?,
        lone_listener: table.maybe::<String>("krust.lone.listener")?.map(Into::into),
        auto_create_topics: table.or("auto.create.topics.enable", default.auto_create_topics)?,
        fetch_max_bytes: table.or("fetch.max.bytes", default.fetch_max_bytes)?,
        fetchers: fetchers(table)?,
        inter_broker: inter_broker(table)?,
        fetch_sessions: SessionLimits {
            slots: table.size(slots, default.fetch_sessions.slots)?,
            session_partitions: table.size(
                "krust.fetch.session.max.partitions",
                default.fetch_sessions.session_partitions,
            )?,
            all_partitions: table.size(
                "krust.fetch.session.cache.max.partitions",
                default.fetch_sessions.all_partitions,
            )?,
        },
        partitions_per_answer: table.or(limit, default.partitions_per_answer)?,
        connection_grace_ms: match table.or("krust.group.evict.on.disconnect", false)? {
            true => table.or("krust.group.connection.grace.ms", 0)?,
            false => default.connection_grace_ms,
        },
        group_load_wait_ms: table.or("krust.group.load.wait.ms", default.group_load_wait_ms)?,
        offset_metadata_max_bytes: table
            .size("offset.metadata.max.bytes", default.offset_metadata_max_bytes)?,
        offsets_commit_timeout_ms: table
            .or("offsets.commit.timeout.ms", default.offsets_commit_timeout_ms)?,
        offsets_retention_ms: table
            .maybe::<i64>("offsets.retention.minutes")?
            .map_or(default.offsets_retention_ms, |minutes| minutes.saturating_mul(60_000)),
        offsets_retention_check_ms: table
            .bytes("offsets.retention.check.interval.ms", default.offsets_retention_check_ms)?,
        recovery_threads_per_dir: table
            .size("num.recovery.threads.per.data.dir", default.recovery_threads_per_dir)?,
        policy_timeout_ms: table.or("krust.policy.timeout.ms", default.policy_timeout_ms)?,
        request_memory_bytes: table
            .size("krust.request.memory.bytes", default.request_memory_bytes)?,
        policy_request_bytes: table
            .size("krust.policy.request.memory.bytes", default.policy_request_bytes)?,
        policy_response_bytes: table
            .size("krust.policy.response.max.bytes", default.policy_response_bytes)?,
        converted_memory_bytes: table
            .size("krust.fetch.converted.memory.bytes", default.converted_memory_bytes)?,
        worker_threads: table.size("krust.worker.threads", default.worker_threads)?,
        failed_authentication_delay_ms: table.or(
            "connection.failed.authentication.delay.ms",
            default.failed_authentication_delay_ms,
        )?,
        replica_lag_time_max_ms: table
            .or("replica.lag.time.max.ms", default.replica_lag_time_max_ms)?,
        replica_selector: replica_selector(table)?,
        transactions: transactions(table)?,
        quota_windows: windows(table, ("quota.window.num", "quota.window.size.seconds"))?,
        leader_throttled_bytes_per_second: table
            .or("leader.replication.throttled.rate", default.leader_throttled_bytes_per_second)?,
        replication_quota_windows: windows(
            table,
            ("replication.quota.window.num", "replication.quota.window.size.seconds"),
        )?,
    })
}

/// The further listeners that serve brokers.
fn also_inter_broker(table: &SettingsTable<'_, '_>) -> PyResult<Vec<Arc<str>>> {
    let named: Vec<String> = table.or("krust.inter.broker.listeners", Vec::new())?;
    Ok(named.into_iter().map(|name| name.to_uppercase().into()).collect())
}

/// The transaction coordinator's settings.
fn transactions(table: &SettingsTable<'_, '_>) -> PyResult<TransactionSettings> {
    let default = TransactionSettings::default();
    let abort = "transaction.abort.timed.out.transaction.cleanup.interval.ms";
    let expiry = "transaction.remove.expired.transaction.cleanup.interval.ms";
    Ok(TransactionSettings {
        max_timeout_ms: table.or("transaction.max.timeout.ms", default.max_timeout_ms)?,
        id_expiration_ms: table.or("transactional.id.expiration.ms", default.id_expiration_ms)?,
        abort_interval_ms: table.bytes(abort, default.abort_interval_ms)?,
        expiration_interval_ms: table.bytes(expiry, default.expiration_interval_ms)?,
        verifies_partitions: table
            .or("transaction.partition.verification.enable", default.verifies_partitions)?,
        version: table.or("transaction.version", default.version)?,
        features_epoch: table.or("features.epoch", default.features_epoch)?,
    })
}

/// Who chooses the replicas that consumers read: Kafka's two classes are built in.
fn replica_selector(table: &SettingsTable<'_, '_>) -> PyResult<ReplicaSelector> {
    let class: Option<String> = table.maybe("replica.selector.class")?;
    Ok(match class.as_deref() {
        None | Some("" | "org.apache.kafka.common.replica.LeaderSelector") => {
            ReplicaSelector::Leader
        }
        Some("org.apache.kafka.common.replica.RackAwareReplicaSelector") => {
            ReplicaSelector::RackAware
        }
        Some(_) => ReplicaSelector::UserClass,
    })
}

/// The time windows of quota rates.
fn windows(table: &SettingsTable<'_, '_>, (number, size): (&str, &str)) -> PyResult<QuotaWindows> {
    let default = QuotaWindows::default();
    let seconds: Option<i64> = table.maybe(size)?;
    Ok(QuotaWindows {
        number: table.or(number, default.number)?,
        size_ms: seconds.map_or(default.size_ms, |seconds| seconds.saturating_mul(1000)),
    })
}

/// How other brokers are asked.
fn inter_broker(table: &SettingsTable<'_, '_>) -> PyResult<InterBrokerSettings> {
    let default = InterBrokerSettings::default();
    let request_timeout_ms = table.bytes("request.timeout.ms", default.request_timeout_ms)?;
    Ok(InterBrokerSettings { request_timeout_ms, ..default })
}

/// How partitions are fetched from their leaders.
fn fetchers(table: &SettingsTable<'_, '_>) -> PyResult<FetcherSettings> {
    let default = FetcherSettings::default();
    let most = default.response_max_bytes;
    Ok(FetcherSettings {
        threads: table.size("num.replica.fetchers", default.threads)?.max(1),
        min_bytes: table.or("replica.fetch.min.bytes", default.min_bytes)?,
        partition_max_bytes: table.or("replica.fetch.max.bytes", default.partition_max_bytes)?,
        response_max_bytes: table.or("replica.fetch.response.max.bytes", most)?,
        wait_max_ms: table.or("replica.fetch.wait.max.ms", default.wait_max_ms)?,
        backoff_ms: table.bytes("replica.fetch.backoff.ms", default.backoff_ms)?,
        throttled_bytes_per_second: table
            .or("follower.replication.throttled.rate", default.throttled_bytes_per_second)?,
        socket_timeout_ms: table.bytes("replica.socket.timeout.ms", default.socket_timeout_ms)?,
    })
}

/// The addresses that the server listens on.
pub(super) fn endpoints(listeners: Vec<(String, String, u16)>) -> Vec<ListenAddress> {
    let endpoint =
        |(name, host, port): (String, _, _)| ListenAddress { name: name.into(), host, port };
    listeners.into_iter().map(endpoint).collect()
}

/// The server's limits.
pub(super) fn network(table: &SettingsTable<'_, '_>) -> PyResult<NetworkOptions> {
    let default = NetworkOptions::default();
    let request_max = table.size("socket.request.max.bytes", default.request_max_bytes)?;
    let memory = table.maybe::<i64>("queued.max.request.bytes")?.filter(|bytes| *bytes > 0);
    let mut inter_broker_listeners = also_inter_broker(table)?;
    for key in ["inter.broker.listener.name", "krust.lone.listener"] {
        inter_broker_listeners.extend(table.maybe::<String>(key)?.map(Into::into));
    }
    Ok(NetworkOptions {
        inter_broker_listeners,
        limits: connection_limits(table)?,
        connection_rate_windows: windows(table, ("quota.window.num", "quota.window.size.seconds"))?,
        idle_ms: table.or("connections.max.idle.ms", default.idle_ms)?,
        request_max_bytes: request_max,
        login_frame_max_bytes: table
            .size("sasl.server.max.receive.size", default.login_frame_max_bytes)?,
        login_memory: table.size("krust.login.memory.bytes", default.login_memory)?,
        request_memory: memory.map_or(default.request_memory, |it| it.unsigned_abs() as usize),
        busy_poll_us: table.bytes("krust.busy.poll.us", default.busy_poll_us)?,
        ..default
    })
}

/// The limits of connections: the broker's, and those of listeners that have their own.
fn connection_limits(table: &SettingsTable<'_, '_>) -> PyResult<ConnectionLimits> {
    const MAX: &str = "max.connections";
    const RATE: &str = "max.connection.creation.rate";
    let default = ConnectionLimits::default();
    let max = table.size(MAX, default.max)?;
    let creation_rate = table.size(RATE, default.creation_rate)?;
    let mut by_listener = HashMap::new();
    for key in table.0.keys() {
        let key: String = key.extract()?;
        let Some(own) = key.strip_prefix("listener.name.") else { continue };
        let Some((name, setting)) = own.split_once('.') else { continue };
        if setting == MAX || setting == RATE {
            let limits: &mut ListenerLimits = by_listener
                .entry(name.to_uppercase().into())
                .or_insert(ListenerLimits { max, creation_rate });
            match setting {
                MAX => limits.max = table.size(&key, max)?,
                _ => limits.creation_rate = table.size(&key, creation_rate)?,
            }
        }
    }
    let overrides: String = table.or("max.connections.per.ip.overrides", String::new())?;
    Ok(ConnectionLimits {
        max,
        max_per_ip: table.size("max.connections.per.ip", default.max_per_ip)?,
        max_per_ip_overrides: overrides.split(',').filter_map(host_limit).collect(),
        creation_rate,
        by_listener,
    })
}

/// A host and its limit, of `host:count`. Python has checked the text.
fn host_limit(text: &str) -> Option<(String, usize)> {
    let (host, count) = text.trim().rsplit_once(':')?;
    let host = host.trim().trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), count.trim().parse().ok()?))
}

/// The memory that the indexes of sealed segments may take.
pub(super) fn index_cache(table: &SettingsTable<'_, '_>) -> PyResult<usize> {
    table.size("krust.index.cache.bytes", INDEX_CACHE_BYTES)
}

/// How often the log scheduler runs its tasks.
pub(super) fn intervals(table: &SettingsTable<'_, '_>) -> PyResult<Intervals> {
    let default = Intervals::default();
    let interval =
        |key: &str, default: u64| -> PyResult<u64> { Ok(table.bytes(key, default)?.max(1)) };
    let watermarks = "replica.high.watermark.checkpoint.interval.ms";
    Ok(Intervals {
        checkpoint_ms: interval("log.flush.offset.checkpoint.interval.ms", default.checkpoint_ms)?,
        high_watermark_ms: interval(watermarks, default.high_watermark_ms)?,
        retention_ms: interval("log.retention.check.interval.ms", default.retention_ms)?,
        reserve_bytes: table.bytes("krust.disk.reserve.bytes", default.reserve_bytes)?,
    })
}

/// The cleaner's settings; `None` if it is not enabled.
pub(super) fn cleaner(table: &SettingsTable<'_, '_>) -> PyResult<Option<CleanerOptions>> {
    let default = CleanerOptions::default();
    let load_factor = "log.cleaner.io.buffer.load.factor";
    let bytes_per_second = "log.cleaner.io.max.bytes.per.second";
    let options = CleanerOptions {
        threads: table.size("log.cleaner.threads", default.threads)?,
        dedupe_buffer_bytes: table
            .size("log.cleaner.dedupe.buffer.size", default.dedupe_buffer_bytes)?,
        load_factor: table.or(load_factor, default.load_factor)?,
        io_buffer_bytes: table.size("log.cleaner.io.buffer.size", default.io_buffer_bytes)?,
        io_bytes_per_second: table.or(bytes_per_second, default.io_bytes_per_second)?,
        backoff_ms: table.bytes("log.cleaner.backoff.ms", default.backoff_ms)?,
    };
    Ok(table.or("log.cleaner.enable", true)?.then_some(options))
}

/// A topic's settings.
pub(super) fn topic(table: &SettingsTable<'_, '_>) -> PyResult<TopicSettings> {
    let default = LogConfig::default();
    let policy: Vec<String> = match table.maybe::<String>("cleanup.policy") {
        Ok(text) => text.unwrap_or_else(|| "delete".into()).split(',').map(Into::into).collect(),
        Err(_) => table.must("cleanup.policy")?,
    };
    let has = |name: &str| policy.iter().any(|part| part.trim() == name);
    let timestamp: String = table.or("message.timestamp.type", "CreateTime".into())?;
    let flush: String = table.or("krust.flush.mode", "async".into())?;
    let expiration = "producer.id.expiration.ms";
    let ratio = "min.cleanable.dirty.ratio";
    let log = LogConfig {
        segment_bytes: table.bytes("segment.bytes", default.segment_bytes)?,
        segment_ms: table.or("segment.ms", default.segment_ms)?,
        segment_jitter_ms: table.or("segment.jitter.ms", default.segment_jitter_ms)?,
        segment_index_bytes: table.bytes("segment.index.bytes", default.segment_index_bytes)?,
        index_interval_bytes: table.bytes("index.interval.bytes", default.index_interval_bytes)?,
        retention_ms: table.or("retention.ms", default.retention_ms)?,
        retention_bytes: table.or("retention.bytes", default.retention_bytes)?,
        max_message_bytes: table.bytes("max.message.bytes", default.max_message_bytes)?,
        timestamp_type: match timestamp.as_str() {
            "LogAppendTime" => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        },
        before_max_ms: table.or("message.timestamp.before.max.ms", default.before_max_ms)?,
        after_max_ms: table.or("message.timestamp.after.max.ms", default.after_max_ms)?,
        compression_type: codec(&table.or("compression.type", String::from("producer"))?)?,
        delete: has("delete"),
        compact: has("compact"),
        min_cleanable_dirty_ratio: table.or(ratio, default.min_cleanable_dirty_ratio)?,
        min_compaction_lag_ms: table.or("min.compaction.lag.ms", default.min_compaction_lag_ms)?,
        max_compaction_lag_ms: table.or("max.compaction.lag.ms", default.max_compaction_lag_ms)?,
        delete_retention_ms: table.or("delete.retention.ms", default.delete_retention_ms)?,
        flush_messages: table.or("flush.messages", default.flush_messages)?,
        flush_ms: table.or("flush.ms", default.flush_ms)?,
        ack_flush: flush == "ack",
        file_delete_delay_ms: table.or("file.delete.delay.ms", default.file_delete_delay_ms)?,
        preallocate: table.or("preallocate", default.preallocate)?,
        producer_id_expiration_ms: table.or(expiration, default.producer_id_expiration_ms)?,
        producers_max: table.size("krust.partition.producers.max", default.producers_max)?,
    };
    let validation: String = table.or("krust.validate.compressed", "full".into())?;
    Ok(TopicSettings {
        log,
        min_insync_replicas: table.or("min.insync.replicas", 1)?,
        trusts_compressed: validation == "header",
        throttles: ReplicaThrottles {
            leader: throttled(table, "leader.replication.throttled.replicas")?,
            follower: throttled(table, "follower.replication.throttled.replicas")?,
        },
    })
}

/// The throttled replicas of a topic.
fn throttled(table: &SettingsTable<'_, '_>, key: &str) -> PyResult<ThrottledReplicas> {
    let list: Vec<String> = table.or(key, Vec::new())?;
    Ok(ThrottledReplicas::of(list.iter().map(String::as_str)))
}

/// A change of the cluster image.
pub(super) fn delta(table: &SettingsTable<'_, '_>) -> PyResult<MetadataDelta> {
    let brokers = match table.maybe::<Vec<Bound<'_, PyDict>>>("brokers")? {
        Some(list) => Some(
            list.iter().map(|each| broker_image(&SettingsTable(each))).collect::<PyResult<_>>()?,
        ),
        None => None,
    };
    let mut topics = Vec::new();
    for (name, change) in table.table("topics")? {
        let name: String = name.extract()?;
        let change = match change.is_none() {
            true => None,
            false => Some(topic_delta(&SettingsTable(change.cast::<PyDict>()?))?),
        };
        topics.push((Arc::from(name), change));
    }
    Ok(MetadataDelta {
        version: table.must("version")?,
        cluster_id: table.maybe::<String>("cluster_id")?.map(Into::into),
        controller_id: table.maybe("controller_id")?,
        brokers,
        broker_epoch: table.maybe("broker_epoch")?,
        waits: table.maybe("waits")?,
        quotas: table
            .maybe::<Vec<Bound<'_, PyAny>>>("quotas")?
            .map(|rows| rows.iter().map(quotas::row).collect::<PyResult<_>>())
            .transpose()?,
        scram: table
            .maybe("scram")?
            .map(|rows| sasl::scram_users(table.0.py(), rows))
            .transpose()?,
        tokens: sasl::delegation_tokens(table.or("tokens", Vec::new())?),
        acls: table.maybe("acls")?.map(|rows| acls::table(table.0.py(), rows)).transpose()?,
        topics,
        strays: table
            .or::<Vec<(String, i32)>>("strays", Vec::new())?
            .into_iter()
            .map(|(topic, partition)| TopicPartition::new(topic, partition))
            .collect(),
    })
}

fn topic_delta(table: &SettingsTable<'_, '_>) -> PyResult<TopicDelta> {
    let id: String = table.must("id")?;
    let id = id.parse().map_err(|_| PyValueError::new_err(format!("{id}: no topic id")))?;
    let states: Vec<Bound<'_, PyDict>> = table.must("partitions")?;
    let state = |each: &Bound<'_, PyDict>| -> PyResult<(i32, PartitionState)> {
        let table = SettingsTable(each);
        let state = PartitionState {
            leader: table.must("leader")?,
            leader_epoch: Epoch(table.must("leader_epoch")?),
            isr: table.must("isr")?,
            replicas: table.must("replicas")?,
            partition_epoch: table.must("partition_epoch")?,
        };
        Ok((table.must("partition")?, state))
    };
    Ok(TopicDelta {
        id,
        internal: table.or("internal", false)?,
        settings: topic(&SettingsTable(&table.table("config")?))?,
        partitions: states.iter().map(state).collect::<PyResult<_>>()?,
    })
}

fn broker_image(table: &SettingsTable<'_, '_>) -> PyResult<BrokerImage> {
    let endpoints: Vec<(String, String, u16)> = table.or("endpoints", Vec::new())?;
    let endpoint = |(listener, host, port): (String, String, u16)| Endpoint {
        listener: listener.into(),
        host: host.into(),
        port,
    };
    Ok(BrokerImage {
        id: table.must("id")?,
        rack: table.maybe::<String>("rack")?.map(Into::into),
        endpoints: endpoints.into_iter().map(endpoint).collect(),
    })
}

fn codec(name: &str) -> PyResult<Option<u8>> {
    match name {
        "producer" => Ok(None),
        "uncompressed" | "none" => Ok(Some(0)),
        "gzip" => Ok(Some(1)),
        "snappy" => Ok(Some(2)),
        "lz4" => Ok(Some(3)),
        "zstd" => Ok(Some(4)),
        other => Err(PyValueError::new_err(format!("compression.type: no codec {other:?}"))),
    }
}
