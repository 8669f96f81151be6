//! A role that runs in this process with other roles: the key service, the proxy, the terminator, the agent.

use std::future::Future;

use cli::exit::Exit;
use futures_util::future::select_all;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::Role;

/// The addresses of a role, with notes for users and `bulla doctor`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Description {
    /// Listen addresses, the most important one first: `https://HOST:PORT`, `unix:PATH`.
    pub(crate) places: Vec<String>,
    /// Notes that are printed below the addresses.
    pub(crate) notes: Vec<String>,
}

/// The result of a graceful shutdown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum DrainOutcome {
    /// All requests in progress finished.
    All,
    /// Some requests were aborted.
    CutOff,
}

impl DrainOutcome {
    /// Returns the exit code of a process with only this role. Prints a message on stderr if requests were aborted.
    pub(crate) fn exit(self) -> Exit {
        if self == Self::CutOff {
            eprintln!("some connections had not ended and were closed");
        }
        Exit::Ok
    }

    pub(crate) fn and(self, other: Self) -> Self {
        if self == Self::All { other } else { Self::CutOff }
    }
}

impl From<bool> for DrainOutcome {
    fn from(drained: bool) -> Self {
        if drained { Self::All } else { Self::CutOff }
    }
}

/// A role that runs in its own task.
pub(crate) struct Component {
    pub(crate) role: Role,
    pub(crate) description: Description,
    stop: CancellationToken,
    /// Cancelled when the task ends, also after a panic.
    ended: CancellationToken,
    task: JoinHandle<DrainOutcome>,
}

impl Component {
    /// Spawns the task. `run` must end after `stop` is cancelled and the requests in progress have finished.
    pub(crate) fn spawn(
        role: Role,
        description: Description,
        stop: CancellationToken,
        run: impl Future<Output = DrainOutcome> + Send + 'static,
    ) -> Self {
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        let task = tokio::spawn(async move {
            let _guard = guard;
            run.await
        });
        Self { role, description, stop, ended, task }
    }

    /// Stops the role and waits until it has stopped.
    pub(crate) async fn stop(self) -> DrainOutcome {
        self.stop.cancel();
        let ended = self.task.await;
        ended.unwrap_or_else(|error| {
            tracing::error!(role = self.role.name(), %error, "a role of this process panicked");
            DrainOutcome::CutOff
        })
    }
}

/// Waits until a role ends without a stop request. Never returns if there are no roles.
pub(crate) async fn wait_for_first_exit(components: &[Component]) -> Role {
    let ended = components.iter().map(|component| {
        Box::pin(async move {
            component.ended.cancelled().await;
            component.role
        })
    });
    let ended: Vec<_> = ended.collect();
    if ended.is_empty() {
        return std::future::pending().await;
    }
    select_all(ended).await.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawned(
        role: Role,
        run: impl Future<Output = DrainOutcome> + Send + 'static,
    ) -> (Component, CancellationToken) {
        let stop = CancellationToken::new();
        let description = Description { places: Vec::new(), notes: Vec::new() };
        (Component::spawn(role, description, stop.clone(), run), stop)
    }

    #[tokio::test]
    async fn panicked_role_is_detected_and_other_roles_drain() {
        let until = CancellationToken::new();
        let stopped = until.clone();
        let (mut edge, _) = spawned(Role::Edge, async move {
            stopped.cancelled().await;
            DrainOutcome::All
        });
        edge.stop = until;
        let (proxy, _) = spawned(Role::Proxy, async { panic!("a flaw in the proxy") });
        let components = [edge, proxy];
        assert_eq!(wait_for_first_exit(&components).await, Role::Proxy);
        let [edge, proxy] = components;
        assert_eq!(edge.stop().await, DrainOutcome::All);
        assert_eq!(proxy.stop().await, DrainOutcome::CutOff);
    }
}
