//! Shares one HTTP/2 connection among concurrent requests to an origin.

use std::sync::Arc;
use std::time::Duration;

use flight::{Failed, Fresh};
use outbound::Deadline;
use parking_lot::Mutex;

use super::super::target::Origin;
use super::error::UpstreamConnectError;
use super::making::{HTTP1_LIFE, SharedConnection};
use super::sender::{Ready, Sender};
use super::upstreams::Upstreams;

/// The new connection, for the task that requested it.
type RequestedConnection = Arc<Mutex<Option<Ready>>>;

impl Upstreams {
    /// Returns a connection for one more request when none is idle: a connection that another task has just opened, or a new one.
    pub(super) async fn connection(&self, origin: &Arc<Origin>) -> Result<Ready, Arc<UpstreamConnectError>> {
        if !origin.http2 || !self.0.keeps_idle {
            return self.connect(origin).await.map_err(Arc::new);
        }
        let own = RequestedConnection::default();
        let deadline = Deadline::within(self.0.connect_timeout);
        // Each iteration means that a connection was opened, but other requests took all of its slots. The loop ends when no more
        // connections may be opened.
        while !deadline.remaining().is_zero() {
            let (pool, wanted, own_made) = (self.clone(), Arc::clone(origin), Arc::clone(&own));
            let making = move || async move { pool.make(&wanted, &own_made).await };
            let made = self.0.making.fetch(origin, making).await?;
            if let Some(ready) = own.lock().take() {
                return Ok(ready);
            }
            let SharedConnection::Http2(shared) = made else {
                return self.connect(origin).await.map_err(Arc::new);
            };
            if let Some(stream) = shared.claim() {
                return Ok(Ready { sender: Sender::Http2(shared), stream: Some(stream), pooled: true });
            }
            if let Some(ready) = self.0.pool.take(origin) {
                return Ok(ready);
            }
        }
        Err(Arc::new(UpstreamConnectError::Late))
    }

    /// Opens a connection. Stores it in `own` for the task that requested it. If it uses HTTP/2, all other waiting tasks share it.
    async fn make(
        &self,
        origin: &Arc<Origin>,
        own: &Mutex<Option<Ready>>,
    ) -> Result<Fresh<SharedConnection>, Failed<Arc<UpstreamConnectError>>> {
        // Another request may just have returned a connection.
        let ready = match self.0.pool.take(origin) {
            Some(ready) => ready,
            None => {
                let failed = |error| Failed { error: Arc::new(error), lifetime: Duration::ZERO };
                self.connect(origin).await.map_err(failed)?
            }
        };
        let fresh = match &ready.sender {
            Sender::Http2(shared) => {
                Fresh { value: SharedConnection::Http2(shared.clone()), lifetime: Duration::ZERO }
            }
            Sender::Http1(_) => Fresh { value: SharedConnection::Http1, lifetime: HTTP1_LIFE },
        };
        *own.lock() = Some(ready);
        Ok(fresh)
    }
}
