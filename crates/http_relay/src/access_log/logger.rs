//! Creates log entries for requests.

use std::io;
use std::sync::Arc;

use hyper::Request;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

use super::super::client::Client;
use super::entry::Entry;
use super::file::{AccessFile, AccessLog};
use super::line::{LoggedQuery, Observer};
use super::log::Log;
use super::span::RequestSpan;
use super::spool::Spool;
use inbound::ServiceTasks;

/// Maximum queued lines. The queue needs a few megabytes, and holds about one second of a proxy under load.
const LINES_MAX: usize = 8_192;

/// Source of access log entries. Clones share the log.
#[derive(Clone)]
pub struct AccessLogger {
    log: Arc<Log>,
    query: LoggedQuery,
}

impl AccessLogger {
    /// Opens the log if a destination is set, and starts its writer task. The task ends when the last clone of the logger and the
    /// last entry are dropped. `dropped` counts lines that did not fit the queue or could not be written; `reopen` reopens the
    /// file. Spans of requests have the name `service`.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn start(
        destination: Option<&AccessLog>,
        query: LoggedQuery,
        dropped: &Counter,
        tasks: &ServiceTasks,
        reopen: &Arc<Notify>,
        service: &'static str,
    ) -> io::Result<Self> {
        let mut lines = None;
        if let Some(destination) = destination {
            let file = AccessFile::open(destination.clone())?;
            let (spool, work) = Spool::new(file, LINES_MAX, dropped.clone(), Arc::clone(reopen));
            tasks.spawn(work);
            lines = Some(spool);
        }
        Ok(Self { log: Arc::new(Log { lines, observer: None, service }), query })
    }

    /// Sets the observer of all entries. Has no effect on a logger that was cloned or has an entry.
    #[must_use]
    pub fn observed_by(mut self, observer: Option<Arc<dyn Observer>>) -> Self {
        if let Some(log) = Arc::get_mut(&mut self.log) {
            log.observer = observer;
        }
        self
    }

    /// Returns whether requests are logged: to the access log's destination, to an observer, or to the process's log
    /// (`--log access=info`).
    pub fn is_enabled(&self) -> bool {
        self.log.lines.is_some()
            || self.log.observer.is_some()
            || tracing::enabled!(target: "access", tracing::Level::INFO)
    }

    /// Creates the entry of `request`, even if requests are not logged: a recording needs it too.
    pub fn entry_of<B>(&self, request: &Request<B>, client: &Client) -> Box<Entry> {
        self.entry_with(request, client, RequestSpan::of(request.headers()))
    }

    /// Creates the entry of `request` if requests are logged, or if it is traced.
    pub fn entry<B>(&self, request: &Request<B>, client: &Client) -> Option<Box<Entry>> {
        let span = RequestSpan::of(request.headers());
        (span.is_some() || self.is_enabled()).then(|| self.entry_with(request, client, span))
    }

    fn entry_with<B>(&self, request: &Request<B>, client: &Client, span: Option<RequestSpan>) -> Box<Entry> {
        let mut entry = Box::new(Entry::of(Arc::clone(&self.log), request, client, self.query));
        entry.set_span(span);
        entry
    }

    /// Creates the entry of a tunnel to `host` if requests are logged.
    pub fn tunnel(&self, client: &Client, host: String) -> Option<Box<Entry>> {
        self.is_enabled().then(|| self.tunnel_entry(client, host))
    }

    /// Creates the entry of a tunnel to `host`, even if requests are not logged.
    pub fn tunnel_entry(&self, client: &Client, host: String) -> Box<Entry> {
        Box::new(Entry::new(Arc::clone(&self.log), client, "CONNECT".to_owned(), host))
    }

    /// Creates the entry of a session of a protocol other than HTTP at `host`, even if requests are not logged. Method and path
    /// name the protocol and its object.
    pub fn session_entry(&self, client: &Client, (method, path): (&str, &str), host: String) -> Box<Entry> {
        let mut entry = Entry::new(Arc::clone(&self.log), client, method.to_owned(), host);
        entry.set_path(path);
        Box::new(entry)
    }
}
