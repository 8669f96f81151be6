//! A set of certificates for the same names.

use std::collections::BTreeSet;
use std::fmt;

use s2n_tls::config::Config;
use telemetry::spans::TraceParent;
use x509::HostOrIp;

/// Chains for the same names, at most one for each key type, with their TLS configuration.
pub(super) struct Site {
    pub(super) config: Config,
    /// Names of the certificate files, for logs.
    pub(super) files: Vec<String>,
    /// Host names that all certificates of the site have; `*.NAME` covers the names one label below.
    pub(super) names: BTreeSet<String>,
    /// The trace of the managed certificate; `None` if no file of the site names one.
    pub(super) trace: Option<TraceParent>,
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Site {
    /// Returns whether every certificate of the site is valid for `host`. It then does not matter which certificate the client
    /// received.
    pub(super) fn is_for(&self, host: &HostOrIp) -> bool {
        let Some(host) = host.dns() else { return false };
        let is_below = |parent: &str| self.names.iter().any(|name| name.strip_prefix("*.") == Some(parent));
        self.names.contains(host) || host.split_once('.').is_some_and(|(_, parent)| is_below(parent))
    }
}
