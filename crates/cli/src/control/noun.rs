//! Nouns and single commands of the command line, each with its server and its subcommands.

use clap::{Args, Subcommand};

use crate::configuration::ClientSettings;
use crate::connection::{Client, ServerArgs};
use crate::exit::{Exit, Outcome};

/// A noun of the command line, such as `cert`: one of its subcommands, and the server that the subcommand uses.
#[derive(Args, Debug)]
pub struct Noun<C: Subcommand> {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: C,
}

/// One command, and the server that it uses.
#[derive(Args, Debug)]
pub struct ServerCommand<A: Args> {
    // First: clap would put it under the heading of the other arguments.
    #[command(flatten)]
    command: A,
    #[command(flatten)]
    server: ServerArgs,
}

/// A command that can run against a server.
pub trait Run {
    /// Runs the command against a server.
    fn run(&self, client: &Client) -> impl Future<Output = Outcome<()>>;

    /// Runs a command that needs no server. Returns `None` for other commands.
    fn run_offline(&self) -> Option<Outcome<()>> {
        None
    }
}

/// Runs a noun's command against the server that its flags and the configuration name.
pub async fn run<C: Subcommand + Run>(noun: &Noun<C>, settings: &ClientSettings) -> Outcome<Exit> {
    if let Some(done) = noun.command.run_offline() {
        return done.map(|()| Exit::Ok);
    }
    let client = Client::open(&noun.server, settings)?;
    noun.command.run(&client).await?;
    Ok(Exit::Ok)
}

/// Runs one command against the server that its flags and the configuration name.
pub(super) async fn run_on_server<A: Args + Run>(
    command: &ServerCommand<A>,
    settings: &ClientSettings,
) -> Outcome<Exit> {
    let client = Client::open(&command.server, settings)?;
    command.command.run(&client).await?;
    Ok(Exit::Ok)
}
