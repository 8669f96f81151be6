//! Decisions about the databases that a session uses.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_relay::client::Client;
use http_relay::target::Target;
use tokio::sync::mpsc;

use crate::policy::{DatabaseSession, Grantee, Phase, SessionProtocol};
use crate::proxy::Proxy;
use crate::requests::{Injected, NoLogin};
use crate::sessions::Failure;

/// The database in which a session begins.
pub(super) const FIRST_DATABASE: &str = "0";
/// Maximum databases of a session. Redis has 16 by default. The policy decides about all of them again after each change of the
/// rules.
pub(super) const DATABASES_MAX: usize = 64;

/// The client and the server of a session, for decisions about its databases.
pub(super) struct DatabaseGate<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) client: &'a Client,
    pub(super) target: &'a Target,
    pub(super) grantee: Grantee,
    /// The credential of the session.
    pub(super) injected: Injected,
}

pub(super) const fn redis(database: &str) -> DatabaseSession<'_> {
    DatabaseSession { protocol: SessionProtocol::Redis, database }
}

impl DatabaseGate<'_> {
    /// Decides whether the session may use these databases: the policy must allow a session with each, and the rules must grant the
    /// credential of the session for it. Each decision is audited before the database is used.
    pub(super) async fn admit(&self, databases: &[String]) -> Result<(), Failure> {
        for database in databases {
            self.admit_one(database).await?;
        }
        Ok(())
    }

    async fn admit_one(&self, database: &str) -> Result<(), Failure> {
        let Self { proxy, client, target, grantee, injected } = self;
        let session = redis(database);
        let audited = proxy.admit_database(client, target, session).await?;
        let rules = proxy.rules.now();
        let granted = rules.requests.session_credential((&target.name, target.port), session, grantee);
        if granted.is_none_or(|(_, name)| *name != *injected.name()) {
            let _ = proxy.requests.audit(|| audited.denied("no-credential")).await;
            return Err(NoLogin::NotGranted(SessionProtocol::Redis).into());
        }
        proxy.requests.audit(|| audited.sent(std::slice::from_ref(injected))).await?;
        Ok(())
    }

    /// Waits until the policy no longer allows the session with one of its databases, or its client loses access. `added` returns
    /// databases that are used besides the first.
    pub(super) async fn wait_until_not_admitted(&self, mut added: mpsc::Receiver<String>) {
        let mut waits = FuturesUnordered::new();
        waits.push(self.wait_for(FIRST_DATABASE.to_owned()));
        loop {
            tokio::select! {
                Some(()) = waits.next() => return,
                Some(database) = added.recv() => waits.push(self.wait_for(database)),
            }
        }
    }

    async fn wait_for(&self, database: String) {
        let Self { proxy, client, target, .. } = self;
        let phase = Phase::Session(redis(&database));
        proxy.wait_until_not_admitted(client, target, &target.name, phase).await;
    }
}
