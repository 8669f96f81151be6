//! `[proxy.minting]`: leaves minted for other processes.

use std::path::PathBuf;
use std::time::Duration;

use cli::exit::{Outcome, Problem};
use http_relay::names::BadRule;
use keyless::server::TlsOptions;
use proxy::minting::{ConsumerAddress, Options};
use proxy::{Action, Rules};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::listening::socket;

/// Maximum number of entries in `rsa_consumers`.
const RSA_CONSUMERS_MAX: usize = proxy::minting::CONSUMERS_MAX as usize;

/// Configuration section `[proxy.minting]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MintingSettings {
    pub(crate) listen: String,
    pub(crate) names: Vec<String>,
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
    pub(crate) client_ca_files: Vec<PathBuf>,
    pub(crate) client_crl_files: Vec<PathBuf>,
    pub(crate) connections_max: usize,
    pub(crate) streams_max: usize,
    pub(crate) names_per_stream_max: usize,
    pub(crate) rsa_consumers: Vec<String>,
}

impl Default for MintingSettings {
    fn default() -> Self {
        Self {
            listen: String::new(),
            names: Vec::new(),
            certificate_file: PathBuf::new(),
            key_file: PathBuf::new(),
            client_ca_files: Vec::new(),
            client_crl_files: Vec::new(),
            connections_max: 1_024,
            streams_max: 16_384,
            names_per_stream_max: 4_096,
            rsa_consumers: Vec::new(),
        }
    }
}

impl MintingSettings {
    fn speaks_tls(&self) -> bool {
        !self.certificate_file.as_os_str().is_empty()
    }

    pub(crate) fn check(&self) -> Outcome<()> {
        const MANY: usize = 1_000_000;
        for (key, value) in [
            ("connections_max", self.connections_max),
            ("streams_max", self.streams_max),
            ("names_per_stream_max", self.names_per_stream_max),
        ] {
            if !(1..=MANY).contains(&value) {
                return Err(Problem::usage(format_args!("proxy.minting.{key} must be from 1 to {MANY}"))
                    .hint("see `bulla config show`"));
            }
        }
        let has_key = !self.key_file.as_os_str().is_empty();
        if self.speaks_tls() != has_key || self.speaks_tls() == self.client_ca_files.is_empty() {
            return Err(Problem::usage(
                "proxy.minting.certificate_file, proxy.minting.key_file and proxy.minting.client_ca_files must be set together",
            )
            .hint("set all three to serve leaves over TLS to clients with a certificate from one of these CAs"));
        }
        if !self.speaks_tls() && !self.client_crl_files.is_empty() {
            return Err(Problem::usage("proxy.minting.client_crl_files needs TLS").hint(
                "set proxy.minting.certificate_file, key_file and client_ca_files, or leave the CRLs out",
            ));
        }
        if self.rsa_consumers.len() > RSA_CONSUMERS_MAX || self.rsa_consumers.iter().any(String::is_empty) {
            return Err(Problem::usage(format_args!(
                "proxy.minting.rsa_consumers must have at most {RSA_CONSUMERS_MAX} names of consumers, none of them empty"
            ))
            .hint("give a certificate's subject as in the log (\"CN=old\"), one of its subject alternative names, or \"local\""));
        }
        let is_on = !self.listen.is_empty();
        if is_on && self.names.is_empty() {
            return Err(Problem::usage("proxy.minting.names is empty: no leaf could be issued")
                .hint("list the names that leaves may be issued for, for example [\"*.sandbox.example\"]"));
        }
        if is_on && self.speaks_tls() && self.listen.starts_with("unix:") {
            return Err(Problem::usage("proxy.minting.listen is a Unix socket, which does not support TLS")
                .hint("leave out proxy.minting.certificate_file, or listen on an address"));
        }
        self.rules().map(drop)
    }

    fn rules(&self) -> Outcome<Rules> {
        let mut names = Rules::new(Action::Reject);
        names.add(&self.names, Action::Intercept).map_err(|error: BadRule| {
            Problem::usage(format_args!("proxy.minting.names: {error}")).hint("give NAME or *.NAME")
        })?;
        Ok(names)
    }

    /// Returns the options of minting for other processes, if enabled. New leaves of one consumer share a key for `key_life`.
    pub(crate) fn options(&self, key_life: Duration) -> Outcome<Option<Options>> {
        if self.listen.is_empty() {
            return Ok(None);
        }
        Ok(Some(Options {
            listen: self.listen_address()?,
            revoked: files::revocation_lists("proxy.minting.client_crl_files", &self.client_crl_files)?,
            names: self.rules()?,
            connections_max: self.connections_max,
            streams_max: self.streams_max,
            names_per_stream_max: self.names_per_stream_max,
            key_life,
            rsa_consumers: self.rsa_consumers.clone(),
        }))
    }

    fn listen_address(&self) -> Outcome<ConsumerAddress> {
        if let Some(path) = self.listen.strip_prefix("unix:") {
            return Ok(ConsumerAddress::Socket(path.into()));
        }
        let address = socket("proxy.minting.listen", &self.listen)?;
        if !self.speaks_tls() {
            return Ok(ConsumerAddress::Loopback(address));
        }
        let certificate = files::certified_key("proxy.minting.", &self.certificate_file, &self.key_file)?;
        let mut client_roots = Vec::new();
        for path in &self.client_ca_files {
            client_roots.extend(files::certificates("proxy.minting.client_ca_files", path)?);
        }
        Ok(ConsumerAddress::Tls(address, TlsOptions { certificate, client_roots, client_crls: Vec::new() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rsa_consumers_must_be_named_and_are_limited_in_number() {
        let of = |rsa_consumers| MintingSettings { rsa_consumers, ..MintingSettings::default() }.check();
        assert!(of(vec!["local".to_owned(), "CN=old".to_owned()]).is_ok());
        for wrong in [vec![String::new()], vec!["CN=old".to_owned(); RSA_CONSUMERS_MAX + 1]] {
            let problem = of(wrong).unwrap_err();
            assert!(
                problem.message.contains("rsa_consumers") && problem.hint.is_some(),
                "{}",
                problem.message
            );
        }
    }
}
