//! Closures that run in a transaction. Their results are stored separately, so that the code that runs them is compiled once. On
//! SQLite several callers share a transaction.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::tx::Tx;

/// A closure that runs in a transaction. Its result is stored in a [`WorkResult`].
pub(crate) type Work =
    Box<dyn for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<(), StoreError>> + Send + 'static>;

/// Holder of a result that the work stores.
pub(crate) struct WorkResult<T>(Arc<Mutex<Option<T>>>);

impl<T: Send + 'static> WorkResult<T> {
    /// Wraps `work` so that its result is stored. Returns the wrapped work and the holder of the result.
    pub(crate) fn of(
        work: impl for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
    ) -> (Work, Self) {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let work: Work = Box::new(move |tx| store_result(work(tx), slot));
        (work, Self(answer))
    }

    /// Returns the result, once the work has succeeded.
    pub(crate) fn take(self) -> Result<T, StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(StoreError::Closed)
    }
}

fn store_result<T: Send + 'static>(
    doing: BoxFuture<'_, Result<T, StoreError>>,
    slot: Arc<Mutex<Option<T>>>,
) -> BoxFuture<'_, Result<(), StoreError>> {
    async move {
        let answer = doing.await?;
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        Ok(())
    }
    .boxed()
}

/// Work that may share its transaction with other work.
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

    /// Runs the work. Returns false when its changes must be rolled back.
    pub(crate) fn run(&mut self, tx: &mut Tx) -> bool {
        let Some(work) = self.work.take() else { return false };
        let outcome = work(tx).now_or_never().unwrap_or_else(|| {
            Err(StoreError::Statement {
                statement: self.name.to_owned(),
                source: "a transaction waited for something other than its database".into(),
            })
        });
        let succeeded = outcome.is_ok();
        self.outcome = Some(outcome);
        succeeded
    }

    /// Returns the error if the work found the disk full. That error applies to all work in the transaction.
    pub(crate) fn full(&self) -> Option<StoreError> {
        let failed = self.outcome.as_ref().and_then(|outcome| outcome.as_ref().err());
        failed.filter(|error| matches!(error, StoreError::Full { .. })).map(StoreError::duplicate)
    }

    /// Sends the result to the caller. `failed` is the error of a shared transaction that was not committed.
    pub(crate) fn reply_outcome(mut self, failed: Option<&StoreError>) {
        let outcome = match (failed, self.outcome.take()) {
            (_, Some(Err(own))) => Err(own),
            (Some(error), _) => Err(error.duplicate()),
            (None, Some(outcome)) => outcome,
            (None, None) => Err(StoreError::Closed),
        };
        if let Some(reply) = self.reply.take() {
            // A caller that was dropped needs no result.
            let _ = reply.send(outcome);
        }
    }
}
