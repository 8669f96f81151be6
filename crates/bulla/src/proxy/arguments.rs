//! The arguments of `bulla proxy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ipnet::IpNet;

use super::explain::ExplainArgs;
use crate::config::{DefaultAction, ProxySettings};

/// `bulla proxy`
#[derive(Args, Clone, Debug, Default)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ProxyArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ProxyCommand>,
    /// Where clients find it, an address and a port [default: 127.0.0.1:3128]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The authority that leaves stand below, and its chain (PEM) [default: made in the data folder]
    #[arg(long, value_name = "FILE")]
    ca_certificate: Option<PathBuf>,
    /// The authority's key (PEM)
    #[arg(long, value_name = "FILE", requires = "ca_certificate")]
    ca_key: Option<PathBuf>,
    /// A network whose clients may use it; may be repeated [default: all that reach it]
    #[arg(long = "client", value_name = "NETWORK")]
    clients: Vec<IpNet>,
    /// Names to look into with leaves like the servers' own certificates, NAME or *.NAME; may be repeated
    #[arg(long, value_name = "NAME")]
    mirror: Vec<String>,
    /// Hosts to pass on without interception: NAME, *.NAME or a network, with or without :PORT; may be repeated
    #[arg(long, value_name = "NAME")]
    tunnel: Vec<String>,
    /// Hosts to refuse: NAME, *.NAME or a network, with or without :PORT; may be repeated
    #[arg(long, value_name = "NAME")]
    reject: Vec<String>,
    /// Look into these names alone and pass on all others; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Roots (PEM) that upstreams may stand below, beside this system's; may be repeated
    #[arg(long = "upstream-ca", value_name = "FILE")]
    upstream_ca_files: Vec<PathBuf>,
    /// Where to serve /metrics in plain HTTP; empty: nowhere [default: 127.0.0.1:2409]
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<String>,
}

/// Commands about the proxy's configuration.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ProxyCommand {
    /// Explain the policy's decision about a request, from the configuration file
    #[command(after_help = "Example:\n  bulla proxy explain --as ci https://api.github.com/repos/x -X PUT")]
    Explain(ExplainArgs),
}

impl ProxySettings {
    /// What flags say goes before what the file says.
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
