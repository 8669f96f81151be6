//! The terminator's routes kept as the configuration's file has them.

use std::path::{Path, PathBuf};

use cli::exit::{Exit, Outcome, Problem};
use edge::{EdgeMetrics, Routes, Running};
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

use super::arguments::EdgeArgs;
use crate::config::{Configuration, NamedFiles};
use crate::file_watch::{FileWatch, POLL_INTERVAL, stamp};

/// Who watch at the file.
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

    /// Has routes count that are changed in the file, at once when told to look (SIGHUP), until told to stop. What cannot be used
    /// changes nothing.
    pub(crate) async fn keep(mut self, running: &Running, stop: &CancellationToken) {
        let _live = telemetry::tasks::guard("edge-routes");
        loop {
            let is_forced = tokio::select! {
                () = stop.cancelled() => return,
                _ = self.hangup.recv() => true,
                () = tokio::time::sleep(POLL_INTERVAL) => false,
            };
            let before = stamp(self.file.as_deref());
            if !self.watch.is_ripe(before) && !is_forced {
                continue;
            }
            let read = self.read().await;
            if !self.watch.was_read(before, stamp(self.file.as_deref())) {
                tracing::info!("the configuration's file changed while it was read: it is read again");
                continue;
            }
            self.metrics.set_routes_broken(read.is_err());
            match read {
                Ok(routes) => {
                    if running.change_routes(routes) {
                        tracing::warn!("the routes were read again and count from the next connection on");
                    }
                }
                Err(problem) => {
                    tracing::warn!(
                        problem = problem.message,
                        hint = problem.hint,
                        "the routes stay as they were"
                    );
                }
            }
        }
    }

    /// Beside the tasks of connections, as a file with many names takes its time.
    async fn read(&self) -> Outcome<Routes> {
        let (file, args) = (self.file.clone(), self.args.clone());
        let read = tokio::task::spawn_blocking(move || read(file.as_deref(), &args));
        read.await.map_err(|error| Problem::new(Exit::Machine, error))?
    }
}

/// As at the start: flags come before the file.
fn read(file: Option<&Path>, args: &EdgeArgs) -> Outcome<Routes> {
    let mut settings = Configuration::load(file)?.settings.edge;
    settings.take(args);
    settings.check()?;
    settings.check_whole()?;
    settings.routes(NamedFiles::Read)
}
