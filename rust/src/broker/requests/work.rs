//! Requests that need a worker: records read from disk or converted for old consumers, large
//! batches inflated and checked, batches recompressed, segments made.
//!
//! A network thread serves many connections, so it does only short work of this kind. Other
//! requests are delayed and passed to a worker, and later requests of the same client wait. The
//! worker finishes the request and posts the result to its network thread.
//! Limits: a connection has one request at a worker at a time. A request that waits for a worker is
//!     dropped when its connection closes; one that has a worker ends by itself.
//! Panics: a worker's panic is logged and closes the connection of the request.

use std::sync::Arc;

use crate::broker::requests::broker::Broker;
use crate::broker::requests::delayed::{
    DelayedContext, DelayedOperation, OperationProgress, Wake, WorkResult,
};
use crate::broker::requests::workers::{CancelFlag, JobStart};
use crate::broker::state::quotas::account::QuotaAccount;
use crate::broker::state::waking::DelayedId;
use crate::storage::panics::caught;

/// A request that a worker handles or will handle. It needs no deadline, because a worker's job
/// ends.
#[derive(Debug)]
struct DelayedAtWorker(CancelFlag);

impl DelayedOperation for DelayedAtWorker {
    fn try_complete(self: Box<Self>, _: &mut DelayedContext<'_>, _: bool) -> OperationProgress {
        OperationProgress::Waits(self)
    }

    fn cancel(&self, _: &Broker, _: usize, _: DelayedId) {
        self.0.cancel();
    }
}

impl Broker {
    /// Passes a delayed request of a network thread to a worker. Returns what the request waits for
    /// meanwhile.
    pub(crate) fn work_on(
        &self,
        (thread, delayed): (usize, DelayedId),
        account: Option<Arc<QuotaAccount>>,
        run: impl FnOnce(&Self) -> WorkResult + Send + 'static,
    ) -> Box<dyn DelayedOperation> {
        let cancelled = CancelFlag::default();
        let (is_cancelled, me) = (cancelled.clone(), self.me.clone());
        self.workers.submit(Box::new(move |turn| {
            let Some(broker) = me.upgrade() else { return };
            match turn {
                JobStart::HasNoThread => broker.post(thread, Wake::Fail(delayed)),
                JobStart::Runs if is_cancelled.is_set() => {}
                JobStart::Runs => broker.post(thread, broker.worked(delayed, account, run)),
            }
        }));
        Box::new(DelayedAtWorker(cancelled))
    }

    /// Runs the work of a request on this thread. Returns the message for its network thread.
    fn worked(
        &self,
        delayed: DelayedId,
        account: Option<Arc<QuotaAccount>>,
        run: impl FnOnce(&Self) -> WorkResult,
    ) -> Wake {
        let began = self.clock.monotonic_nanos();
        let worked = caught(&"a worker's job", || run(self));
        if let Some(account) = account.filter(|it| it.is_timed()) {
            let nanos = self.clock.monotonic_nanos() - began;
            account.took(nanos, self.clock.monotonic_ms());
        }
        match worked {
            Some(WorkResult::Answer(output)) => Wake::Answer(delayed, output),
            Some(WorkResult::Waits(now)) => Wake::Waits(delayed, now),
            Some(WorkResult::Fails) | None => Wake::Fail(delayed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::broker::policy::{Event, Policy};
    use crate::broker::requests::broker::Settings;
    use crate::broker::requests::reply::Output;
    use crate::broker::requests::service::Mailbox;
    use crate::broker::state::log_manager::LogManager;
    use crate::clock::SystemClock;

    struct Undecided;

    impl Policy for Undecided {
        fn submit(&self, _: Event) {}
        fn hurry(&self) {}
    }

    struct Mail(std::sync::mpsc::Sender<(u64, bool)>);

    impl Mailbox<Wake> for Mail {
        fn post(&self, _: usize, wake: Wake) {
            let _ = self.0.send(match wake {
                Wake::Answer(delayed, _) => (delayed.0, true),
                Wake::Fail(delayed) => (delayed.0, false),
                _ => return,
            });
        }
    }

    /// A broker with one worker, and the names of requests that were answered or failed.
    fn broker() -> (Arc<Broker>, Receiver<(u64, bool)>) {
        let settings = Settings { worker_threads: 1, ..Settings::default() };
        let store = LogManager::new(Vec::new());
        let broker = Broker::new(settings, store, Arc::new(Undecided), Arc::new(SystemClock));
        let (mail, wakes) = channel();
        broker.connect(Arc::new(Mail(mail)));
        (broker, wakes)
    }

    fn answers(_: &Broker) -> WorkResult {
        WorkResult::Answer(Output::default())
    }

    #[test]
    fn a_job_whose_connection_closed_is_dropped_unless_it_runs() {
        let (broker, wakes) = broker();
        let (go_on, blocked) = channel::<()>();
        let (began, begun) = channel();
        let running = broker.work_on((0, DelayedId(1)), None, move |broker: &Broker| {
            began.send(()).unwrap();
            let _ = blocked.recv();
            answers(broker)
        });
        begun.recv().unwrap();
        let dropped = broker.work_on((0, DelayedId(2)), None, answers);
        broker.work_on((0, DelayedId(3)), None, answers);
        for (id, operation) in [(1, running), (2, dropped)] {
            operation.cancel(&broker, 0, DelayedId(id));
        }
        drop(go_on);
        assert_eq!([wakes.recv(), wakes.recv()], [Ok((1, true)), Ok((3, true))]);
        broker.close().unwrap();
        assert!(wakes.try_recv().is_err());
    }

    #[test]
    fn a_job_that_panics_costs_its_own_connection_only() {
        let (broker, wakes) = broker();
        broker.work_on((0, DelayedId(1)), None, |_| panic!("on purpose"));
        broker.work_on((0, DelayedId(2)), None, answers);
        assert_eq!([wakes.recv(), wakes.recv()], [Ok((1, false)), Ok((2, true))]);
    }

    #[test]
    fn at_the_end_what_did_not_begin_is_dropped() {
        let (broker, wakes) = broker();
        broker.close().unwrap();
        broker.work_on((0, DelayedId(1)), None, answers);
        assert!(wakes.try_recv().is_err());
    }
}
