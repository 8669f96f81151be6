//! Restarts of a role that failed, with exponential backoff.

use std::time::Duration;

use cli::exit::Outcome;
use futures_util::future::BoxFuture;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use server::metrics::Metrics;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Role;

/// The pause before the first restart. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum pause before a restart.
const PAUSE_MAX: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RoleLabel {
    role: &'static str,
}

/// A supervisor that runs one role and restarts it after a failure.
pub(super) struct RoleSupervisor {
    role: Role,
    failures: Counter,
    pauses: (Duration, Duration),
}

impl RoleSupervisor {
    /// Creates a supervisor of `role`. Failures are counted in the metrics of the control plane, if the control plane is a role
    /// of this process.
    pub(super) fn new(role: Role, metrics: Option<&Metrics>) -> Self {
        let failures = Family::<RoleLabel, Counter>::default();
        let of_role = failures.get_or_create_owned(&RoleLabel { role: role.name() });
        if let Some(metrics) = metrics {
            let help = "Failures of a role of this process, each followed by a restart of the role";
            metrics.register(|registry| registry.register("bulla_role_failures", help, failures));
        }
        Self { role, failures: of_role, pauses: (PAUSE_MIN, PAUSE_MAX) }
    }

    /// Runs `work` until it ends without a failure, or until `stop`. Restarts it after each failure.
    pub(super) async fn keep(
        self,
        stop: CancellationToken,
        mut work: impl FnMut() -> BoxFuture<'static, Outcome<()>> + Send,
    ) {
        let (shortest, longest) = self.pauses;
        let mut pause = shortest;
        loop {
            let began = Instant::now();
            let Err(problem) = work().await else { return };
            self.failures.inc();
            // A role that ran longer than the maximum pause starts with the shortest pause again.
            if began.elapsed() > longest {
                pause = shortest;
            }
            let (role, pause_ms) = (self.role.name(), pause.as_millis());
            let hint = problem.hint.unwrap_or_default();
            tracing::error!(
                role,
                error = problem.message,
                hint,
                pause_ms,
                "the role failed and is restarted"
            );
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use cli::exit::{Exit, Problem};
    use futures_util::FutureExt as _;

    use super::*;

    fn restarts(metrics: &Metrics, longest: Duration) -> RoleSupervisor {
        let pauses = (Duration::from_millis(1), longest);
        RoleSupervisor { pauses, ..RoleSupervisor::new(Role::Agent, Some(metrics)) }
    }

    #[tokio::test]
    async fn failed_role_is_counted_and_restarted_until_it_succeeds() {
        let metrics = Metrics::default();
        let mut left = 3_u32;
        let work = || {
            let outcome = match left {
                0 => Ok(()),
                _ => Err(Problem::new(Exit::Machine, "its folder is gone")),
            };
            left = left.saturating_sub(1);
            async { outcome }.boxed()
        };
        restarts(&metrics, Duration::from_millis(2)).keep(CancellationToken::new(), work).await;
        assert_eq!(left, 0);
        let text = metrics.encode();
        assert!(text.contains("bulla_role_failures_total{role=\"agent\"} 3"), "{text}");
    }

    #[tokio::test]
    async fn stop_interrupts_the_restart_backoff() {
        let stop = CancellationToken::new();
        let metrics = Metrics::default();
        let supervisor = RoleSupervisor { pauses: (PAUSE_MAX, PAUSE_MAX), ..restarts(&metrics, PAUSE_MAX) };
        let work = || {
            stop.cancel();
            async { Err(Problem::new(Exit::Machine, "its folder is gone")) }.boxed()
        };
        supervisor.keep(stop.clone(), work).await;
    }
}
