//! The restrictions that each long-running role applies to its own process, from its configuration (crate `sandbox`).

mod paths;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use agent::deploy::PolicyFile;
use cli::exit::{Exit, Outcome, Problem, chain};
use sandbox::{Capabilities, Files, Mode, Plan, Programs, Report};

use crate::command_line::{Cli, Command};
use crate::config::{self, Configuration, LeafBackend, MasterKeySettings, Settings};
use crate::data_folder;
use crate::roles::DefaultRoles;
use crate::serve_command::ServeArgs;

/// A role of a process that runs until it is stopped. Other commands are interactive and not restricted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    Server,
    Signer,
    KeyService,
    Edge,
    Proxy,
    Agent,
}

/// Ports that only a process with CAP_NET_BIND_SERVICE can bind.
const PRIVILEGED: std::ops::Range<u16> = 1..1_024;

/// Restricts this process to the permissions that its role needs. Binds the privileged ports of its listeners first.
pub(crate) fn enter(line: &Cli) -> Outcome<()> {
    if !matches!(
        line.command,
        Command::Up(_)
            | Command::Serve(_)
            | Command::Key(_)
            | Command::Edge(_)
            | Command::Proxy(_)
            | Command::Agent(_)
    ) {
        return Ok(());
    }
    if !Role::serves(&line.command) {
        return Ok(());
    }
    let configuration = Configuration::load(line.global.config.as_deref())?;
    let mut settings = configuration.settings.clone();
    let roles = Role::roles_of_command(&line.command, &mut settings)?;
    if settings.sandbox.mode != Mode::Off {
        roles.iter().flat_map(|role| role.listeners(&settings)).for_each(inbound::reserve);
    }
    let plan = plan(&roles, &settings, configuration.file())?;
    let report = sandbox::enter(&plan).map_err(|error| {
        Problem::new(Exit::Machine, chain(&error)).hint(
            "sandbox.mode = \"best-effort\" starts with the restrictions that this kernel supports, \"off\" without any",
        )
    })?;
    log_restrictions(&roles, report);
    Ok(())
}

fn log_restrictions(roles: &[Role], report: &Report) {
    let [capabilities, no_new_privileges, seccomp, landlock] =
        report.states().map(|(_, state)| state.to_string());
    let held = report.held;
    if report.is_degraded() {
        tracing::warn!(
            ?roles, %held, capabilities, no_new_privileges, seccomp, landlock,
            "this process is not restricted as configured"
        );
    } else {
        tracing::info!(
            ?roles, %held, capabilities, no_new_privileges, seccomp, landlock,
            "the restrictions of this process"
        );
    }
}

/// Returns the permissions of a process with these roles: the union of the roles' permissions.
fn plan(roles: &[Role], settings: &Settings, file: Option<&std::path::Path>) -> Outcome<Plan> {
    let programs = if roles.iter().any(|role| role.programs(settings) == Programs::Started) {
        Programs::Started
    } else {
        Programs::None
    };
    let of_roles = roles.iter().map(|role| role.capabilities(settings));
    let capabilities = of_roles.fold(settings.sandbox.capabilities()?, Capabilities::and);
    let files = match roles.iter().find_map(|role| role.unrestricted_files_reason(settings, programs)) {
        Some(why) => Files::Any(why),
        None if roles.contains(&Role::Agent) => {
            // An agent may read all files: its policy can name any file, and the programs that it starts belong to other packages.
            let mut writable: Vec<PathBuf> =
                roles.iter().flat_map(|role| role.written_folders(settings)).collect();
            writable.extend(settings.sandbox.writable_folders.iter().cloned());
            Files::ReadOnly { writable }
        }
        None => {
            let mut readable = paths::named(settings);
            readable.extend(file.and_then(|file| file.canonicalize().ok()?.parent().map(PathBuf::from)));
            readable.extend(settings.sandbox.readable_folders.iter().cloned());
            let mut writable: Vec<PathBuf> =
                roles.iter().flat_map(|role| role.written_folders(settings)).collect();
            writable.extend(settings.sandbox.writable_folders.iter().cloned());
            Files::Only { readable, writable }
        }
    };
    Ok(Plan { mode: settings.sandbox.mode, programs, capabilities, files })
}

impl Role {
    /// Returns whether a command runs until it is stopped.
    fn serves(command: &Command) -> bool {
        match command {
            // The demo starts `bulla up`, which restricts itself.
            Command::Up(args) => !args.demo,
            Command::Serve(_) | Command::Edge(_) => true,
            Command::Proxy(args) => args.command.is_none(),
            Command::Key(args) => args.apply_to_service(&mut Settings::default()),
            Command::Agent(args) => args.runs_agent(),
            _ => false,
        }
    }

    /// Returns the roles of a command that runs until it is stopped. The command's flags override `settings`.
    fn roles_of_command(command: &Command, settings: &mut Settings) -> Outcome<Vec<Self>> {
        let one = match command {
            Command::Up(args) => return Self::of_process(&args.serve, settings, DefaultRoles::Everything),
            Command::Serve(args) => return Self::of_process(args, settings, DefaultRoles::Server),
            Command::Key(args) => {
                args.apply_to_service(settings);
                Self::KeyService
            }
            Command::Edge(args) => {
                settings.edge.take(args);
                Self::Edge
            }
            Command::Proxy(args) => {
                settings.proxy.take(args);
                Self::Proxy
            }
            Command::Agent(args) => {
                args.apply(&mut settings.agent);
                Self::Agent
            }
            _ => Self::Agent,
        };
        Ok(vec![one])
    }

    fn of_process(args: &ServeArgs, settings: &mut Settings, usual: DefaultRoles) -> Outcome<Vec<Self>> {
        args.apply(settings);
        let roles = args.roles(settings, usual)?;
        let own = |role| match role {
            // If the server and the signer share a process, the server's role covers the signer.
            config::Role::Signer if roles.has(config::Role::Server) => None,
            config::Role::Signer => Some(Self::Signer),
            config::Role::Server => Some(Self::Server),
            config::Role::Keys => Some(Self::KeyService),
            config::Role::Edge => Some(Self::Edge),
            config::Role::Proxy => Some(Self::Proxy),
            config::Role::Agent => Some(Self::Agent),
        };
        Ok(roles.chosen().filter_map(own).collect())
    }

    /// Returns whether the role may start programs: programs named in the configuration, commands in an agent's policy, and
    /// credential helpers of cloud SDKs.
    fn programs(self, settings: &Settings) -> Programs {
        let by_master_key = |key: &MasterKeySettings| {
            matches!(key, MasterKeySettings::Program(_) | MasterKeySettings::AwsKms(_))
        };
        let authority = &settings.authority;
        let for_master_key =
            authority.current_master().iter().chain(&authority.older_masters()).any(by_master_key);
        let keys = &settings.keys;
        let started = match self {
            Self::Agent => true,
            Self::Server => {
                for_master_key
                    || !settings.programs.is_empty()
                    || !settings.watch.clouds_file.as_os_str().is_empty()
            }
            Self::KeyService => {
                let clouds = keys.aws_kms.len() + keys.azure_keys.len() + keys.gcp_kms.len();
                keys.node.seed_key.iter().any(by_master_key)
                    || clouds > 0
                    || (keys.inventory && for_master_key)
            }
            Self::Proxy => for_master_key && settings.proxy.store.backend == LeafBackend::Database,
            Self::Signer => for_master_key,
            Self::Edge => false,
        };
        if started { Programs::Started } else { Programs::None }
    }

    fn capabilities(self, settings: &Settings) -> Capabilities {
        let other_users = settings.programs.values().any(|program| !program.user.is_empty());
        match self {
            // Commands of the policy such as `nginx -t` bind the privileged ports of their own configuration.
            Self::Agent => {
                Capabilities::OTHER_USERS.and(Capabilities::OTHERS_FILES).and(Capabilities::LOW_PORTS)
            }
            Self::Edge | Self::Signer => Capabilities::NONE,
            _ if other_users => Capabilities::OTHER_USERS,
            _ => Capabilities::NONE,
        }
    }

    /// Returns the reason why file access is not restricted; `None` if it is restricted.
    fn unrestricted_files_reason(self, settings: &Settings, programs: Programs) -> Option<&'static str> {
        let named = !settings.sandbox.writable_folders.is_empty();
        match self {
            Self::Agent => match agent_folders(settings) {
                Some(_) => None,
                None => {
                    Some("the commands of the policy write files; add their folders to its writable_folders")
                }
            },
            _ if named => None,
            _ if programs == Programs::Started => {
                Some("the process starts programs that need files; add those to sandbox.writable_folders")
            }
            _ if !settings.pkcs11.module.as_os_str().is_empty() => {
                Some("a PKCS#11 module needs files; add those to sandbox.writable_folders")
            }
            _ => None,
        }
    }

    /// Returns the listener addresses that only a privileged process can bind.
    fn listeners(self, settings: &Settings) -> Vec<SocketAddr> {
        let Settings { server, credentials, keys, edge, proxy, .. } = settings;
        let texts: Vec<&String> = match self {
            Self::Server => vec![&server.listen, &server.public_listen, &credentials.listen],
            Self::KeyService => {
                let nodes = keys.node.is_configured().then_some(&keys.node.listen);
                [&keys.listen, &keys.native_listen, &keys.metrics_listen].into_iter().chain(nodes).collect()
            }
            Self::Edge => vec![&edge.listen, &edge.metrics_listen],
            Self::Proxy => [&proxy.listen, &proxy.metrics_listen, &proxy.minting.listen]
                .into_iter()
                .chain(&proxy.transparent.listen)
                .chain(proxy.postgresql.iter().chain(&proxy.redis).map(|one| &one.listen))
                .collect(),
            Self::Agent | Self::Signer => Vec::new(),
        };
        // Parse like `listening::socket`, which reports errors later with the name of the setting.
        let address = |text: &String| {
            let port = text.rsplit_once(':')?.1.parse::<u16>().ok()?;
            PRIVILEGED.contains(&port).then(|| text.to_socket_addrs().ok()?.next())?
        };
        texts.into_iter().filter_map(address).collect()
    }

    /// Returns the folders that the role writes to. Missing ones are created, so that a rule can name them.
    fn written_folders(self, settings: &Settings) -> Vec<PathBuf> {
        let Settings { keys, edge, proxy, .. } = settings;
        let mut folders = Vec::new();
        let mut listed_files = paths::missing_files(settings);
        let with_database = match self {
            Self::Server | Self::Signer => true,
            Self::KeyService => keys.inventory,
            Self::Proxy => proxy.store.backend == LeafBackend::Database,
            Self::Edge | Self::Agent => false,
        };
        if with_database {
            listed_files.extend(paths::databases(settings));
        }
        match self {
            Self::KeyService => {
                listed_files.extend([keys.socket.clone().into(), keys.native_socket.clone().into()]);
                folders.push(keys.node.folder.clone());
                folders.push(keys.records.clone().into());
            }
            Self::Edge => {
                listed_files.push(edge.access_log_file.clone().into());
                folders.extend(edge.inventory.then(|| edge.certificates.clone()));
            }
            Self::Proxy => {
                listed_files.extend([
                    proxy.requests.access_log_file.clone().into(),
                    proxy.requests.audit_file.clone(),
                    proxy.control_socket.clone(),
                    proxy.minting.listen.strip_prefix("unix:").unwrap_or_default().into(),
                ]);
                folders.extend([proxy.store.folder.clone(), proxy.requests.record_folder.clone()]);
            }
            Self::Server => listed_files.push(settings.audit.witness.file.clone()),
            Self::Signer => listed_files.push(settings.signer.socket.clone()),
            Self::Agent => {
                folders.extend(settings.agent.folder().ok());
                let policy = agent_folders(settings).unwrap_or_default();
                return paths::create_missing(&folders).into_iter().chain(policy).collect();
            }
        }
        let mut written_folders = paths::create_missing(&folders);
        written_folders.extend(tpm_devices(settings));
        written_folders.extend(listed_files.iter().filter_map(|path| paths::folder_of(path)));
        written_folders.extend(data_folder::folder().ok());
        // The kernel writes the core dump with the rights of the process.
        written_folders.extend(std::env::current_dir().ok().filter(|_| settings.server.core_dumps));
        written_folders
    }
}

/// Returns the only folders in which the policy of this host permits writes. `None` if the policy sets no such limit or cannot be
/// read.
fn agent_folders(settings: &Settings) -> Option<Vec<PathBuf>> {
    let state = settings.agent.folder().ok()?;
    // A policy that cannot be read allows no deployment, and the agent reports the reason with each job.
    PolicyFile::new(settings.agent.policy()).load(&state).ok()?.writable_folders()
}

/// Returns the TPM devices that seal master keys.
fn tpm_devices(settings: &Settings) -> Vec<PathBuf> {
    let authority = &settings.authority;
    let all = [authority.current_master(), settings.keys.node.seed_key.clone()];
    let device = |key| match key {
        MasterKeySettings::Tpm(of) => Some(of.device.into()),
        _ => None,
    };
    all.into_iter().flatten().chain(authority.older_masters()).filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_keeps_cap_net_bind_service_and_edge_keeps_none() {
        let retained = Role::Agent.capabilities(&Settings::default()).to_string();
        assert!(retained.contains("CAP_NET_BIND_SERVICE"), "nginx -t needs it: {retained}");
        assert_eq!(Role::Edge.capabilities(&Settings::default()), Capabilities::NONE);
    }
}
