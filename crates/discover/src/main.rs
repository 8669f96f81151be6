//! `bulla-scan`: the commands of `bulla` that discover certificates.

/// Allocator of the process. Many small long-lived values are allocated among large short-lived ones. With this pattern glibc's
/// allocator needs three times the memory in use, and 6 % of a scan's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser, Subcommand};
use cli::exit::{EXIT_CODES, Exit, Outcome};
use cli::shell::CompletionsCommand;
use cli::{GlobalArgs, help, shell};
use clouds::{CloudSettings, CloudSource, Pools, SourceError};
use discover::ScannerSettings;
use discover::fleet_command::{self, FleetArgs};
use discover::inventory::{self, InventoryArgs};
use discover::rules::{self, RulesArgs};
use discover::scan_command::{self, ScanArgs};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// Finds TLS certificates on networks and in files, and lists what earlier scans have found.
#[derive(Debug, Parser)]
#[command(
    name = "bulla-scan",
    version,
    after_help = EXIT_CODES,
    disable_help_subcommand = true,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

/// Commands of `bulla-scan`.
#[derive(Debug, Subcommand)]
enum Command {
    /// Scan endpoints and files for certificates and problems
    Scan(Box<ScanArgs>),
    /// List, show and compare scan results
    Inventory(InventoryArgs),
    /// Rules that produce findings: severity, source, advice
    Rules(RulesArgs),
    /// Simulated estate on loopback, with ground truth, for tests
    Fleet(FleetArgs),
    /// Install or print completions for your shell
    #[command(subcommand)]
    Completions(CompletionsCommand),
    /// Write the manual pages to a folder
    Man {
        /// The folder; it is created if it does not exist
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let line: Cli = help::parse(Cli::command, std::env::args_os().collect());
    cli::conclude_in(&Cli::command(), run(&line))
}

fn run(line: &Cli) -> Outcome<Exit> {
    cli::start_logging(&line.global)?;
    let settings = || ScannerSettings::load(line.global.config.as_deref());
    match &line.command {
        Command::Scan(args) => cli::block_on(Box::pin(scan_command::run(args, settings()?, no_clouds))),
        Command::Inventory(args) => {
            let settings = settings()?;
            cli::block_on(Box::pin(inventory::run(args, &settings)))
        }
        Command::Rules(args) => rules::run(args),
        Command::Fleet(args) => cli::block_on(Box::pin(fleet_command::run(args))),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man { folder } => shell::man(folder, help::with_examples(Cli::command())),
    }
}

fn no_clouds<'a>(
    _: &'a CloudSettings,
    _: &'a Pools,
) -> BoxFuture<'a, Result<Vec<Arc<dyn CloudSource>>, SourceError>> {
    async {
        Err(SourceError::Configuration(
            "bulla-scan has no SDKs of clouds and clusters: use `bulla scan --clouds`".to_owned(),
        ))
    }
    .boxed()
}
