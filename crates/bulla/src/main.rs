//! `bulla`: finds every TLS certificate of an organisation.
//!
//! This crate contains the configuration, the startup of roles, and the commands that need more than a server. The commands that
//! only use a server's API are in `cli`. Logic for certificates, endpoints and databases is in lower-level crates.

mod agent_command;
mod agent_folder;
mod agent_policy;
mod bench;
mod break_glass_command;
mod ca_command;
mod command_line;
mod component;
mod config;
mod config_command;
mod data_folder;
mod demo;
mod doctor_command;
#[cfg(test)]
mod documentation;
mod edge;
mod fetched_crls;
mod file_watch;
mod files;
mod joining;
mod key_nodes;
mod keys;
mod listening;
mod master_keys;
mod proxy;
#[cfg(test)]
mod reference;
mod restrictions;
mod role_files;
mod roles;
mod run_command;
mod serve_command;
mod span_export;

/// Allocator of the process. Many small long-lived values are allocated among large short-lived ones. With this pattern glibc's
/// allocator needs three times the memory in use, and 6 % of a scan's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::process::ExitCode;
use std::sync::Arc;

use clap::CommandFactory;
use cli::exit::{Exit, Outcome};
use cli::{CommandFuture, shell};
use clouds::{CloudSettings, CloudSource, Pools, SourceError};
use futures_util::future::BoxFuture;

use command_line::{Cli, Command};
use config::Configuration;
use discover::{fleet_command, inventory, rules, scan_command};

fn main() -> ExitCode {
    cli::conclude(run(&Cli::of_process()))
}

fn run(line: &Cli) -> Outcome<Exit> {
    let global = &line.global;
    cli::start_logging(global)?;
    // Restrict before threads exist: each new thread inherits the restrictions of this one.
    restrictions::enter(line)?;
    match &line.command {
        Command::Issuance(command) => block_on(command.run(&Configuration::load_client_settings(global)?)),
        Command::Operation(command) => block_on(command.run(&Configuration::load_client_settings(global)?)),
        Command::Access(command) => block_on(command.run(&Configuration::load_client_settings(global)?)),
        Command::Ca(args) => block_on(Box::pin(ca_command::run(args, global))),
        Command::Agent(args) => block_on(Box::pin(agent_command::run(args, global))),
        Command::Scan(args) => {
            let settings = Configuration::load(global.config.as_deref())?.settings.scanner();
            block_on(Box::pin(scan_command::run(args, settings, prepare_clouds)))
        }
        Command::Inventory(args) => {
            let settings = Configuration::load(global.config.as_deref())?.settings.scanner();
            block_on(Box::pin(inventory::run(args, &settings)))
        }
        Command::Up(args) if args.demo => block_on(Box::pin(demo::run())),
        Command::Up(args) => block_on(Box::pin(serve_command::up(args, global))),
        Command::Serve(args) => block_on(Box::pin(serve_command::serve(args, global))),
        Command::Key(args) => block_on(keys::run(args, global)),
        Command::Edge(args) => block_on(Box::pin(edge::run(args, global))),
        Command::Proxy(args) => block_on(Box::pin(proxy::run(args, global))),
        Command::Run(args) => run_command::run(args, global),
        Command::Fleet(args) => block_on(Box::pin(fleet_command::run(args))),
        Command::BreakGlass(args) => block_on(Box::pin(break_glass_command::run(args, global))),
        Command::Config(args) => block_on(Box::pin(config_command::run(args, global))),
        Command::Doctor(args) => block_on(Box::pin(doctor_command::run(args, global))),
        Command::Rules(args) => rules::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Complete(args) => {
            let settings = Configuration::load_client_settings(global)?.client;
            block_on(Box::pin(async move { args.run(Cli::command(), &settings).await }))
        }
        Command::Man { folder } => shell::man(folder, Cli::definition()),
    }
}

fn block_on(command: CommandFuture<'_>) -> Outcome<Exit> {
    let outcome = cli::block_on(command);
    ::keys::pkcs11::finish();
    outcome
}

/// Creates the configured cloud sources, with the cloud SDKs of this build.
fn prepare_clouds<'a>(
    settings: &'a CloudSettings,
    pools: &'a Pools,
) -> BoxFuture<'a, Result<Vec<Arc<dyn CloudSource>>, SourceError>> {
    cloud_apis::sources::prepare(settings, pools)
}
