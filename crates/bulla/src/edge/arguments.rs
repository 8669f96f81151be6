//! The arguments of `bulla edge`.

use std::path::PathBuf;

use clap::Args;
use cli::connection::ServerArgs;

use crate::config::{EdgeSettings, ForwardingMode};

/// Arguments of `bulla edge`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct EdgeArgs {
    /// Address of the TLS listener [default: 0.0.0.0:8443]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// A folder of chains (*.pem, leaf first, no keys; NAME.ocsp beside NAME.pem is stapled), checked every few seconds
    #[arg(long, value_name = "DIR")]
    certificates: Option<PathBuf>,
    /// Sync the folder of chains with the server: chains of managed certificates [default folder: edge in the data folder]
    #[arg(long)]
    inventory: bool,
    /// Sync only certificates with this tag
    #[arg(long, value_name = "NAME=VALUE", requires = "inventory")]
    inventory_tag: Option<String>,
    /// Chain for clients that send no host name: a file in the folder of chains, without its extension [default: refuse such
    /// clients]
    #[arg(long, value_name = "NAME")]
    default_certificate: Option<String>,
    /// A key service, unix:PATH or tls:HOST:PORT; may be repeated, most preferred first [default: the socket of `bulla key serve`
    /// in the data folder]
    #[arg(long = "keys", value_name = "SERVICE")]
    keys: Vec<String>,
    /// The terminator's own chain for key services over TLS (PEM)
    #[arg(long, value_name = "FILE", requires = "keys_key")]
    keys_certificate: Option<PathBuf>,
    /// The private key of that chain (PEM)
    #[arg(long, value_name = "FILE", requires = "keys_certificate")]
    keys_key: Option<PathBuf>,
    /// Roots (PEM) that the key services' certificates must chain to; may be repeated
    #[arg(long = "keys-ca", value_name = "FILE")]
    keys_ca_files: Vec<PathBuf>,
    /// Default upstream, HOST:PORT; edge.routes sets other upstreams for some server names
    #[arg(long, value_name = "ADDRESS")]
    upstream: Option<String>,
    /// Forward connections unchanged (tcp) or requests one by one (http) [default: tcp]
    #[arg(long, value_name = "MODE")]
    mode: Option<ForwardingMode>,
    /// Protocols that the upstream supports, most preferred first [default: http/1.1]
    #[arg(long, value_name = "PROTOCOL", value_delimiter = ',')]
    alpn: Option<Vec<String>>,
    /// Send the client's address to the upstream in a PROXY protocol header, version 2
    #[arg(long)]
    proxy_protocol: bool,
    /// Keys for session tickets, shared with other terminators of the same names [default: created in this process]
    #[arg(long, value_name = "FILE")]
    ticket_keys: Option<PathBuf>,
    /// Address of /metrics in plain HTTP; empty: none [default: 127.0.0.1:2405]
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<String>,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

impl EdgeSettings {
    pub(crate) fn take(&mut self, args: &EdgeArgs) {
        fn given<T: Clone>(into: &mut T, given: &Option<T>) {
            if let Some(given) = given {
                into.clone_from(given);
            }
        }
        given(&mut self.listen, &args.listen);
        given(&mut self.certificates, &args.certificates);
        given(&mut self.default_certificate, &args.default_certificate);
        given(&mut self.keys_certificate_file, &args.keys_certificate);
        given(&mut self.keys_key_file, &args.keys_key);
        given(&mut self.upstream, &args.upstream);
        given(&mut self.mode, &args.mode);
        given(&mut self.alpn, &args.alpn);
        given(&mut self.ticket_keys_file, &args.ticket_keys);
        given(&mut self.metrics_listen, &args.metrics_listen);
        given(&mut self.inventory_tag, &args.inventory_tag);
        self.inventory |= args.inventory;
        self.proxy_protocol |= args.proxy_protocol;
        if !args.keys.is_empty() {
            self.keys.clone_from(&args.keys);
        }
        if !args.keys_ca_files.is_empty() {
            self.keys_ca_files.clone_from(&args.keys_ca_files);
        }
    }
}
