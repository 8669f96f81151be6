//! Logging of requests: access log, audit log and recordings.

use std::sync::Arc;

use http_relay::access_log::{AccessLogger, Destination, Entry, Observer};
use http_relay::client::Client;
use http_relay::target::Target;
use hyper::{HeaderMap, Request, StatusCode};
use inbound::ServiceTasks;
use tokio::sync::Notify;
use x509::HostOrIp;

use super::audit::{AuditEvent, AuditLog, AuditWriteError};
use super::compile::RequestRules;
use super::metrics::RequestMetrics;
use super::options::Options;
use super::recording::Recorder;
use crate::start_error::StartError;

/// Access log, audit log and recordings of requests. Clones share the files.
#[derive(Clone)]
pub(crate) struct RequestLog {
    lines: AccessLogger,
    recorder: Option<Arc<Recorder>>,
    audit: Option<AuditLog>,
    metrics: RequestMetrics,
}

/// Signals to reopen the files of the access log, the audit log and the recordings.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReopenSignals {
    log: Arc<Notify>,
    audit: Arc<Notify>,
    recorder: Arc<Notify>,
}

impl ReopenSignals {
    pub(crate) fn all(&self) {
        self.log.notify_one();
        self.audit.notify_one();
        self.recorder.notify_one();
    }
}

impl RequestLog {
    /// Starts the tasks that write the files. The tasks end when the last clone of the log is dropped. `observer` observes all
    /// requests.
    pub(crate) fn start(
        options: &Options,
        observer: Option<Arc<dyn Observer>>,
        metrics: &RequestMetrics,
        tasks: &ServiceTasks,
        reopen: &ReopenSignals,
    ) -> Result<Self, StartError> {
        let lines = AccessLogger::start(
            options.access_log.as_ref(),
            options.access_log_query,
            &metrics.lines_dropped,
            tasks,
            &reopen.log,
            "proxy request",
        )
        .map_err(StartError::AccessLog)?
        .observed_by(observer);
        let record = options.record.as_ref();
        let recorder =
            record.map(|record| Arc::new(Recorder::start(record, metrics, tasks, &reopen.recorder)));
        let lost = &metrics.outcomes_lost;
        let open = |audit| AuditLog::open(audit, Arc::clone(&reopen.audit), tasks, lost);
        let audit = options.audit.as_ref().map(open).transpose().map_err(StartError::AuditLog)?.map(
            |(audit, work)| {
                tasks.spawn(work);
                audit
            },
        );
        Ok(Self { lines, recorder, audit, metrics: metrics.clone() })
    }

    /// Returns a log entry of `request` if requests are logged, `request` is traced, or one of `rules` may record the exchange.
    pub(crate) fn entry<B>(
        &self,
        request: &Request<B>,
        client: &Client,
        rules: &RequestRules,
    ) -> Option<Box<Entry>> {
        let may_record = rules.record() && self.recorder.is_some();
        match may_record {
            true => Some(self.lines.entry_of(request, client)),
            false => self.lines.entry(request, client),
        }
    }

    /// Returns an entry of `request`, even if requests are not logged, because the entry also counts bytes.
    pub(crate) fn counted_entry<B>(&self, request: &Request<B>, client: &Client) -> Box<Entry> {
        self.lines.entry_of(request, client)
    }

    pub(crate) fn has_audit_log(&self) -> bool {
        self.audit.is_some()
    }

    /// Returns the audit log, if there is one.
    pub(crate) fn audit_log(&self) -> Option<&AuditLog> {
        self.audit.as_ref()
    }

    /// Writes the event that `make` returns to the audit log, if there is one, and waits until it is written.
    ///
    /// # Errors
    /// [`AuditWriteError`]: the audited action must not be done.
    pub(crate) async fn audit(&self, make: impl FnOnce() -> AuditEvent) -> Result<(), AuditWriteError> {
        match &self.audit {
            Some(audit) => audit.record(make()).await,
            None => Ok(()),
        }
    }

    /// Records the exchange of `entry` from now on, unless the maximum number of recordings is in progress or waiting to be
    /// written.
    pub(crate) fn record<B>(&self, entry: &mut Entry, request: &Request<B>, url: String) {
        if let Some(recorder) = &self.recorder {
            recorder.record(entry, request, url);
        }
    }

    /// Returns the entry of a tunnel to `target` for the host `name`.
    pub(crate) fn tunnel(&self, client: &Client, target: &Target, name: &HostOrIp) -> Option<Box<Entry>> {
        self.lines.is_enabled().then(|| self.counted_tunnel(client, target, name))
    }

    /// Returns the entry of a tunnel, even if requests are not logged, because the entry also counts bytes.
    pub(crate) fn counted_tunnel(&self, client: &Client, target: &Target, name: &HostOrIp) -> Box<Entry> {
        let mut entry = self.lines.tunnel_entry(client, target.to_string());
        entry.set_server_name((*name != target.name).then(|| name.to_string()));
        entry.set_destination(|| Destination { host: name.clone(), port: target.port, is_tls: None });
        entry
    }

    /// Returns the entry of a session with a database of `target`. An entry is needed even if requests are not logged, because it
    /// also counts bytes.
    pub(crate) fn session(&self, client: &Client, target: &Target, method: &str, path: &str) -> Box<Entry> {
        let mut entry = self.lines.session_entry(client, (method, path), target.to_string());
        entry.set_destination(|| Destination { host: target.name.clone(), port: target.port, is_tls: None });
        entry
    }

    /// Logs a connection to `target` that was refused, with status 403.
    pub(crate) fn refused(&self, client: &Client, target: &Target) {
        if let Some(mut entry) = self.tunnel(client, target, &target.name) {
            entry.answered(StatusCode::FORBIDDEN, &HeaderMap::new());
        }
    }

    /// Logs a connection to `target` that was refused because the address of `target` does not belong to the host `name` from the
    /// client.
    pub(crate) fn log_misdirected(&self, client: &Client, target: &Target, name: &HostOrIp) {
        if let Some(mut entry) = self.tunnel(client, target, name) {
            entry.answered(StatusCode::MISDIRECTED_REQUEST, &HeaderMap::new());
        }
    }

    /// Logs a connection to `target` that was refused because a leaf for `name` is not permitted, with the reason.
    pub(crate) fn log_not_permitted(
        &self,
        client: &Client,
        target: &Target,
        name: &HostOrIp,
        (status, reason): (StatusCode, &'static str),
    ) {
        if let Some(mut entry) = self.tunnel(client, target, name) {
            entry.set_refusal_reason(reason);
            entry.answered(status, &HeaderMap::new());
        }
    }

    pub(crate) fn metrics(&self) -> &RequestMetrics {
        &self.metrics
    }
}
