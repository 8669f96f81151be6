//! Certificates of agents and nodes, issued by the internal CA under dedicated profiles.

use ::authority::Authority;
use ::authority::issue::{IssueError, IssueRequest, Source};
use ::authority::names::{DnsRule, NameRules, SuffixRule, UriRule};
use ::authority::profile::{CommonName, KeyPurpose, Profile, ProfileError, SubjectRules, Validity};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use keyless::routing::{NODES_DNS, NODES_URI};
use keys::KeyType;
use x509::{DAY, GeneralName};

use crate::certify::{Certified, Certify, CertifyError};

/// Prefix of the URI in agents' certificates. Only the agents' profile may issue such names, and an agent is accepted only with its
/// own key.
pub const AGENTS_URI: &str = "spiffe://bulla/agent";

/// Name of the profile for agents' certificates. Created when the first agent enrolls. Changing the profile changes the
/// certificates' lifetime.
pub const AGENT_PROFILE: &str = "bulla-agents";
/// Name of the profile for nodes' certificates. Created when the first node joins.
pub const NODE_PROFILE: &str = "bulla-nodes";
/// Lifetime of an agent's certificate in seconds. Renewed at two thirds, so an agent may be offline for ten days.
const AGENT_LIFE_SECONDS: i64 = 30 * DAY;
/// Lifetime of a node's certificate in seconds. Renewed at two thirds, so the control plane may be down for two days.
const NODE_LIFE_SECONDS: i64 = 7 * DAY;

/// An issuer of certificates under one profile. Creates the profile if it is missing.
#[derive(Clone, Debug)]
pub struct AuthorityCertifier {
    authority: Authority,
    profile: &'static str,
    actor: &'static str,
    make: fn() -> Result<Profile, CertifyError>,
}

impl AuthorityCertifier {
    /// Creates the issuer of agents' certificates, with [`AGENT_PROFILE`].
    #[must_use]
    pub fn agents(authority: Authority) -> Self {
        Self { authority, profile: AGENT_PROFILE, actor: "system:agents", make: agent_profile }
    }

    /// Creates the issuer of nodes' certificates, with [`NODE_PROFILE`].
    #[must_use]
    pub fn nodes(authority: Authority) -> Self {
        Self { authority, profile: NODE_PROFILE, actor: "system:nodes", make: node_profile }
    }

    /// Creates the profile if it is missing.
    ///
    /// # Errors
    /// [`CertifyError`] when it cannot be created.
    #[crate::boxed]
    pub async fn ensure_profile(&self) -> Result<(), CertifyError> {
        match self.authority.profile(self.profile).await {
            Ok(_) => return Ok(()),
            Err(ProfileError::Unknown(_)) => {}
            Err(error) => return Err(CertifyError::Unavailable(error.to_string())),
        }
        match self.authority.put_profile((self.make)()?, Some(0), self.actor).await {
            // Stale: another server created it first.
            Ok(_) | Err(ProfileError::Stale(_)) => Ok(()),
            Err(error) => Err(CertifyError::Unavailable(error.to_string())),
        }
    }

    async fn issue(
        &self,
        names: Vec<GeneralName>,
        spki: Vec<u8>,
        key: String,
    ) -> Result<Certified, CertifyError> {
        self.ensure_profile().await?;
        let request = IssueRequest {
            idempotency_key: Some(key),
            ..IssueRequest::new(self.profile, spki, names, Source::System, self.actor)
        };
        let issued = self.authority.issue(request).await.map_err(|error| refused(&error))?;
        let not_after_us = issued.not_after.0.saturating_mul(1_000_000);
        Ok(Certified { chain_pem: issued.chain_pem(), not_after_us })
    }
}

fn refused(error: &IssueError) -> CertifyError {
    let reason = error.to_string();
    if error.is_refusal() { CertifyError::Refused(reason) } else { CertifyError::Unavailable(reason) }
}

fn agent_profile() -> Result<Profile, CertifyError> {
    let names = NameRules { uri_allowed: vec![uri_rule(AGENTS_URI)?], max: 1, ..NameRules::default() };
    Ok(Profile {
        description: "Client certificates of agents".to_owned(),
        extended_key_usage: vec![KeyPurpose::client_auth()],
        ..profile(AGENT_PROFILE, names, AGENT_LIFE_SECONDS)
    })
}

/// Returns the profile for nodes. Nodes connect to each other, so each certificate is valid for TLS clients and servers.
fn node_profile() -> Result<Profile, CertifyError> {
    let own = SuffixRule {
        suffix: NODES_DNS.to_owned(),
        itself: false,
        depth_max: 1,
        wildcards: false,
        wildcard_depth_min: 1,
        wildcard_depth_max: 1,
    };
    let names = NameRules {
        uri_allowed: vec![uri_rule(NODES_URI)?],
        dns_allowed: vec![DnsRule::Suffix(own)],
        max: 2,
        ..NameRules::default()
    };
    Ok(Profile {
        description: "Certificates of the key service's nodes".to_owned(),
        extended_key_usage: vec![KeyPurpose::client_auth(), KeyPurpose::server_auth()],
        ..profile(NODE_PROFILE, names, NODE_LIFE_SECONDS)
    })
}

fn uri_rule(uri: &str) -> Result<UriRule, CertifyError> {
    UriRule::parse(uri).map_err(CertifyError::Refused)
}

fn profile(name: &str, names: NameRules, life_seconds: i64) -> Profile {
    Profile {
        key_types: vec![KeyType::P256],
        validity: Validity { default_seconds: life_seconds, ..Validity::default() },
        subject: SubjectRules { common_name: CommonName::None, ..SubjectRules::default() },
        ..Profile::for_servers(name, names)
    }
}

impl Certify for AuthorityCertifier {
    fn certify(
        &self,
        names: Vec<GeneralName>,
        spki: Vec<u8>,
        idempotency_key: String,
    ) -> BoxFuture<'_, Result<Certified, CertifyError>> {
        self.issue(names, spki, idempotency_key).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_and_node_profiles_are_valid() {
        agent_profile().unwrap().validate().unwrap();
        node_profile().unwrap().validate().unwrap();
    }
}
