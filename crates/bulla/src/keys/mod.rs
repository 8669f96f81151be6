//! `bulla key`: the key service and its current load, its sites and nodes, and keys on a server.

mod clouds;
mod monitor;
mod node;
mod records;
mod serve;

use clap::{Args, Subcommand};
use cli::control::{self, KeyCommand, Noun};
use cli::{CommandFuture, GlobalArgs};

pub(crate) use self::monitor::Monitor;
use self::monitor::{TopArgs, TraceArgs};
pub(crate) use self::node::TOKEN_VARIABLE;
use self::records::RecordsArgs;
use self::serve::ServeArgs;
pub(crate) use self::serve::{GRACE, start};
use crate::config::{Configuration, Settings};
use crate::key_nodes::{NodeCommand, SiteCommand};

/// Arguments of `bulla key`.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    command: Command,
}

/// Commands for keys.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run the key service: sign for TLS terminators by the Keyless protocol, over mutual TLS and a Unix socket
    Serve(ServeArgs),
    /// Show the current load of key services: requests, durations, queues, tenants, sites
    Top(TopArgs),
    /// Show one request on every node that took part in it
    Trace(TraceArgs),
    /// Verify the records of signatures in a folder: no record was changed, removed or added
    Records(RecordsArgs),
    /// Sites of the key service and their attributes, such as the country
    Site(Noun<SiteCommand>),
    /// Nodes of the key service: tokens to join, list, retire
    Node(Noun<NodeCommand>),
    #[command(flatten)]
    Server(KeyCommand),
}

impl KeyArgs {
    /// Applies the flags of `bulla key serve`, which override the file. Returns false for other commands.
    pub(crate) fn apply_to_service(&self, settings: &mut Settings) -> bool {
        match &self.command {
            Command::Serve(args) => {
                settings.keys.take(args);
                true
            }
            _ => false,
        }
    }
}

/// Runs `bulla key`.
pub(crate) fn run<'a>(args: &'a KeyArgs, global: &'a GlobalArgs) -> CommandFuture<'a> {
    match &args.command {
        Command::Serve(args) => Box::pin(serve::run(args, global)),
        Command::Top(args) => Box::pin(monitor::top(args, global)),
        Command::Trace(args) => Box::pin(monitor::trace(args, global)),
        Command::Records(args) => Box::pin(records::run(args, global)),
        Command::Site(noun) => {
            Box::pin(
                async move { control::run(noun, &Configuration::load_client_settings(global)?.client).await },
            )
        }
        Command::Node(noun) => {
            Box::pin(
                async move { control::run(noun, &Configuration::load_client_settings(global)?.client).await },
            )
        }
        Command::Server(command) => {
            Box::pin(async move { command.run(&Configuration::load_client_settings(global)?.client).await })
        }
    }
}
