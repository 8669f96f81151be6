//! The shared state of the ACME server.

use http::StatusCode;
use shared::Shared;
use store::{Clock, Store};

use super::accounts::Accounts;
use super::fresh_certificates::FreshCertificates;
use super::limits::Limiter;
use super::nonce::Nonces;
use super::options::{AcmeOptions, DirectoryOptions};
use super::override_index::Overrides;
use super::problem::Problem;
use super::queue::ValidationQueue;
use super::reads::Reads;
use super::route;
use super::validate::Validator;
use super::writes::WriteBatchers;
use crate::Authority;

/// The ACME server of one node. Clones are cheap and share all state.
#[derive(Clone)]
pub struct Acme(pub(super) Shared<Server>);

impl std::fmt::Debug for Acme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acme").field("base_url", &self.0.options.base_url).finish_non_exhaustive()
    }
}

/// Configuration, queues and caches of one node's ACME server.
pub(crate) struct Server {
    pub(super) authority: Authority,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) options: AcmeOptions,
    pub(super) nonces: Nonces,
    pub(super) accounts: Accounts,
    pub(super) fresh_certificates: FreshCertificates,
    pub(super) limiter: Limiter,
    pub(super) overrides: Overrides,
    pub(super) validator: Validator,
    pub(super) reads: Reads,
    pub(super) writes: WriteBatchers,
    pub(super) queue: ValidationQueue,
}

impl Server {
    pub(super) fn url(&self, path: impl std::fmt::Display) -> String {
        format!("{}{}{path}", self.options.base_url, route::PREFIX)
    }

    pub(super) fn directory_url(&self, profile: Option<&str>) -> String {
        match profile {
            Some(profile) => self.url(format_args!("{profile}/directory")),
            None => self.url("directory"),
        }
    }

    /// Returns the directory options and the name of a profile.
    pub(super) fn directory_options<'p>(
        &'p self,
        profile: Option<&'p str>,
    ) -> Result<(&'p str, DirectoryOptions), Problem> {
        let name = profile.unwrap_or(&self.options.default_profile);
        let options = self.options.directory(name);
        options
            .map(|options| (name, options))
            .ok_or_else(|| Problem::malformed("unknown ACME directory").status(StatusCode::NOT_FOUND))
    }

    pub(super) fn now_us(&self) -> i64 {
        self.clock.now_us()
    }
}
