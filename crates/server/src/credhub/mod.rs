//! The credential store as this server shows it to clients of CredHub and of Vault.

mod refusal;
mod uaa;

use std::sync::Arc;

use credentials::Credentials;
use x509::Certificate;

use crate::access::IssuerError;
use uaa::Uaa;

pub(crate) use refusal::{Refused, status_of};
pub use uaa::{ActorRule, BadTemplate, ClaimTemplate, UaaOptions};

/// The credential store and how it shows itself.
#[derive(Clone, Debug)]
pub struct CredHub(Arc<HubParts>);

#[derive(Debug)]
struct HubParts {
    credentials: Credentials,
    url: Option<String>,
    exact: Vec<String>,
    uaa: Option<Uaa>,
    application_cas: Vec<Certificate>,
}

/// How the credential store shows itself.
#[derive(Clone, Debug, Default)]
pub struct CredHubOptions {
    /// As clients reach it, without a slash at the end; from the request's `Host` when absent.
    pub url: Option<String>,
    /// Actors for whom a `name-like` that begins with a slash is a whole name, which one index probe answers: clients that
    /// ask so before they read would otherwise take a longer name for theirs.
    pub exact_name_like: Vec<String>,
    /// The external issuer whose tokens are accepted too; clients then log in there.
    pub uaa: Option<UaaOptions>,
    /// The CAs whose certificates say which application their holder is (`OU=app:UUID`); of other CAs it counts for nothing.
    pub application_cas: Vec<Certificate>,
}

impl CredHub {
    /// Over the credentials. Asks no issuer yet.
    ///
    /// # Errors
    /// [`IssuerError`] when the other issuer's URL or roots cannot be used.
    pub fn new(credentials: Credentials, options: CredHubOptions) -> Result<Self, IssuerError> {
        Ok(Self(Arc::new(HubParts {
            uaa: options.uaa.map(Uaa::new).transpose()?,
            credentials,
            url: options.url,
            exact: options.exact_name_like,
            application_cas: options.application_cas,
        })))
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.0.credentials
    }

    pub(crate) fn uaa(&self) -> Option<&Uaa> {
        self.0.uaa.as_ref()
    }

    pub(crate) fn application_cas(&self) -> &[Certificate] {
        &self.0.application_cas
    }

    pub(crate) fn is_exact(&self, actor: &str) -> bool {
        self.0.exact.iter().any(|exact| exact == actor)
    }

    /// Whether nothing is to be changed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.credentials().is_read_only()
    }

    /// As this client reaches the server.
    pub(crate) fn url(&self, request_host: Option<&str>) -> String {
        self.0.url.clone().unwrap_or_else(|| format!("https://{}", request_host.unwrap_or("localhost")))
    }
}
