//! `[proxy.transparent]`: connections that the host's firewall redirects to the proxy.

use cli::exit::{Outcome, Problem};
use ipnet::IpNet;
use proxy::TransparentOptions;
use serde::{Deserialize, Serialize};

use crate::listening::socket;

/// Maximum number of listen addresses: enough for IPv4 and IPv6 in eight networks.
const LISTEN_MAX: usize = 16;

/// Configuration section `[proxy.transparent]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TransparentSettings {
    pub(crate) listen: Vec<String>,
    pub(crate) clients: Vec<IpNet>,
}

impl TransparentSettings {
    /// Checks the section. `all`: the networks in `proxy.clients`; `requires_authentication`: whether clients must authenticate.
    pub(crate) fn check(&self, all: &[IpNet], requires_authentication: bool) -> Outcome<()> {
        if self.listen.is_empty() {
            return match self.clients.is_empty() {
                true => Ok(()),
                false => Err(Problem::usage(
                    "[proxy.transparent] names clients, but proxy.transparent.listen is not set",
                )
                .hint("set the listen address of redirected connections: proxy.transparent.listen = [\"[::]:3129\"]")),
            };
        }
        if !cfg!(target_os = "linux") {
            return Err(Problem::usage("proxy.transparent is supported on Linux only").hint(
                "leave proxy.transparent.listen out: this operating system does not report the original destination of a \
                 redirected connection",
            ));
        }
        if self.listen.len() > LISTEN_MAX {
            return Err(Problem::usage(format_args!(
                "proxy.transparent.listen has more than {LISTEN_MAX} addresses"
            ))
            .hint("[::] includes all addresses of the host, IPv4 included"));
        }
        if requires_authentication && self.clients.is_empty() {
            return Err(Problem::usage(
                "proxy.access requires authentication, which clients of proxy.transparent cannot send",
            )
            .hint(
                "list the networks of clients that are served without authentication: proxy.transparent.clients = [\"10.0.0.0/8\"]",
            ));
        }
        let is_let_in = |own: &IpNet| all.iter().any(|net| net.contains(own) || own.contains(net));
        if !all.is_empty()
            && let Some(own) = self.clients.iter().find(|own| !is_let_in(own))
        {
            return Err(Problem::usage(format_args!(
                "proxy.transparent.clients names {own}, which is not in proxy.clients"
            ))
            .hint("redirected connections are served only if both lists contain the client's network: add it to proxy.clients too"));
        }
        self.options().map(drop)
    }

    /// Returns the options for redirected connections.
    pub(crate) fn options(&self) -> Outcome<TransparentOptions> {
        let listen = self.listen.iter().map(|text| socket("proxy.transparent.listen", text));
        Ok(TransparentOptions { listen: listen.collect::<Outcome<_>>()?, clients: self.clients.clone() })
    }
}
