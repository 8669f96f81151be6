//! `bulla serve` and `bulla up`: the control plane and other roles in one process.

mod addresses;
mod announcement;
mod certificate;
mod client_crls;
mod components;
mod control_plane;
mod estate;
mod first_start;
mod folder_lock;
mod head_bucket;
mod kept_certificate;
mod limits;
mod local_files;
mod login;
mod metrics;
mod own_members;
mod ports;
mod restarts;
mod roots;
mod running;
mod scan_environment;
mod signer;
mod transparency;
mod watch;

use std::time::{Duration, Instant};

use clap::Args;
use cli::GlobalArgs;
use cli::exit::{Exit, Outcome, Problem};
use cli::memory;
use rustix::process::{Signal, set_parent_process_death_signal};
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::component::{Component, Description, DrainOutcome, wait_for_first_exit};
use crate::config::{Configuration, Role, ServerSettings, Settings};
use crate::data_folder;
use crate::listening::descriptors_for_one_of;
use crate::role_files::RoleFile;
use crate::roles::{DefaultRoles, Roles};
use crate::span_export::ProcessSpans;
use discover::database;
use folder_lock::FolderLock;
use running::{RunningControlPlane, StartMode};
use signer::SignerTask;

/// Arguments of `bulla serve` and `bulla up`.
#[derive(Args, Debug, Default)]
pub(crate) struct ServeArgs {
    /// Database: a file or postgres://USER@HOST/DATABASE [default: in the data folder]
    #[arg(long, value_name = "URL")]
    db: Option<String>,
    /// Address of the API and the protocols over TLS [default: 127.0.0.1:8443]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of the credential store over TLS, with CredHub's API [default: 127.0.0.1:8844]
    #[arg(long, value_name = "ADDRESS")]
    credential_listen: Option<String>,
    /// Address of CRLs and OCSP in plain HTTP [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    public_listen: Option<String>,
    /// Roles of this process [default: `roles` of the configuration; else `up` runs all possible roles, `serve` the server]
    #[arg(long, value_name = "ROLES", value_delimiter = ',', value_enum)]
    roles: Vec<Role>,
    /// With `--roles signer`: move the CA keys from the server to the signer, and exit
    #[arg(long)]
    move_ca_keys: bool,
}

/// Runs `bulla up`.
#[derive(Args, Debug, Default)]
#[command(after_help = "\
Examples:
  bulla up
  bulla up --demo
  bulla up --roles server,proxy")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    /// Demonstrate one certificate in every role, on a simulated estate: offline, in a temporary folder
    #[arg(long, conflicts_with = "ServeArgs")]
    pub(crate) demo: bool,
    /// Exit when the parent process exits
    #[arg(long, hide = true)]
    end_with_parent: bool,
}

/// The flag with which a demo starts `bulla up`.
pub(crate) const END_WITH_PARENT: &str = "--end-with-parent";

impl ServeArgs {
    /// Returns the roles of the process, from its flags and the settings.
    pub(crate) fn roles(&self, settings: &Settings, usual: DefaultRoles) -> Outcome<Roles> {
        settings.roles(&self.roles, usual)
    }

    /// Applies the flags, which override the file.
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

/// Runs `bulla serve`.
pub(crate) async fn serve(args: &ServeArgs, global: &GlobalArgs) -> Outcome<Exit> {
    Box::pin(run(args, global, StartMode::Serve)).await
}

/// Runs `bulla up`.
pub(crate) async fn up(args: &UpArgs, global: &GlobalArgs) -> Outcome<Exit> {
    if args.end_with_parent {
        let followed = set_parent_process_death_signal(Some(Signal::TERM));
        followed.map_err(|error| {
            Problem::new(Exit::Machine, format_args!("this process cannot wait for another process: {error}"))
        })?;
    }
    Box::pin(run(&args.serve, global, StartMode::Up)).await
}

async fn run(args: &ServeArgs, global: &GlobalArgs, mode: StartMode) -> Outcome<Exit> {
    let began = Instant::now();
    let mut configuration = Configuration::load(global.config.as_deref())?;
    let settings = &mut configuration.settings;
    if !settings.server.core_dumps {
        memory::protect()?;
    }
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    args.apply(settings);
    let mut roles = args.roles(settings, mode.default_roles())?;
    data_folder::check()?;
    let stop = cli::stop::on_signal_within(grace(settings, &roles))?;
    if roles.is_signer_only() {
        let task = if args.move_ca_keys { SignerTask::MoveKeys } else { SignerTask::Serve };
        return signer::run(settings, &store(settings).await?, task, stop).await;
    }
    if roles.has(Role::Signer) {
        settings.signer.socket.clear();
    }
    ports::leave_out(&mut roles, settings);
    let spans = ProcessSpans::start(&settings.telemetry)?;
    let process = Process::start(&configuration, &roles, mode).await?;
    let described = process.described();
    announcement::print(process.url(), process.console(), &described, &roles, mode, began.elapsed());
    let role_file = RoleFile::write(described);
    let failed = tokio::select! {
        () = stop.cancelled() => None,
        role = wait_for_first_exit(&process.components) => Some(role),
    };
    let drained = process.stop(&configuration.settings).await;
    spans.finish().await;
    drop(role_file);
    if drained == DrainOutcome::CutOff {
        eprintln!("some requests had not finished and were aborted");
    }
    failed.map_or(Ok(Exit::Ok), |role| Err(ended(role)))
}

/// Returns the problem for a role that ended without a stop request. This is a bug; the state of connections and keys of the role
/// is then unknown.
fn ended(role: Role) -> Problem {
    let name = role.name();
    Problem::new(
        Exit::Machine,
        format_args!("the role {name} ended unexpectedly, so all roles of this process were stopped"),
    )
    .hint("report the error above; a service manager starts the process again (Restart=on-failure)")
}

async fn store(settings: &Settings) -> Outcome<Store> {
    let url = database::inventory_url(None, &settings.store)?;
    database::open(&url, &settings.store).await
}

/// Returns the timeout of a graceful shutdown.
fn grace(settings: &Settings, roles: &Roles) -> Duration {
    let server = Duration::from_secs(settings.server.stop_s) + STOP_MARGIN;
    let server = if roles.has(Role::Server) || roles.is_signer_only() { server } else { Duration::ZERO };
    server + components::grace(settings, roles)
}

/// Additional shutdown time after requests: for background work, and for closing the database.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// The running roles of this process.
struct Process {
    control_plane: Option<RunningControlPlane>,
    components: Vec<Component>,
}

impl Process {
    /// Starts the control plane, then the roles that use it. If a role fails to start, stops the control plane and all started
    /// roles.
    async fn start(configuration: &Configuration, roles: &Roles, mode: StartMode) -> Outcome<Self> {
        let settings = &configuration.settings;
        let descriptors = descriptors_for_one_of(roles.listening());
        let control_plane = match roles.has(Role::Server) {
            true => {
                let lock = FolderLock::take(&database::inventory_url(None, &settings.store)?)?;
                let store = store(settings).await?;
                discover::running_scans::mark_killed(&store).await;
                let stop = CancellationToken::new();
                Some(
                    RunningControlPlane::start(configuration, roles, store, lock, mode, descriptors, stop)
                        .await?,
                )
            }
            false => None,
        };
        match Box::pin(components::start(configuration, roles, control_plane.as_ref(), descriptors)).await {
            Ok(components) => Ok(Self { control_plane, components }),
            Err(problem) => {
                let _ = Self { control_plane, components: Vec::new() }.stop(settings).await;
                Err(problem)
            }
        }
    }

    fn url(&self) -> Option<&str> {
        self.control_plane.as_ref().map(|control_plane| control_plane.url.as_str())
    }

    fn console(&self) -> &[String] {
        self.control_plane.as_ref().map(|control_plane| control_plane.console.as_slice()).unwrap_or_default()
    }

    /// Returns the roles with their addresses, in start order.
    fn described(&self) -> Vec<(Role, Description)> {
        let mut described: Vec<_> =
            self.control_plane.iter().map(|it| (Role::Server, it.description())).collect();
        described.extend(self.components.iter().map(|it| (it.role, it.description.clone())));
        described
    }

    /// Stops the control plane last: the other roles report to it until they end.
    async fn stop(self, settings: &Settings) -> DrainOutcome {
        let components = components::stop(self.components).await;
        let Some(control_plane) = self.control_plane else { return components };
        eprintln!("stopping: requests in progress have {} s to finish", settings.server.stop_s);
        control_plane.stop().await.and(components)
    }
}

impl ServerSettings {
    fn take(&mut self, args: &ServeArgs) {
        if let Some(listen) = &args.listen {
            self.listen.clone_from(listen);
        }
        if let Some(listen) = &args.public_listen {
            self.public_listen.clone_from(listen);
        }
    }
}
