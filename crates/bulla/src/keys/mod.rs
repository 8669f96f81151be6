//! `bulla keys`: the key service, and what it does right now.

mod clouds;
mod export;
mod monitor;
mod node;
mod records;
mod serve;

use clap::{Args, Subcommand};
use cli::CommandFuture;
use cli::Global;

use self::monitor::{TopArgs, TraceArgs};
use self::records::RecordsArgs;
use self::serve::ServeArgs;
use crate::config::Settings;

/// `bulla keys`
#[derive(Args, Debug)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Sign for TLS terminators by the Keyless protocol: over mutual TLS, and over a Unix socket for this user
    Serve(ServeArgs),
    /// Show what key services do: requests, times, queues, tenants, sites; refreshed every second
    Top(TopArgs),
    /// Show what became of a request, on every node that had a part in it
    Trace(TraceArgs),
    /// Verify the records of signatures in a folder: that none was changed, removed or added since its segment was closed
    Records(RecordsArgs),
}

impl KeysArgs {
    /// Whether this is `bulla keys serve`; its flags then count before the file.
    pub(crate) fn apply_to_service(&self, settings: &mut Settings) -> bool {
        match &self.command {
            KeysCommand::Serve(args) => {
                settings.keys.take(args);
                true
            }
            _ => false,
        }
    }
}

/// Runs `bulla keys`.
pub(crate) fn run<'a>(args: &'a KeysArgs, global: &'a Global) -> CommandFuture<'a> {
    match &args.command {
        KeysCommand::Serve(args) => Box::pin(serve::run(args, global)),
        KeysCommand::Top(args) => Box::pin(monitor::top(args, global)),
        KeysCommand::Trace(args) => Box::pin(monitor::trace(args, global)),
        KeysCommand::Records(args) => Box::pin(records::run(args, global)),
    }
}
