//! The arguments of `bulla edge`.

use std::path::PathBuf;

use clap::Args;
use cli::connection::ServerArgs;

use crate::config::{EdgeSettings, ModeText};

/// `bulla edge`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct EdgeArgs {
    /// Where to speak TLS [default: 0.0.0.0:8443]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// A folder of chains (*.pem, leaf first, no keys; NAME.ocsp beside NAME.pem is stapled), looked at every few seconds
    #[arg(long, value_name = "DIR")]
    certificates: Option<PathBuf>,
    /// Keep that folder as the server has it: chains of certificates under management [default folder: edge in the data
    /// folder]
    #[arg(long)]
    inventory: bool,
    /// Only of those with this tag
    #[arg(long, value_name = "NAME=VALUE", requires = "inventory")]
    inventory_tag: Option<String>,
    /// The file of that folder, without its ending, for clients that name no host [default: they are refused]
    #[arg(long, value_name = "NAME")]
    default_certificate: Option<String>,
    /// A key service, unix:PATH or tls:HOST:PORT; may be repeated, in the order of preference [default: the socket of
    /// `bulla key serve` in the data folder]
    #[arg(long = "keys", value_name = "SERVICE")]
    keys: Vec<String>,
    /// The own chain for key services over TLS (PEM)
    #[arg(long, value_name = "FILE", requires = "keys_key")]
    keys_certificate: Option<PathBuf>,
    /// The key of that chain (PEM)
    #[arg(long, value_name = "FILE", requires = "keys_certificate")]
    keys_key: Option<PathBuf>,
    /// Roots (PEM) below which key services' certificates stand; may be repeated
    #[arg(long = "keys-ca", value_name = "FILE")]
    keys_ca_files: Vec<PathBuf>,
    /// Who gets the connections, HOST:PORT; edge.routes has others by name
    #[arg(long, value_name = "ADDRESS")]
    upstream: Option<String>,
    /// What is passed on: connections as they are, or requests one by one [default: tcp]
    #[arg(long, value_name = "MODE")]
    mode: Option<ModeText>,
    /// Protocols the upstream speaks, the one liked best first [default: http/1.1]
    #[arg(long, value_name = "PROTOCOL", value_delimiter = ',')]
    alpn: Option<Vec<String>>,
    /// Tell the upstream the client's address by a header of the PROXY protocol, version 2
    #[arg(long)]
    proxy_protocol: bool,
    /// Keys for session tickets, shared with others that serve the same names [default: made in this process]
    #[arg(long, value_name = "FILE")]
    ticket_keys: Option<PathBuf>,
    /// Where to serve /metrics in plain HTTP; empty: nowhere [default: 127.0.0.1:2405]
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
