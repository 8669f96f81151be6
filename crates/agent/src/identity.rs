//! How an agent shows who it is: a client certificate with its identity as a URI.

use enrollment::AGENTS_URI;
use uuid::Uuid;

use crate::directory::{AgentError, Agents};
use crate::tables;

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
    #[crate::boxed]
    pub async fn check_key(&self, agent: Uuid, certificate_der: &[u8]) -> Result<(), AgentError> {
        let shown = enrollment::shown_key(certificate_der).ok_or(AgentError::OtherKey)?;
        let row = tables::Agents::of(self.store()).get(agent).await?.ok_or(AgentError::OtherKey)?;
        if row.retired_at_us.is_some() {
            return Err(AgentError::Retired);
        }
        if row.spki_sha256 == shown { Ok(()) } else { Err(AgentError::OtherKey) }
    }
}
