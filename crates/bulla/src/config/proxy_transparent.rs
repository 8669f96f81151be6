//! `[proxy.transparent]`: connections that the host's firewall redirects to the proxy.

use intercept::proxy::TransparentOptions;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::exit::{Outcome, Problem};
use crate::serve_command::socket;

/// Places to listen at: an address of each family on some networks.
const LISTEN_MAX: usize = 16;

/// `[proxy.transparent]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TransparentSettings {
    pub(crate) listen: Vec<String>,
    pub(crate) clients: Vec<IpNet>,
}

impl TransparentSettings {
    /// `asks`: whether clients of the proxy have to say who they are.
    pub(crate) fn check(&self, asks: bool) -> Outcome<()> {
        if self.listen.is_empty() {
            return Ok(());
        }
        if !cfg!(target_os = "linux") {
            return Err(Problem::usage("proxy.transparent is for Linux alone").hint(
                "leave proxy.transparent.listen out: this system does not say where a redirected connection went",
            ));
        }
        if self.listen.len() > LISTEN_MAX {
            return Err(Problem::usage(format_args!(
                "proxy.transparent.listen names more than {LISTEN_MAX}"
            ))
            .hint("0.0.0.0 and [::] stand for all addresses of the host"));
        }
        if asks && self.clients.is_empty() {
            return Err(Problem::usage(
                "proxy.access asks clients who they are, which those of proxy.transparent cannot say",
            )
            .hint(
                "name whose connections are served without: proxy.transparent.clients = [\"10.0.0.0/8\"]",
            ));
        }
        self.options().map(drop)
    }

    /// What the proxy is told.
    pub(crate) fn options(&self) -> Outcome<TransparentOptions> {
        let listen = self.listen.iter().map(|text| socket("proxy.transparent.listen", text));
        Ok(TransparentOptions { listen: listen.collect::<Outcome<_>>()?, clients: self.clients.clone() })
    }
}
