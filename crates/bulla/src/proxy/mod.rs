//! `bulla proxy`: the TLS-intercepting forward proxy.

mod arguments;
pub(crate) mod authority;
mod control;
mod explain;
mod held;
mod hold_webhook;
mod in_process;
pub(crate) mod leaf_store;
mod replay;
mod rules;
mod top;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cli::GlobalArgs;
use cli::configuration::ClientSettings;
use cli::exit::{Exit, Outcome, Problem, chain};
use cli::memory;
use keyless::client::ClientMetrics;
use proxy::minting;
use proxy::permission::BadPermission;
use proxy::policy::SessionProtocol;
use proxy::{Options, ProxyMetrics, Running};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use self::arguments::ProxyArgs;
use self::arguments::ProxyCommand;
use self::control::ControlServer;
pub(crate) use self::in_process::ProxyHandles;
use self::rules::ConfiguredRules;
pub(crate) use self::rules::StoreSecrets;
use crate::component::{Description, DrainOutcome};
use crate::config::{Configuration, DatabaseTls, ProxySettings, Settings};
use crate::data_folder;
use crate::fetched_crls::FetchedCrls;
use crate::files;
use crate::listening::{
    bind_metrics_listener, bound_connections, descriptors_for_one_of, figures_url, socket,
};
use crate::span_export::ProcessSpans;

/// Additional time for the shutdown, beyond `stop_s` for connections. It includes 10 s for the revocation of leases.
const GRACE: Duration = Duration::from_secs(15);

/// Runs `bulla proxy`.
pub(crate) async fn run(args: &ProxyArgs, global: &GlobalArgs) -> Outcome<Exit> {
    match &args.command {
        Some(ProxyCommand::Explain(explain)) => return explain::run(explain, global),
        Some(ProxyCommand::Top(top)) => return top::run(top, global),
        Some(ProxyCommand::Held(held)) => return held::list(held, global).await,
        Some(ProxyCommand::Approve(approve)) => return held::approve(approve, global),
        Some(ProxyCommand::Reject(reject)) => return held::reject(reject, global),
        Some(ProxyCommand::Replay(replay)) => return replay::run(replay, global).await,
        None => {}
    }
    let mut configuration = Configuration::load(global.config.as_deref())?;
    configuration.settings.proxy.take(args);
    let settings = &configuration.settings;
    settings.proxy.check()?;
    if !settings.server.core_dumps {
        memory::protect()?;
    }
    let stop = cli::stop::on_signal_within(grace(settings))?;
    let spans = ProcessSpans::start(&settings.telemetry)?;
    let (handles, descriptors) = (ProxyHandles::default(), descriptors_for_one_of(1));
    let proxy = start(&configuration, args, handles, descriptors, stop.clone()).await?;
    proxy.announce();
    let drained = proxy.run().await;
    spans.finish().await;
    Ok(drained.exit())
}

/// Returns the timeout of a graceful shutdown.
pub(crate) fn grace(settings: &Settings) -> Duration {
    Duration::from_secs(settings.proxy.stop_s) + GRACE
}

pub(crate) struct RunningProxy {
    settings: ProxySettings,
    running: Running,
    rules: ConfiguredRules,
    args: ProxyArgs,
    /// The file of the CA's certificate.
    certificate: PathBuf,
    /// The client of the key service that has the CA's key, if there is one.
    keys: Option<keyless::client::Client>,
    figures_url: Option<String>,
    pub(crate) metrics: ProxyMetrics,
    background: JoinSet<()>,
    control: Option<ControlServer>,
    stop: CancellationToken,
}

/// Starts the proxy of the configuration, with at most `descriptors` file descriptors. The settings already include the flags
/// `args`, which are applied again after each reload of the file. `handles` belong to the control plane in the same process.
pub(crate) async fn start(
    configuration: &Configuration,
    args: &ProxyArgs,
    handles: ProxyHandles,
    descriptors: usize,
    stop: CancellationToken,
) -> Outcome<RunningProxy> {
    let all = &configuration.settings;
    let mut settings = all.proxy.clone();
    settings.check()?;
    if !handles.decides {
        settings.check_control_socket()?;
    }
    settings.limit_connections(descriptors);
    let crls = fetched_crls(&mut settings, &all.client).await?;
    let client_metrics = ClientMetrics::default();
    let loaded = authority::load(all, &settings, client_metrics.clone()).await?;
    let listen = socket("proxy.listen", &settings.listen)?;
    warn(&settings, listen);
    let metrics = ProxyMetrics::default();
    let second_level = leaf_store::open(all).await?;
    let upstream_roots = upstream_roots(&settings)?;
    let mut options = Options { listen, upstream_roots, second_level, ..settings.options()? };
    let secrets = StoreSecrets::default();
    options.requests.secrets = secrets.secrets_for_rules(&options.requests.rules, configuration)?;
    options.requests.leases = Some(secrets.leases());
    options.recent = handles.recent.clone();
    let control = open_control(&settings, &handles, &stop).await?;
    options.holds = (control.is_some() || handles.decides).then(|| handles.holds.clone());
    let (holds, can_approve) = (options.holds.clone(), options.holds.is_some());
    let rules = ConfiguredRules::new(configuration, metrics.requests().clone(), secrets, can_approve)?;
    // Bind the metrics listener first, because the proxy refuses connections to its address.
    let figures = bind_metrics_listener("proxy", &settings.metrics_listen)?;
    options.own_addresses.extend(figures.as_ref().and_then(|figures| figures.local_addr().ok()));
    let running = bind(options, loaded.authority, metrics.clone()).await?;
    running.serve_replays(&handles.replays);
    let mut background = JoinSet::new();
    if let (Some(webhook), Some(holds)) = (settings.policy.webhook()?, holds) {
        let guard = all.outbound.guard();
        background.spawn(hold_webhook::run(webhook, guard, holds.held_events(), stop.clone())?);
    }
    crls.into_iter().for_each(|crls| drop(background.spawn(crls.keep(stop.clone()))));
    let figures_url = figures.as_ref().and_then(figures_url);
    if let Some(listener) = figures {
        let all = server::metrics::Metrics::default();
        all.register(|registry| {
            metrics.register(registry);
            client_metrics.register(registry);
        });
        background.spawn(server::listen::serve_metrics(listener, all, None, stop.clone()));
    }
    let (certificate, keys, args) = (loaded.certificate, loaded.client, args.clone());
    Ok(RunningProxy {
        settings,
        running,
        rules,
        args,
        certificate,
        keys,
        figures_url,
        metrics,
        background,
        control,
        stop,
    })
}

/// Opens the control socket of a proxy with a policy. The proxy works without the socket if no rule holds requests, or if the API
/// decides about held requests.
async fn open_control(
    settings: &ProxySettings,
    handles: &ProxyHandles,
    stop: &CancellationToken,
) -> Outcome<Option<ControlServer>> {
    let Some(path) = settings.control_socket()?.filter(|_| settings.policy.is_active()) else {
        return Ok(None);
    };
    if path.parent() == Some(&*cli::data::folder()?) {
        data_folder::folder()?;
    }
    match ControlServer::start(&path, handles.holds.clone(), stop.clone()).await {
        Ok(control) => Ok(Some(control)),
        Err(error) if settings.policy()?.holds() && !handles.decides => {
            Err(Problem::new(Exit::Machine, format_args!("cannot listen on {}: {error}", path.display())).hint(
                "a rule holds requests, and approvals need this socket: set proxy.control_socket, a separate path for each proxy",
            ))
        }
        Err(error) => {
            tracing::info!(path = %path.display(), %error, "no control socket: commands cannot decide held requests");
            Ok(None)
        }
    }
}

impl ProxySettings {
    /// Lowers the connection limits, for clients and for upstreams, so that `descriptors` file descriptors are enough.
    fn limit_connections(&mut self, descriptors: usize) {
        let (third, usual) = (descriptors / 3, Settings::default().proxy);
        bound_connections("proxy.connections_max", &mut self.connections_max, usual.connections_max, third);
        bound_connections(
            "proxy.upstream_connections_max",
            &mut self.upstream_connections_max,
            usual.upstream_connections_max,
            third,
        );
    }

    /// Returns the scheme of the proxy's URL.
    fn scheme(&self) -> &'static str {
        if self.access.tls_only { "https" } else { "http" }
    }
}

impl RunningProxy {
    /// Prints the addresses, and how clients use the proxy.
    fn announce(&self) {
        if let Some(url) = &self.figures_url {
            eprintln!("metrics at {url}");
        }
        if let Some(address) = self.running.minting {
            eprintln!("the minting service listens on {address}");
        }
        for address in &self.running.redirected {
            eprintln!("redirected connections are accepted at {address}");
        }
        for (address, to) in self.running.postgresql.iter().zip(&self.settings.postgresql) {
            let server = to.server(SessionProtocol::Postgresql);
            eprintln!("PostgreSQL clients of {server} connect to {address}");
        }
        for (address, to) in self.running.redis.iter().zip(&self.settings.redis) {
            eprintln!("Redis clients of {} connect to {address}", to.server(SessionProtocol::Redis));
        }
        print_usage_hints(&self.settings, &self.running, &self.certificate);
    }

    /// Returns the listen addresses.
    pub(crate) fn description(&self) -> Description {
        let mut places = vec![format!("{}://{}", self.settings.scheme(), self.running.address)];
        places.extend(self.figures_url.clone());
        let certificate = self.certificate.display();
        Description { places, notes: vec![format!("clients trust {certificate}")] }
    }

    /// Reloads the rules when the file changes, until `stop`, then drains.
    pub(crate) async fn run(mut self) -> DrainOutcome {
        self.rules.keep(&self.running, &self.args, &self.stop).await;
        let seconds = self.settings.stop_s;
        eprintln!("stopping the proxy: connections have {seconds} s to finish");
        let drained = self.running.stop(Duration::from_secs(seconds)).await;
        if let Some(keys) = self.keys {
            keys.stop().await;
        }
        while self.background.join_next().await.is_some() {}
        if let Some(control) = self.control {
            control.stop().await;
        }
        drained.into()
    }
}

/// Fetches the CRLs of clients' CAs that are configured by URL.
async fn fetched_crls(settings: &mut ProxySettings, client: &ClientSettings) -> Outcome<Vec<FetchedCrls>> {
    let (access, minting) = (&mut settings.access, &mut settings.minting);
    let access = FetchedCrls::open(
        "proxy.access.client_crl_files",
        &mut access.client_crl_files,
        &access.client_ca_files,
        client,
    );
    let minting = FetchedCrls::open(
        "proxy.minting.client_crl_files",
        &mut minting.client_crl_files,
        &minting.client_ca_files,
        client,
    );
    Ok([access.await?, minting.await?].into_iter().flatten().collect())
}

/// Warns about listeners that any client may use, about unencrypted passwords, and about upstreams whose certificates are not
/// verified.
fn warn(settings: &ProxySettings, listen: SocketAddr) {
    if !listen.ip().is_loopback() && settings.clients.is_empty() && !settings.access.requires_authentication()
    {
        eprintln!("warning: any client that reaches {listen} may use the proxy");
        eprintln!(
            "hint: restrict the networks: --client NETWORK, or proxy.clients; or require authentication: [proxy.access]"
        );
    }
    if settings.clients.is_empty() && settings.transparent.clients.is_empty() {
        let open = |text: &&String| !text.parse::<SocketAddr>().is_ok_and(|at| at.ip().is_loopback());
        for at in settings.transparent.listen.iter().filter(open) {
            eprintln!("warning: any client that is redirected to {at} may use the proxy");
            eprintln!("hint: restrict the networks: proxy.transparent.clients");
        }
    }
    for (listeners, protocol) in
        [(&settings.postgresql, SessionProtocol::Postgresql), (&settings.redis, SessionProtocol::Redis)]
    {
        for one in listeners.iter().filter(|one| one.tls == DatabaseTls::Disable) {
            let server = one.server(protocol);
            eprintln!("warning: anyone on the network path can read the sessions with {server}");
            eprintln!("hint: leave `tls` of [[proxy.{}]] out", protocol.name());
        }
    }
    for upstream in settings.upstreams.iter().filter(|upstream| !upstream.verify) {
        eprintln!("warning: a machine in the middle could impersonate {}", upstream.names.join(", "));
        eprintln!(
            "hint: set their trust anchors, ca_files in [[proxy.upstreams]], instead of verify = false"
        );
    }
    if !listen.ip().is_loopback() && settings.access.accepts_cleartext_credentials() {
        eprintln!("warning: passwords and tokens are sent unencrypted to {listen}");
        eprintln!("hint: set certificate_file and key_file of [proxy.access], and tls_only = true");
    }
}

/// Prints how clients use the proxy.
fn print_usage_hints(settings: &ProxySettings, running: &Running, certificate: &Path) {
    let (access, scheme) = (&settings.access, settings.scheme());
    eprintln!("the proxy listens on {scheme}://{}", running.address);
    if access.speaks_tls() && !access.tls_only {
        eprintln!("and on https://{}", running.address);
    }
    let certificate = certificate.display();
    eprintln!("clients must trust its CA: {certificate}");
    let user = if access.has_users() { " --proxy-user NAME" } else { "" };
    eprintln!(
        "try: curl --proxy {scheme}://{}{user} --cacert {certificate} https://example.com",
        running.address
    );
}

pub(crate) fn upstream_roots(settings: &ProxySettings) -> Outcome<Vec<Vec<u8>>> {
    let mut roots = outbound::tls::system_roots();
    for path in &settings.upstream_ca_files {
        roots.extend(files::certificates("proxy.upstream_ca_files", path)?);
    }
    Ok(roots)
}

pub(crate) async fn bind(
    options: Options,
    authority: proxy::mint::Authority,
    metrics: ProxyMetrics,
) -> Outcome<Running> {
    proxy::start(options, authority, metrics).await.map_err(|error| {
        let hint = match &error {
            proxy::StartError::Bind { .. } => "choose another address: proxy.listen (`bulla proxy --listen`), \
             proxy.transparent.listen, proxy.postgresql.listen, proxy.redis.listen",
            proxy::StartError::NoRoots => {
                "install the system's trust anchors (ca-certificates), or set some: --upstream-ca"
            }
            proxy::StartError::Minting(minting::StartError::InTheClear(_)) => {
                "listen on 127.0.0.1 or unix:PATH, or give certificate_file, key_file and client_ca_files of [proxy.minting]"
            }
            proxy::StartError::Minting(_) => "check [proxy.minting]",
            proxy::StartError::Intermediate(_) => {
                "check the CA and the location of its key: proxy.ca_certificate_file, [proxy.authority]"
            }
            proxy::StartError::Permission(BadPermission::Token) => {
                "proxy.ask.token_file must contain one line of visible ASCII"
            }
            proxy::StartError::Permission(_) => {
                "proxy.ask.url must be https://HOST/PATH, or http://127.0.0.1:PORT/PATH; check also proxy.ask.ca_files"
            }
            proxy::StartError::AccessLog(_) => {
                "check proxy.requests.access_log_file, its folder and permissions"
            }
            proxy::StartError::AuditLog(_) => {
                "check proxy.requests.audit_file, its folder and permissions; each proxy needs a separate file"
            }
            _ => "check [proxy]",
        };
        Problem::new(exit_code_of(&error), chain(&error)).hint(hint)
    })
}

/// Returns the usage exit code for wrong settings, else the machine exit code.
fn exit_code_of(error: &proxy::StartError) -> Exit {
    match error {
        proxy::StartError::Permission(BadPermission::Setup(_)) => Exit::Machine,
        proxy::StartError::Permission(_) | proxy::StartError::Minting(minting::StartError::InTheClear(_)) => {
            Exit::Usage
        }
        _ => Exit::Machine,
    }
}
