//! `bulla-client`: the commands of `bulla` that only need a server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use cli::candidates::CompleteArgs;
use cli::configuration::ClientConfiguration;
use cli::control::{self, AgentServerCommand, AuthorityCommand, KeyCommand, Noun};
use cli::exit::{EXIT_CODES, Exit, Outcome};
use cli::shell::CompletionsCommand;
use cli::{AccessCommand, GlobalArgs, IssuanceCommand, OperationCommand, help, shell, spelling};

/// Manages certificates, credentials and keys on a Bulla server.
#[derive(Debug, Parser)]
#[command(
    name = "bulla-client",
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

/// Commands of `bulla-client`.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Issuance(IssuanceCommand),
    /// Certification authorities of a server: create, import, cross-sign, retire
    Ca(Box<Noun<AuthorityCommand>>),
    /// Agents of a server: hosts that deploy certificates
    #[command(subcommand)]
    Agent(Box<AgentServerCommand>),
    #[command(flatten)]
    Operation(OperationCommand),
    /// Private keys sealed to policies of the key service; the master key
    #[command(subcommand)]
    Key(KeyCommand),
    #[command(flatten)]
    Access(AccessCommand),
    /// Install or print completions for your shell
    #[command(subcommand)]
    Completions(CompletionsCommand),
    /// Print the possible completions of a word, for the completion scripts
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Write the manual pages into a folder
    Man {
        /// The folder; it is created if it does not exist
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let line = spelling::with_help(std::env::args_os().collect());
    let line: Cli = help::parse(Cli::command, line);
    cli::conclude_in(&Cli::command(), run(&line))
}

fn run(cli: &Cli) -> Outcome<Exit> {
    cli::start_logging(&cli.global)?;
    let configuration = || ClientConfiguration::load(cli.global.config.as_deref());
    match &cli.command {
        Command::Issuance(command) => cli::block_on(command.run(&configuration()?)),
        Command::Ca(noun) => cli::block_on(Box::pin(control::run(noun, &configuration()?.client))),
        Command::Agent(command) => cli::block_on(Box::pin(command.run(&configuration()?.client))),
        Command::Operation(command) => cli::block_on(command.run(&configuration()?)),
        Command::Key(command) => cli::block_on(command.run(&configuration()?.client)),
        Command::Access(command) => cli::block_on(command.run(&configuration()?)),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Complete(args) => {
            cli::block_on(Box::pin(args.run(Cli::command(), &configuration()?.client)))
        }
        Command::Man { folder } => shell::man(folder, help::with_examples(Cli::command())),
    }
}
