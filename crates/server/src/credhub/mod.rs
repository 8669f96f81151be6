//! The credential store with the APIs of CredHub and of Vault.

mod refusal;
mod uaa;

use credentials::Credentials;
use shared::Shared;
use x509::Certificate;

use crate::access::IssuerError;
use uaa::Uaa;

pub(crate) use refusal::{Refused, status_of};
pub use uaa::{ActorRule, BadTemplate, ClaimTemplate, UaaOptions};

/// The credential store and the settings of its APIs.
#[derive(Clone, Debug)]
pub struct CredHub(Shared<HubParts>);

#[derive(Debug)]
struct HubParts {
    credentials: Credentials,
    url: Option<String>,
    exact: Vec<String>,
    uaa: Option<Uaa>,
    application_cas: Vec<Certificate>,
}

/// Settings of the CredHub and Vault APIs.
#[derive(Clone, Debug, Default)]
pub struct CredHubOptions {
    /// URL at which clients reach the server, without a trailing slash. Default: from the request's `Host`.
    pub url: Option<String>,
    /// Actors for which a `name-like` search that begins with a slash matches only that exact name. Some clients search before each
    /// read, and would otherwise use the value of a credential with a longer name.
    pub exact_name_like: Vec<String>,
    /// External issuer whose tokens are also accepted. If set, clients log in at this issuer.
    pub uaa: Option<UaaOptions>,
    /// CAs whose client certificates may identify an application (`OU=app:UUID`). In certificates of other CAs this attribute is
    /// ignored.
    pub application_cas: Vec<Certificate>,
}

impl CredHub {
    /// Creates the API over the credential store, without sending a request to the issuer.
    ///
    /// # Errors
    /// [`IssuerError`] when the external issuer's URL or roots cannot be used.
    pub fn new(credentials: Credentials, options: CredHubOptions) -> Result<Self, IssuerError> {
        Ok(Self(Shared::new(HubParts {
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

    /// Returns the prefix of actors of API tokens. With a UAA, the actors `uaa-client:` and `uaa-user:` come only from the UAA.
    pub(crate) fn token_prefix(&self) -> &'static str {
        if self.0.uaa.as_ref().is_some_and(Uaa::is_uaa) { "token:" } else { "uaa-client:" }
    }

    /// Returns the actor of an API token: `name` is the name of the token, `grant_type` the grant type of its login.
    pub(crate) fn token_actor(&self, name: &str, grant_type: &str) -> String {
        match self.token_prefix() {
            "uaa-client:" if grant_type == "password" => format!("uaa-user:{name}"),
            prefix => format!("{prefix}{name}"),
        }
    }

    pub(crate) fn application_cas(&self) -> &[Certificate] {
        &self.0.application_cas
    }

    pub(crate) fn is_exact(&self, actor: &str) -> bool {
        self.0.exact.iter().any(|exact| exact == actor)
    }

    /// Returns whether the store is in read-only mode.
    pub(crate) fn is_read_only(&self) -> bool {
        self.credentials().is_read_only()
    }

    /// Returns the URL at which this client reaches the server.
    pub(crate) fn url(&self, request_host: Option<&str>) -> String {
        self.0.url.clone().unwrap_or_else(|| format!("https://{}", request_host.unwrap_or("localhost")))
    }
}
