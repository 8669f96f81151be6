//! The login at a database server with a credential of the proxy.

use http_relay::target::Target;
use tokio::time::timeout;

use super::admitted::AdmittedSession;
use super::dial_error::DialError;
use super::failure::Failure;
use super::protocol::{LoginFailure, ServerLogin};
use super::server::{DatabaseServer, ServerConnection};
use crate::proxy::Proxy;
use crate::requests::{CredentialSources, DatabaseEndpoint, Injected, Login};

/// Maximum login attempts for a session. The second attempt uses another version of the credential.
const LOGINS_MAX: usize = 2;

/// Connects to the server and logs in with the credential that a rule grants. If the server rejects the credential, tries another
/// version of it once. Also returns the credential.
pub(crate) async fn log_in<P: ServerLogin>(
    proxy: &Proxy,
    server: &DatabaseServer,
    session: &mut AdmittedSession<'_>,
    protocol: &P,
) -> Result<(ServerConnection, Injected), Failure> {
    let Target { name: host, port, .. } = &server.target;
    let is_trusted = server.is_trusted(proxy);
    let endpoint = DatabaseEndpoint { host, port: *port, session: session.session, is_trusted };
    let (mut tried, mut rejection): (Vec<Injected>, Option<P::Error>) = (Vec::new(), None);
    loop {
        let rules = proxy.rules.now();
        let secrets = rules.secrets.as_deref();
        let sources = CredentialSources { secrets, leases: proxy.leases.as_ref() };
        let metrics = proxy.requests.metrics();
        let login = match rules.requests.login(endpoint, &session.grantee, (sources, &tried), metrics).await {
            Ok(login) => login,
            Err(failure) => {
                let _ = proxy.requests.audit(|| session.audited.unsent()).await;
                return Err(failure.into());
            }
        };
        if let Some(error) = rejection.take_if(|_| login.injected.was_sent_last(&tried)) {
            return Err(error.into());
        }
        // Audited first: no credential is used without an audit event.
        proxy.requests.audit(|| session.audited.sent(std::slice::from_ref(&login.injected))).await?;
        session.entry.credential(login.injected.name());
        let logged_in =
            timeout(proxy.options.connect_timeout, try_login(proxy, server, protocol, &login)).await;
        let error = match logged_in.unwrap_or_else(|_| Ok(Err(P::Error::late())))? {
            Ok(connection) => {
                login.record_outcome(true, secrets);
                if let Some(key) = connection.key {
                    session.entry.server_key(key);
                }
                return Ok((connection, login.injected));
            }
            Err(error) => error,
        };
        tracing::warn!(%host, port, credential = %login.injected.name(), %error, "cannot log in at a database server");
        if error.is_of_credential() {
            login.record_outcome(false, secrets);
        }
        tried.push(login.injected);
        if !error.is_of_credential() || tried.len() >= LOGINS_MAX {
            return Err(error.into());
        }
        rejection = Some(error);
    }
}

async fn try_login<P: ServerLogin>(
    proxy: &Proxy,
    server: &DatabaseServer,
    protocol: &P,
    login: &Login,
) -> Result<Result<ServerConnection, P::Error>, DialError> {
    let mut connection = server.dial::<P>(proxy, None).await?;
    let logged_in = protocol.log_in(&mut connection.stream, login).await;
    Ok(logged_in.map(|()| connection))
}
