//! Client quotas: bytes in, bytes out, time of network threads, new connections.
//!
//! ```text
//! mod      the controller's quota table, and which row applies to a client
//! bucket   what was recently used of one quota        buckets  all buckets, by quota entity
//! account  the quotas of one connection's client      meter    the time that its requests take
//! replication  what followers may fetch, and leaders send, for throttled replicas
//! ```
//!
//! Format: an entity is a user, a client id, both, or an address; each by name or as the default.
//!     Of the rows that match a request, the first one in [`LEVELS`] that has the quota applies.
//!     Its level says which clients share it.
//! Threads: a table is immutable and part of the cluster image. Without a table, a request reads
//!     one pointer.
//! Sources: KIP-13, KIP-55, KIP-124, KIP-219, KIP-546, KIP-612.

pub(crate) mod account;
pub mod bucket;
pub(crate) mod buckets;
pub mod replication;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The user, client id or address of an entity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EntityName {
    /// The default entity.
    Default,
    /// The entity with this name.
    Is(Arc<str>),
}

/// The entity of a row. A part that is absent matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct QuotaEntity {
    /// The principal's name.
    pub user: Option<EntityName>,
    /// The client id.
    pub client_id: Option<EntityName>,
    /// The address it comes from.
    pub ip: Option<EntityName>,
}

/// The quotas of a row. For a quota that is absent other rows apply, or there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuotaLimits {
    /// Bytes of Produce requests a second.
    pub producer_byte_rate: Option<f64>,
    /// Bytes of answers to Fetch a second.
    pub consumer_byte_rate: Option<f64>,
    /// Time of network threads; 100 is one whole thread.
    pub request_percentage: Option<f64>,
    /// New connections a second.
    pub connection_creation_rate: Option<f64>,
}

/// The kind of quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuotaType {
    /// Bytes it sends to be appended.
    Produce,
    /// Bytes it reads.
    Fetch,
    /// Time of network threads.
    Request,
}

/// How a level of the table names a user or a client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntityMatch {
    Name,
    Default,
    Nothing,
}

/// How rows name the user and the client id, in the order in which rows apply.
const LEVELS: [(EntityMatch, EntityMatch); 8] = [
    (EntityMatch::Name, EntityMatch::Name),
    (EntityMatch::Name, EntityMatch::Default),
    (EntityMatch::Name, EntityMatch::Nothing),
    (EntityMatch::Default, EntityMatch::Name),
    (EntityMatch::Default, EntityMatch::Default),
    (EntityMatch::Default, EntityMatch::Nothing),
    (EntityMatch::Nothing, EntityMatch::Name),
    (EntityMatch::Nothing, EntityMatch::Default),
];

/// A client's quota, and which clients share it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientQuota {
    /// The quota per second.
    pub limit: f64,
    /// Each user has its own.
    pub by_user: bool,
    /// Each client id has its own.
    pub by_client_id: bool,
}

/// All rows of the quota table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuotaTable {
    rows: HashMap<(Option<EntityName>, Option<EntityName>), QuotaLimits>,
    by_ip: HashMap<IpAddr, f64>,
    default_ip: Option<f64>,
}

impl QuotaLimits {
    fn of(&self, kind: QuotaType) -> Option<f64> {
        match kind {
            QuotaType::Produce => self.producer_byte_rate,
            QuotaType::Fetch => self.consumer_byte_rate,
            QuotaType::Request => self.request_percentage,
        }
    }
}

impl EntityMatch {
    fn name(self, name: &str) -> Option<EntityName> {
        match self {
            Self::Name => Some(EntityName::Is(name.into())),
            Self::Default => Some(EntityName::Default),
            Self::Nothing => None,
        }
    }
}

impl QuotaTable {
    /// The table of these rows; `None` if they limit nothing. A row whose address is malformed is
    /// ignored with a warning.
    pub fn of(rows: Vec<(QuotaEntity, QuotaLimits)>) -> Option<Self> {
        let mut table = Self::default();
        for (entity, limits) in rows {
            let QuotaEntity { user, client_id, ip } = entity;
            match (ip, limits.connection_creation_rate) {
                (None, _) => drop(table.rows.insert((user, client_id), limits)),
                (Some(_), None) => {}
                (Some(EntityName::Default), Some(rate)) => table.default_ip = Some(rate),
                (Some(EntityName::Is(ip)), Some(rate)) => match ip.parse::<IpAddr>() {
                    Ok(ip) => drop(table.by_ip.insert(ip.to_canonical(), rate)),
                    Err(_) => tracing::warn!(%ip, "a quota is for no IP address: passed over"),
                },
            }
        }
        (table != Self::default()).then_some(table)
    }

    /// The quota of a client. A client without an id has only its user's quotas.
    pub fn allowance(
        &self,
        kind: QuotaType,
        (user, client_id): (&str, &str),
    ) -> Option<ClientQuota> {
        LEVELS.iter().find_map(|&(by_user, by_client_id)| {
            if client_id.is_empty() && by_client_id != EntityMatch::Nothing {
                return None;
            }
            let row = self.rows.get(&(by_user.name(user), by_client_id.name(client_id)))?;
            Some(ClientQuota {
                limit: row.of(kind)?,
                by_user: by_user != EntityMatch::Nothing,
                by_client_id: by_client_id != EntityMatch::Nothing,
            })
        })
    }

    /// The connection rate allowed from `ip`.
    pub fn connection_rate(&self, ip: IpAddr) -> Option<f64> {
        self.by_ip.get(&ip.to_canonical()).copied().or(self.default_ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Option<EntityName> {
        match text {
            "" => None,
            "*" => Some(EntityName::Default),
            name => Some(EntityName::Is(name.into())),
        }
    }

    fn row(user: &str, client_id: &str, rate: f64) -> (QuotaEntity, QuotaLimits) {
        let entity = QuotaEntity { user: name(user), client_id: name(client_id), ip: None };
        (entity, QuotaLimits { producer_byte_rate: Some(rate), ..QuotaLimits::default() })
    }

    #[test]
    fn the_strongest_row_holds_and_says_who_shares_it() {
        // Each row and what is shared by whom, the strongest first: with the rows above it gone, a
        // row holds for (ann, app).
        let levels = [
            (row("ann", "app", 1.0), (true, true)),
            (row("ann", "*", 2.0), (true, true)),
            (row("ann", "", 3.0), (true, false)),
            (row("*", "app", 4.0), (true, true)),
            (row("*", "*", 5.0), (true, true)),
            (row("*", "", 6.0), (true, false)),
            (row("", "app", 7.0), (false, true)),
            (row("", "*", 8.0), (false, true)),
        ];
        for first in 0..levels.len() {
            let rows = levels[first..].iter().map(|(row, _)| row.clone()).collect();
            let table = QuotaTable::of(rows).unwrap();
            let (limit, (by_user, by_client_id)) =
                (levels[first].0.1.producer_byte_rate.unwrap(), levels[first].1);
            assert_eq!(
                table.allowance(QuotaType::Produce, ("ann", "app")),
                Some(ClientQuota { limit, by_user, by_client_id }),
                "level {first}"
            );
            assert_eq!(table.allowance(QuotaType::Fetch, ("ann", "app")), None);
        }
    }

    #[test]
    fn rows_of_others_do_not_hold() {
        let table = QuotaTable::of(vec![row("bob", "", 1.0), row("ann", "web", 2.0)]).unwrap();
        assert_eq!(table.allowance(QuotaType::Produce, ("ann", "app")), None);
        assert_eq!(table.allowance(QuotaType::Produce, ("ann", "web")).unwrap().limit, 2.0);
        assert_eq!(table.allowance(QuotaType::Produce, ("bob", "web")).unwrap().limit, 1.0);
    }

    #[test]
    fn a_row_without_the_kind_leaves_it_to_a_weaker_one() {
        let entity = QuotaEntity { user: name("ann"), ..QuotaEntity::default() };
        let reads = QuotaLimits { consumer_byte_rate: Some(9.0), ..QuotaLimits::default() };
        let table = QuotaTable::of(vec![(entity, reads), row("", "app", 7.0)]).unwrap();
        assert_eq!(table.allowance(QuotaType::Produce, ("ann", "app")).unwrap().limit, 7.0);
        assert_eq!(table.allowance(QuotaType::Fetch, ("ann", "app")).unwrap().limit, 9.0);
    }

    #[test]
    fn a_client_without_a_name_is_its_users() {
        let table = QuotaTable::of(vec![row("", "*", 1.0), row("*", "*", 2.0)]).unwrap();
        assert_eq!(table.allowance(QuotaType::Produce, ("ann", "")), None);
        let table = QuotaTable::of(vec![row("*", "*", 2.0), row("*", "", 3.0)]).unwrap();
        assert_eq!(table.allowance(QuotaType::Produce, ("ann", "")).unwrap().limit, 3.0);
    }

    #[test]
    fn addresses_have_their_own_rate_or_the_default() {
        let ip = |text: &str, rate| {
            let entity = QuotaEntity { ip: name(text), ..QuotaEntity::default() };
            (entity, QuotaLimits { connection_creation_rate: Some(rate), ..QuotaLimits::default() })
        };
        let rate = |table: &QuotaTable, ip: &str| table.connection_rate(ip.parse().unwrap());
        let table = QuotaTable::of(vec![ip("10.0.0.1", 5.0), ip("nowhere", 1.0)]).unwrap();
        assert_eq!(rate(&table, "10.0.0.1"), Some(5.0));
        assert_eq!(rate(&table, "::ffff:10.0.0.1"), Some(5.0));
        assert_eq!(rate(&table, "10.0.0.2"), None);
        let table = QuotaTable::of(vec![ip("*", 7.0), ip("10.0.0.1", 5.0)]).unwrap();
        assert_eq!(rate(&table, "10.0.0.1"), Some(5.0));
        assert_eq!(rate(&table, "10.0.0.2"), Some(7.0));
    }

    #[test]
    fn no_rows_are_no_table() {
        assert_eq!(QuotaTable::of(Vec::new()), None);
    }
}
