//! Work in a transaction: with its answer apart, so that what runs it is compiled once, and shared by several callers on
//! SQLite.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::tx::Tx;

/// Work in a transaction. Its answer goes where [`WorkResult`] finds it.
pub(crate) type Work =
    Box<dyn for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<(), StoreError>> + Send + 'static>;

/// The answer of a piece of work.
pub(crate) struct WorkResult<T>(Arc<Mutex<Option<T>>>);

impl<T: Send + 'static> WorkResult<T> {
    /// `work`, and where its answer will be.
    pub(crate) fn of(
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
    ) -> (Work, Self) {
        let answer = Arc::new(Mutex::new(None));
        let place = Arc::clone(&answer);
        let work: Work = Box::new(move |tx| kept(work(tx), place));
        (work, Self(answer))
    }

    /// The answer, once the work has succeeded.
    pub(crate) fn take(self) -> Result<T, StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(StoreError::Closed)
    }
}

fn kept<T: Send + 'static>(
    doing: BoxFuture<'_, Result<T, StoreError>>,
    place: Arc<Mutex<Option<T>>>,
) -> BoxFuture<'_, Result<(), StoreError>> {
    async move {
        let answer = doing.await?;
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        Ok(())
    }
    .boxed()
}

/// A piece of work that may share its transaction with others.
pub(crate) struct JointWork {
    name: &'static str,
    work: Option<Work>,
    outcome: Option<Result<(), StoreError>>,
    reply: Option<oneshot::Sender<Result<(), StoreError>>>,
}

impl JointWork {
    pub(crate) fn new(name: &'static str, work: Work) -> (Self, oneshot::Receiver<Result<(), StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        (Self { name, work: Some(work), outcome: None, reply: Some(reply) }, outcome)
    }

    /// Runs; false when its changes are to be undone.
    pub(crate) fn run(&mut self, tx: &mut Tx) -> bool {
        let Some(work) = self.work.take() else { return false };
        let outcome = work(tx).now_or_never().unwrap_or_else(|| {
            Err(StoreError::Statement {
                statement: self.name.to_owned(),
                source: "a transaction waited for something other than its database".into(),
            })
        });
        let good = outcome.is_ok();
        self.outcome = Some(outcome);
        good
    }

    /// That it found the disk full, for those that shared its transaction.
    pub(crate) fn full(&self) -> Option<StoreError> {
        let failed = self.outcome.as_ref().and_then(|outcome| outcome.as_ref().err());
        failed.filter(|error| matches!(error, StoreError::Full { .. })).map(StoreError::again)
    }

    /// Tells the caller; `failed` when the shared transaction was not committed.
    pub(crate) fn settle(mut self, failed: Option<&StoreError>) {
        let outcome = match (failed, self.outcome.take()) {
            (_, Some(Err(own))) => Err(own),
            (Some(error), _) => Err(error.again()),
            (None, Some(outcome)) => outcome,
            (None, None) => Err(StoreError::Closed),
        };
        if let Some(reply) = self.reply.take() {
            // Anyone who went away needs no answer.
            let _ = reply.send(outcome);
        }
    }
}
