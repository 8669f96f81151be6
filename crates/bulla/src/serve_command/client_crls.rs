//! CRLs of external CAs whose client certificates the server accepts.

use std::path::PathBuf;
use std::time::Duration;

use authority::ClientCertificates;
use cli::exit::{Outcome, Problem};
use tokio_util::sync::CancellationToken;

use crate::files;

const KEY: &str = "server.client_crl_files";

/// Interval of checks for changed files.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Files of CRLs, and the client verification that uses them.
pub(super) struct ClientCrls {
    clients: ClientCertificates,
    paths: Vec<PathBuf>,
}

impl ClientCrls {
    pub(super) fn new(clients: ClientCertificates, paths: Vec<PathBuf>) -> Self {
        Self { clients, paths }
    }

    async fn read(&self) -> Outcome<Vec<Vec<u8>>> {
        let paths = self.paths.clone();
        let looking = move || {
            let all = paths.iter().map(|path| files::crls(KEY, path)).collect::<Outcome<Vec<_>>>()?;
            Ok(all.into_iter().flatten().collect::<Vec<Vec<u8>>>())
        };
        let ders = tokio::task::spawn_blocking(looking).await;
        ders.map_err(|error| Problem::usage(error.to_string()))?
    }

    /// Loads the CRLs from the files.
    ///
    /// # Errors
    /// A file cannot be read. The previous CRLs then stay in use.
    pub(super) async fn load(&self) -> Outcome<Vec<Vec<u8>>> {
        let ders = self.read().await?;
        self.count(&ders)?;
        Ok(ders)
    }

    fn count(&self, ders: &[Vec<u8>]) -> Outcome<()> {
        self.clients.replace_crls(ders).map_err(|error| {
            Problem::usage(format_args!("{KEY}: {error}")).hint("name files of CRLs, PEM or DER")
        })
    }

    /// Applies changed files of CRLs until `stop`. If a file cannot be read, the previous CRLs stay in use.
    pub(super) async fn keep(self, mut counting: Vec<Vec<u8>>, stop: CancellationToken) {
        if self.paths.is_empty() {
            return;
        }
        let _live = telemetry::tasks::guard("client-crls");
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            let result = match self.read().await {
                Ok(ders) if ders == counting => continue,
                Ok(ders) => self.count(&ders).map(|()| counting = ders),
                Err(problem) => Err(problem),
            };
            if let Err(problem) = result {
                tracing::error!(problem = problem.message, "the CRLs of client CAs are unchanged");
            }
        }
    }
}
