//! `bulla credential agent`: the store's API on a Unix socket, or on TCP with TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use client::{Agent, AgentError, AgentOptions, Limits, TlsAgent, TlsAgentOptions};
use keys::Secret;
use secrecy::ExposeSecret;

use super::store::problem;
use crate::connection::Client;
use crate::exit::{Exit, Outcome, Problem, chain};
use crate::stop;
use crate::units;

/// Timeout for requests in progress at shutdown.
const GRACE: Duration = Duration::from_secs(8);

/// Arguments of `bulla credential agent`.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("listener").args(["socket", "listen"]).required(true)))]
pub(super) struct AgentArgs {
    /// Listen on this Unix socket, in a folder that only its owner may write to: /run/bulla/agent.sock
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen on this address with TLS, for clients that log in with the agent's own token: 127.0.0.1:8844
    #[arg(long, value_name = "ADDRESS", requires_all = ["tls_certificate", "tls_key"])]
    listen: Option<SocketAddr>,
    /// With --listen: the certificate with its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "listen")]
    tls_certificate: Option<PathBuf>,
    /// With --listen: the certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "listen")]
    tls_key: Option<PathBuf>,
    /// With --listen: store the cache in this file, encrypted with a key from the token, for a restart while the store is
    /// unavailable
    #[arg(long, value_name = "FILE", requires = "listen")]
    cache_file: Option<PathBuf>,
    /// Users that may connect to the socket, and so read all that the agent may read
    #[arg(long, value_enum, value_name = "WHO", default_value = "owner")]
    access: Access,
    /// Memory for credentials, MiB; names without a credential take up to a quarter more
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    memory: u32,
    /// How long a cached credential is fresh if the store does not report changes
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1m")]
    ttl: Duration,
    /// How long a cached credential is served while the store does not respond
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1h")]
    lifetime: Duration,
}

/// Users that may connect to the agent's socket.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Access {
    /// The user of the agent, and root (mode 0600)
    Owner,
    /// Also the socket's group (mode 0660)
    Group,
}

impl AgentArgs {
    /// Serves until a stop signal.
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        let bytes_max = u64::from(self.memory) << 20;
        let limits = Limits { ttl: self.ttl, lifetime: self.lifetime, bytes_max, ..Limits::default() };
        let cached = client.caching_client()?.limits(limits).build().map_err(|error| problem(&error))?;
        let stop = stop::on_signal_within(GRACE)?;
        if let (Some(listen), Some(certificate), Some(key)) =
            (self.listen, &self.tls_certificate, &self.tls_key)
        {
            let token = client.token().ok_or_else(no_token)?.expose_secret();
            let options = TlsAgentOptions {
                listen,
                certificate: read(certificate)?.into_bytes(),
                key: Secret::new(read(key)?),
                token: Secret::new(token),
                cache_file: self.cache_file.clone(),
            };
            let agent = TlsAgent::bind(cached, options).await.map_err(|error| cannot_listen(&error))?;
            eprintln!("the agent listens at https://{listen}");
            agent.serve(stop).await;
            return Ok(Exit::Ok);
        }
        let mode = match self.access {
            Access::Owner => 0o600,
            Access::Group => 0o660,
        };
        let socket = self.socket.clone().unwrap_or_default();
        let agent = Agent::bind(cached, AgentOptions { socket: socket.clone(), mode }).await;
        let agent = agent.map_err(|error| cannot_listen(&error))?;
        eprintln!("the agent listens at {}", socket.display());
        agent.serve(stop).await;
        Ok(Exit::Ok)
    }
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display()))
            .hint("check the file and its permissions")
    })
}

fn no_token() -> Problem {
    Problem::usage("an agent with --listen needs a token, with which its clients log in")
        .hint("give --token-file, or BULLA_CLIENT_TOKEN")
}

fn cannot_listen(error: &AgentError) -> Problem {
    let hint = match error {
        AgentError::Running(_) => "stop the other agent first, or give another --socket",
        AgentError::Tls(_) => "check --tls-certificate and --tls-key",
        AgentError::UnusableSocket { .. } => "choose a --socket in a folder that only its owner may write to",
        AgentError::Io { .. } => "check that the folder exists, and its permissions",
    };
    Problem::new(Exit::Machine, chain(error)).hint(hint)
}
