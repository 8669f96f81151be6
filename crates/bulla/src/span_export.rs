//! Export of spans to a collector of traces: OTLP over HTTP. The key service has its own export. All other roles of the process
//! share one export.

use std::path::Path;
use std::time::Duration;

use cli::exit::{Exit, Outcome, Problem, chain};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Certificate, Client, StatusCode};
use telemetry::spans::{self, BatchRejection, SpanQueue, SpanSender};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::TelemetrySettings;

/// Timeout for sending one batch of spans. Requests do not wait for the transfer.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Name of the key service in traces.
const KEY_SERVICE: &str = "bulla-keys";
/// Service name in traces of all roles except the key service.
const OTHER_ROLES: &str = "bulla";

/// A collector, and the queue of spans for it.
pub(crate) struct Export {
    spans: SpanSender,
    waiting: SpanQueue,
    http: Client,
    url: String,
}

impl Export {
    /// Opens the export. `None` without a collector of traces.
    pub(crate) fn open(settings: &TelemetrySettings) -> Outcome<Option<Self>> {
        let Some(url) = settings.url()? else { return Ok(None) };
        let http = client(&settings.otlp_ca_file)?;
        let (spans, waiting) = spans::queue(settings.otlp_share);
        Ok(Some(Self { spans, waiting, http, url }))
    }

    /// Returns the queue for spans.
    pub(crate) fn spans(&self) -> &SpanSender {
        &self.spans
    }

    /// Sends spans of the key service until `stop`, then the remaining ones. `node` is the name and site of the node; `None` if the
    /// key service is not a node of a cluster.
    pub(crate) async fn run(self, node: Option<(String, String)>, stop: CancellationToken) {
        self.send(resource(KEY_SERVICE, node), stop).await;
    }

    async fn send(self, resource: Vec<(&'static str, String)>, stop: CancellationToken) {
        let Self { spans, waiting, http, url } = self;
        let send = |message| post(http.clone(), url.clone(), message);
        spans::export(waiting, resource, send, stop.cancelled()).await;
        // Dropped only after the export, so that requests can still queue spans.
        drop(spans);
    }
}

/// The export of the spans of all roles of this process, except the key service.
pub(crate) struct ProcessSpans(Option<(CancellationToken, JoinHandle<()>)>);

impl ProcessSpans {
    /// Starts the export, if a collector of traces is configured.
    pub(crate) fn start(settings: &TelemetrySettings) -> Outcome<Self> {
        let Some(export) = Export::open(settings)? else { return Ok(Self(None)) };
        spans::install(export.spans());
        let stop = CancellationToken::new();
        let task = tokio::spawn(export.send(resource(OTHER_ROLES, None), stop.clone()));
        Ok(Self(Some((stop, task))))
    }

    /// Sends the remaining spans, for at most two seconds.
    pub(crate) async fn finish(self) {
        if let Some((stop, task)) = self.0 {
            stop.cancel();
            let _ = task.await;
        }
    }
}

fn client(ca_file: &Path) -> Outcome<Client> {
    // The collector is usually in the local network, so no proxy is used.
    let mut builder = Client::builder()
        .timeout(EXPORT_TIMEOUT)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("bulla/", env!("CARGO_PKG_VERSION")));
    if !ca_file.as_os_str().is_empty() {
        let hint = "name a PEM file of certificates in telemetry.otlp_ca_file";
        let shown = ca_file.display();
        let pem = std::fs::read(ca_file)
            .map_err(|error| Problem::usage(format_args!("cannot read {shown}: {error}")).hint(hint))?;
        let roots = Certificate::from_pem_bundle(&pem).map_err(|error| {
            Problem::usage(format_args!("{shown} contains no certificates: {error}")).hint(hint)
        })?;
        builder = builder.tls_certs_only(roots);
    }
    builder.build().map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot create an HTTP client: {}", chain(&error)))
    })
}

/// Returns the resource attributes that identify the sender (OpenTelemetry's semantic conventions, "Resource").
fn resource(service: &str, node: Option<(String, String)>) -> Vec<(&'static str, String)> {
    let mut all =
        vec![("service.name", service.to_owned()), ("service.version", env!("CARGO_PKG_VERSION").to_owned())];
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    all.extend(Some(host.trim().to_owned()).filter(|host| !host.is_empty()).map(|host| ("host.name", host)));
    if let Some((name, site)) = node {
        all.extend([("service.instance.id", name.clone()), ("bulla.node", name), ("bulla.site", site)]);
    }
    all
}

async fn post(http: Client, url: String, message: Vec<u8>) -> Result<(), BatchRejection> {
    let sent = http.post(url).header(CONTENT_TYPE, "application/x-protobuf").body(message).send().await;
    let mut answer = sent.map_err(|error| BatchRejection::Later(chain(&error.without_url())))?;
    let status = answer.status();
    // Read the whole response, so that the connection can be reused. Its content is not needed.
    while let Ok(Some(_)) = answer.chunk().await {}
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            Err(BatchRejection::Later(format!("the collector answers {status}")))
        }
        status => Err(BatchRejection::Never(format!("the collector answers {status}"))),
    }
}
