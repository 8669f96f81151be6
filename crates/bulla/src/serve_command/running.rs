//! A running control plane: its listeners, and its background work.

use std::sync::Arc;
use std::time::Duration;

use agent::Agents;
use cli::exit::{Exit, Outcome, Problem, chain};
use secrecy::{ExposeSecret, SecretString};
use server::listen::{Running, Server, ServerOptions};
use sites::Sites;
use store::{Clock, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::addresses::{Addresses, networks};
use super::control_plane::ControlPlane;
use super::folder_lock::FolderLock;
use super::roots::RootFile;
use super::{certificate, first_start, local_files};
use crate::component::{Description, DrainOutcome};
use crate::config::{AuthoritySettings, Configuration, ServerSettings, Settings};
use crate::listening::{bound_connections, socket};
use crate::master_keys;
use crate::proxy::ProxyHandles;
use crate::roles::{DefaultRoles, Roles};

/// The command that started the process. It determines where the first token is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum StartMode {
    /// `serve`: the token is printed once and not stored.
    Serve,
    /// `up`: the token is stored in the data folder, for the commands on this machine.
    Up,
}

impl StartMode {
    pub(super) fn default_roles(self) -> DefaultRoles {
        match self {
            Self::Serve => DefaultRoles::Server,
            Self::Up => DefaultRoles::Everything,
        }
    }
}

pub(super) struct RunningControlPlane {
    running: Arc<Running>,
    background: JoinSet<()>,
    /// The API's URL for clients.
    pub(super) url: String,
    /// Lines that explain how to open the web console.
    pub(super) console: Vec<String>,
    pub(super) agents: Agents,
    pub(super) sites: Sites,
    /// The handles of the proxy in this process, if it has that role.
    pub(super) proxy: Option<ProxyHandles>,
    pub(super) metrics: server::metrics::Metrics,
    stop: CancellationToken,
    _lock: FolderLock,
}

impl RunningControlPlane {
    /// Stops background work first, then the listeners.
    pub(super) async fn stop(mut self) -> DrainOutcome {
        self.stop.cancel();
        // First wait for the tasks that use the server.
        while self.background.join_next().await.is_some() {}
        match Arc::into_inner(self.running) {
            Some(running) => running.stop().await.into(),
            None => DrainOutcome::CutOff,
        }
    }

    /// Returns the listen addresses.
    pub(super) fn description(&self) -> Description {
        let Self { url, running, .. } = self;
        let mut places = vec![url.clone(), format!("{url}/acme/directory (ACME)")];
        places.extend(running.public_address.map(|address| format!("http://{address} (CRLs and OCSP)")));
        let credentials = running.credential_address;
        places.extend(credentials.map(|address| format!("https://{address} (CredHub's and Vault's API)")));
        Description { places, notes: Vec::new() }
    }

    /// Starts the control plane of a process with these roles over this database. Its listeners may use at most `descriptors` file
    /// descriptors.
    pub(super) async fn start(
        configuration: &Configuration,
        roles: &Roles,
        store: Store,
        lock: FolderLock,
        mode: StartMode,
        descriptors: usize,
        stop: CancellationToken,
    ) -> Outcome<Self> {
        let settings = &configuration.settings;
        let clock = Clock::system();
        let addresses = Addresses::of(&settings.server, &settings.credentials.url)?;
        let control_plane = ControlPlane::open(configuration, roles, &addresses, &store, &clock).await?;
        let root = first_start::root_pem(&control_plane.authority).await?;
        create_first_token(&store, &clock, mode, &settings.authority).await?;
        let own = certificate::ServerCertificate::of(
            &settings.server,
            &control_plane.authority,
            control_plane.keystore.ring(),
            &addresses.names,
        )
        .await?;
        let mut options = ServerOptions::new(addresses.listen, own.current());
        options.public = addresses.public;
        options.console = settings.server.console.then_some(web_console::pages);
        options.credentials = match settings.credentials.listen.as_str() {
            "" => None,
            text => Some(socket("credentials.listen", text)?),
        };
        settings.server.limit(&mut options, descriptors)?;
        let roots = control_plane.roots(&settings.server);
        options.client_roots = roots.for_clients().await?;
        let client_roots = options.client_roots.clone();
        let crls = control_plane.client_crls(&settings.server).await?;
        let running =
            Arc::new(Server::start(options, control_plane.state.clone()).await.map_err(|error| {
                Problem::new(Exit::Machine, chain(&error)).hint(
            "choose other addresses: --listen, --public-listen and --credential-listen, or server.listen and \
             credentials.listen in the configuration",
        )
            })?);
        let url = addresses.url_at(running.address);
        let credential_url = match running.credential_address {
            Some(_) if !settings.credentials.url.is_empty() => settings.credentials.url.clone(),
            Some(address) => addresses.url_of(address),
            None => String::new(),
        };
        if lock.is_own() {
            local_files::write(&url, &root, &credential_url)?;
        }
        let (agents, sites) = (control_plane.agents.clone(), control_plane.places.clone());
        let proxy = control_plane.proxy.clone();
        let console = match mode {
            StartMode::Up if settings.server.console => console_link_lines(&store, &url).await?,
            StartMode::Up | StartMode::Serve => Vec::new(),
        };
        let metrics = control_plane.state.metrics().clone();
        let mut background = control_plane.run(own, &running, crls, &stop);
        let file = if lock.is_own() { RootFile::Own } else { RootFile::Other };
        background.spawn(roots.keep(client_roots, Arc::clone(&running), file, stop.clone()));
        Ok(Self { running, background, url, console, agents, sites, proxy, metrics, stop, _lock: lock })
    }
}

/// Timeout for creating a link while the database is busy. The start then continues without a link.
const LINK_WAIT: Duration = Duration::from_secs(5);

/// Returns a one-time link to the web console, for the admin token on this machine. Without a token: instructions how to create a link.
async fn console_link_lines(store: &Store, url: &str) -> Outcome<Vec<String>> {
    let link = match local_files::token()? {
        Some(token) => {
            let clock = Clock::system();
            let made = server::access::sign_in_link(store, &clock, &token);
            tokio::time::timeout(LINK_WAIT, made).await.unwrap_or(Ok(None))
        }
        None => Ok(None),
    };
    Ok(match link {
        Ok(Some(link)) => {
            let code = link.code.expose_secret();
            vec![
                format!("open the console: {url}{}{code}", server::access::SIGN_IN_PAGE),
                "  valid for 10 minutes, for one use; `bulla console` creates another".to_owned(),
            ]
        }
        Ok(None) => vec!["open the console: `bulla console` prints a link that signs you in".to_owned()],
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot create a link to the console");
            Vec::new()
        }
    })
}

/// Creates the first admin token if the database has no other login yet. The token is stored or printed before it becomes valid, so
/// that a failure never loses a valid token.
async fn create_first_token(
    store: &Store,
    clock: &Clock,
    mode: StartMode,
    authority: &AuthoritySettings,
) -> Outcome<()> {
    let advice = master_keys::advice(authority)?;
    let hand_over = move |token: &SecretString| match mode {
        StartMode::Up => {
            local_files::write_token(token).map_err(|problem| problem.message)?;
            eprintln!("the admin token is stored for the commands on this machine: try `bulla cert list`");
            eprint!("{advice}");
            Ok(())
        }
        StartMode::Serve => {
            eprintln!("the first admin token, shown only once: {}", token.expose_secret());
            Ok(())
        }
    };
    let made = server::access::bootstrap_with_handover(store, clock, hand_over).await;
    made.map(drop).map_err(|error| {
        Problem::new(Exit::Inventory, chain(&error))
            .hint("check the database and the data folder, then start again")
    })
}

/// The share of the open files for listeners: 3 of 4. The remaining share is for the database, issuers, scans and webhooks.
const LISTENER_PARTS: (usize, usize) = (3, 4);

impl ServerSettings {
    /// Sets the limits of the listeners in `options`, so that all listeners together fit into the limit of open files.
    fn limit(&self, options: &mut ServerOptions, descriptors: usize) -> Outcome<()> {
        let of_zero = |most: usize| (most > 0).then_some(most);
        let listeners =
            1 + usize::from(options.public.is_some()) + usize::from(options.credentials.is_some());
        let (share, parts) = LISTENER_PARTS;
        let most = descriptors / parts * share / listeners;
        let mut connections_max = self.connections_max;
        bound_connections(
            "server.connections_max",
            &mut connections_max,
            Settings::default().server.connections_max,
            most,
        );
        options.connections_max = connections_max;
        options.connections_per_address_max = of_zero(self.connections_per_address_max);
        options.connections_per_certificate_max = of_zero(self.connections_per_certificate_max);
        options.head_timeout = Duration::from_secs(self.head_timeout_s);
        options.write_timeout = Duration::from_secs(self.read_timeout_s);
        options.answer_bytes_max = self.answer_memory_mb << 20;
        options.drain_timeout = Duration::from_secs(self.stop_s);
        let proxies = networks("server.trusted_proxies", &self.trusted_proxies)?;
        options.trusted_proxies = inbound::TrustedProxies::new(&proxies);
        Ok(())
    }
}
