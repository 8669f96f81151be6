//! `bulla edge`: the TLS terminator whose keys are in the key service.

mod arguments;
mod inventory;
mod routes;

use std::time::Duration;

use cli::GlobalArgs;
use cli::connection::ServerArgs;
use cli::exit::{Exit, Outcome, Problem, chain};
use cli::memory;
use cli::units::counted;
use edge::{EdgeMetrics, LoadedCertificates, Options, Running, StapleOptions};
use keyless::client::{Client, ClientMetrics, ClientOptions, ClientTls, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use self::arguments::EdgeArgs;
use self::inventory::Mirror;
use self::routes::ConfiguredRoutes;
use crate::component::{Description, DrainOutcome};
use crate::config::{Configuration, EdgeSettings, Settings};
use crate::files;
use crate::listening::{
    bind_metrics_listener, bound_connections, descriptors_for_one_of, figures_url, socket,
};
use crate::span_export::ProcessSpans;

/// The default folder of chains, in the data folder.
const FOLDER: &str = "edge";
/// The folder of fetched OCSP responses, in the data folder.
const STAPLES: &str = "edge-staples";
/// Additional time for the shutdown, beyond `stop_s` for connections.
const GRACE: Duration = Duration::from_secs(5);

/// Runs `bulla edge`.
pub(crate) async fn run(args: &EdgeArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let mut configuration = Configuration::load(global.config.as_deref())?;
    configuration.settings.edge.take(args);
    let settings = &configuration.settings;
    settings.edge.check()?;
    settings.edge.check_required()?;
    if !settings.server.core_dumps {
        memory::protect()?;
    }
    let stop = cli::stop::on_signal_within(grace(settings))?;
    let spans = ProcessSpans::start(&settings.telemetry)?;
    let edge = start(&configuration, args, descriptors_for_one_of(1), stop.clone()).await?;
    edge.announce();
    let drained = edge.run().await;
    spans.finish().await;
    Ok(drained.exit())
}

/// Returns the timeout of a graceful shutdown.
pub(crate) fn grace(settings: &Settings) -> Duration {
    Duration::from_secs(settings.edge.stop_s) + GRACE
}

pub(crate) struct RunningEdge {
    settings: EdgeSettings,
    running: Running,
    loaded: LoadedCertificates,
    /// The client that requests signatures from the key services.
    client: Client,
    servers: Vec<Server>,
    tls: Option<ClientTls>,
    inventory: Option<Inventory>,
    routes: ConfiguredRoutes,
    hangup: Signal,
    figures_url: Option<String>,
    pub(crate) metrics: EdgeMetrics,
    background: JoinSet<()>,
    stop: CancellationToken,
}

/// Starts the terminator of the configuration, with at most `descriptors` file descriptors. The settings already include the flags
/// `args`, which are applied again after each reload of the file.
pub(crate) async fn start(
    configuration: &Configuration,
    args: &EdgeArgs,
    descriptors: usize,
    stop: CancellationToken,
) -> Outcome<RunningEdge> {
    let mut settings = configuration.settings.edge.clone();
    settings.check()?;
    settings.check_required()?;
    if settings.certificates.as_os_str().is_empty() {
        settings.certificates = cli::data::folder()?.join(FOLDER);
    }
    settings.limit_connections(descriptors);
    let (client_metrics, metrics) = (ClientMetrics::default(), EdgeMetrics::default());
    let (hangup, routes) =
        (hangup()?, ConfiguredRoutes::new(configuration, args, metrics.clone(), hangup()?));
    let mut servers = settings.servers()?;
    if servers.is_empty() {
        servers.extend(configuration.settings.keys.socket()?.map(Server::Unix));
    }
    let tls = speaks_tls(&settings).then(|| tls_options(&settings)).transpose()?;
    let options = ClientOptions { servers: servers.clone(), tls: tls.clone(), ..ClientOptions::default() };
    let client = Client::start(&options, client_metrics.clone()).map_err(|error| {
        Problem::usage(chain(&error)).hint("see --keys, --keys-certificate, --keys-key and --keys-ca")
    })?;
    let inventory = match settings.inventory {
        true => Some(
            Inventory::start(&settings, &args.server, configuration, client.clone(), metrics.clone()).await?,
        ),
        false => None,
    };
    let listen = socket("edge.listen", &settings.listen)?;
    let options = Options { listen, staples: staples(&settings)?, ..settings.options()? };
    // Bind the metrics listener first: a failure after the terminator has started would abort its connections.
    let figures = bind_metrics_listener("edge", &settings.metrics_listen)?;
    let (running, loaded) = bind(options, client.clone(), metrics.clone()).await?;
    let mut background = JoinSet::new();
    let figures_url = figures.as_ref().and_then(figures_url);
    if let Some(listener) = figures {
        let all = server::metrics::Metrics::default();
        all.register(|registry| {
            metrics.register(registry);
            client_metrics.register(registry);
        });
        background.spawn(server::listen::serve_metrics(listener, all, None, stop.clone()));
    }
    Ok(RunningEdge {
        settings,
        running,
        loaded,
        client,
        servers,
        tls,
        inventory,
        routes,
        hangup,
        figures_url,
        metrics,
        background,
        stop,
    })
}

impl EdgeSettings {
    /// Lowers the connection limits, for clients and for upstreams, so that `descriptors` file descriptors are enough.
    fn limit_connections(&mut self, descriptors: usize) {
        let (half, usual) = (descriptors / 2, Settings::default().edge);
        bound_connections("edge.connections_max", &mut self.connections_max, usual.connections_max, half);
        bound_connections(
            "edge.upstream_connections_max",
            &mut self.upstream_connections_max,
            usual.upstream_connections_max,
            half,
        );
    }
}

impl RunningEdge {
    /// Prints the addresses, and warnings about files.
    fn announce(&self) {
        if let Some(url) = &self.figures_url {
            eprintln!("metrics at {url}");
        }
        self.warn();
        for file in &self.loaded.certificates {
            tracing::info!(name = file.name, ski = %file.ski, kind = %file.kind, names = ?file.names, "presenting a certificate");
        }
        eprintln!(
            "bulla terminates TLS with {} at {}, keys at {}",
            counted(self.loaded.certificates.len() as u64, "certificate"),
            self.running.address,
            self.key_server_names()
        );
    }

    /// Prints warnings about files without a usable certificate, and OCSP responses that are not stapled.
    pub(crate) fn warn(&self) {
        for (path, error) in &self.loaded.broken {
            eprintln!("warning: no certificate in {}: {}", path.display(), chain(error));
        }
        for (name, error) in &self.loaded.not_stapled {
            eprintln!("warning: {name}.ocsp is not stapled: {error}");
        }
    }

    fn key_server_names(&self) -> String {
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        servers.join(" and ")
    }

    /// Returns the listen addresses, with notes about the number of certificates and the key services.
    pub(crate) fn description(&self) -> Description {
        let mut places = vec![format!("tls://{}", self.running.address)];
        places.extend(self.figures_url.clone());
        let certificates = self.loaded.certificates.len();
        Description {
            places,
            notes: vec![format!("{certificates} certificates, keys at {}", self.key_server_names())],
        }
    }

    /// Reloads files, certificates and routes periodically until `stop`, then drains.
    pub(crate) async fn run(mut self) -> DrainOutcome {
        let (running, stop) = (&self.running, &self.stop);
        tokio::join!(
            keep(&self.settings, running, &self.client, self.tls, self.inventory, self.hangup, stop),
            self.routes.keep(running, stop)
        );
        let seconds = self.settings.stop_s;
        eprintln!("stopping the TLS terminator: connections have {seconds} s to finish");
        let drained = self.running.stop(Duration::from_secs(seconds)).await;
        self.client.stop().await;
        while self.background.join_next().await.is_some() {}
        drained.into()
    }
}

fn hangup() -> Outcome<Signal> {
    signal(SignalKind::hangup())
        .map_err(|error| Problem::new(Exit::Machine, format_args!("cannot handle signals: {error}")))
}

async fn bind(
    options: Options,
    client: Client,
    metrics: EdgeMetrics,
) -> Outcome<(Running, LoadedCertificates)> {
    edge::start(options, client, metrics).await.map_err(|error| {
        let hint = match &error {
            edge::StartError::Bind { .. } => "choose another address: edge.listen (`bulla edge --listen`)",
            edge::StartError::AccessLog(_) => "check edge.access_log_file, its folder and permissions",
            edge::StartError::ClientCrls(_) => "check edge.client_crl_files",
            edge::StartError::NoRoute => "name an upstream: --upstream, edge.upstream or edge.routes",
            _ => "check --certificates, --default-certificate and --ticket-keys, and the same in [edge]",
        };
        let exit = if matches!(error, edge::StartError::NoRoute) { Exit::Usage } else { Exit::Machine };
        Problem::new(exit, chain(&error)).hint(hint)
    })
}

/// Returns the options for fetching OCSP responses, if enabled.
fn staples(settings: &EdgeSettings) -> Outcome<Option<StapleOptions>> {
    let options = || {
        let folder = cli::data::folder()?.join(STAPLES);
        Ok(StapleOptions { folder, http: outbound::http::Options::default() })
    };
    settings.fetch_staples.then(options).transpose()
}

fn speaks_tls(settings: &EdgeSettings) -> bool {
    !settings.keys_certificate_file.as_os_str().is_empty()
}

fn tls_options(settings: &EdgeSettings) -> Outcome<ClientTls> {
    let (certificate, key) = (&settings.keys_certificate_file, &settings.keys_key_file);
    let certificate = files::certified_key("edge.keys_", certificate, key)?;
    let mut server_roots = Vec::new();
    for path in &settings.keys_ca_files {
        server_roots.extend(files::certificates("edge.keys_ca_files", path)?);
    }
    Ok(ClientTls { certificate, server_roots })
}

/// Reloads files on SIGHUP, and certificates for key services periodically, until `stop`.
async fn keep(
    settings: &EdgeSettings,
    running: &Running,
    client: &Client,
    mut tls: Option<ClientTls>,
    mut inventory: Option<Inventory>,
    mut hangup: Signal,
    stop: &CancellationToken,
) {
    let _live = telemetry::tasks::guard("edge-reload");
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = hangup.recv() => running.reload(),
            () = tokio::time::sleep(Duration::from_secs(settings.reload_s)) => {}
        }
        if let Some(inventory) = &mut inventory
            && inventory.sync().await
        {
            running.reload();
        }
        if let Some(presented) = &mut tls
            && let Err(problem) = renew(settings, presented, client)
        {
            tracing::warn!(problem = problem.message, "the client certificate for key services is unchanged");
        }
    }
}

/// Reloads the client certificate and the server roots for key services. If these files have changed, new connections use the new
/// content.
fn renew(settings: &EdgeSettings, presented: &mut ClientTls, client: &Client) -> Outcome<()> {
    let now = tls_options(settings)?;
    if presented.certificate.cert == now.certificate.cert && presented.server_roots == now.server_roots {
        return Ok(());
    }
    client.change_tls(&now).map_err(|error| Problem::usage(chain(&error)))?;
    tracing::info!("a new client certificate is presented to key services from the next connection on");
    *presented = now;
    Ok(())
}

/// The mirror of the server's chains, and whether the server is unavailable.
struct Inventory {
    mirror: Mirror,
    metrics: EdgeMetrics,
    is_unavailable: bool,
}

impl Inventory {
    /// Syncs for the first time. While the server or the key service is unavailable, presents the chains in the folder, if there
    /// are any.
    async fn start(
        settings: &EdgeSettings,
        server: &ServerArgs,
        configuration: &Configuration,
        keys: Client,
        metrics: EdgeMetrics,
    ) -> Outcome<Self> {
        let server = cli::connection::Client::open(server, &configuration.settings.client)?;
        let mirror = Mirror::new(server, keys, &settings.certificates, &settings.inventory_tag)?;
        let mut inventory = Self { mirror, metrics, is_unavailable: false };
        match inventory.mirror.sync().await {
            Ok(report) => {
                for (file, why) in report.postponed {
                    eprintln!("warning: {file} is not presented yet: {why}");
                }
            }
            Err(problem) if inventory.mirror.has_chains() => {
                let folder = settings.certificates.display();
                eprintln!("warning: {}; the certificates in {folder} are presented", problem.message);
                inventory.set_unavailable(true);
            }
            Err(problem) => return Err(problem),
        }
        Ok(inventory)
    }

    /// Syncs again. Returns whether the folder may have changed.
    async fn sync(&mut self) -> bool {
        match self.mirror.sync().await {
            Ok(report) => {
                for (file, why) in report.postponed {
                    tracing::warn!(file, why, "a certificate is not presented yet");
                }
                if self.is_unavailable {
                    tracing::warn!("the server is reachable again: certificates are synchronized");
                }
                self.set_unavailable(false);
                report.changed
            }
            Err(problem) => {
                if !self.is_unavailable {
                    tracing::warn!(
                        problem = problem.message,
                        "the server is unreachable: the certificates are unchanged"
                    );
                }
                self.set_unavailable(true);
                // Return true, because the sync may have changed some files before the error.
                true
            }
        }
    }

    fn set_unavailable(&mut self, is_unavailable: bool) {
        self.is_unavailable = is_unavailable;
        self.metrics.set_inventory_unavailable(is_unavailable);
    }
}
