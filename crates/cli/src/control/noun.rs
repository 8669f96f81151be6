//! A noun of the command line: where its server is, and what to do with it.

use clap::{Args, Subcommand};

use crate::configuration::ClientSettings;
use crate::connection::{Client, ServerArgs};
use crate::exit::{Exit, Outcome};

/// A noun and what to do with it.
#[derive(Args, Debug)]
pub struct Noun<C: Subcommand> {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: C,
}

/// What a noun's commands can do.
pub trait Run: Subcommand {
    /// Runs the command against a server.
    fn run(&self, client: &Client) -> impl Future<Output = Outcome<()>>;

    /// Runs a command that needs no server; `None` for those that do.
    fn run_offline(&self) -> Option<Outcome<()>> {
        None
    }
}

/// Runs a noun's command against the server that its flags and the configuration name.
pub async fn run<C: Run>(noun: &Noun<C>, settings: &ClientSettings) -> Outcome<Exit> {
    if let Some(done) = noun.command.run_offline() {
        return done.map(|()| Exit::Ok);
    }
    let client = Client::open(&noun.server, settings)?;
    noun.command.run(&client).await?;
    Ok(Exit::Ok)
}
