//! The server's own certificate: from files, or issued and renewed by its own CA.

use std::sync::Arc;
use std::time::Duration;

use authority::Authority;
use authority::issue::{IssueError, IssueRequest, Source};
use cli::exit::{Exit, Outcome, Problem, chain};
use keys::keyring::Keyring;
use keys::{KeyType, PrivateKey};
use rustls::sign::CertifiedKey;
use server::listen::server_certificate;
use tokio_util::sync::CancellationToken;
use x509::{GeneralName, UnixTime};

use super::first_start::SERVER;
use super::kept_certificate;
use crate::config::ServerSettings;
use crate::files;

/// Lifetime of a server certificate from this server's CA. It is short, because the server renews the certificate automatically.
const LIFE: Duration = Duration::from_secs(7 * 86_400);

/// Pause after a failed renewal, or between two checks of the files.
const RETRY: Duration = Duration::from_secs(60);

/// The certificate in use, and the source of the next one.
pub(super) struct ServerCertificate {
    current: Arc<CertifiedKey>,
    recheck_after: Duration,
    source: CertificateSource,
}

enum CertificateSource {
    Files { certificate: std::path::PathBuf, key: std::path::PathBuf },
    Authority { authority: Authority, ring: Arc<Keyring>, names: Vec<GeneralName> },
}

impl ServerCertificate {
    /// Loads the certificate that the configuration selects: from files, or else from this server's CA. A certificate of this
    /// server's CA is stored for the next start, sealed by `ring`.
    pub(super) async fn of(
        settings: &ServerSettings,
        authority: &Authority,
        ring: Arc<Keyring>,
        names: &[String],
    ) -> Outcome<Self> {
        let (certificate, key) = (&settings.certificate_file, &settings.key_file);
        let source = match (certificate.as_os_str().is_empty(), key.as_os_str().is_empty()) {
            (true, true) => CertificateSource::Authority {
                authority: authority.clone(),
                ring,
                names: names.iter().filter_map(|name| GeneralName::parse(name).ok()).collect(),
            },
            (false, false) => CertificateSource::Files { certificate: certificate.clone(), key: key.clone() },
            _ => {
                return Err(Problem::usage(
                    "server.certificate_file and server.key_file must be set together",
                )
                .hint("set both, or neither to have a certificate issued by the server's CA"));
            }
        };
        let Obtained { certificate: current, recheck_after } = source.obtain().await?;
        Ok(Self { current, recheck_after, source })
    }

    pub(super) fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current)
    }

    /// Renews the certificate, or reloads changed files, until `stop`. `present` receives each new certificate.
    pub(super) async fn keep(self, stop: CancellationToken, present: impl Fn(Arc<CertifiedKey>)) {
        let _live = telemetry::tasks::guard("own-certificate");
        let mut pause = self.recheck_after;
        let mut current = self.current;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            match self.source.obtain().await {
                Ok(Obtained { certificate, recheck_after }) => {
                    pause = recheck_after;
                    if certificate.cert != current.cert {
                        tracing::info!("the server presents a new certificate");
                        present(Arc::clone(&certificate));
                        current = certificate;
                    }
                }
                Err(problem) => {
                    tracing::warn!(problem = problem.message, "cannot renew the server's certificate");
                    pause = RETRY;
                }
            }
        }
    }
}

/// A certificate, and the time until the next check.
struct Obtained {
    certificate: Arc<CertifiedKey>,
    recheck_after: Duration,
}

impl CertificateSource {
    async fn obtain(&self) -> Outcome<Obtained> {
        match self {
            Self::Files { certificate, key } => {
                let certificate = files::certified_key("server.", certificate, key)?;
                Ok(Obtained { certificate, recheck_after: RETRY })
            }
            Self::Authority { authority, ring, names } => issued(authority, ring, names.clone()).await,
        }
    }
}

/// Issues a new certificate. While the database is not writable, returns the certificate of the last start.
async fn issued(authority: &Authority, ring: &Keyring, names: Vec<GeneralName>) -> Outcome<Obtained> {
    let key = PrivateKey::generate(KeyType::P256).map_err(|error| wrong(&chain(&error)))?;
    let spki = keys::Signer::spki(&key).to_vec();
    let mut request = IssueRequest::new(SERVER, spki, names, Source::System, "system:server");
    request.lifetime_seconds = Some(LIFE.as_secs() as i64);
    request.ca = oldest(authority).await;
    let issued = match authority.issue(request).await {
        Ok(issued) => issued,
        Err(error) => return stored_certificate(ring, &error).ok_or_else(|| refused(&error)),
    };
    let mut all = vec![issued.der.to_vec()];
    all.extend(issued.chain.iter().map(|der| der.to_vec()));
    let certificate = server_certificate(&all, &key).map_err(|error| wrong(&chain(&error)))?;
    if let Err(problem) = kept_certificate::keep(ring, &all, &key) {
        tracing::warn!(problem = problem.message, "cannot store the server's certificate for the next start");
    }
    Ok(Obtained { certificate, recheck_after: LIFE * 2 / 3 })
}

fn stored_certificate(ring: &Keyring, error: &IssueError) -> Option<Obtained> {
    let IssueError::Store(reason) = error else { return None };
    let certificate =
        reason.is_transient().then(|| kept_certificate::stored_certificate(ring, now())).flatten()?;
    tracing::warn!(%error, "no new certificate for the server: the previous one remains in use");
    Some(Obtained { certificate, recheck_after: RETRY })
}

fn refused(error: &IssueError) -> Problem {
    Problem::new(Exit::Inventory, format_args!("the server has no certificate: {}", chain(error)))
        .hint("set files of another CA: server.certificate_file and server.key_file")
}

fn now() -> UnixTime {
    UnixTime(store::Clock::system().now_seconds())
}

/// Returns the oldest intermediate CA that issues certificates. The profile names no CA, so with several CAs the request must name one.
async fn oldest(authority: &Authority) -> Option<uuid::Uuid> {
    let now = now();
    // Issuance itself reports a CA that cannot be read.
    let cas = authority.cas().await.ok()?;
    let issuing = cas.iter().filter(|ca| !ca.is_root() && ca.may_issue(now));
    issuing.min_by_key(|ca| ca.created_at_us).map(|ca| ca.id)
}

fn wrong(why: &str) -> Problem {
    Problem::usage(format_args!("the server's certificate: {why}"))
        .hint("check server.certificate_file and server.key_file")
}
