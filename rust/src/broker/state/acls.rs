//! Access control lists: what each client is allowed, by Kafka's rules (KIP-11, KIP-290, KIP-679).
//!
//! DENY wins over ALLOW. ALLOW of Read, Write, Delete or Alter also allows Describe; ALLOW of
//! AlterConfigs also allows DescribeConfigs; DENY implies nothing. An ACL is for a resource's name,
//! for every name (`*`), or for names that begin with its own; for one principal or all (`User:*`),
//! from one host or all (`*`). Without a matching ACL nothing is allowed, except what the settings
//! say ([`BesideAcls`]).
//! Format: by user, then by type of resource, then by name; of prefixes also which lengths there
//!     are. So the first check of a client looks up one name and its prefixes, however many ACLs
//!     there are; what it says is kept with the client (`acl_decisions`).
//! Threads: immutable; a part of the cluster image.

use std::net::IpAddr;
use std::sync::Arc;

use ahash::HashMap;

use crate::broker::state::acl_decisions::AclDecisions;
use crate::broker::state::acl_operations::TYPES;
use crate::broker::state::class_acls::ClientAcls;

pub use crate::broker::state::acl_operations::{Operation, ResourceType};

/// The name of the only resource of type cluster.
pub const CLUSTER_NAME: &str = "kafka-cluster";
/// Every name, principal or host.
const ANY: &str = "*";
const PRINCIPAL_TYPE: &str = "User:";

/// One ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclBinding {
    /// The type of the resource.
    pub resource_type: ResourceType,
    /// Whether it is for all names that begin with `name`.
    pub is_prefixed: bool,
    /// The name of the resource, or the beginning of names; `*`: every name, if it is no beginning.
    pub name: String,
    /// `User:` and a name, or `User:*`. Nobody is a principal of another type.
    pub principal: String,
    /// The address that the client comes from; `*`: any.
    pub host: String,
    /// The operation.
    pub operation: Operation,
    /// Allows the operation; else denies it.
    pub is_allow: bool,
}

/// All ACLs.
#[derive(Debug, Default, PartialEq)]
pub struct AclTable {
    users: HashMap<Box<str>, Arc<UserAcls>>,
    everyone: Option<Arc<UserAcls>>,
    /// The resources that have an ACL, whoever it is for.
    resources: UserAcls,
    /// Whether the ACLs have been read; before, no resource counts as one without any.
    is_read: bool,
}

/// The ACLs of one principal, by type of resource.
#[derive(Debug, Default, PartialEq)]
struct UserAcls([NamedAcls; TYPES]);

/// ACLs on resources of one type.
#[derive(Debug, Default, PartialEq)]
struct NamedAcls {
    literal: HashMap<Box<[u8]>, HostRules>,
    /// For every name.
    any: HostRules,
    prefixed: HashMap<Box<[u8]>, HostRules>,
    /// The lengths of prefixes, each once.
    lengths: Vec<usize>,
}

/// What is allowed and denied, by host; `None`: from every host.
#[derive(Debug, Default, PartialEq)]
struct HostRules(Vec<(Option<Box<str>>, Rules)>);

/// Sets of operations: bit 3 is Read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rules {
    allowed: u16,
    denied: u16,
}

/// A client as the ACLs of one image see it.
#[derive(Clone, Debug)]
pub struct AclClient {
    table: Arc<AclTable>,
    own: Option<Arc<UserAcls>>,
    /// What gives its table, if a user's class does.
    by_class: Option<Arc<ClientAcls>>,
    /// The name of its principal.
    pub user: Arc<str>,
    /// The address it comes from, as Java writes it.
    pub host: Arc<str>,
    /// What the settings allow it.
    pub beside_acls: BesideAcls,
    decisions: AclDecisions,
}

/// What the settings allow a client beside its ACLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BesideAcls {
    /// Nothing.
    #[default]
    Nothing,
    /// Resources that no ACL is for (`allow.everyone.if.no.acl.found`).
    ResourcesWithoutAcl,
    /// Everything, whatever ACLs say (`super.users`).
    Everything,
}

impl Rules {
    fn add(&mut self, other: Self) {
        self.allowed |= other.allowed;
        self.denied |= other.denied;
    }
}

impl HostRules {
    fn add(&mut self, host: &str, rules: Rules) {
        let host = (host != ANY).then_some(host);
        match self.0.iter_mut().find(|(known, _)| known.as_deref() == host) {
            Some((_, known)) => known.add(rules),
            None => self.0.push((host.map(Into::into), rules)),
        }
    }

    #[inline]
    fn at(&self, host: &str) -> Rules {
        let mut found = Rules::default();
        for (of, rules) in &self.0 {
            if of.as_deref().is_none_or(|of| of == host) {
                found.add(*rules);
            }
        }
        found
    }
}

impl NamedAcls {
    fn add(&mut self, binding: &AclBinding) {
        let bit = binding.operation.bit();
        let rules = match binding.is_allow {
            true => Rules { allowed: bit, denied: 0 },
            false => Rules { allowed: 0, denied: bit },
        };
        let name = binding.name.as_bytes();
        let place = match (binding.is_prefixed, &*binding.name) {
            (false, ANY) => &mut self.any,
            (false, _) => self.literal.entry(name.into()).or_default(),
            (true, _) => {
                if !self.lengths.contains(&name.len()) {
                    self.lengths.push(name.len());
                }
                self.prefixed.entry(name.into()).or_default()
            }
        };
        place.add(&binding.host, rules);
    }

    /// The rules on the name itself, those on every name, and those on prefixes of it.
    fn matching<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a HostRules> {
        self.literal.get(name).into_iter().chain(self.above(name))
    }

    /// The rules on every name, and those on prefixes of `name`: these hold for all names that
    /// begin with it.
    fn above<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a HostRules> {
        let beginnings = self.lengths.iter().filter_map(|length| name.get(..*length));
        let prefixed = beginnings.filter_map(|beginning| self.prefixed.get(beginning));
        std::iter::once(&self.any).chain(prefixed)
    }

    #[inline]
    fn rules(&self, name: &[u8], host: &str) -> Rules {
        let mut found = Rules::default();
        self.matching(name).for_each(|rules| found.add(rules.at(host)));
        found
    }

    fn has(&self, name: &[u8]) -> bool {
        self.matching(name).any(|rules| !rules.0.is_empty())
    }

    /// Whether one of `operations` is denied for a name, or for all that begin with it.
    fn denies(&self, (name, is_prefix): (&[u8], bool), operations: u16, host: &str) -> bool {
        let literal = self.literal.get(name).filter(|_| !is_prefix);
        let mut rules = self.above(name).chain(literal);
        rules.any(|rules| rules.at(host).denied & operations != 0)
    }

    /// The names on which one of `operations` is allowed, and whether each is a prefix.
    fn allowing(&self, operations: u16, host: &str) -> impl Iterator<Item = (&[u8], bool)> {
        let literal = self.literal.iter().map(|(name, rules)| (name, false, rules));
        let prefixed = self.prefixed.iter().map(|(name, rules)| (name, true, rules));
        literal.chain(prefixed).filter_map(move |(name, is_prefix, rules)| {
            (rules.at(host).allowed & operations != 0).then_some((&**name, is_prefix))
        })
    }
}

impl UserAcls {
    fn of(&self, resource_type: ResourceType) -> Option<&NamedAcls> {
        self.0.get(resource_type.index())
    }

    fn add(&mut self, binding: &AclBinding) {
        if let Some(named) = self.0.get_mut(binding.resource_type.index()) {
            named.add(binding);
        }
    }
}

impl AclTable {
    /// The table of these ACLs.
    pub fn new(bindings: &[AclBinding]) -> Self {
        let mut users: HashMap<&str, UserAcls> = HashMap::default();
        let mut resources = UserAcls::default();
        for binding in bindings {
            resources.add(binding);
            if let Some(user) = binding.principal.strip_prefix(PRINCIPAL_TYPE) {
                users.entry(user).or_default().add(binding);
            }
        }
        let everyone = users.remove(ANY).map(Arc::new);
        let users = users.into_iter().map(|(user, acls)| (user.into(), Arc::new(acls))).collect();
        Self { users, everyone, resources, is_read: true }
    }
}

impl AclClient {
    /// A client as `table` sees it.
    pub fn new(
        table: &Arc<AclTable>,
        (user, host): (&Arc<str>, &Arc<str>),
        beside_acls: BesideAcls,
    ) -> Self {
        let own = table.users.get(&**user).cloned();
        let (table, user, host) = (Arc::clone(table), Arc::clone(user), Arc::clone(host));
        let decisions = AclDecisions::default();
        Self { table, own, by_class: None, user, host, beside_acls, decisions }
    }

    /// A client whose ACLs a user's class gives.
    pub(crate) fn of_class(acls: &Arc<ClientAcls>, beside_acls: BesideAcls) -> Self {
        let principal = (&acls.client.user, &acls.client.host);
        let client = Self::new(&acls.table(), principal, beside_acls);
        Self { by_class: Some(Arc::clone(acls)), ..client }
    }

    /// The same client now, or as another table sees it.
    pub fn seen_by(&self, table: &Arc<AclTable>) -> Self {
        match &self.by_class {
            Some(acls) => Self::of_class(acls, self.beside_acls),
            None => Self::new(table, (&self.user, &self.host), self.beside_acls),
        }
    }

    /// Whether this is still what its user may do: by the ACLs of a class, or of `table`.
    pub(crate) fn is_current(
        &self,
        user: &Arc<str>,
        (table, class): (&Arc<AclTable>, Option<&Arc<ClientAcls>>),
    ) -> bool {
        Arc::ptr_eq(&self.user, user)
            && match (&self.by_class, class) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other) && !self.is_outdated(),
                (None, None) => Arc::ptr_eq(&self.table, table),
                _ => false,
            }
    }

    /// Whether a user's class has given the client other ACLs since.
    pub fn is_outdated(&self) -> bool {
        self.by_class.as_ref().is_some_and(|acls| !acls.is_newest(&self.table))
    }

    /// Whether both are the same client of the broker.
    pub fn is_like(&self, other: &Self) -> bool {
        let is_same_class = match (&self.by_class, &other.by_class) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() == other.is_none(),
        };
        is_same_class
            && (&self.user, &self.host, self.beside_acls)
                == (&other.user, &other.host, other.beside_acls)
    }

    fn acls(&self, resource_type: ResourceType) -> impl Iterator<Item = &NamedAcls> {
        let of = [self.own.as_deref(), self.table.everyone.as_deref()];
        of.into_iter().flatten().filter_map(move |acls| acls.of(resource_type))
    }

    /// Whether the client may do something with a resource.
    pub fn allows(&self, operation: Operation, resource_type: ResourceType, name: &str) -> bool {
        self.beside_acls == BesideAcls::Everything
            || self.decisions.or_decide((operation, resource_type, name), || {
                self.decide(operation, resource_type, name)
            })
    }

    fn decide(&self, operation: Operation, resource_type: ResourceType, name: &str) -> bool {
        let mut found = Rules::default();
        for acls in self.acls(resource_type) {
            found.add(acls.rules(name.as_bytes(), &self.host));
        }
        if found.denied & operation.denied_by() != 0 {
            return false;
        }
        found.allowed & operation.allowed_by() != 0
            || self.may_use_others() && !self.is_named(resource_type, name)
    }

    /// Whether resources that no ACL is for are the client's too.
    fn may_use_others(&self) -> bool {
        self.beside_acls == BesideAcls::ResourcesWithoutAcl && self.table.is_read
    }

    fn is_named(&self, resource_type: ResourceType, name: &str) -> bool {
        let acls = self.table.resources.of(resource_type);
        acls.is_some_and(|acls| acls.has(name.as_bytes()))
    }

    /// Whether there may be a resource of a type with which the client may do something (KIP-679).
    pub fn allows_some(&self, operation: Operation, resource_type: ResourceType) -> bool {
        if self.beside_acls == BesideAcls::Everything {
            return true;
        }
        let (allowing, denying) = (operation.bit() | Operation::All.bit(), operation.denied_by());
        let on_any = self.acls(resource_type).fold(Rules::default(), |mut found, acls| {
            found.add(acls.any.at(&self.host));
            found
        });
        if on_any.denied & denying != 0 {
            return false;
        }
        if self.may_use_others() || on_any.allowed & allowing != 0 {
            return true;
        }
        let is_denied = |name: (&[u8], bool)| {
            self.acls(resource_type).any(|acls| acls.denies(name, denying, &self.host))
        };
        let acls = self.acls(resource_type);
        let mut allowed = acls.flat_map(|acls| acls.allowing(allowing, &self.host));
        allowed.any(|name| !is_denied(name))
    }
}

/// An address as Java writes it, and therefore ACLs: IPv6 in eight groups, without `::`.
pub fn host_text(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let groups = address.segments().map(|group| format!("{group:x}"));
            groups.join(":")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operation::{All, Alter, AlterConfigs, Describe, DescribeConfigs, Read, Write};
    use ResourceType::{Group, Topic};

    fn acl(name: &str, principal: &str, host: &str, operation: Operation) -> AclBinding {
        AclBinding {
            resource_type: Topic,
            is_prefixed: name.ends_with('-'),
            name: name.into(),
            principal: principal.into(),
            host: host.into(),
            operation,
            is_allow: true,
        }
    }

    fn deny(binding: AclBinding) -> AclBinding {
        AclBinding { is_allow: false, ..binding }
    }

    fn client(bindings: &[AclBinding]) -> AclClient {
        let table = Arc::new(AclTable::new(bindings));
        AclClient::new(&table, (&"alice".into(), &"10.0.0.1".into()), BesideAcls::Nothing)
    }

    #[test]
    fn nothing_is_allowed_without_an_acl() {
        let alice = client(&[acl("orders", "User:bob", "*", All)]);
        assert!(!alice.allows(Read, Topic, "orders"));
        assert!(!alice.allows(Read, Topic, "other"));
    }

    #[test]
    fn an_acl_is_for_a_name_every_name_or_a_prefix() {
        for name in ["orders-eu", "*", "orders-", "o-"] {
            let alice = client(&[acl(name, "User:alice", "*", Read)]);
            assert_eq!(alice.allows(Read, Topic, "orders-eu"), name != "o-", "{name}");
            assert!(!alice.allows(Read, Group, "orders-eu"), "{name}");
        }
        let star = AclBinding { is_prefixed: true, ..acl("*", "User:alice", "*", Read) };
        assert!(!client(std::slice::from_ref(&star)).allows(Read, Topic, "orders"));
        assert!(client(&[star]).allows(Read, Topic, "*orders"));
    }

    #[test]
    fn an_acl_is_for_a_principal_and_a_host() {
        for (principal, host, expected) in [
            ("User:alice", "10.0.0.1", true),
            ("User:*", "*", true),
            ("User:alice", "10.0.0.2", false),
            ("User:bob", "*", false),
            ("Group:alice", "*", false),
            ("alice", "*", false),
        ] {
            let alice = client(&[acl("t", principal, host, Read)]);
            assert_eq!(alice.allows(Read, Topic, "t"), expected, "{principal} {host}");
        }
    }

    #[test]
    fn a_denial_wins_wherever_it_is() {
        let allowed = acl("orders-eu", "User:alice", "*", Read);
        for denied in [
            acl("orders-", "User:*", "*", Read),
            acl("*", "User:alice", "10.0.0.1", All),
            acl("orders-eu", "User:alice", "*", Read),
        ] {
            let alice = client(&[allowed.clone(), deny(denied)]);
            assert!(!alice.allows(Read, Topic, "orders-eu"));
        }
        let elsewhere = deny(acl("orders-", "User:alice", "10.0.0.2", Read));
        assert!(client(&[allowed, elsewhere]).allows(Read, Topic, "orders-eu"));
    }

    #[test]
    fn read_implies_describe_and_its_denial_does_not() {
        let alice = client(&[acl("t", "User:alice", "*", Read)]);
        assert!(alice.allows(Describe, Topic, "t") && !alice.allows(Write, Topic, "t"));
        let alice = client(&[acl("t", "User:alice", "*", AlterConfigs)]);
        assert!(alice.allows(DescribeConfigs, Topic, "t") && !alice.allows(Describe, Topic, "t"));
        let both = [acl("t", "User:alice", "*", Alter), deny(acl("t", "User:*", "*", Alter))];
        assert!(client(&both).allows(Describe, Topic, "t"));
        let all = [acl("t", "User:alice", "*", All), deny(acl("t", "User:*", "*", Describe))];
        assert!(
            client(&all).allows(Read, Topic, "t") && !client(&all).allows(Describe, Topic, "t")
        );
    }

    #[test]
    fn a_resource_without_acls_may_be_everybodys() {
        let bindings = [acl("orders-", "User:bob", "*", Read), acl("t", "Group:x", "*", Read)];
        let alice = AclClient { beside_acls: BesideAcls::ResourcesWithoutAcl, ..client(&bindings) };
        assert!(alice.allows(Write, Topic, "other") && alice.allows(Write, Group, "t"));
        assert!(!alice.allows(Write, Topic, "orders-eu") && !alice.allows(Read, Topic, "t"));
    }

    #[test]
    fn before_the_acls_are_read_no_resource_is_everybodys() {
        let (unread, user) = (Arc::<AclTable>::default(), (&"alice".into(), &"10.0.0.1".into()));
        let alice = AclClient::new(&unread, user, BesideAcls::ResourcesWithoutAcl);
        assert!(!alice.allows(Write, Topic, "t") && !alice.allows_some(Write, Topic));
        let alice = alice.seen_by(&Arc::new(AclTable::new(&[])));
        assert!(alice.allows(Write, Topic, "t") && alice.allows_some(Write, Topic));
    }

    #[test]
    fn some_resource_is_writable_unless_its_name_is_denied() {
        let some = |bindings: &[AclBinding]| client(bindings).allows_some(Write, Topic);
        let allowed = acl("orders-eu", "User:alice", "*", Write);
        let prefixed = acl("orders-", "User:*", "10.0.0.1", All);
        assert!(!some(&[]) && some(std::slice::from_ref(&allowed)));
        assert!(some(std::slice::from_ref(&prefixed)));
        assert!(!some(&[allowed.clone(), deny(acl("*", "User:alice", "*", Write))]));
        assert!(!some(&[allowed.clone(), deny(acl("orders-", "User:*", "*", All))]));
        assert!(!some(&[prefixed.clone(), deny(acl("orders-", "User:*", "*", Write))]));
        assert!(some(&[prefixed.clone(), deny(allowed)]));
        let same_name = AclBinding { is_prefixed: false, ..deny(prefixed.clone()) };
        assert!(some(&[prefixed, same_name]));
        assert!(!some(&[acl("t", "User:alice", "*", Read)]));
    }

    #[test]
    fn addresses_are_written_as_java_writes_them() {
        let text = |address: &str| host_text(address.parse().unwrap());
        assert_eq!(text("127.0.0.1"), "127.0.0.1");
        assert_eq!(text("::1"), "0:0:0:0:0:0:0:1");
        assert_eq!(text("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(text("2001:db8::a0"), "2001:db8:0:0:0:0:0:a0");
    }
}
