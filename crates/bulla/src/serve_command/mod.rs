//! `bulla serve` and `bulla up`: the control plane in one process.

mod addresses;
mod certificate;
mod client_crls;
mod control_plane;
mod estate;
mod first_start;
mod kept_certificate;
mod local_files;
mod login;
pub(crate) mod master_keys;
mod metrics;
mod signer;
mod transparency;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use cli::Global;
use cli::exit::{Exit, Outcome, Problem, chain};
use cli::memory;
use secrecy::{ExposeSecret, SecretString};
use server::listen::{Running, Server, ServerOptions};
use store::{Clock, Store};
use tokio_util::sync::CancellationToken;

use crate::config::{AuthoritySettings, Configuration, ServerSettings, Settings};
use crate::data_folder;
use crate::database;
use crate::listening::{bound_connections, socket};
use addresses::{Addresses, networks};
use control_plane::ControlPlane;
use signer::{Role, Roles, SignerTask};

/// `bulla serve`
#[derive(Args, Debug, Default)]
pub(crate) struct ServeArgs {
    /// Database: a file or postgres://USER@HOST/DATABASE [default: in the data folder]
    #[arg(long, value_name = "URL")]
    db: Option<String>,
    /// Where to serve the API and the protocols over TLS [default: 127.0.0.1:8443]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where to serve credentials over TLS, with CredHub's API [default: 127.0.0.1:8844]
    #[arg(long, value_name = "ADDRESS")]
    credential_listen: Option<String>,
    /// Where to serve CRLs and OCSP in plain HTTP [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    public_listen: Option<String>,
    /// What this process does [default: all; server where signer.socket is set]
    #[arg(long, value_name = "ROLES", value_delimiter = ',', value_enum)]
    roles: Vec<Role>,
    /// With `--roles signer`: move the CA keys that the server holds to the signer, and end
    #[arg(long)]
    move_ca_keys: bool,
}

impl ServeArgs {
    /// Whether this process is the signer, and nothing else.
    pub(crate) fn is_signer(&self) -> bool {
        self.roles == [Role::Signer]
    }

    /// Flags count before the file.
    pub(crate) fn apply(&self, settings: &mut Settings) {
        settings.server.take(self);
        if let Some(listen) = &self.credential_listen {
            settings.credentials.listen.clone_from(listen);
        }
        if let Some(url) = &self.db {
            settings.store.url.clone_from(url);
        }
    }
}

/// Whether the first token is kept for the commands on this machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum StartMode {
    /// `serve`: printed once, kept nowhere.
    Serve,
    /// `up`: kept in the data folder, so that the commands work at once.
    Up,
}

/// `bulla serve`
pub(crate) async fn serve(args: &ServeArgs, global: &Global) -> Outcome<Exit> {
    Box::pin(run(args, global, StartMode::Serve)).await
}

/// `bulla up`
pub(crate) async fn up(args: &ServeArgs, global: &Global) -> Outcome<Exit> {
    Box::pin(run(args, global, StartMode::Up)).await
}

async fn run(args: &ServeArgs, global: &Global, mode: StartMode) -> Outcome<Exit> {
    let began = Instant::now();
    let mut settings = Configuration::load(global.config.as_deref())?.settings;
    if !settings.server.core_dumps {
        memory::protect()?;
    }
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    args.apply(&mut settings);
    let roles = Roles::of(&args.roles, &settings.signer)?;
    data_folder::check()?;
    let stop = cli::stop::on_signal_within(Duration::from_secs(settings.server.stop_s) + STOP_MARGIN)?;
    let url = database::inventory_url(None, &settings.store)?;
    let store = database::open(&url, &settings.store).await?;
    match roles {
        Roles::Signer => {
            let task = if args.move_ca_keys { SignerTask::MoveKeys } else { SignerTask::Serve };
            return signer::run(&settings, &store, task, stop).await;
        }
        Roles::All => settings.signer.socket.clear(),
        Roles::Server => {}
    }
    let running = start(&settings, store.clone(), mode, stop.clone()).await?;
    announce(&running, mode, began.elapsed());
    if mode == StartMode::Up {
        offer_console(&store, &running.url).await?;
        eprint!("{NEXT}");
    }
    drop(store);
    stop.cancelled().await;
    eprintln!("stopping: requests under way have {} s to finish", settings.server.stop_s);
    let drained = running.stop().await;
    if !drained {
        eprintln!("some requests had not finished and were cut off");
    }
    Ok(Exit::Ok)
}

/// Beyond the time for requests: background work ends, the database is closed.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// A control plane that runs.
struct RunningControlPlane {
    running: Arc<Running>,
    background: tokio::task::JoinSet<()>,
    url: String,
}

impl RunningControlPlane {
    /// False when requests were cut off.
    async fn stop(mut self) -> bool {
        // First the tasks that hold the server: they have been told to stop.
        while self.background.join_next().await.is_some() {}
        match Arc::into_inner(self.running) {
            Some(running) => running.stop().await,
            None => false,
        }
    }
}

async fn start(
    settings: &Settings,
    store: Store,
    mode: StartMode,
    stop: CancellationToken,
) -> Outcome<RunningControlPlane> {
    let clock = Clock::system();
    let addresses = Addresses::of(&settings.server)?;
    let control_plane = ControlPlane::open(settings, &addresses, &store, &clock).await?;
    let root = first_start::root_pem(&control_plane.authority).await?;
    first_token(&store, &clock, mode, &settings.authority).await?;
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
    settings.server.limit(&mut options)?;
    options.client_roots = control_plane.client_roots(&settings.server).await?;
    let crls = control_plane.client_crls(&settings.server).await?;
    let running = Arc::new(Server::start(options, control_plane.state.clone()).await.map_err(|error| {
        Problem::new(Exit::Machine, chain(&error)).hint(
            "choose another address: --listen, --public-listen and --credential-listen, or server.listen and \
             credentials.listen in the configuration",
        )
    })?);
    let url = addresses.url_at(running.address);
    local_files::write(&url, &root)?;
    let credential_url = match running.credential_address {
        Some(_) if !settings.credentials.url.is_empty() => settings.credentials.url.clone(),
        Some(address) => addresses.url_of(address),
        None => String::new(),
    };
    local_files::write_credential_url(&credential_url)?;
    let background = control_plane.run(own, &running, crls, &stop);
    Ok(RunningControlPlane { running, background, url })
}

/// Makes the first token where nobody can enter yet. It is handed over before it counts: whatever fails, a token that
/// counts is never lost.
async fn first_token(
    store: &Store,
    clock: &Clock,
    mode: StartMode,
    authority: &AuthoritySettings,
) -> Outcome<()> {
    let advice = master_keys::advice(authority)?;
    let hand_over = move |token: &SecretString| match mode {
        StartMode::Up => {
            local_files::write_token(token).map_err(|problem| problem.message)?;
            eprintln!("the admin token is kept for the commands on this machine: try `bulla cert list`");
            eprint!("{advice}");
            Ok(())
        }
        StartMode::Serve => {
            eprintln!("the first admin token, shown this once: {}", token.expose_secret());
            Ok(())
        }
    };
    let made = server::access::bootstrap_into(store, clock, hand_over).await;
    made.map(drop).map_err(|error| {
        Problem::new(Exit::Inventory, chain(&error))
            .hint("check the database and the data folder, then start again")
    })
}

fn announce(up: &RunningControlPlane, mode: StartMode, took: Duration) {
    eprintln!("bulla is up at {} after {} ms", up.url, took.as_millis());
    eprintln!("  ACME            {}/acme/directory", up.url);
    if let Some(address) = up.running.public_address {
        eprintln!("  CRLs and OCSP   http://{address}");
    }
    if let Some(address) = up.running.credential_address {
        eprintln!("  credentials     https://{address} (CredHub's and Vault's API)");
    }
    if mode == StartMode::Up {
        let root = cli::data::folder().map(|folder| folder.join(cli::connection::local::ROOT));
        root.iter().for_each(|root| eprintln!("  root to trust   {}", root.display()));
    }
}

/// Prints a one-time link to the console for the token that is kept on this machine. Without one, says how to make a link.
async fn offer_console(store: &Store, url: &str) -> Outcome<()> {
    let link = match local_files::token()? {
        Some(token) => server::access::sign_in_link(store, &Clock::system(), &token).await,
        None => Ok(None),
    };
    match link {
        Ok(Some(link)) => {
            let code = link.code.expose_secret();
            eprintln!("open the console: {url}{}{code}", server::access::SIGN_IN_PAGE);
            eprintln!("  valid for 10 minutes, used once; `bulla console` makes another");
        }
        Ok(None) => eprintln!("open the console: `bulla console` makes a link that signs you in"),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "there is no link to the console");
        }
    }
    Ok(())
}

/// What a new user may do next.
const NEXT: &str = "\
next, in another terminal:
  bulla scan example.com                   find certificates, and what is wrong with them
  bulla cert create www.example.net        issue a certificate, and keep it renewed
  bulla doctor                             check this machine and the server
";

/// Parts of the open files that listeners may take, the others are for the database, issuers, scans and webhooks.
const LISTENER_PARTS: (usize, usize) = (3, 4);

impl ServerSettings {
    /// The limits of the listeners in `options`, all of which together fit into the limit of open files.
    fn limit(&self, options: &mut ServerOptions) -> Outcome<()> {
        let of_zero = |most: usize| (most > 0).then_some(most);
        let listeners =
            1 + usize::from(options.public.is_some()) + usize::from(options.credentials.is_some());
        let (taken, parts) = LISTENER_PARTS;
        let most = outbound::limits::descriptor_budget() / parts * taken / listeners;
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

    fn take(&mut self, args: &ServeArgs) {
        if let Some(listen) = &args.listen {
            self.listen.clone_from(listen);
        }
        if let Some(listen) = &args.public_listen {
            self.public_listen.clone_from(listen);
        }
    }
}
