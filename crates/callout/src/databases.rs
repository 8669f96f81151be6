//! Sessions at PostgreSQL servers that an operator configured. The guard checks the servers' addresses. Sessions are limited in
//! number and reused.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use db::postgres::{RemoteError, RemoteLogin, RemoteServer, RemoteSession};
use outbound::dial;
use outbound::guard::Guard;
use outbound::resolve::{Families, Resolver};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::cache::ClientCache;

/// Maximum concurrent sessions of this process at one server. When all are in use, callers wait.
const SESSIONS_MAX: usize = 4;

/// Maximum time to wait for a free session.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

/// Timeout of a name lookup, and of opening a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Time after which an idle session is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// A database server that an operator configured.
#[derive(Clone, Copy)]
pub struct DatabaseTarget<'a> {
    /// Revision of the configuration. Every change sets a new revision. Sessions are reused by revision.
    pub revision: Uuid,
    /// TCP port of the PostgreSQL server.
    pub port: u16,
    /// Host and credentials.
    pub login: RemoteLogin<'a>,
}

/// The sessions of this process at configured databases. Cheap to clone.
#[derive(Clone)]
pub struct Databases {
    resolver: Resolver,
    guard: Guard,
    servers: Arc<Mutex<ClientCache<Arc<Sessions>>>>,
}

/// The sessions at one server.
struct Sessions {
    server: RemoteServer,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<(RemoteSession, Instant)>>,
}

/// A session in use. Dropping it closes the connection; [`DatabaseSession::keep`] returns it for reuse.
pub struct DatabaseSession {
    session: RemoteSession,
    sessions: Arc<Sessions>,
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for Databases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Databases").finish_non_exhaustive()
    }
}

impl Databases {
    /// Creates an empty set of sessions. `resolver` resolves the names of servers, and `guard` checks their addresses.
    #[must_use]
    pub fn new(resolver: Resolver, guard: Guard) -> Self {
        Self { resolver, guard, servers: Arc::default() }
    }

    /// Returns a session at a server: an idle one that answers, or a new one.
    ///
    /// # Errors
    /// [`RemoteError::Unavailable`], [`RemoteError::Login`].
    #[crate::boxed]
    pub async fn session(&self, target: &DatabaseTarget<'_>) -> Result<DatabaseSession, RemoteError> {
        let sessions = self.sessions_of(target).map_err(RemoteError::Unavailable)?;
        let permit = tokio::time::timeout(WAIT_LIMIT, Arc::clone(&sessions.permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let text =
                format!("all {SESSIONS_MAX} connections to the database server are in use here; try again");
            return Err(RemoteError::Unavailable(text));
        };
        loop {
            let idle = sessions.idle.lock().pop();
            let Some((session, _)) = idle else { break };
            if session.ping().await {
                return Ok(DatabaseSession { session, sessions, _permit: permit });
            }
        }
        let session = self.connect(&sessions.server, target).await?;
        Ok(DatabaseSession { session, sessions, _permit: permit })
    }

    /// Closes sessions that were idle for a minute.
    pub fn close_idle(&self) {
        let now = Instant::now();
        for sessions in self.servers.lock().values() {
            sessions.idle.lock().retain(|(_, since)| now.duration_since(*since) < IDLE_LIMIT);
        }
    }

    fn sessions_of(&self, target: &DatabaseTarget<'_>) -> Result<Arc<Sessions>, String> {
        let of = (target.revision, 0);
        if let Some(known) = self.servers.lock().get(of) {
            return Ok(known);
        }
        let sessions = Arc::new(Sessions {
            server: RemoteServer::new(&target.login)?,
            permits: Arc::new(Semaphore::new(SESSIONS_MAX)),
            idle: Mutex::default(),
        });
        let mut servers = self.servers.lock();
        // Another task may have added the same server in the meantime. Both tasks must share one limit.
        if let Some(known) = servers.get(of) {
            return Ok(known);
        }
        servers.put(of, Arc::clone(&sessions));
        Ok(sessions)
    }

    async fn connect(
        &self,
        server: &RemoteServer,
        target: &DatabaseTarget<'_>,
    ) -> Result<RemoteSession, RemoteError> {
        let host = target.login.host;
        let unavailable = |why: &dyn fmt::Display| RemoteError::Unavailable(format!("{host}: {why}"));
        let found = self.resolver.resolve(host, Families::Both, CONNECT_LIMIT).await;
        let (mut allowed, mut refused) = (Vec::new(), None);
        for address in found.map_err(|error| unavailable(&error))?.addresses {
            match self.guard.address(address) {
                Ok(()) => allowed.push(address),
                Err(error) => refused = Some(error),
            }
        }
        if let (true, Some(error)) = (allowed.is_empty(), refused) {
            return Err(unavailable(&error));
        }
        let dialed = dial::happy_eyeballs(&allowed, target.port, CONNECT_LIMIT).await;
        let (stream, _) = dialed.map_err(|(_, error)| unavailable(&error))?;
        server.log_in(stream).await
    }
}

impl DatabaseSession {
    /// Makes the session available for reuse, instead of closing its connection.
    pub fn keep(self) {
        if !self.session.is_closed() {
            self.sessions.idle.lock().push((self.session, Instant::now()));
        }
    }
}

impl Deref for DatabaseSession {
    type Target = RemoteSession;

    fn deref(&self) -> &RemoteSession {
        &self.session
    }
}
