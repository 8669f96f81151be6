//! A session that the policy admits.

use http_relay::access_log::{Entry, counted};
use http_relay::client::Client;
use http_relay::relay::{RelayEnd, relay};
use http_relay::target::Target;
use hyper::{HeaderMap, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

use super::failure::Failure;
use crate::audited::AuditedDecision;
use crate::gateway::session_path;
use crate::policy::{DatabaseSession, Grantee};
use crate::proxy::Proxy;

/// A session that the policy admits, with its audit events and its line in the access log. Dropping the value writes the line.
pub(crate) struct AdmittedSession<'a> {
    pub(crate) client: &'a Client,
    pub(crate) target: &'a Target,
    pub(crate) session: DatabaseSession<'a>,
    pub(crate) grantee: Grantee,
    pub(crate) audited: AuditedDecision,
    pub(crate) entry: Box<Entry>,
}

impl<'a> AdmittedSession<'a> {
    /// Decides about a session with a database of `target`. A refusal is audited and logged.
    pub(crate) async fn admit(
        proxy: &Proxy,
        client: &'a Client,
        target: &'a Target,
        session: DatabaseSession<'a>,
    ) -> Result<Self, Failure> {
        let (mut admission, audited) = proxy.admit_session(client, target, session).await?;
        let method = session.protocol.method();
        let mut entry = proxy.requests.session(client, target, method, &session_path(session));
        admission.note(&mut entry);
        if let Some(log) = proxy.requests.audit_log() {
            entry.keep(audited.outcome(log));
        }
        Ok(Self { client, target, session, grantee: admission.grantee, audited, entry })
    }

    /// Logs whether the session was established at the server.
    pub(crate) fn established<T>(&mut self, established: Result<T, Failure>) -> Result<T, Failure> {
        match &established {
            Ok(_) => self.entry.answered(StatusCode::OK, &HeaderMap::new()),
            Err(failure) => {
                self.entry.set_refusal_reason(failure.reason);
                self.entry.answered(failure.status, &HeaderMap::new());
            }
        }
        established
    }

    /// Relays bytes between the client and the server. Returns true when one side ends, and false when `not_admitted` completes.
    pub(crate) async fn relay(
        &mut self,
        proxy: &Proxy,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        server: impl AsyncRead + AsyncWrite + Unpin,
        not_admitted: impl Future<Output = ()>,
    ) -> bool {
        let Self { client, target, session, entry, .. } = self;
        let counted_bytes = proxy.metrics.tunnel();
        tokio::select! {
            ended = relay(counted(stream, Some(&**entry)), server, proxy.options.idle, &counted_bytes) => {
                tracing::debug!(%client, %target, ?ended, "a session ended");
                if matches!(ended, RelayEnd::Closed) {
                    entry.complete();
                }
                true
            }
            () = not_admitted => {
                let database = session.database;
                tracing::info!(%client, %target, database, "closed a session: the policy no longer allows it");
                entry.set_refusal_reason("stopped");
                false
            }
        }
    }
}
