//! `bulla`: finds every TLS certificate an organisation has.
//!
//! This crate is the command line, the configuration, the wiring and the output. What is known of
//! certificates, endpoints and databases is in the crates below.

mod agent_command;
mod api;
mod bench;
mod ca_command;
mod cli;
mod config;
mod control;
mod data;
mod edge_command;
mod edge_inventory;
mod edge_routes;
mod endpoint;
mod exit;
mod fleet_command;
mod inventory;
mod keys_clouds;
mod keys_command;
mod keys_export;
mod keys_node;
mod keys_seen;
mod listing;
mod looks;
mod output;
mod proxy_authority;
mod proxy_command;
mod proxy_rules;
mod proxy_store;
mod rules;
mod scan_command;
mod serve_command;
mod shell;
mod stop;
mod terminal;
mod units;

/// Many small values that stay are made among large ones that go: glibc's allocator keeps three times
/// what is used, and takes 6 % of a scan's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use cli::{Cli, Command, ConfigArgs, ConfigCommand, Global};
use config::{Configuration, StoreSettings};
use exit::{Exit, Outcome, Problem};
use store::{Store, StoreUrl};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(exit) => exit.into(),
        Err(problem) => {
            problem.report();
            problem.exit.into()
        }
    }
}

fn run(cli: &Cli) -> Outcome<Exit> {
    telemetry::init(&cli.global.log, cli.global.log_json).map_err(|error| {
        Problem::usage(format_args!("--log {:?}: {error}", cli.global.log))
            .hint("use error, warn, info, debug or trace, or a filter like scan=debug")
    })?;
    match &cli.command {
        Command::Scan(args) => block_on(scan_command::run(args, &cli.global)),
        Command::Inventory(args) => block_on(inventory::run(args, &cli.global)),
        Command::Up(args) => block_on(serve_command::up(args, &cli.global)),
        Command::Serve(args) => block_on(serve_command::serve(args, &cli.global)),
        Command::Profile(noun) => block_on(control::run(noun, &cli.global)),
        Command::Issuer(noun) => block_on(control::run(noun, &cli.global)),
        Command::Ca(args) => block_on(ca_command::run(args, &cli.global)),
        Command::Agent(args) => block_on(agent_command::run(args, &cli.global)),
        Command::Target(noun) => block_on(control::run(noun, &cli.global)),
        Command::Cert(noun) => block_on(control::run(noun, &cli.global)),
        Command::Policy(noun) => block_on(control::run(noun, &cli.global)),
        Command::Job(noun) => block_on(control::run(noun, &cli.global)),
        Command::Approval(noun) => block_on(control::run(noun, &cli.global)),
        Command::Owner(noun) => block_on(control::run(noun, &cli.global)),
        Command::Team(noun) => block_on(control::run(noun, &cli.global)),
        Command::Alert(noun) => block_on(control::run(noun, &cli.global)),
        Command::Ct(noun) => block_on(control::run(noun, &cli.global)),
        Command::Watch(noun) => block_on(control::run(noun, &cli.global)),
        Command::Audit(noun) => block_on(control::run(noun, &cli.global)),
        Command::Site(noun) => block_on(control::run(noun, &cli.global)),
        Command::Node(noun) => block_on(control::run(noun, &cli.global)),
        Command::KeyPolicy(noun) => block_on(control::run(noun, &cli.global)),
        Command::Key(noun) => block_on(control::run(noun, &cli.global)),
        Command::Keys(args) => block_on(keys_command::run(args, &cli.global)),
        Command::Edge(args) => block_on(edge_command::run(args, &cli.global)),
        Command::Proxy(args) => block_on(proxy_command::run(args, &cli.global)),
        Command::Token(noun) => block_on(control::run(noun, &cli.global)),
        Command::User(noun) => block_on(control::run(noun, &cli.global)),
        Command::Credential(args) => block_on(control::run_credential(args, &cli.global)),
        Command::Api(args) => block_on(control::run_route(args, &cli.global)),
        Command::Fleet(args) => block_on(fleet_command::run(args)),
        Command::Rules(args) => rules::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Config(args) => block_on(configuration(args, &cli.global)),
        Command::Completions { shell } => shell::completions(*shell),
        Command::Man { folder } => shell::man(folder),
    }
}

/// How long the exit waits for threads.
const THREADS_END: Duration = Duration::from_secs(1);

fn block_on(work: impl Future<Output = Outcome<Exit>>) -> Outcome<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Problem::new(Exit::Machine, format_args!("no threads can be started: {error}"))
            .hint("check the limits on processes and open files (ulimit -u, ulimit -n)")
    })?;
    let ended = runtime.block_on(work);
    // Nothing of worth is left: a read of standard input that never ends must not hold us. But threads that end do so
    // before the process does: a security module's library is taken apart at the exit, and crashes when a thread is
    // still in it, or is just leaving it (OpenSSL's state of each thread).
    runtime.shutdown_timeout(THREADS_END);
    #[cfg(feature = "pkcs11")]
    keys::pkcs11::finish();
    ended
}

async fn configuration(args: &ConfigArgs, global: &Global) -> Outcome<Exit> {
    let configuration = Configuration::load(global.config.as_deref())?;
    match args.command {
        ConfigCommand::Show => print(configuration.show().trim_end())?,
        ConfigCommand::Check => {
            let read = match (configuration.file(), config::default_path()) {
                (Some(path), _) => format!("{} is right", path.display()),
                (None, Some(path)) => format!(
                    "there is no {}: every value is the default or from the environment",
                    path.display()
                ),
                (None, None) => {
                    "there is no home for a configuration: every value is the default or from the environment"
                        .into()
                }
            };
            print(&read)?;
            for line in serve_command::master_keys::described(&configuration.settings.authority)? {
                print(&line)?;
            }
            check_connections(&configuration.settings.store).await?;
        }
    }
    Ok(Exit::Ok)
}

/// Holds the connections to a database server against what it and this machine have. One that does not answer is said, and is
/// no fault of the configuration.
async fn check_connections(settings: &StoreSettings) -> Outcome<()> {
    let Ok(url) = settings.url.parse::<StoreUrl>() else { return Ok(()) };
    if !settings.enabled || url.sqlite_path().is_some() {
        return Ok(());
    }
    match Store::connections_at(&url, &settings.options()?).await {
        Ok(connections) => {
            scan_command::fits(connections)?;
            let servers = connections.servers.map_or_else(|| "some".to_owned(), |all| all.to_string());
            let ours = connections.ours;
            print(&format!("store.connections: {ours} of the {servers} that {url} has for ordinary users"))
        }
        Err(error) => {
            print(&format!("{url} was not asked how many connections it has: {}", exit::chain(&error)))
        }
    }
}

/// Prints to standard output; a reader that went away is no failure of ours.
pub(crate) fn print(text: &str) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Problem::output(&error))
}
