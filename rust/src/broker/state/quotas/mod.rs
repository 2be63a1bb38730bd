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

/// One part of an entity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// The default entity.
    Default,
    /// The entity with this name.
    Is(Arc<str>),
}

/// The entity of a row. An absent part does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entity {
    /// The principal's name.
    pub user: Option<Name>,
    /// The client id.
    pub client_id: Option<Name>,
    /// The address it comes from.
    pub ip: Option<Name>,
}

/// The quotas of a row. For an absent one other rows apply, or there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
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
pub enum Kind {
    /// Bytes it sends to be appended.
    Produce,
    /// Bytes it reads.
    Fetch,
    /// Time of network threads.
    Request,
}

/// How a level of the table names a user or a client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Name,
    Default,
    Nothing,
}

/// How user and client id are named in the rows that may fit, the strongest first.
const LEVELS: [(By, By); 8] = [
    (By::Name, By::Name),
    (By::Name, By::Default),
    (By::Name, By::Nothing),
    (By::Default, By::Name),
    (By::Default, By::Default),
    (By::Default, By::Nothing),
    (By::Nothing, By::Name),
    (By::Nothing, By::Default),
];

/// A client's quota, and which clients share it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// The quota per second.
    pub limit: f64,
    /// Each user has its own.
    pub by_user: bool,
    /// Each client id has its own.
    pub by_client_id: bool,
}

/// All rows of the quota table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    rows: HashMap<(Option<Name>, Option<Name>), Limits>,
    by_ip: HashMap<IpAddr, f64>,
    default_ip: Option<f64>,
}

impl Limits {
    fn of(&self, kind: Kind) -> Option<f64> {
        match kind {
            Kind::Produce => self.producer_byte_rate,
            Kind::Fetch => self.consumer_byte_rate,
            Kind::Request => self.request_percentage,
        }
    }
}

impl By {
    fn name(self, name: &str) -> Option<Name> {
        match self {
            Self::Name => Some(Name::Is(name.into())),
            Self::Default => Some(Name::Default),
            Self::Nothing => None,
        }
    }
}

impl Table {
    /// The table of these rows; `None` where they limit nothing. A row for an address that is none
    /// is passed over with a warning.
    pub fn of(rows: Vec<(Entity, Limits)>) -> Option<Self> {
        let mut table = Self::default();
        for (entity, limits) in rows {
            let Entity { user, client_id, ip } = entity;
            match (ip, limits.connection_creation_rate) {
                (None, _) => drop(table.rows.insert((user, client_id), limits)),
                (Some(_), None) => {}
                (Some(Name::Default), Some(rate)) => table.default_ip = Some(rate),
                (Some(Name::Is(ip)), Some(rate)) => match ip.parse::<IpAddr>() {
                    Ok(ip) => drop(table.by_ip.insert(ip.to_canonical(), rate)),
                    Err(_) => tracing::warn!(%ip, "a quota is for no IP address: passed over"),
                },
            }
        }
        (table != Self::default()).then_some(table)
    }

    /// The quota of a client. A client without an id has its user's only.
    pub fn allowance(&self, kind: Kind, (user, client_id): (&str, &str)) -> Option<Allowance> {
        LEVELS.iter().find_map(|&(by_user, by_client_id)| {
            if client_id.is_empty() && by_client_id != By::Nothing {
                return None;
            }
            let row = self.rows.get(&(by_user.name(user), by_client_id.name(client_id)))?;
            Some(Allowance {
                limit: row.of(kind)?,
                by_user: by_user != By::Nothing,
                by_client_id: by_client_id != By::Nothing,
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

    fn name(text: &str) -> Option<Name> {
        match text {
            "" => None,
            "*" => Some(Name::Default),
            name => Some(Name::Is(name.into())),
        }
    }

    fn row(user: &str, client_id: &str, rate: f64) -> (Entity, Limits) {
        let entity = Entity { user: name(user), client_id: name(client_id), ip: None };
        (entity, Limits { producer_byte_rate: Some(rate), ..Limits::default() })
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
            let table = Table::of(rows).unwrap();
            let (limit, (by_user, by_client_id)) =
                (levels[first].0.1.producer_byte_rate.unwrap(), levels[first].1);
            assert_eq!(
                table.allowance(Kind::Produce, ("ann", "app")),
                Some(Allowance { limit, by_user, by_client_id }),
                "level {first}"
            );
            assert_eq!(table.allowance(Kind::Fetch, ("ann", "app")), None);
        }
    }

    #[test]
    fn rows_of_others_do_not_hold() {
        let table = Table::of(vec![row("bob", "", 1.0), row("ann", "web", 2.0)]).unwrap();
        assert_eq!(table.allowance(Kind::Produce, ("ann", "app")), None);
        assert_eq!(table.allowance(Kind::Produce, ("ann", "web")).unwrap().limit, 2.0);
        assert_eq!(table.allowance(Kind::Produce, ("bob", "web")).unwrap().limit, 1.0);
    }

    #[test]
    fn a_row_without_the_kind_leaves_it_to_a_weaker_one() {
        let entity = Entity { user: name("ann"), ..Entity::default() };
        let reads = Limits { consumer_byte_rate: Some(9.0), ..Limits::default() };
        let table = Table::of(vec![(entity, reads), row("", "app", 7.0)]).unwrap();
        assert_eq!(table.allowance(Kind::Produce, ("ann", "app")).unwrap().limit, 7.0);
        assert_eq!(table.allowance(Kind::Fetch, ("ann", "app")).unwrap().limit, 9.0);
    }

    #[test]
    fn a_client_without_a_name_is_its_users() {
        let table = Table::of(vec![row("", "*", 1.0), row("*", "*", 2.0)]).unwrap();
        assert_eq!(table.allowance(Kind::Produce, ("ann", "")), None);
        let table = Table::of(vec![row("*", "*", 2.0), row("*", "", 3.0)]).unwrap();
        assert_eq!(table.allowance(Kind::Produce, ("ann", "")).unwrap().limit, 3.0);
    }

    #[test]
    fn addresses_have_their_own_rate_or_the_default() {
        let ip = |text: &str, rate| {
            let entity = Entity { ip: name(text), ..Entity::default() };
            (entity, Limits { connection_creation_rate: Some(rate), ..Limits::default() })
        };
        let rate = |table: &Table, ip: &str| table.connection_rate(ip.parse().unwrap());
        let table = Table::of(vec![ip("10.0.0.1", 5.0), ip("nowhere", 1.0)]).unwrap();
        assert_eq!(rate(&table, "10.0.0.1"), Some(5.0));
        assert_eq!(rate(&table, "::ffff:10.0.0.1"), Some(5.0));
        assert_eq!(rate(&table, "10.0.0.2"), None);
        let table = Table::of(vec![ip("*", 7.0), ip("10.0.0.1", 5.0)]).unwrap();
        assert_eq!(rate(&table, "10.0.0.1"), Some(5.0));
        assert_eq!(rate(&table, "10.0.0.2"), Some(7.0));
    }

    #[test]
    fn no_rows_are_no_table() {
        assert_eq!(Table::of(Vec::new()), None);
    }
}
