//! Identity of an agent: a client certificate with the agent's id as a URI.

use enrollment::AGENTS_URI;
use uuid::Uuid;

use crate::directory::{AgentError, Agents};
use crate::tables;

/// Returns the URI in an agent's certificate.
#[must_use]
pub fn agent_uri(agent: Uuid) -> String {
    format!("{AGENTS_URI}/{agent}")
}

impl Agents {
    /// Checks that the presented certificate has the agent's own key. The TLS listener has already checked chain, validity and
    /// name. The key check rejects another certificate with the same name.
    ///
    /// # Errors
    /// [`AgentError::OtherKey`], [`AgentError::Retired`]; database errors.
    #[crate::boxed]
    pub async fn check_key(&self, agent: Uuid, certificate_der: &[u8]) -> Result<(), AgentError> {
        let shown = enrollment::certificate_spki_sha256(certificate_der).ok_or(AgentError::OtherKey)?;
        let row = tables::Agents::of(self.store()).get(agent).await?.ok_or(AgentError::OtherKey)?;
        if row.retired_at_us.is_some() {
            return Err(AgentError::Retired);
        }
        if row.spki_sha256 == shown { Ok(()) } else { Err(AgentError::OtherKey) }
    }
}
