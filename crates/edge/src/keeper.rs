//! Reloads certificates, OCSP responses and ticket keys when their files change.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_relay::clock::now;
use keyless::FolderError;
use keyless::client::Client;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use x509::UnixTime;

use super::Options;
use super::certificate::{self, BadCertificate, CertificateFile, CertificateFolder};
use super::client_auth::ClientAuthenticator;
use super::hello::CurrentSites;
use super::metrics::EdgeMetrics;
use super::sites::{SiteContext, Sites};
use super::staples::Staples;
use super::tickets::{BadTicketKeys, TicketKeys};

/// Reason why the certificates cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CertificateLoadError {
    /// The certificate folder cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The ticket keys cannot be loaded.
    #[error(transparent)]
    TicketKeys(#[from] BadTicketKeys),
    /// The default certificate is missing.
    #[error("the certificate file {0}.pem for clients without SNI is missing")]
    NoDefault(String),
    /// The TLS library rejects the certificates.
    #[error("the TLS library rejects the certificates: {0}")]
    Library(#[from] s2n_tls::error::Error),
    /// The check of the files was interrupted.
    #[error("the check of the certificate files was interrupted")]
    Stopped,
}

/// Certificate chains and problems after a check of the files.
#[derive(Debug)]
pub struct LoadedCertificates {
    /// Chains that are presented now.
    pub certificates: Vec<Arc<CertificateFile>>,
    /// Changed files that cannot be read. Their previous content stays in use.
    pub broken: Vec<(PathBuf, BadCertificate)>,
    /// Chains whose OCSP response file (`NAME.ocsp`) is unusable: name and error. Each error of a chain is reported once.
    pub not_stapled: Vec<(String, String)>,
}

/// The files in use, and the state for reloading changed files.
pub(super) struct Keeper {
    options: Options,
    client: Client,
    metrics: EdgeMetrics,
    current: CurrentSites,
    folder: CertificateFolder,
    tickets: TicketKeys,
    staples: Staples,
    clients: Option<Arc<ClientAuthenticator>>,
    loaded: Vec<Arc<CertificateFile>>,
    /// Whether a change is loaded but not yet in use.
    is_stale: bool,
    /// Time at which the certificates must be chosen again, because a certificate becomes valid or expires, or an OCSP response
    /// expires.
    due: Option<UnixTime>,
    /// Chains without the required OCSP response that were already reported.
    reported_unstapled: BTreeSet<String>,
}

impl Keeper {
    /// Loads the files for the first time. Errors in single files are not fatal.
    pub(super) async fn start(
        options: &Options,
        client: Client,
        metrics: EdgeMetrics,
        current: CurrentSites,
        staples: Staples,
        clients: Option<Arc<ClientAuthenticator>>,
    ) -> Result<(Self, LoadedCertificates), CertificateLoadError> {
        let tickets =
            TicketKeys::new(options.ticket_keys_file.clone(), options.ticket_key_life, Instant::now())?;
        let keeper = Self {
            folder: certificate::folder(&options.certificates),
            options: options.clone(),
            client,
            metrics,
            current,
            tickets,
            staples,
            clients,
            loaded: Vec::new(),
            is_stale: true,
            due: None,
            reported_unstapled: BTreeSet::new(),
        };
        let (keeper, loaded) = run_blocking(keeper, |keeper| keeper.reload(true)).await?;
        Ok((keeper, loaded?))
    }

    /// Checks the files at the reload interval, and whenever `now` is notified, until `stop`.
    pub(super) async fn keep(mut self, now: Arc<Notify>, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("edge-keeper");
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.pause()) => {}
                () = now.notified() => {}
            }
            let Ok((keeper, reloaded)) = run_blocking(self, |keeper| keeper.reload(false)).await else {
                return;
            };
            self = keeper;
            match reloaded {
                Ok(loaded) => {
                    for (path, error) in loaded.broken {
                        tracing::warn!(path = %path.display(), %error, "cannot load a certificate file; its previous \
                         certificate stays in use");
                    }
                    for (name, error) in loaded.not_stapled {
                        tracing::warn!(name, error, "cannot staple the OCSP response in NAME.ocsp");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot reload the certificates; the current ones stay in use")
                }
            }
        }
    }

    /// Returns the time until the next check: the reload interval, or less if a validity begins or ends earlier.
    fn pause(&self) -> Duration {
        let due = self.due.map(|due| Duration::from_secs(due.since(now()).max(1) as u64));
        due.map_or(self.options.reload, |due| due.min(self.options.reload))
    }

    /// Checks the files on the current thread. `first`: whether this is the check at startup.
    fn reload(&mut self, first: bool) -> Result<LoadedCertificates, CertificateLoadError> {
        let tickets = self.tickets.reload(Instant::now());
        self.metrics.set_ticket_keys_broken(tickets.is_err());
        self.is_stale |= tickets.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot reload the ticket keys; the current ones stay in use");
            false
        });
        let refreshed = self.folder.refresh()?;
        let now = now();
        let mut not_stapled = Vec::new();
        if refreshed.changed {
            not_stapled = self.newly_not_stapled(refreshed.loaded.iter().map(|(_, file)| &**file));
            self.loaded = refreshed.loaded.into_iter().map(|(_, file)| file.after(&self.loaded)).collect();
            self.staples.set_presented(&self.loaded, now);
            self.is_stale = true;
        }
        self.is_stale |= self.staples.take_changed();
        if self.is_stale || self.due.is_some_and(|due| now >= due) {
            self.build(now)?;
            self.is_stale = false;
            if !first {
                tracing::info!(certificates = self.loaded.len(), "reloaded certificates or ticket keys");
            }
        }
        self.count_staples(now);
        let expiry = self.loaded.iter().map(|file| file.not_after.0).min();
        let broken =
            refreshed.broken_in_all + self.loaded.iter().filter(|file| file.not_stapled.is_some()).count();
        self.metrics.certificates(self.loaded.len(), broken, expiry);
        Ok(LoadedCertificates { certificates: self.loaded.clone(), broken: refreshed.broken, not_stapled })
    }

    /// Updates the staple metrics, and logs chains that clients refuse without a staple (RFC 7633).
    fn count_staples(&mut self, now: UnixTime) {
        let has_staple = |file: &&Arc<CertificateFile>| self.staples.of(file, now).is_some();
        let stapled = self.loaded.iter().filter(has_staple).count();
        let unstapled: BTreeSet<String> = self
            .loaded
            .iter()
            .filter(|file| file.leaf.must_staple && !has_staple(file))
            .map(|file| file.name.clone())
            .collect();
        self.metrics.staples(stapled, unstapled.len());
        for name in unstapled.difference(&self.reported_unstapled) {
            tracing::warn!(
                name,
                "clients reject this certificate: it requires an OCSP staple, and none is available"
            );
        }
        self.reported_unstapled = unstapled;
    }

    fn newly_not_stapled<'a>(
        &self,
        files: impl Iterator<Item = &'a CertificateFile>,
    ) -> Vec<(String, String)> {
        let is_reported = |file: &CertificateFile| {
            self.loaded
                .iter()
                .any(|before| before.name == file.name && before.not_stapled == file.not_stapled)
        };
        files
            .filter(|file| !is_reported(file))
            .filter_map(|file| Some((file.name.clone(), file.not_stapled.clone()?)))
            .collect()
    }

    fn build(&mut self, now: UnixTime) -> Result<(), CertificateLoadError> {
        let default = self.options.default_certificate.as_deref();
        if let Some(name) = default.filter(|name| !self.loaded.iter().any(|file| file.name == *name)) {
            return Err(CertificateLoadError::NoDefault(name.to_owned()));
        }
        let with = SiteContext {
            client: &self.client,
            tickets: &self.tickets.secrets,
            staples: &self.staples,
            clients: self.clients.as_deref(),
            sign_timeout: self.options.sign_timeout,
            metrics: &self.metrics,
            now,
        };
        let sites = Sites::build(&self.loaded, default, self.options.unknown_names_get_default, &with)?;
        *self.current.write() = Arc::new(sites);
        let moments = self.loaded.iter().flat_map(|file| {
            let own = file.staple.as_ref().and_then(|staple| staple.until);
            [Some(file.not_before), Some(file.not_after.plus(1)), own, self.staples.until(file)]
        });
        self.due = moments.flatten().filter(|moment| *moment > now).min();
        Ok(())
    }
}

/// Runs file reads and chain parsing on a thread where they block no connection.
async fn run_blocking<T: Send + 'static>(
    mut keeper: Keeper,
    work: impl FnOnce(&mut Keeper) -> T + Send + 'static,
) -> Result<(Keeper, T), CertificateLoadError> {
    let done = tokio::task::spawn_blocking(move || {
        let done = work(&mut keeper);
        (keeper, done)
    });
    done.await.map_err(|_| CertificateLoadError::Stopped)
}
