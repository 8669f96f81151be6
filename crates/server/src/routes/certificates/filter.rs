//! Which certificates a list or an action on many selects.

use serde::Deserialize;
use store::managed::{ManagedFilter, ManagedScope};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::problem::Problem;
use crate::time;

/// Which certificates to list.
#[derive(Debug, Default, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(crate) struct CertificateFilter {
    /// In one of these states, separated by commas: `pending`, `awaiting_approval`, `awaiting_csr`, `issuing`,
    /// `deploying`, `active`, `failed`, `revoked`, `archived`.
    #[param(example = "active,failed")]
    status: Option<String>,
    /// With exactly this name.
    name: Option<String>,
    /// Issued by this profile.
    profile: Option<String>,
    /// By this issuer.
    issuer: Option<String>,
    /// Of this owner.
    owner: Option<String>,
    /// Of this team.
    team: Option<String>,
    /// In this environment.
    environment: Option<String>,
    /// Naming this policy.
    policy: Option<String>,
    /// With the key at this agent.
    agent: Option<Uuid>,
    /// With this tag, `name=value`.
    #[param(example = "cost=42")]
    tag: Option<String>,
    /// Ending before this time, RFC 3339.
    expires_before: Option<String>,
    /// Ending at this time or later, RFC 3339.
    expires_after: Option<String>,
    /// Whose name or names hold this text. No index helps: a rare text walks many pages.
    contains: Option<String>,
    /// With a name that ends so.
    #[param(example = ".example.org")]
    suffix: Option<String>,
}

impl CertificateFilter {
    pub(super) fn checked(self, within: Option<Vec<ManagedScope>>) -> Result<ManagedFilter, Problem> {
        let states = self.status.as_deref().unwrap_or_default();
        let states = states.split(',').filter(|word| !word.is_empty()).map(|word| {
            let state: lifecycle::state::State = word
                .trim()
                .parse()
                .map_err(|error: lifecycle::state::UnknownState| Problem::bad_request(error))?;
            Ok(state.code())
        });
        let tag = self.tag.as_deref().map(|tag| {
            let parts = tag.split_once('=').map(|(tag, value)| (tag.to_owned(), value.to_owned()));
            parts.ok_or_else(|| Problem::bad_request("tag is NAME=VALUE"))
        });
        let time = |text: Option<String>| text.map(|text| time::parsed(&text)).transpose();
        let filter = ManagedFilter {
            states: states.collect::<Result<_, Problem>>()?,
            profile: self.profile,
            within,
            issuer: self.issuer,
            owner: self.owner,
            team: self.team,
            environment: self.environment,
            policy: self.policy,
            agent: self.agent,
            tag: tag.transpose()?,
            expires_before_us: time(self.expires_before)?,
            expires_from_us: time(self.expires_after)?,
            contains: self.contains.filter(|text| !text.is_empty()),
            suffix: self.suffix.filter(|text| !text.is_empty()),
            name: self.name,
        };
        // PostgreSQL compares no text with NUL, and none is stored.
        let texts = [
            &filter.name,
            &filter.profile,
            &filter.issuer,
            &filter.owner,
            &filter.team,
            &filter.environment,
            &filter.policy,
            &filter.contains,
            &filter.suffix,
        ];
        let tags = filter.tag.iter().flat_map(|(tag, value)| [tag, value]);
        if texts.into_iter().flatten().chain(tags).any(|text| text.contains('\0')) {
            return Err(Problem::bad_request("a filter holds a NUL"));
        }
        Ok(filter)
    }
}
