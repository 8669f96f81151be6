//! Our own authority signs agents' certificates, by a profile of its own.

use ::authority::Authority;
use ::authority::issue::{IssueError, IssueRequest, Source};
use ::authority::names::{NameRules, UriRule};
use ::authority::profile::{CommonName, KeyPurpose, Profile, ProfileError, SubjectRules, Validity};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use keys::KeyType;
use x509::{DAY, GeneralName};

use super::identity::{AGENTS_URI, Certified, Certify, CertifyError};

/// The profile agents are certified by; made when the first one comes. Who changes it decides how long they live.
pub const AGENT_PROFILE: &str = "bulla-agents";
/// Seconds an agent's certificate lives: renewed at two thirds, so an agent may be off for ten days.
const LIFE_SECONDS: i64 = 30 * DAY;
/// In the audit.
const ACTOR: &str = "system:agents";

/// Certifies agents by [`AGENT_PROFILE`].
#[derive(Clone, Debug)]
pub struct CertifyByAuthority(Authority);

impl CertifyByAuthority {
    /// By this authority.
    #[must_use]
    pub fn new(authority: Authority) -> Self {
        Self(authority)
    }

    /// Makes the profile, unless it is there.
    ///
    /// # Errors
    /// [`CertifyError`] when it cannot be made.
    pub async fn ensure_profile(&self) -> Result<(), CertifyError> {
        match self.0.profile(AGENT_PROFILE).await {
            Ok(_) => return Ok(()),
            Err(ProfileError::Unknown(_)) => {}
            Err(error) => return Err(CertifyError::Unavailable(error.to_string())),
        }
        match self.0.put_profile(profile()?, Some(0), ACTOR).await {
            // Stale: another node was faster.
            Ok(_) | Err(ProfileError::Stale(_)) => Ok(()),
            Err(error) => Err(CertifyError::Unavailable(error.to_string())),
        }
    }

    async fn issue(&self, uri: String, spki: Vec<u8>, key: String) -> Result<Certified, CertifyError> {
        self.ensure_profile().await?;
        let names = vec![GeneralName::Uri(uri)];
        let request = IssueRequest {
            idempotency_key: Some(key),
            ..IssueRequest::new(AGENT_PROFILE, spki, names, Source::System, ACTOR)
        };
        let issued = self.0.issue(request).await.map_err(|error| refused(&error))?;
        let not_after_us = issued.not_after.0.saturating_mul(1_000_000);
        Ok(Certified { chain_pem: issued.chain_pem(), not_after_us })
    }
}

fn refused(error: &IssueError) -> CertifyError {
    let reason = error.to_string();
    if error.is_refusal() { CertifyError::Refused(reason) } else { CertifyError::Unavailable(reason) }
}

fn profile() -> Result<Profile, CertifyError> {
    let uri = UriRule::parse(AGENTS_URI).map_err(CertifyError::Refused)?;
    let names = NameRules { uri_allowed: vec![uri], max: 1, ..NameRules::default() };
    Ok(Profile {
        description: "Client certificates of agents".to_owned(),
        key_types: vec![KeyType::P256],
        validity: Validity { default_seconds: LIFE_SECONDS, ..Validity::default() },
        subject: SubjectRules { common_name: CommonName::None, ..SubjectRules::default() },
        extended_key_usage: vec![KeyPurpose::client_auth()],
        ..Profile::for_servers(AGENT_PROFILE, names)
    })
}

impl Certify for CertifyByAuthority {
    fn certify(
        &self,
        uri: String,
        spki: Vec<u8>,
        idempotency_key: String,
    ) -> BoxFuture<'_, Result<Certified, CertifyError>> {
        self.issue(uri, spki, idempotency_key).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_sound() {
        profile().unwrap().validate().unwrap();
    }
}
