//! The arguments of `bulla proxy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ipnet::IpNet;

use super::explain::ExplainArgs;
use super::held::{ApproveArgs, HeldArgs, RejectArgs};
use super::replay::ReplayArgs;
use super::top::TopArgs;
use crate::config::{DefaultAction, ProxySettings};

/// Arguments of `bulla proxy`.
#[derive(Args, Clone, Debug, Default)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ProxyArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ProxyCommand>,
    /// Address of the listener for clients, HOST:PORT [default: 127.0.0.1:3128]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Certificate of the CA that signs the leaves, and its chain (PEM) [default: created in the data folder]
    #[arg(long, value_name = "FILE")]
    ca_certificate: Option<PathBuf>,
    /// The CA's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "ca_certificate")]
    ca_key: Option<PathBuf>,
    /// A network whose clients may use the proxy; may be repeated [default: all]
    #[arg(long = "client", value_name = "NETWORK")]
    clients: Vec<IpNet>,
    /// Names to intercept with leaves like the servers' own certificates, NAME or *.NAME; may be repeated
    #[arg(long, value_name = "NAME")]
    mirror: Vec<String>,
    /// Hosts to pass through without interception: NAME, *.NAME or a network, with or without :PORT; may be repeated
    #[arg(long, value_name = "NAME")]
    tunnel: Vec<String>,
    /// Hosts to refuse: NAME, *.NAME or a network, with or without :PORT; may be repeated
    #[arg(long, value_name = "NAME")]
    reject: Vec<String>,
    /// Intercept only these names and pass through all others; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Roots (PEM) to trust for upstreams, in addition to this system's; may be repeated
    #[arg(long = "upstream-ca", value_name = "FILE")]
    upstream_ca_files: Vec<PathBuf>,
    /// Address of /metrics in plain HTTP; empty: none [default: 127.0.0.1:2409]
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<String>,
}

/// Commands of `bulla proxy`. Without a command, the proxy runs.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ProxyCommand {
    /// Explain the policy's decision about a request, from the configuration file
    Explain(ExplainArgs),
    /// Follow the decisions of a running proxy in the terminal, from its audit log
    Top(TopArgs),
    /// List the requests of a running proxy that wait for an approval
    Held(HeldArgs),
    /// Approve a held request: it is sent now
    Approve(ApproveArgs),
    /// Reject a held request: its client gets status 403 and the reason
    Reject(RejectArgs),
    /// Replay a recent request of the server's proxy, with its client's identity and the policy in effect
    Replay(ReplayArgs),
}

impl ProxySettings {
    /// Applies the flags, which override the file.
    pub(crate) fn take(&mut self, args: &ProxyArgs) {
        fn given<T: Clone>(into: &mut T, given: &Option<T>) {
            if let Some(given) = given {
                into.clone_from(given);
            }
        }
        given(&mut self.listen, &args.listen);
        given(&mut self.ca_certificate_file, &args.ca_certificate);
        given(&mut self.ca_key_file, &args.ca_key);
        given(&mut self.metrics_listen, &args.metrics_listen);
        self.clients.extend_from_slice(&args.clients);
        self.mirror.extend_from_slice(&args.mirror);
        self.tunnel.extend_from_slice(&args.tunnel);
        self.reject.extend_from_slice(&args.reject);
        self.upstream_ca_files.extend_from_slice(&args.upstream_ca_files);
        if !args.only.is_empty() {
            self.intercept.extend_from_slice(&args.only);
            self.others = DefaultAction::Tunnel;
        }
    }
}
