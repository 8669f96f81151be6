//! The roots of the server's CAs: for client certificates, for enrolled hosts, and for commands on this machine. A new root takes
//! effect without a restart.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use authority::Authority;
use cli::exit::{Exit, Outcome, Problem, chain};
use enrollment::TrustAnchors;
use server::listen::Running;
use tokio_util::sync::CancellationToken;

use super::{first_start, local_files};
use crate::files;

/// Interval of checks for new roots.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The process that writes the file of roots for commands on this machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RootFile {
    /// This process, as the owner of the data folder.
    Own,
    /// Another process.
    Other,
}

/// The roots of the server's CAs, and of other CAs whose client certificates the server accepts.
pub(super) struct Roots {
    authority: Authority,
    anchors: TrustAnchors,
    client_ca_files: Vec<PathBuf>,
}

impl Roots {
    pub(super) fn new(authority: Authority, anchors: TrustAnchors, client_ca_files: Vec<PathBuf>) -> Self {
        Self { authority, anchors, client_ca_files }
    }

    /// Returns the roots for client certificates, DER.
    pub(super) async fn for_clients(&self) -> Outcome<Vec<Vec<u8>>> {
        let own = self.authority.cas().await;
        let own = own.map_err(|error| Problem::new(Exit::Inventory, chain(&error)))?;
        let own = own.iter().filter(|ca| ca.is_root()).map(|ca| ca.certificate.der.to_vec());
        let mut roots: Vec<Vec<u8>> = own.collect();
        for path in &self.client_ca_files {
            roots.extend(files::certificates("server.client_ca_files", path)?);
        }
        Ok(roots)
    }

    /// Applies new roots until `stop`. If they cannot be read, the previous ones stay in use.
    pub(super) async fn keep(
        self,
        mut current: Vec<Vec<u8>>,
        running: Arc<Running>,
        file: RootFile,
        stop: CancellationToken,
    ) {
        let _live = telemetry::tasks::guard("roots");
        let mut is_failing = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            let applied = match self.for_clients().await {
                Ok(roots) if roots == current => Ok(()),
                Ok(roots) => self.apply(&roots, &running, file).await.map(|()| current = roots),
                Err(problem) => Err(problem),
            };
            // An unreachable database is logged once.
            if let Err(problem) = &applied
                && !is_failing
            {
                tracing::warn!(problem = problem.message, "the roots of CAs are unchanged");
            }
            is_failing = applied.is_err();
        }
    }

    async fn apply(&self, roots: &[Vec<u8>], running: &Running, file: RootFile) -> Outcome<()> {
        let pem = first_start::root_pem(&self.authority).await?;
        running.replace_client_roots(roots).map_err(|error| Problem::new(Exit::Machine, chain(&error)))?;
        self.anchors.replace(pem.clone());
        if file == RootFile::Own {
            local_files::write_root(&pem)?;
        }
        tracing::info!(roots = roots.len(), "the roots of CAs have changed");
        Ok(())
    }
}
