//! [`Access`]: what the client of one request is allowed, and the audit of it.
//!
//! Without an authorizer everything is allowed. With one, the API table says which operations a
//! request may need; its handler asks for each before it has any effect. Refusals, and
//! administrative operations that are allowed, are logged under the target `krust::audit`.
//! The ACLs are those of the image, or those that a user's class gives the client.
//! Threads: any; it keeps the ACLs that it was made from.

use std::collections::HashSet;
use std::sync::Arc;

use crate::broker::requests::apis::Api;
use crate::broker::state::acls::{AclClient, BesideAcls, CLUSTER_NAME, Operation, ResourceType};
use crate::broker::state::class_acls::ClassAcls;
use crate::broker::state::image::{ClusterImage, TopicImage};
use crate::broker::state::lookup::{NamedTopic, allowed};
use crate::protocol::ErrorCode;

use Operation::{
    Alter, AlterConfigs, ClusterAction, Create, Delete, Describe, DescribeConfigs, IdempotentWrite,
    Read, Write,
};
use ResourceType::{Cluster, Group, Topic};

/// The bits of operations that a request did not ask for (KIP-430).
pub(crate) const OPERATIONS_NOT_ASKED: i32 = i32::MIN;

/// The operations on a topic, on a group and on the cluster that replies tell.
const ON_TOPICS: [Operation; 8] =
    [Read, Write, Create, Describe, Delete, Alter, DescribeConfigs, AlterConfigs];
const ON_GROUPS: [Operation; 3] = [Read, Describe, Delete];
const ON_THE_CLUSTER: [Operation; 7] =
    [Create, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite, Alter, Describe];

/// Who may do what: ACLs, with the settings that the authorizer has besides.
#[derive(Debug)]
pub(crate) struct Authorizer {
    /// The names of `super.users`, to whom everything is allowed.
    pub(crate) super_users: HashSet<String>,
    /// `allow.everyone.if.no.acl.found`.
    pub(crate) allow_everyone: bool,
    /// The clients of the user's class that gives ACLs; `None`: ACLs are in the image.
    pub(crate) class: Option<Arc<ClassAcls>>,
}

/// What the client of a request is allowed.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// `None`: there is no authorizer.
    pub(crate) client: Option<Arc<AclClient>>,
    pub(crate) api: &'static Api,
}

impl Authorizer {
    /// What the settings allow a user beside ACLs.
    pub(crate) fn beside_acls(&self, user: &str) -> BesideAcls {
        match () {
            () if self.super_users.contains(user) => BesideAcls::Everything,
            () if self.allow_everyone => BesideAcls::ResourcesWithoutAcl,
            () => BesideAcls::Nothing,
        }
    }

    /// The class that must be asked for a user's ACLs.
    pub(crate) fn class_for(&self, user: &str) -> Option<&Arc<ClassAcls>> {
        self.class.as_ref().filter(|_| !self.super_users.contains(user))
    }
}

impl Access {
    /// Whether everything is allowed.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.client.as_ref().is_none_or(|client| client.beside_acls == BesideAcls::Everything)
    }

    /// Whether an operation is allowed that the client has asked for by name.
    #[inline]
    pub(crate) fn check(&self, operation: Operation, of: ResourceType, name: &str) -> bool {
        let Some(client) = &self.client else { return true };
        debug_assert!(self.api.asks(operation, of), "{}: {operation:?} {of:?}", self.api.name);
        let is_allowed = client.allows(operation, of, name);
        if !is_allowed || matches!(operation, Create | Delete | Alter | AlterConfigs) {
            self.audit(client, (operation, of, name), is_allowed);
        }
        is_allowed
    }

    /// Whether an operation is allowed. A refusal is not logged, because the client did not ask for
    /// this resource, or another operation will do.
    #[inline]
    pub(crate) fn sees(&self, operation: Operation, of: ResourceType, name: &str) -> bool {
        let Some(client) = &self.client else { return true };
        debug_assert!(self.api.asks(operation, of), "{}: {operation:?} {of:?}", self.api.name);
        client.allows(operation, of, name)
    }

    /// Whether an operation on the cluster is allowed.
    pub(crate) fn check_cluster(&self, operation: Operation) -> bool {
        self.check(operation, Cluster, CLUSTER_NAME)
    }

    /// The same without a log line.
    pub(crate) fn sees_cluster(&self, operation: Operation) -> bool {
        self.sees(operation, Cluster, CLUSTER_NAME)
    }

    /// Whether a topic of this name may be created.
    pub(crate) fn may_create(&self, topic: &str) -> bool {
        let Some(client) = &self.client else { return true };
        let places = [(Cluster, CLUSTER_NAME), (Topic, topic)];
        let is_allowed = places.into_iter().any(|(of, name)| client.allows(Create, of, name));
        self.audit(client, (Create, Topic, topic), is_allowed);
        is_allowed
    }

    /// Whether the client may get a producer id without a transaction (KIP-679): it may write to
    /// some topic, or has IdempotentWrite.
    pub(crate) fn may_write_idempotently(&self) -> bool {
        let Some(client) = &self.client else { return true };
        client.allows_some(Write, Topic) || self.check_cluster(IdempotentWrite)
    }

    /// A topic of a request, by name or id, if the client may do `operation` with it.
    #[inline]
    pub(crate) fn topic<'i>(
        &self,
        operation: Operation,
        topic: NamedTopic<'_>,
        image: &'i ClusterImage,
    ) -> Result<&'i Arc<TopicImage>, ErrorCode> {
        allowed(topic.topic, topic.find(image), |name| self.check(operation, Topic, name))
    }

    /// The bits of the operations that are allowed on a topic.
    pub(crate) fn topic_operations(&self, name: &str) -> i32 {
        self.operations(&ON_TOPICS, Topic, name)
    }

    /// The bits of the operations that are allowed on a group.
    pub(crate) fn group_operations(&self, name: &str) -> i32 {
        self.operations(&ON_GROUPS, Group, name)
    }

    /// The bits of the operations that are allowed on the cluster; none if Describe is not.
    pub(crate) fn cluster_operations(&self) -> i32 {
        match self.operations(&ON_THE_CLUSTER, Cluster, CLUSTER_NAME) {
            bits if bits & i32::from(Describe.bit()) == 0 => 0,
            bits => bits,
        }
    }

    fn operations(&self, all: &[Operation], of: ResourceType, name: &str) -> i32 {
        let is_allowed = |operation: Operation| {
            self.client.as_ref().is_none_or(|client| client.allows(operation, of, name))
        };
        let allowed = all.iter().filter(|operation| is_allowed(**operation));
        allowed.fold(0, |bits, operation| bits | i32::from(operation.bit()))
    }

    #[cold]
    fn audit(
        &self,
        client: &AclClient,
        (operation, of, name): (Operation, ResourceType, &str),
        is_allowed: bool,
    ) {
        tracing::info!(
            target: "krust::audit",
            user = &*client.user,
            host = %client.host,
            api = self.api.name,
            ?operation,
            resource = ?of,
            name,
            "{}",
            if is_allowed { "allowed" } else { "denied" },
        );
    }
}
