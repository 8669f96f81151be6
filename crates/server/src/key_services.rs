//! Access to the metrics and traces of key services.

use futures_util::future::BoxFuture;
use serde_json::Value;

/// The key services whose load and traces this server reads. The configuration of the server's host lists them.
pub trait KeyServices: Send + Sync {
    /// Returns the load of all services (rates, queues and times), as `bulla key top --json` prints it.
    fn load(&self) -> BoxFuture<'_, Value>;

    /// Returns the requests of a trace or request ID, each with the nodes that it was sent to, as `bulla key trace --json` prints them.
    /// Without an ID: recent requests that failed or were slow.
    fn traces(&self, id: Option<String>) -> BoxFuture<'_, Value>;
}
