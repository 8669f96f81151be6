//! `[proxy.authority]`: the key of the proxy's CA, and its intermediate CA.

use std::path::PathBuf;
use std::time::Duration;

use cli::exit::{Outcome, Problem};
use keyless::client::{ClientTls, InvalidServer, Server};
use serde::{Deserialize, Serialize};

use crate::files;

/// Configuration section `[proxy.authority]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxyAuthoritySettings {
    pub(crate) pkcs11_label: String,
    pub(crate) keys: Vec<String>,
    pub(crate) keys_certificate_file: PathBuf,
    pub(crate) keys_key_file: PathBuf,
    pub(crate) keys_ca_files: Vec<PathBuf>,
    pub(crate) intermediate: bool,
    pub(crate) intermediate_s: u64,
}

impl Default for ProxyAuthoritySettings {
    fn default() -> Self {
        Self {
            pkcs11_label: String::new(),
            keys: Vec::new(),
            keys_certificate_file: PathBuf::new(),
            keys_key_file: PathBuf::new(),
            keys_ca_files: Vec::new(),
            intermediate: false,
            intermediate_s: 7 * 86_400,
        }
    }
}

impl ProxyAuthoritySettings {
    /// Returns whether the CA key is in a PKCS #11 token or a key service, not in a file.
    pub(crate) fn is_key_external(&self) -> bool {
        !self.pkcs11_label.is_empty() || !self.keys.is_empty()
    }

    pub(crate) fn check(&self) -> Outcome<()> {
        if !self.pkcs11_label.is_empty() && !self.keys.is_empty() {
            return Err(Problem::usage(
                "proxy.authority.pkcs11_label and proxy.authority.keys exclude each other",
            )
            .hint("the CA key has one location: leave one of the two empty"));
        }
        if self.keys_certificate_file.as_os_str().is_empty() != self.keys_key_file.as_os_str().is_empty() {
            return Err(Problem::usage(
                "proxy.authority.keys_certificate_file and proxy.authority.keys_key_file must be set together",
            )
            .hint("set both for key services over TLS, or neither"));
        }
        if !(3_600..=90 * 86_400).contains(&self.intermediate_s) {
            return Err(Problem::usage("proxy.authority.intermediate_s must be from 3600 to 7776000")
                .hint("see `bulla config show`"));
        }
        self.servers().map(drop)
    }

    pub(crate) fn servers(&self) -> Outcome<Vec<Server>> {
        let read = |text: &String| {
            text.parse::<Server>().map_err(|error: InvalidServer| {
                Problem::usage(format_args!("proxy.authority.keys: {error}"))
                    .hint("for example unix:/run/bulla/keys.sock or tls:keys.example:2407")
            })
        };
        self.keys.iter().map(read).collect()
    }

    /// Returns the client certificate for key services over TLS, if one is configured.
    pub(crate) fn client_tls(&self) -> Outcome<Option<ClientTls>> {
        if self.keys_certificate_file.as_os_str().is_empty() {
            return Ok(None);
        }
        let (certificate, key) = (&self.keys_certificate_file, &self.keys_key_file);
        let certificate = files::certified_key("proxy.authority.keys_", certificate, key)?;
        let mut server_roots = Vec::new();
        for path in &self.keys_ca_files {
            server_roots.extend(files::certificates("proxy.authority.keys_ca_files", path)?);
        }
        Ok(Some(ClientTls { certificate, server_roots }))
    }

    /// Returns the lifetime of the process's own intermediate CA; `None` if it is disabled.
    pub(crate) fn intermediate(&self) -> Option<Duration> {
        self.intermediate.then(|| Duration::from_secs(self.intermediate_s))
    }
}
