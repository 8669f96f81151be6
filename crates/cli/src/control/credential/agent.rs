//! `bulla credential agent`: the store's API on a Unix socket.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use client::{Agent, AgentError, AgentOptions, Limits};

use super::store::problem;
use crate::connection::Client;
use crate::exit::{Exit, Outcome, Problem, chain};
use crate::stop;
use crate::units;

/// A stop lets requests under way finish.
const GRACE: Duration = Duration::from_secs(8);

/// `bulla credential agent`
#[derive(Args, Debug)]
pub(super) struct SocketArgs {
    /// The socket, in a folder that only its owner may write to: /run/bulla/agent.sock
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Who may connect, and so read all that the agent may
    #[arg(long, value_enum, value_name = "WHO", default_value = "owner")]
    access: Access,
    /// A credential is answered from the cache for so long; changes are told of before
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1m")]
    ttl: Duration,
    /// And for so long while the store does not answer
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1h")]
    lifetime: Duration,
}

/// Who may connect.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Access {
    /// Who runs the agent, and root (mode 0600)
    Owner,
    /// The socket's group as well (mode 0660)
    Group,
}

impl SocketArgs {
    /// Serves until it is told to stop.
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        let limits = Limits { ttl: self.ttl, lifetime: self.lifetime, ..Limits::default() };
        let client = client.caching_client()?.limits(limits).build().map_err(|error| problem(&error))?;
        let stop = stop::on_signal_within(GRACE)?;
        let mode = match self.access {
            Access::Owner => 0o600,
            Access::Group => 0o660,
        };
        let agent = Agent::bind(client, AgentOptions { socket: self.socket.clone(), mode }).await;
        let agent = agent.map_err(|error| cannot_listen(&error))?;
        eprintln!("the agent listens at {}", self.socket.display());
        agent.serve(stop).await;
        Ok(Exit::Ok)
    }
}

fn cannot_listen(error: &AgentError) -> Problem {
    let hint = match error {
        AgentError::Running(_) => "stop it first, or give another --socket",
        AgentError::UnusableSocket { .. } => "choose a --socket in a folder that only its owner may write to",
        AgentError::Io { .. } => "check that the folder is there, and its permissions",
    };
    Problem::new(Exit::Machine, chain(error)).hint(hint)
}
