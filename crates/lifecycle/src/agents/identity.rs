//! How an agent shows who it is: a client certificate with its identity as a URI.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use uuid::Uuid;
use x509::Certificate;

use super::{AgentError, Agents};

/// Why an agent gets no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// The authority says no; the same again will not help.
    #[error("the authority does not certify the agent: {0}")]
    Refused(String),
    /// Later, perhaps.
    #[error("the authority cannot certify the agent just now: {0}")]
    Unavailable(String),
}

/// A client certificate.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The certificate and what stands above it, PEM.
    pub chain_pem: String,
    /// End of its validity, µs.
    pub not_after_us: i64,
}

/// Signs agents' certificates: client authentication, one URI, a life of weeks.
pub trait Certify: Send + Sync {
    /// A certificate for the key of `spki` with the name `uri`. The same `idempotency_key` gets the same one.
    fn certify(
        &self,
        uri: String,
        spki: Vec<u8>,
        idempotency_key: String,
    ) -> BoxFuture<'_, Result<Certified, CertifyError>>;
}

/// The SHA-256 by which the server's door knows a certificate with a URI again.
pub type IdentityKey = Arc<dyn Fn(&str) -> [u8; 32] + Send + Sync>;

/// What the names of agents' certificates lie under. Their profile alone may issue such names; and an agent is let in
/// with its own key only, see [`Agents::check_key`].
pub(super) const AGENTS_URI: &str = "spiffe://bulla/agent";

/// The name in an agent's certificate.
#[must_use]
pub fn agent_uri(agent: Uuid) -> String {
    format!("{AGENTS_URI}/{agent}")
}

impl Agents {
    /// Whether the certificate shown is the agent's own. The door has checked its chain, its time and its name; here it
    /// is the key, so that nobody else's certificate of that name works as the agent.
    ///
    /// # Errors
    /// [`AgentError::OtherKey`], [`AgentError::Retired`]; those of the database.
    pub async fn check_key(&self, agent: Uuid, certificate_der: &[u8]) -> Result<(), AgentError> {
        let shown = Certificate::parse(certificate_der).map_err(|_| AgentError::OtherKey)?;
        let row = self.store().agent(agent).await?.ok_or(AgentError::OtherKey)?;
        if row.retired_at_us.is_some() {
            return Err(AgentError::Retired);
        }
        if row.spki_sha256 == *shown.public_key.spki_sha256.as_bytes() {
            Ok(())
        } else {
            Err(AgentError::OtherKey)
        }
    }
}
