//! Requests that wait until a user's class has given their client ACLs (`state::class_acls`).
//!
//! The gate stands before every handler. A request that cannot pass is left in the connection's
//! buffer, and a slot without a reply holds the connection. When the slot is filled, the request is
//! handled as if it had just come, so a client's requests keep their order. Requests of a login
//! pass, and those of super users, for whom the class is never asked.
//! Threads: the gate is on network threads; answers come from any.
//! Limits: a request waits for [`ClassAcls::wait_ms`]; then nothing is allowed to its client.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::broker::requests::access::Authorizer;
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::Call;
use crate::broker::requests::delayed::{DelayedContext, DelayedOperation, OperationProgress, Wake};
use crate::broker::requests::login;
use crate::broker::requests::reply::Output;
use crate::broker::state::acls::AclTable;
use crate::broker::state::class_acls::{
    AskTimes, ClassAcls, ClassClient, ClientAcls, ClientQuestion,
};
use crate::broker::state::waking::DelayedId;

/// A request that waits for the ACLs of its client.
#[derive(Debug)]
struct DelayedForAcls {
    class: Arc<ClassAcls>,
    acls: Arc<ClientAcls>,
}

impl DelayedOperation for DelayedForAcls {
    fn try_complete(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        if is_late {
            let request = (at.thread.index, at.id);
            self.class.give_up(&self.acls, request, at.broker.monotonic_ms());
        }
        OperationProgress::Answered(Output::default())
    }

    fn cancel(&self, _: &Broker, thread: usize, id: DelayedId) {
        self.class.cancel(&self.acls, (thread, id));
    }
}

impl Call<'_, '_> {
    /// Has the request wait if a user's class must give its client ACLs first. Returns whether it
    /// waits.
    #[inline]
    pub(crate) fn waits_for_acls(&mut self) -> bool {
        let authorizer = self.broker.authorizer.get();
        let Some(class) = authorizer.and_then(|it| it.class_for(&self.connection.user)) else {
            return false;
        };
        !login::is_part(self.request.head.api.key) && self.waits_for(class)
    }

    fn waits_for(&mut self, class: &Arc<ClassAcls>) -> bool {
        let now_ms = self.broker.clock.monotonic_ms();
        let connection = &mut *self.connection;
        if connection.class_acls.as_ref().is_some_and(|client| client.acls().counts(now_ms)) {
            return false;
        }
        let client = ClassClient {
            user: Arc::clone(&connection.user),
            host: Arc::clone(&connection.host),
            listener: Arc::clone(&connection.peer.listener),
        };
        let connected = class.connect(&client, now_ms);
        let acls = Arc::clone(connected.acls());
        connection.class_acls = Some(connected);
        if acls.counts(now_ms) {
            return false;
        }
        let id = self.thread.delayed.name();
        if !class.wait(&acls, (self.thread.index, id), now_ms) {
            self.thread.to_retry.push(id);
        }
        let waiting = Box::new(DelayedForAcls { class: Arc::clone(class), acls });
        self.handle_again((id, waiting), class.wait_ms());
        true
    }
}

impl Broker {
    /// Has a user's class say which ACLs each client has. Only the first call counts, and none
    /// after [`Broker::set_authorizer`], whose arguments these are too.
    pub fn set_authorizer_class(
        &self,
        super_users: HashSet<String>,
        allow_everyone: bool,
        times: AskTimes,
    ) {
        let class = Some(Arc::new(ClassAcls::new(times)));
        let _ = self.authorizer.set(Authorizer { super_users, allow_everyone, class });
    }

    /// The clients for which the class is to be asked now; waits for the first. `None`: there is no
    /// class, or the end has come.
    pub fn acl_questions(&self, timeout: Duration) -> Option<Vec<ClientQuestion>> {
        self.class()?.questions(&*self.clock, timeout)
    }

    /// Takes the ACLs of a client. `Err`: the class gave none, and is asked again after this many
    /// milliseconds.
    pub fn answer_acls(&self, number: u64, answer: Result<AclTable, i64>) {
        let Some(class) = self.class() else { return };
        for (thread, id) in class.answered(number, answer, self.clock.monotonic_ms()) {
            self.post(thread, Wake::Recheck(id));
        }
    }

    /// Ends the questions, so that [`Broker::acl_questions`] returns.
    pub fn end_acl_questions(&self) {
        if let Some(class) = self.class() {
            class.close();
        }
    }

    fn class(&self) -> Option<&ClassAcls> {
        self.authorizer.get()?.class.as_deref()
    }
}
