//! The terminator's routes, updated from the configuration file.

use std::path::{Path, PathBuf};

use cli::exit::{Exit, Outcome, Problem};
use edge::{EdgeMetrics, Routes, Running};
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

use super::arguments::EdgeArgs;
use crate::config::{Configuration, ReferencedFiles};
use crate::file_watch::{FileWatch, POLL_INTERVAL, stamp};

/// The routes in the configuration file, which are watched for changes.
pub(crate) struct ConfiguredRoutes {
    file: Option<PathBuf>,
    watch: FileWatch,
    args: EdgeArgs,
    metrics: EdgeMetrics,
    hangup: Signal,
}

impl ConfiguredRoutes {
    pub(crate) fn new(
        configuration: &Configuration,
        args: &EdgeArgs,
        metrics: EdgeMetrics,
        hangup: Signal,
    ) -> Self {
        let file = configuration.file().map(PathBuf::from);
        let watch = FileWatch::new(stamp(file.as_deref()));
        Self { file, watch, args: args.clone(), metrics, hangup }
    }

    /// Applies changed routes of the file until `stop`; SIGHUP triggers an immediate check. An invalid file changes nothing.
    pub(crate) async fn keep(mut self, running: &Running, stop: &CancellationToken) {
        let _live = telemetry::tasks::guard("edge-routes");
        loop {
            let is_forced = tokio::select! {
                () = stop.cancelled() => return,
                _ = self.hangup.recv() => true,
                () = tokio::time::sleep(POLL_INTERVAL) => false,
            };
            let before = stamp(self.file.as_deref());
            if !self.watch.is_ready_to_read(before) && !is_forced {
                continue;
            }
            let read = self.read().await;
            if !self.watch.confirm_read(before, stamp(self.file.as_deref())) {
                tracing::info!("the configuration file changed while it was read: reading it again");
                continue;
            }
            self.metrics.set_routes_broken(read.is_err());
            match read {
                Ok(routes) => {
                    if running.change_routes(routes) {
                        tracing::warn!("the routes were reloaded and apply from the next connection on");
                    }
                }
                Err(problem) => {
                    tracing::warn!(
                        problem = problem.message,
                        hint = problem.hint,
                        "the routes are unchanged"
                    );
                }
            }
        }
    }

    /// Reads the file outside of the connection tasks, because a file with many names takes time.
    async fn read(&self) -> Outcome<Routes> {
        let (file, args) = (self.file.clone(), self.args.clone());
        let read = tokio::task::spawn_blocking(move || read(file.as_deref(), &args));
        read.await.map_err(|error| Problem::new(Exit::Machine, error))?
    }
}

/// Reads the routes as at startup: flags override the file.
fn read(file: Option<&Path>, args: &EdgeArgs) -> Outcome<Routes> {
    let mut settings = Configuration::load(file)?.settings.edge;
    settings.take(args);
    settings.check()?;
    settings.check_required()?;
    settings.routes(ReferencedFiles::Read)
}
