//! The commands that run a control plane over its API, by noun.

mod access;
mod alert;
mod audit;
mod ca;
mod certificate;
mod credential;
mod document;
mod input;
mod job;
mod key;
mod key_policy;
mod ownership;
mod place;
mod place_effect;
mod profile;
mod route;
mod sealed_key;
mod transparency;
mod watch;

use clap::{Args, Subcommand};

use crate::api::{Client, ServerArgs};
use crate::cli::Global;
use crate::config::Configuration;
use crate::exit::{Exit, Outcome};

pub(crate) use access::{TokenCommand, UserCommand};
pub(crate) use alert::AlertCommand;
pub(crate) use audit::AuditCommand;
pub(crate) use ca::AuthorityCommand;
pub(crate) use certificate::CertificateCommand;
pub(crate) use credential::{CredentialArgs, run as run_credential};
pub(crate) use document::{Document, DocumentCommand};
pub(crate) use input::segment;
pub(crate) use job::{ApprovalCommand, JobCommand, PolicyCommand, TeamDocument};
pub(crate) use key::KeyCommand;
pub(crate) use key_policy::KeyPolicyCommand;
pub(crate) use ownership::OwnerCommand;
pub(crate) use place::{NodeCommand, SiteCommand};
pub(crate) use profile::{IssuerCommand, ProfileDocument, TargetDocument};
pub(crate) use route::{RouteArgs, run as run_route};
pub(crate) use transparency::TransparencyCommand;
pub(crate) use watch::WatchCommand;

/// A noun and what to do with it.
#[derive(Args, Debug)]
pub(crate) struct Noun<C: Subcommand> {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: C,
}

/// What a noun's commands can do.
pub(crate) trait Run: Subcommand {
    /// Does it.
    async fn run(&self, client: &Client) -> Outcome<()>;
}

/// Runs a noun's command against the server.
pub(crate) async fn run<C: Run>(noun: &Noun<C>, global: &Global) -> Outcome<Exit> {
    let configuration = Configuration::load(global.config.as_deref())?;
    let client = Client::open(&noun.server, &configuration)?;
    noun.command.run(&client).await?;
    Ok(Exit::Ok)
}
