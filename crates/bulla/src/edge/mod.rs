//! `bulla edge`: the TLS terminator whose keys are with the key service.

mod arguments;
mod inventory;
mod routes;

use std::time::Duration;

use cli::Global;
use cli::connection::ServerArgs;
use cli::exit::{Exit, Outcome, Problem, chain};
use cli::memory;
use edge::{EdgeMetrics, Loaded, Options, Running, StapleOptions};
use keyless::client::{Client, ClientMetrics, ClientOptions, ClientTls, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use self::arguments::EdgeArgs;
use self::inventory::Mirror;
use self::routes::ConfiguredRoutes;
use crate::config::{Configuration, EdgeSettings, Settings};
use crate::files;
use crate::listening::{bound_connections, figures_listener, socket};

/// Of chains, in the data folder, where no other is named.
const FOLDER: &str = "edge";
/// Of fetched staples, in the data folder.
const STAPLES: &str = "edge-staples";
/// Beyond what connections are given at the stop.
const GRACE: Duration = Duration::from_secs(5);

/// Runs `bulla edge`.
pub(crate) async fn run(args: &EdgeArgs, global: &Global) -> Outcome<Exit> {
    let configuration = Configuration::load(global.config.as_deref())?;
    let (core_dumps, mut settings) =
        (configuration.settings.server.core_dumps, configuration.settings.edge.clone());
    settings.take(args);
    settings.check()?;
    settings.check_whole()?;
    if settings.certificates.as_os_str().is_empty() {
        settings.certificates = cli::data::folder()?.join(FOLDER);
    }
    if !core_dumps {
        memory::protect()?;
    }
    // The client's and the upstream's.
    let most = outbound::limits::descriptor_budget() / 2;
    bound_connections(
        "edge.connections_max",
        &mut settings.connections_max,
        Settings::default().edge.connections_max,
        most,
    );
    bound_connections(
        "edge.upstream_connections_max",
        &mut settings.upstream_connections_max,
        Settings::default().edge.upstream_connections_max,
        most,
    );
    let grace = Duration::from_secs(settings.stop_s);
    let stop = cli::stop::on_signal_within(grace + GRACE)?;
    let (client_metrics, metrics) = (ClientMetrics::default(), EdgeMetrics::default());
    let (hangup, routes) =
        (hangup()?, ConfiguredRoutes::new(&configuration, args, metrics.clone(), hangup()?));
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
            Inventory::start(&settings, &args.server, &configuration, client.clone(), metrics.clone())
                .await?,
        ),
        false => None,
    };
    let listen = socket("edge.listen", &settings.listen)?;
    let options = Options { listen, staples: staples(&settings)?, ..settings.options()? };
    let (running, loaded) = start(options, client.clone(), metrics.clone()).await?;
    let mut background = JoinSet::new();
    if let Some(listener) = figures_listener("edge", &settings.metrics_listen)? {
        let all = server::metrics::Metrics::default();
        all.register(|registry| {
            metrics.register(registry);
            client_metrics.register(registry);
        });
        background.spawn(server::listen::serve_figures(listener, all, None, stop.clone()));
    }
    announce(&running, &loaded, &servers);
    tokio::join!(
        keep(&settings, &running, &client, tls, inventory, hangup, &stop),
        routes.keep(&running, &stop)
    );
    eprintln!("stopping: connections are let come to their end, for {} s", settings.stop_s);
    let drained = running.stop(grace).await;
    client.stop().await;
    while background.join_next().await.is_some() {}
    if !drained {
        eprintln!("some connections had not ended and were cut off");
    }
    Ok(Exit::Ok)
}

fn hangup() -> Outcome<Signal> {
    signal(SignalKind::hangup())
        .map_err(|error| Problem::new(Exit::Machine, format_args!("signals cannot be handled: {error}")))
}

async fn start(options: Options, client: Client, metrics: EdgeMetrics) -> Outcome<(Running, Loaded)> {
    edge::start(options, client, metrics).await.map_err(|error| {
        let hint = match &error {
            edge::StartError::Bind { .. } => "choose another place: --listen, or edge.listen",
            edge::StartError::AccessLog(_) => "check edge.access_log_file, its folder and permissions",
            edge::StartError::ClientCrls(_) => "check edge.client_crl_files",
            edge::StartError::NoRoute => "name an upstream: --upstream, edge.upstream or edge.routes",
            _ => "check --certificates, --default-certificate and --ticket-keys, and the same in [edge]",
        };
        let exit = if matches!(error, edge::StartError::NoRoute) { Exit::Usage } else { Exit::Machine };
        Problem::new(exit, chain(&error)).hint(hint)
    })
}

/// How OCSP responses are fetched, if they are.
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

fn announce(running: &Running, loaded: &Loaded, servers: &[Server]) {
    for (path, error) in &loaded.broken {
        eprintln!("warning: no certificate in {}: {}", path.display(), chain(error));
    }
    for (name, error) in &loaded.not_stapled {
        eprintln!("warning: {name}.ocsp is not stapled: {error}");
    }
    for file in &loaded.certificates {
        tracing::info!(name = file.name, ski = %file.ski, kind = %file.kind, names = ?file.names, "is presented");
    }
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    eprintln!(
        "bulla terminates TLS with {} certificates at {}, keys at {}",
        loaded.certificates.len(),
        running.address,
        servers.join(" and ")
    );
}

/// Has files looked at when told to (SIGHUP), and certificates for key services every so often, until told to stop.
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
            tracing::warn!(problem = problem.message, "the certificate for key services stays as it is");
        }
    }
}

/// Has what the files hold now count, if that is something else.
fn renew(settings: &EdgeSettings, presented: &mut ClientTls, client: &Client) -> Outcome<()> {
    let now = tls_options(settings)?;
    if presented.certificate.cert == now.certificate.cert && presented.server_roots == now.server_roots {
        return Ok(());
    }
    client.change_tls(&now).map_err(|error| Problem::usage(chain(&error)))?;
    tracing::info!("another certificate is presented to key services from the next connection on");
    *presented = now;
    Ok(())
}

/// The folder of chains kept as the server has them, and whether the server is away.
struct Inventory {
    mirror: Mirror,
    metrics: EdgeMetrics,
    is_away: bool,
}

impl Inventory {
    /// Syncs for the first time. While the server or the key service is away, the chains in the folder are presented, if there are any.
    async fn start(
        settings: &EdgeSettings,
        server: &ServerArgs,
        configuration: &Configuration,
        keys: Client,
        metrics: EdgeMetrics,
    ) -> Outcome<Self> {
        let server = cli::connection::Client::open(server, &configuration.settings.client)?;
        let mirror = Mirror::new(server, keys, &settings.certificates, &settings.inventory_tag)?;
        let mut inventory = Self { mirror, metrics, is_away: false };
        match inventory.mirror.sync().await {
            Ok(report) => {
                for (file, why) in report.postponed {
                    eprintln!("warning: {file} is not presented yet: {why}");
                }
            }
            Err(problem) if inventory.mirror.has_chains() => {
                let folder = settings.certificates.display();
                eprintln!("warning: {}; what is in {folder} is presented", problem.message);
                inventory.set_away(true);
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
                if self.is_away {
                    tracing::warn!("the server says again which certificates there are");
                }
                self.set_away(false);
                report.changed
            }
            Err(problem) => {
                if !self.is_away {
                    tracing::warn!(
                        problem = problem.message,
                        "certificates stay as they are until the server is asked"
                    );
                }
                self.set_away(true);
                // Some of it may have changed.
                true
            }
        }
    }

    fn set_away(&mut self, is_away: bool) {
        self.is_away = is_away;
        self.metrics.set_inventory_away(is_away);
    }
}
