//! A part of a process that runs until it is told to stop: the key service, the proxy, the terminator, the agent.

use std::future::Future;

use cli::exit::Exit;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::Role;

/// What one role of a process is and where it is found, for people and for `bulla doctor`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Description {
    /// Where it listens, the most important address first: `https://HOST:PORT`, `unix:PATH`.
    pub(crate) places: Vec<String>,
    /// More facts about the role.
    pub(crate) notes: Vec<String>,
}

/// Whether everything under way was finished at the stop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Drained {
    /// Everything was finished.
    All,
    /// Something was cut off.
    CutOff,
}

impl Drained {
    /// The exit of a process that ran this alone; says on stderr what was cut off.
    pub(crate) fn exit(self) -> Exit {
        if self == Self::CutOff {
            eprintln!("some connections had not ended and were cut off");
        }
        Exit::Ok
    }
}

impl From<bool> for Drained {
    fn from(drained: bool) -> Self {
        if drained { Self::All } else { Self::CutOff }
    }
}

/// A role that runs on a task of its own.
pub(crate) struct Component {
    pub(crate) role: Role,
    pub(crate) description: Description,
    stop: CancellationToken,
    task: JoinHandle<Drained>,
}

impl Component {
    /// `run` ends once `stop` is cancelled and what was under way is finished.
    pub(crate) fn spawn(
        role: Role,
        description: Description,
        stop: CancellationToken,
        run: impl Future<Output = Drained> + Send + 'static,
    ) -> Self {
        Self { role, description, stop, task: tokio::spawn(run) }
    }

    /// Has it stop, and waits until it has.
    pub(crate) async fn stop(self) -> Drained {
        self.stop.cancel();
        let ended = self.task.await;
        ended.unwrap_or_else(|error| {
            tracing::error!(role = self.role.name(), %error, "a role of this process ended in an error");
            Drained::CutOff
        })
    }
}
