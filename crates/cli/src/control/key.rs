//! The part of `bulla key` that only needs a server: keys sealed to policies, the policies, and the master key.

use clap::{Args, Subcommand};

use super::consent::Consent;
use super::key_policy::KeyPolicyCommand;
use super::master_key::MasterKeyCommand;
use super::noun::{Noun, Run, ServerCommand, run, run_on_server};
use super::sealed_key::{self, SealArgs};
use crate::configuration::ClientSettings;
use crate::connection::{Client, Listing};
use crate::execution::CommandFuture;
use crate::exit::Outcome;

/// Commands for keys, their policies, and the master key.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Seal a private key to a policy, on this machine; the server never receives the unsealed key
    Seal(ServerCommand<SealArgs>),
    /// List the keys sealed to policies
    List(ServerCommand<ListArgs>),
    /// Withdraw a sealed key: nodes no longer sign with it
    Withdraw(ServerCommand<WithdrawArgs>),
    /// Policies: which nodes of the key service may open which keys
    Policy(Noun<KeyPolicyCommand>),
    /// The master key, which seals secrets and keys at rest: status, rotation
    Master(Noun<MasterKeyCommand>),
}

/// Arguments of `bulla key list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    listing: Listing,
}

/// Arguments of `bulla key withdraw`.
#[derive(Args, Debug)]
pub struct WithdrawArgs {
    /// SHA-256 of the key's SubjectPublicKeyInfo, as in `bulla key list`
    #[arg(value_name = "SPKI-SHA256")]
    key: String,
    #[command(flatten)]
    consent: Consent,
}

impl KeyCommand {
    /// Runs the command against a server.
    pub fn run<'a>(&'a self, settings: &'a ClientSettings) -> CommandFuture<'a> {
        match self {
            Self::Seal(command) => Box::pin(run_on_server(command, settings)),
            Self::List(command) => Box::pin(run_on_server(command, settings)),
            Self::Withdraw(command) => Box::pin(run_on_server(command, settings)),
            Self::Policy(noun) => Box::pin(run(noun, settings)),
            Self::Master(noun) => Box::pin(run(noun, settings)),
        }
    }
}

impl Run for ListArgs {
    async fn run(&self, client: &Client) -> Outcome<()> {
        sealed_key::list(client, &self.listing).await
    }
}

impl Run for WithdrawArgs {
    async fn run(&self, client: &Client) -> Outcome<()> {
        sealed_key::withdraw(client, &self.key, self.consent).await
    }
}
