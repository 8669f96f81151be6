//! `bulla key serve`: the key service, which signs for TLS terminators.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cli::GlobalArgs;
use cli::exit::{Exit, Outcome, Problem, chain};
use cli::memory;
use cli::units::counted;
use keyless::records::Recorder;
use keyless::server::{HANDSHAKES_MAX, NodesOptions, Options, Running, TlsOptions};
use keyless::tenant::TenantOptions;
use keyless::{Folder, FolderContents, KeySet, Metrics};
use lifecycle::signing_keys::{SigningKeys, SigningKeysError};
use outbound::resolve::Resolver;
use server::listen::{Documents, serve_metrics};
use store::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::node::{Node, NodeArgs};
use crate::component::{Description, DrainOutcome};
use crate::config::{Configuration, KeyServiceSettings, Settings};
use crate::fetched_crls::FetchedCrls;
use crate::files;
use crate::listening::{
    bind_metrics_listener, bound_connections, descriptors_for_one_of, figures_url, socket,
};
use crate::master_keys;
use crate::span_export::Export;
use discover::database;

const CLIENT_CRLS: &str = "keys.client_crl_files";
/// Maximum number of TCP listeners: the Keyless protocol, the native one, other nodes.
const LISTENERS_MAX: usize = 3;

/// Arguments of `bulla key serve`.
#[derive(Args, Debug)]
pub(super) struct ServeArgs {
    /// A folder of private keys (*.key, PEM or DER), read again every few seconds; may be repeated
    #[arg(long = "dir", value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Sign also with the keys of managed certificates, from the database of [store] and under the master key of [authority]
    #[arg(long)]
    inventory: bool,
    /// Address of the TLS listener [default: 0.0.0.0:2407, if there is a certificate]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The server's own chain (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The private key of that chain (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Roots (PEM) that clients' certificates must chain to; may be repeated
    #[arg(long = "client-ca", value_name = "FILE")]
    client_ca_files: Vec<PathBuf>,
    /// Unix socket, or `none` [default: keys.sock in the data folder]
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Address of the native protocol (gRPC), over the same TLS [default: none]
    #[arg(long, value_name = "ADDRESS")]
    native_listen: Option<String>,
    /// Unix socket for the native protocol [default: none]
    #[arg(long, value_name = "PATH")]
    native_socket: Option<String>,
    #[command(flatten)]
    node: NodeArgs,
    /// Address of /metrics in plain HTTP; empty: none [default: 127.0.0.1:2406]
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<String>,
}

impl KeyServiceSettings {
    pub(super) fn take(&mut self, args: &ServeArgs) {
        let text = |into: &mut String, given: &Option<String>| {
            if let Some(given) = given {
                into.clone_from(given);
            }
        };
        text(&mut self.listen, &args.listen);
        text(&mut self.socket, &args.socket);
        text(&mut self.native_listen, &args.native_listen);
        text(&mut self.native_socket, &args.native_socket);
        text(&mut self.metrics_listen, &args.metrics_listen);
        self.inventory |= args.inventory;
        self.node.take(&args.node);
        if !args.directories.is_empty() {
            self.directories.clone_from(&args.directories);
        }
        if !args.client_ca_files.is_empty() {
            self.client_ca_files.clone_from(&args.client_ca_files);
        }
        if let (Some(certificate), Some(key)) = (&args.certificate, &args.key) {
            self.certificate_file.clone_from(certificate);
            self.key_file.clone_from(key);
        }
    }
}

/// Runs `bulla key serve`.
pub(super) async fn run(args: &ServeArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let mut configuration = Configuration::load(global.config.as_deref())?;
    let settings = &mut configuration.settings;
    settings.keys.take(args);
    settings.keys.check()?;
    settings.keys.check_required(args.listen.is_some())?;
    if !settings.server.core_dumps {
        memory::protect()?;
    }
    let stop = cli::stop::on_signal_within(GRACE)?;
    let token = args.node.token.as_deref();
    let service = start(&configuration, token, descriptors_for_one_of(1), stop.clone()).await?;
    service.announce()?;
    let drained = Box::pin(service.run()).await;
    if drained == DrainOutcome::CutOff {
        eprintln!("some requests had not finished and were aborted");
    }
    Ok(Exit::Ok)
}

/// The timeout of a graceful shutdown.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

pub(crate) struct RunningKeys {
    settings: KeyServiceSettings,
    /// The configuration file, from which tenants are reloaded. A file that is missing later makes the reload fail.
    file: Option<PathBuf>,
    running: Running,
    set: KeySet,
    sources: Sources,
    tls: Option<TlsOptions>,
    node: Option<Node>,
    figures_url: Option<String>,
    background: JoinSet<()>,
    stop: CancellationToken,
    /// Cancelled after the last response.
    answered: CancellationToken,
}

/// Starts the key service of the configuration, with at most `descriptors` file descriptors. `token` joins the control plane as a node, if
/// the service has not joined yet.
pub(crate) async fn start(
    configuration: &Configuration,
    token: Option<&str>,
    descriptors: usize,
    stop: CancellationToken,
) -> Outcome<RunningKeys> {
    let mut all = configuration.settings.clone();
    let keys = &mut all.keys;
    let (crls, cas) = (&mut keys.client_crl_files, &keys.client_ca_files);
    let crls = FetchedCrls::open(CLIENT_CRLS, crls, cas, &all.client).await?;
    let (set, metrics) = (KeySet::default(), Metrics::default());
    let loaded = master_keys::token_keys(&all, "keys.pkcs11_labels", &all.keys.pkcs11_labels).await?;
    set.put_named("pkcs11", all.keys.pkcs11_labels.iter().cloned().zip(loaded).collect());
    super::clouds::put(&all.keys, &set, &metrics).await?;
    let export = Export::open(&all.telemetry)?;
    let inventory = if all.keys.inventory { Some(inventory(&all).await?) } else { None };
    let node = node(&all, token, &set).await?;
    let mut settings = all.keys;
    let mut sources = Sources::new(&settings, inventory, set.clone(), metrics.clone());
    sources.poll(true).await?;
    let tls = settings.speaks_tls().then(|| tls_options(&settings)).transpose()?;
    settings.limit_connections(descriptors, node.is_some());
    // Bind the metrics listener before the first connection, so that an error shows at startup.
    let figures = bind_metrics_listener("keys", &settings.metrics_listen)?;
    let nodes = node.as_ref().map(|node| node.options(&settings.node)).transpose()?;
    let listeners = Listeners { tls: tls.clone(), nodes };
    let records = records(&settings)?;
    let running = bind(&settings, listeners, set.clone(), metrics.clone(), records.clone()).await?;
    let mut background = JoinSet::new();
    if let Some(crls) = crls {
        background.spawn(crls.keep(stop.clone()));
    }
    node.iter().for_each(|node| node.set_node_on_traces(metrics.traces()));
    let figures_url = figures.as_ref().and_then(figures_url);
    if let Some(listener) = figures {
        let (all, documents) = figures_of(&metrics, node.as_ref(), export.as_ref());
        background.spawn(serve_metrics(listener, all, Some(documents), stop.clone()));
    }
    let answered = CancellationToken::new();
    if let Some(records) = records {
        background.spawn(records.run(answered.clone()));
    }
    if let Some(export) = export {
        metrics.traces().export_to(export.spans());
        background.spawn(export.run(node.as_ref().map(Node::name_and_site), answered.clone()));
    }
    let file = configuration.file().map(Path::to_owned);
    Ok(RunningKeys {
        settings,
        file,
        running,
        set,
        sources,
        tls,
        node,
        figures_url,
        background,
        stop,
        answered,
    })
}

/// Returns the metrics, and the JSON documents of recent requests.
fn figures_of(
    metrics: &Metrics,
    node: Option<&Node>,
    export: Option<&Export>,
) -> (server::metrics::Metrics, Documents) {
    let all = server::metrics::Metrics::default();
    all.register(|registry| {
        metrics.register(registry);
        node.iter().for_each(|node| node.register(registry));
        export.iter().for_each(|export| export.spans().register(registry));
    });
    let traces = metrics.traces().clone();
    (all, Arc::new(move |path| traces.answer(path)))
}

impl KeyServiceSettings {
    /// Lowers the limit of connections, so that `descriptors` file descriptors are enough.
    fn limit_connections(&mut self, descriptors: usize, is_node: bool) {
        // TLS, Unix sockets and other nodes each get the same share. Handshakes in progress are counted separately.
        let kinds = if is_node { 3 } else { 2 };
        let most = descriptors.saturating_sub(LISTENERS_MAX * HANDSHAKES_MAX).max(descriptors / 4) / kinds;
        let usual = Settings::default().keys.connections_max;
        bound_connections("keys.connections_max", &mut self.connections_max, usual, most);
    }
}

impl RunningKeys {
    /// Prints the addresses and the keys, or the reasons why there are none.
    fn announce(&self) -> Outcome<()> {
        if let Some(url) = &self.figures_url {
            eprintln!("metrics at {url}");
        }
        let keys = self.set.list();
        for (ski, kind) in &keys {
            tracing::info!(%ski, %kind, "signing with a key");
        }
        let count = counted(keys.len() as u64, "key");
        eprintln!("bulla signs with {count} at {}", self.listeners()?.join(" and "));
        if keys.is_empty() {
            explain(&self.settings, &self.sources, self.node.as_ref());
        }
        self.node.iter().for_each(|node| eprintln!("this service is the {}", node.described()));
        Ok(())
    }

    fn listeners(&self) -> Outcome<Vec<String>> {
        let (settings, running) = (&self.settings, &self.running);
        let mut listeners = Vec::new();
        listeners.extend(running.address.map(|address| format!("tls://{address}")));
        listeners.extend(settings.socket()?.map(|path| format!("unix:{}", path.display())));
        listeners.extend(running.native.map(|address| format!("grpc://{address}")));
        listeners.extend(running.nodes.map(|address| format!("nodes://{address}")));
        if !settings.native_socket.is_empty() {
            listeners.push(format!("grpc+unix:{}", settings.native_socket));
        }
        Ok(listeners)
    }

    /// Returns the listen addresses, with notes about the number of keys and the node.
    pub(crate) fn description(&self) -> Outcome<Description> {
        let mut places = self.listeners()?;
        places.extend(self.figures_url.clone());
        let mut notes = vec![counted(self.set.list().len() as u64, "key")];
        notes.extend(self.node.as_ref().map(Node::described));
        Ok(Description { places, notes })
    }

    /// Reloads keys, certificates and tenants periodically until `stop`, then drains.
    pub(crate) async fn run(mut self) -> DrainOutcome {
        let tenants = TenantWatch { file: self.file.as_deref(), tenants: self.settings.tenants() };
        let (running, stop) = (&self.running, &self.stop);
        let reloading = keep(&self.settings, self.sources, self.tls, tenants, running, stop);
        match self.node {
            Some(node) => drop(tokio::join!(reloading, node.run(running, stop))),
            None => reloading.await,
        }
        eprintln!("stopping the key service: requests in progress finish");
        let drained = self.running.stop().await;
        self.answered.cancel();
        while self.background.join_next().await.is_some() {}
        drained.into()
    }
}

/// Returns the node; `None` if the service is not a node of a cluster. The seed key decrypts the node's own key.
async fn node(settings: &Settings, token: Option<&str>, set: &KeySet) -> Outcome<Option<Node>> {
    let node = &settings.keys.node;
    if !node.is_configured() {
        return Ok(None);
    }
    let custody = match &node.seed_key {
        Some(key) => Some(master_keys::node_keyring(settings, key, &system_resolver()?).await?),
        None => None,
    };
    Node::open(node, token, set, custody.as_ref()).await.map(Some)
}

fn system_resolver() -> Outcome<Resolver> {
    Resolver::system()
        .map_err(|error| Problem::new(Exit::Machine, chain(&error)).hint("check /etc/resolv.conf"))
}

/// Returns the keys of managed certificates. Fails if the database does not exist.
async fn inventory(settings: &Settings) -> Outcome<SigningKeys> {
    let url = database::inventory_url(None, &settings.store)?;
    if let Some(path) = url.sqlite_path()
        && !path.exists()
    {
        return Err(Problem::new(
            Exit::Inventory,
            format_args!("no inventory at {}", path.display()),
        )
        .hint("name the server's database: store.url in the configuration, or BULLA_DATA; `bulla up` creates one"));
    }
    let store = database::open(&url, &settings.store).await?;
    let resolver = system_resolver()?;
    let clock = Clock::system();
    let keystore = master_keys::keystore(settings, &store, &clock, &resolver, false).await?;
    Ok(SigningKeys::new(store, keystore, clock))
}

/// Opens the recorder, which writes a record of every signature. Returns `None` if records are disabled.
fn records(settings: &KeyServiceSettings) -> Outcome<Option<Recorder>> {
    let node_folder = if settings.node.is_configured() { Some(settings.node.folder()?) } else { None };
    let Some(options) = settings.records(node_folder) else { return Ok(None) };
    let recorder = Recorder::open(options).map_err(|error| {
        Problem::new(Exit::Machine, chain(&error))
            .hint("keys.records names the folder of signature records; `bulla key records` verifies it")
    })?;
    Ok(Some(recorder))
}

/// The TLS listeners for clients and for other nodes.
struct Listeners {
    tls: Option<TlsOptions>,
    nodes: Option<NodesOptions>,
}

async fn bind(
    settings: &KeyServiceSettings,
    listeners: Listeners,
    set: KeySet,
    metrics: Metrics,
    records: Option<Recorder>,
) -> Outcome<Running> {
    let Listeners { tls, nodes } = listeners;
    let tls = match tls {
        Some(tls) => Some((socket("keys.listen", &settings.listen)?, tls)),
        None => None,
    };
    let native = match settings.native_listen.as_str() {
        "" => None,
        address => Some(socket("keys.native_listen", address)?),
    };
    let options = Options { tls, native, nodes, socket: settings.socket()?, records, ..settings.options() };
    keyless::server::start(options, set, metrics).await.map_err(|error| {
        Problem::new(Exit::Machine, chain(&error)).hint(
            "choose another address: --listen, --socket, --native-listen and --native-socket of `bulla key serve`, or the \
             same settings and node.listen of [keys] in the configuration",
        )
    })
}

fn tls_options(settings: &KeyServiceSettings) -> Outcome<TlsOptions> {
    let certificate = files::certified_key("keys.", &settings.certificate_file, &settings.key_file)?;
    let mut client_roots = Vec::new();
    for path in &settings.client_ca_files {
        client_roots.extend(files::certificates("keys.client_ca_files", path)?);
    }
    let mut client_crls = Vec::new();
    for path in &settings.client_crl_files {
        client_crls.extend(files::crls(CLIENT_CRLS, path)?);
    }
    Ok(TlsOptions { certificate, client_roots, client_crls })
}

/// Prints for each source of keys why it has no key, or that no source is configured.
fn explain(settings: &KeyServiceSettings, sources: &Sources, node: Option<&Node>) {
    let mut missing_keys_reason = sources.missing_keys_reason();
    missing_keys_reason.extend(node.map(Node::missing_keys_reason));
    if !settings.pkcs11_labels.is_empty() {
        missing_keys_reason
            .push(format!("security module: no key with the labels {}", settings.pkcs11_labels.join(", ")));
    }
    if missing_keys_reason.is_empty() {
        missing_keys_reason.push(
            "no source of keys is configured: give --dir FOLDER, --inventory or --join URL, or set keys.directories \
             or keys.pkcs11_labels"
                .to_owned(),
        );
    }
    eprintln!("the service cannot sign, because it has no usable key:");
    missing_keys_reason.iter().for_each(|lack| eprintln!("  {lack}"));
}

/// The tenants in effect, and the configuration file that is checked for changes.
struct TenantWatch<'a> {
    file: Option<&'a Path>,
    tenants: Vec<TenantOptions>,
}

impl TenantWatch<'_> {
    /// Applies the tenants of the configuration if they have changed.
    fn renew(&mut self, running: &Running) -> Outcome<()> {
        let now = Configuration::load(self.file)?.settings.keys.tenants();
        if now == self.tenants {
            return Ok(());
        }
        // A file that is being written is empty for a moment. An empty list of tenants would let every client use every key.
        if now.is_empty() {
            return Err(Problem::usage("the configuration no longer has tenants")
                .hint("restart the service to serve without tenants"));
        }
        running.change_tenants(&now).map_err(|error| Problem::usage(chain(&error)))?;
        tracing::info!(tenants = now.len(), "the tenants were reloaded and apply from the next request on");
        self.tenants = now;
        Ok(())
    }
}

/// Reloads folders, certificate files and tenants periodically until `stop`.
async fn keep(
    settings: &KeyServiceSettings,
    mut sources: Sources,
    mut tls: Option<TlsOptions>,
    mut tenants: TenantWatch<'_>,
    running: &Running,
    stop: &CancellationToken,
) {
    let _live = telemetry::tasks::guard("keys-reload");
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_secs(settings.reload_s)) => {}
        }
        if let Err(problem) = sources.poll(false).await {
            tracing::warn!(problem = problem.message, "cannot read the keys; the loaded keys remain in use");
        }
        if let Some(presented) = &mut tls
            && let Err(problem) = renew(settings, presented, running)
        {
            tracing::warn!(problem = problem.message, "the certificates are unchanged");
        }
        if let Err(problem) = tenants.renew(running) {
            tracing::warn!(problem = problem.message, "the tenants are unchanged");
        }
    }
}

/// Reloads the service's certificate, the clients' roots and their CRLs if these files have changed.
fn renew(settings: &KeyServiceSettings, presented: &mut TlsOptions, running: &Running) -> Outcome<()> {
    let now = tls_options(settings)?;
    if is_same(presented, &now) {
        return Ok(());
    }
    running.change_tls(&now).map_err(|error| Problem::usage(chain(&error)))?;
    tracing::info!("the certificates were reloaded and apply from the next connection on");
    *presented = now;
    Ok(())
}

fn is_same(before: &TlsOptions, now: &TlsOptions) -> bool {
    before.certificate.cert == now.certificate.cert
        && before.client_roots == now.client_roots
        && before.client_crls == now.client_crls
}

/// The sources of keys, and the set that receives the keys.
struct Sources {
    folders: Vec<Folder>,
    /// Number of files without a usable key at the last change, by folder in the order of `folders`.
    broken: Vec<usize>,
    inventory: Option<SigningKeys>,
    set: KeySet,
    metrics: Metrics,
}

impl Sources {
    fn new(
        settings: &KeyServiceSettings,
        inventory: Option<SigningKeys>,
        set: KeySet,
        metrics: Metrics,
    ) -> Self {
        let folders: Vec<Folder> = settings.directories.iter().map(Folder::new).collect();
        Self { broken: vec![0; folders.len()], folders, inventory, set, metrics }
    }

    /// Returns one message for each source of keys: why it has no key. Call this only if no source has a key.
    fn missing_keys_reason(&self) -> Vec<String> {
        let folder = |(folder, broken): (&Folder, &usize)| {
            let path = folder.path().display();
            match broken {
                0 => format!("{path}: the folder has no *.key files"),
                broken => {
                    format!(
                        "{path}: none of {broken} *.key files contains a usable key; the errors are above"
                    )
                }
            }
        };
        let mut missing_keys_reason: Vec<String> =
            self.folders.iter().zip(&self.broken).map(folder).collect();
        missing_keys_reason.extend(self.inventory.as_ref().map(|inventory| match inventory.broken() {
            0 => "inventory: the server has no key of a managed certificate".to_owned(),
            broken => format!("inventory: none of {broken} keys can be decrypted; the errors are above"),
        }));
        missing_keys_reason
    }

    /// Polls each source. At startup an unreadable source is an error. Later the other sources are still polled.
    async fn poll(&mut self, first: bool) -> Outcome<()> {
        let folders = self.poll_folders(first).await;
        if first && folders.is_err() {
            return folders;
        }
        let inventory = self.poll_inventory(first).await;
        let broken = self.inventory.as_ref().map_or(0, SigningKeys::broken);
        self.metrics.keys(self.set.list().len(), self.broken.iter().sum::<usize>() + broken);
        folders.and(inventory)
    }

    async fn poll_inventory(&mut self, first: bool) -> Outcome<()> {
        let Some(inventory) = &mut self.inventory else { return Ok(()) };
        let contents = inventory.refresh().await.map_err(|error| match error {
            SigningKeysError::Store(error) => database::problem(&error),
            error => Problem::usage(chain(&error)).hint("leave out --inventory, and give folders of keys"),
        })?;
        for (key, error) in &contents.broken {
            warn(first, &format!("no key {key} of a managed certificate: {error}"));
        }
        if let Some(keys) = contents.keys {
            let count = keys.len();
            self.set.put_named("inventory", keys);
            if !first {
                tracing::info!(
                    keys = count,
                    "the keys of managed certificates were reloaded and sign from now on"
                );
            }
        }
        Ok(())
    }

    async fn poll_folders(&mut self, first: bool) -> Outcome<()> {
        let mut outcome = Ok(());
        for at in 0..self.folders.len() {
            let path = self.folders[at].path().to_owned();
            let mut folder = std::mem::replace(&mut self.folders[at], Folder::new(&path));
            let scanned = tokio::task::spawn_blocking(move || (folder.refresh(), folder)).await;
            let contents = match scanned {
                Ok((contents, folder)) => {
                    self.folders[at] = folder;
                    contents.map_err(|error| {
                        Problem::new(Exit::Machine, chain(&error)).hint("check --dir, or keys.directories")
                    })
                }
                Err(error) => Err(Problem::new(Exit::Machine, chain(&error))),
            };
            match contents {
                Ok(contents) => self.take(at, &path, contents, first),
                Err(problem) if first => return Err(problem),
                Err(problem) => outcome = outcome.and(Err(problem)),
            }
        }
        outcome
    }

    fn take(&mut self, at: usize, path: &Path, contents: FolderContents, first: bool) {
        for (file, error) in &contents.broken {
            let stays = if first { "" } else { "; its previous key remains in use" };
            warn(first, &format!("no key in {}: {}{stays}", file.display(), chain(error)));
        }
        for file in &contents.open {
            warn(first, &format!("every user of this host can read {0}; run: chmod o= {0}", file.display()));
        }
        self.broken[at] = contents.broken_in_all;
        if contents.changed || first {
            let keys = contents.loaded.len();
            self.set.put_named(&format!("folder:{}", path.display()), contents.loaded);
            if !first {
                tracing::info!(folder = %path.display(), keys, "the keys were reloaded and sign from now on");
            }
        }
    }
}

/// Reports a warning: on standard error at startup (`first`), in the log while the service runs.
fn warn(first: bool, message: &str) {
    match first {
        true => eprintln!("warning: {message}"),
        false => tracing::warn!("{message}"),
    }
}
