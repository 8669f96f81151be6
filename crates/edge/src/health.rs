//! Health checks of servers.

use std::sync::Arc;
use std::time::Duration;

use http_relay::fields::address;
use http_relay::request_body::RequestBody;
use http_relay::upstream::{NoAnswer, UpstreamConnectError, Upstreams};
use hyper::header::HeaderValue;
use hyper::{Request, Version};
use inbound::ServiceTasks;
use outbound::resolve::Resolver;
use tokio::time::Instant;

use super::group::{Change, Group};
use super::metrics::EdgeMetrics;
use super::routes::{LiveRoutes, origin};
use super::upstream::{Reach, UpstreamPreamble};

/// Interval at which due checks are searched for.
const TICK: Duration = Duration::from_millis(250);

/// The health checks of servers, which run until the service stops.
pub(super) struct HealthChecks {
    pub(super) routes: LiveRoutes,
    pub(super) upstreams: Upstreams,
    pub(super) resolver: Resolver,
    pub(super) metrics: EdgeMetrics,
    pub(super) tasks: ServiceTasks,
}

impl HealthChecks {
    pub(super) async fn keep(self) {
        let _live = telemetry::tasks::guard("edge-health");
        let (shared, stop) = (Arc::new(self), tokio_util::sync::CancellationToken::new());
        let stopping = shared.tasks.stopping();
        let _ends = stop.clone().drop_guard();
        loop {
            let routes = shared.routes.now();
            shared.metrics.servers(routes.groups());
            for group in routes.groups() {
                shared.start_due_checks(group, &stop);
            }
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
        }
    }

    /// Starts the due checks of a group.
    fn start_due_checks(self: &Arc<Self>, group: &Arc<Group>, stop: &tokio_util::sync::CancellationToken) {
        let Some(interval) = group.health().interval else { return };
        for (at, server) in group.servers().iter().enumerate() {
            if !server.is_check_due(Instant::now()) {
                continue;
            }
            let (shared, group, stop) = (Arc::clone(self), Arc::clone(group), stop.clone());
            self.tasks.spawn_bounded(async move {
                let _live = telemetry::tasks::guard("edge-health-check");
                let checked = stop.run_until_cancelled(shared.is_healthy(&group, at)).await;
                let (Some(is_healthy), server) = (checked, &group.servers()[at]) else { return };
                let (upstream, label) = (group.name(), &server.label);
                match server.checked(is_healthy, interval, group.health()) {
                    Change::Same => {}
                    Change::Up => {
                        tracing::warn!(%upstream, server = %label, "a server of an upstream is up again")
                    }
                    Change::Down => {
                        tracing::warn!(%upstream, server = %label, "a server of an upstream is down")
                    }
                }
            });
        }
    }

    async fn is_healthy(&self, group: &Group, at: usize) -> bool {
        let (server, health) = (&group.servers()[at], group.health());
        let checked = async {
            match &health.path {
                Some(path) => self.answers(group, at, path).await,
                None => {
                    let reach =
                        Reach { resolver: &self.resolver, metrics: &self.metrics, limit: health.timeout };
                    let nothing = UpstreamPreamble { header: Vec::new(), alpn: Vec::new() };
                    reach.to(server, group.tls(), &nothing).await.map(drop).map_err(|error| error.to_string())
                }
            }
        };
        let checked = tokio::time::timeout(health.timeout, checked).await;
        let checked = checked.unwrap_or_else(|_| Err("timeout".to_owned()));
        if let Err(error) = &checked {
            tracing::info!(upstream = %group.name(), server = %server.label, %error, "a health check failed");
        }
        checked.is_ok()
    }

    /// Checks that the server returns a healthy status for `path`. Uses HTTP/2 if TLS negotiates it.
    async fn answers(&self, group: &Group, at: usize, path: &str) -> Result<(), String> {
        let health = group.health();
        let origin = origin(group, at, group.tls().is_some()).map_err(|error| error.to_string())?;
        let host = health.host.clone().unwrap_or_else(|| match group.tls() {
            Some(tls) => tls.server().to_string(),
            None => origin.target.to_string(),
        });
        let host = HeaderValue::try_from(host).map_err(|error| error.to_string())?;
        let request = Request::get(path).body(RequestBody::none(health.timeout));
        let request = request.map_err(|error| error.to_string())?;
        let prepare =
            |request: &mut Request<RequestBody>, version: Version| address(request, &origin, &host, version);
        match self.upstreams.send(&origin, request, prepare).await {
            Ok(response) if response.status().is_success() || response.status().is_redirection() => Ok(()),
            Ok(response) => Err(format!("it answered {}", response.status())),
            // The local connection limit is reached, which is not a failure of the server.
            Err(NoAnswer::Connection(error)) if matches!(*error, UpstreamConnectError::Full) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}
