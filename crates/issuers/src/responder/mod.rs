//! Responders for http-01 and tls-alpn-01 validations.
//!
//! http-01 answers are in the database, so every server of a cluster has them. The server mounts [`Responders::http01`] under
//! `/.well-known/acme-challenge/`. Where ports 80 and 443 do not lead to the server, an issuer can have its own listeners, which
//! are open only during a challenge.

mod alpn;
mod http01;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inbound::ServiceTasks;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use shared::Shared;
use store::{Clock, Store};
use tokio::net::TcpListener;

use crate::error::IssuerError;
use http01::Http01Responses;

pub use alpn::{ACME_TLS, TlsAlpnResponses};

/// Maximum wait for an address in use before the order fails and is retried.
const BIND_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts to bind the address.
const BIND_PAUSE: Duration = Duration::from_millis(50);
const BIND_RETRY: Duration = Duration::from_secs(30);

/// Responders that answer validations. Clones share their state.
#[derive(Clone)]
pub struct Responders(Shared<ResponderParts>);

struct ResponderParts {
    http01: Arc<Http01Responses>,
    clock: Clock,
    alpn: Arc<TlsAlpnResponses>,
    listening: Mutex<HashMap<(SocketAddr, Protocol), SharedListener>>,
    /// Locked while a listener is looked up or opened.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Protocol {
    Http01,
    TlsAlpn01,
}

struct SharedListener {
    users: usize,
    /// The listener task and its connections. Aborted when the last user is dropped.
    tasks: ServiceTasks,
}

impl std::fmt::Debug for Responders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responders").finish_non_exhaustive()
    }
}

impl Responders {
    /// Creates responders that store http-01 answers in this database.
    #[must_use]
    pub fn new(store: Store, clock: Clock) -> Self {
        Self(Shared::new(ResponderParts {
            http01: Arc::new(Http01Responses::new(store, clock.clone())),
            clock,
            alpn: Arc::default(),
            listening: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        }))
    }

    /// Returns the response to `GET /.well-known/acme-challenge/{token}`, if a challenge with that token is pending.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn http01(&self, token: &str) -> Result<Option<String>, store::StoreError> {
        self.0.http01.get(token).await
    }

    /// Returns the certificate for a TLS client that offers [`ACME_TLS`] and sends `server_name`.
    #[must_use]
    pub fn tls_alpn01(&self, server_name: &str) -> Option<Arc<CertifiedKey>> {
        self.0.alpn.get(server_name)
    }

    pub(crate) async fn put_http01(&self, answers: Vec<(String, String)>) -> Result<(), IssuerError> {
        Ok(self.0.http01.put(answers).await?)
    }

    pub(crate) async fn remove_http01(&self, tokens: Vec<String>) -> Result<(), IssuerError> {
        Ok(self.0.http01.remove(tokens).await?)
    }

    pub(crate) fn put_alpn(&self, name: &str, digest: &[u8; 32]) -> Result<(), IssuerError> {
        self.0.alpn.put(name, digest, self.0.clock.now_seconds())
    }

    pub(crate) fn remove_alpn(&self, name: &str) {
        self.0.alpn.remove(name);
    }

    /// Listens on `address` until the guard is dropped. Several guards share one listener.
    pub(crate) async fn listen(
        &self,
        address: SocketAddr,
        protocol: Protocol,
    ) -> Result<ListenGuard, IssuerError> {
        let guard = || ListenGuard { responders: self.clone(), address, protocol };
        let _opening = self.0.opening.lock().await;
        if self.join(address, protocol) {
            return Ok(guard());
        }
        let listener = bind(address).await?;
        let tasks = ServiceTasks::default();
        match protocol {
            Protocol::Http01 => {
                tasks.spawn(http01::serve(listener, Arc::downgrade(&self.0.http01), tasks.clone()));
            }
            Protocol::TlsAlpn01 => {
                tasks.spawn(alpn::serve(listener, Arc::clone(&self.0.alpn), tasks.clone()));
            }
        }
        let listening = SharedListener { users: 1, tasks };
        self.0.listening.lock().insert((address, protocol), listening);
        Ok(guard())
    }

    fn join(&self, address: SocketAddr, protocol: Protocol) -> bool {
        let mut listening = self.0.listening.lock();
        let known = listening.get_mut(&(address, protocol));
        known.map(|known| known.users += 1).is_some()
    }
}

/// Binds the address. Waits if it is in use: another server on this machine may have a pending challenge.
async fn bind(address: SocketAddr) -> Result<TcpListener, IssuerError> {
    let until = Instant::now() + BIND_TIMEOUT;
    loop {
        let error = match inbound::listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        let reason = format!("cannot listen on {address} for challenges: {error}");
        if error.kind() != std::io::ErrorKind::AddrInUse {
            return Err(IssuerError::Misconfigured { reason });
        }
        if Instant::now() >= until {
            return Err(IssuerError::Deferred { retry_after: BIND_RETRY, reason });
        }
        tokio::time::sleep(BIND_PAUSE).await;
    }
}

/// Guard that keeps a challenge listener open until it is dropped.
#[derive(Debug)]
pub(crate) struct ListenGuard {
    responders: Responders,
    address: SocketAddr,
    protocol: Protocol,
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        let mut listening = self.responders.0.listening.lock();
        let key = (self.address, self.protocol);
        let Some(known) = listening.get_mut(&key) else { return };
        known.users -= 1;
        if known.users == 0 {
            known.tasks.abort();
            listening.remove(&key);
        }
    }
}
