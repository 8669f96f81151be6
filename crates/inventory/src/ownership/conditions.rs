//! Conditions of a rule, and the reason why a candidate does not meet them.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::candidate::Candidate;
use super::error::BadRule;
use super::glob::Glob;
use super::limits::ISSUER_BYTES_MAX;
use super::tagged::Tagged;

/// Maximum names shown in an explanation.
const NAMES_SHOWN: usize = 5;

/// Conditions as configured. All given conditions must hold; a rule without conditions always matches.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conditions {
    /// Pattern for the host or the server name.
    pub host: Option<String>,
    /// Pattern for one of the certificate's names.
    pub name: Option<String>,
    /// A network in CIDR notation, or one address.
    pub network: Option<String>,
    /// Pattern for the protocol or the watch's group.
    pub source: Option<String>,
    /// Substring of the issuer name.
    pub issuer: Option<String>,
    /// A tag's key, or `KEY=PATTERN` for its value.
    pub tag: Option<String>,
}

/// The parsed conditions of a rule. All given conditions must hold.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleConditions {
    /// Pattern for the host or the server name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Glob>,
    /// Pattern for one of the certificate's names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Glob>,
    /// Network that contains the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<IpNet>,
    /// Pattern for the protocol or the watch's group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Glob>,
    /// Substring of the issuer name, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Condition on a tag in a cloud or cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tagged>,
}

/// A condition of a rule that a candidate does not meet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum UnmetCondition {
    Host,
    Name,
    Network,
    Source,
    Issuer,
    Tag,
    /// The rule takes values from tags, and the candidate has none of these tags.
    Taken,
}

impl RuleConditions {
    /// Parses conditions.
    ///
    /// # Errors
    /// [`BadRule`]
    pub fn parse(conditions: &Conditions) -> Result<Self, BadRule> {
        let glob = |field: &'static str, text: &Option<String>| {
            let parsed = text.as_deref().map(Glob::parse).transpose();
            parsed.map_err(|source| BadRule::Glob { field, source })
        };
        let issuer = conditions.issuer.clone();
        if issuer.as_ref().is_some_and(|part| !is_part(part)) {
            return Err(BadRule::Issuer);
        }
        Ok(Self {
            host: glob("host", &conditions.host)?,
            name: glob("name", &conditions.name)?,
            network: conditions.network.as_deref().map(network).transpose()?,
            source: glob("source", &conditions.source)?,
            issuer: issuer.map(|part| part.to_lowercase()),
            tag: conditions.tag.as_deref().map(Tagged::parse).transpose()?,
        })
    }

    /// Returns the first condition that is not met. `candidate` must be in lower case.
    pub(super) fn unmet(&self, candidate: &Candidate) -> Option<UnmetCondition> {
        let like = |glob: &Option<Glob>, texts: [&str; 2]| {
            let one = |glob: &Glob| texts.iter().any(|text| !text.is_empty() && glob.matches_lower(text));
            glob.as_ref().is_none_or(one)
        };
        if !like(&self.host, [&candidate.host, &candidate.server_name]) {
            return Some(UnmetCondition::Host);
        }
        let named = |glob: &Glob| candidate.names.iter().any(|name| glob.matches_lower(name));
        if !self.name.as_ref().is_none_or(named) {
            return Some(UnmetCondition::Name);
        }
        let within = |network: &IpNet| candidate.address.is_some_and(|address| network.contains(&address));
        if !self.network.as_ref().is_none_or(within) {
            return Some(UnmetCondition::Network);
        }
        if !like(&self.source, [&candidate.protocol, &candidate.group]) {
            return Some(UnmetCondition::Source);
        }
        let issued = |part: &String| candidate.issuer.contains(part.as_str());
        if !self.issuer.as_ref().is_none_or(issued) {
            return Some(UnmetCondition::Issuer);
        }
        let tagged = |wanted: &Tagged| candidate.tags.iter().any(|tag| wanted.matches_lower(tag));
        (!self.tag.as_ref().is_none_or(tagged)).then_some(UnmetCondition::Tag)
    }

    /// Explains for people why a condition is not met.
    pub(super) fn why(&self, unmet: UnmetCondition, candidate: &Candidate) -> String {
        let shown = |wanted: Option<String>| wanted.unwrap_or_default();
        match unmet {
            UnmetCondition::Host => {
                let actual = listed(&[candidate.host.as_str(), candidate.server_name.as_str()]);
                format!("host {}: the host is {actual}", shown(self.host.as_ref().map(Glob::to_string)))
            }
            UnmetCondition::Name => {
                let names: Vec<&str> = candidate.names.iter().map(String::as_str).collect();
                format!(
                    "name {}: the certificate has {}",
                    shown(self.name.as_ref().map(Glob::to_string)),
                    listed(&names)
                )
            }
            UnmetCondition::Network => {
                let actual =
                    candidate.address.map_or_else(|| "not known".to_owned(), |address| address.to_string());
                format!("network {}: the address is {actual}", shown(self.network.map(|one| one.to_string())))
            }
            UnmetCondition::Source => {
                let actual = listed(&[candidate.protocol.as_str(), candidate.group.as_str()]);
                format!("source {}: the source is {actual}", shown(self.source.as_ref().map(Glob::to_string)))
            }
            UnmetCondition::Issuer => {
                format!(
                    "issuer {}: the issuer is {}",
                    shown(self.issuer.clone()),
                    listed(&[candidate.issuer.as_str()])
                )
            }
            UnmetCondition::Tag => {
                format!(
                    "tag {}: the tags are {}",
                    shown(self.tag.clone().map(String::from)),
                    tags_of(candidate)
                )
            }
            UnmetCondition::Taken => {
                format!("no tag to copy the value from: the tags are {}", tags_of(candidate))
            }
        }
    }
}

fn is_part(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= ISSUER_BYTES_MAX && !text.chars().any(char::is_control)
}

fn network(text: &str) -> Result<IpNet, BadRule> {
    // An IPv4-mapped IPv6 address is treated as an IPv4 address.
    let one = || text.parse::<IpAddr>().ok().map(|address| IpNet::from(address.to_canonical()));
    let network = text.parse::<IpNet>().ok().or_else(one);
    network.map(|network| network.trunc()).ok_or_else(|| BadRule::Network(text.to_owned()))
}

fn tags_of(candidate: &Candidate) -> String {
    let tags: Vec<String> = candidate.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    listed(&tags)
}

/// Joins distinct texts for a message, at most [`NAMES_SHOWN`]; `not known` if there are none.
fn listed(texts: &[&str]) -> String {
    let mut known: Vec<&str> = texts.iter().copied().filter(|text| !text.is_empty()).collect();
    known.dedup();
    if known.is_empty() {
        return "not known".to_owned();
    }
    let more = known.len().saturating_sub(NAMES_SHOWN);
    known.truncate(NAMES_SHOWN);
    let shown = known.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
