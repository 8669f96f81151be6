//! Pieces of work that share one transaction of SQLite.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::tx::Tx;

/// A piece of work that may share its transaction with others.
pub(crate) trait Joint: Send {
    /// Runs; false when its changes are to be undone.
    fn run(&mut self, tx: &mut Tx) -> bool;
    /// Tells the caller; `failed` when the shared transaction was not committed.
    fn settle(self: Box<Self>, failed: Option<&StoreError>);
}

pub(crate) struct JointWork<T, F> {
    name: &'static str,
    work: Option<F>,
    outcome: Option<Result<T, StoreError>>,
    reply: Option<oneshot::Sender<Result<T, StoreError>>>,
}

impl<T, F> JointWork<T, F> {
    pub(crate) fn new(name: &'static str, work: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { name, work: Some(work), outcome: None, reply: Some(reply) }, answer)
    }
}

impl<T, F> Joint for JointWork<T, F>
where
    T: Send + 'static,
    F: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T, StoreError>> + Send + 'static,
{
    fn run(&mut self, tx: &mut Tx) -> bool {
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

    fn settle(mut self: Box<Self>, failed: Option<&StoreError>) {
        let outcome = match (failed, self.outcome.take()) {
            (_, Some(Err(own))) => Err(own),
            (Some(error), _) => Err(error.again()),
            (None, Some(outcome)) => outcome,
            (None, None) => Err(StoreError::Closed),
        };
        if let Some(reply) = self.reply.take() {
            // Whoever went away needs no answer.
            let _ = reply.send(outcome);
        }
    }
}
