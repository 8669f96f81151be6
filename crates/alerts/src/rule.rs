//! Alert rules and silences, as pure functions of an alert's attributes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use x509::Severity;

/// Attributes of an alert that rules match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attributes {
    /// Name of the certificate or agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the certificate's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Team that owns the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Environment: production, staging, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Name of the certificate's issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Name of the certificate's profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Tags of the certificate, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Human-readable description of the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// End of validity, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<String>,
}

/// Conditions that must all hold. A list matches if it contains the value; an empty list matches any value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Matcher {
    /// Kinds of alerts that match, including their subkinds: `certificate` matches every kind that begins with `certificate.`.
    pub kinds: Vec<String>,
    /// Subjects that match, such as `certificate/UUID`.
    pub subjects: Vec<String>,
    /// Owners that match.
    pub owners: Vec<String>,
    /// Teams that match.
    pub teams: Vec<String>,
    /// Environments that match.
    pub environments: Vec<String>,
    /// Issuers that match.
    pub issuers: Vec<String>,
    /// Profiles that match.
    pub profiles: Vec<String>,
    /// Tags that must all be present.
    pub tags: BTreeMap<String, String>,
    /// Lowest matching severity.
    pub min_severity: Severity,
}

impl Matcher {
    /// Returns whether an alert meets every condition.
    #[must_use]
    pub fn matches(&self, kind: &str, subject: &str, severity: Severity, of: &Attributes) -> bool {
        let one_of = |wanted: &[String], value: &Option<String>| {
            wanted.is_empty() || value.as_ref().is_some_and(|value| wanted.contains(value))
        };
        let kind_fits = self.kinds.is_empty()
            || self.kinds.iter().any(|wanted| {
                kind == wanted || kind.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.starts_with('.'))
            });
        kind_fits
            && severity >= self.min_severity
            && (self.subjects.is_empty() || self.subjects.iter().any(|wanted| wanted == subject))
            && one_of(&self.owners, &of.owner)
            && one_of(&self.teams, &of.team)
            && one_of(&self.environments, &of.environment)
            && one_of(&self.issuers, &of.issuer)
            && one_of(&self.profiles, &of.profile)
            && self.tags.iter().all(|(key, value)| of.tags.get(key) == Some(value))
    }
}

/// A rule: which alerts go to which channels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Condition on the alerts.
    #[serde(default)]
    pub when: Matcher,
    /// Names of the channels to notify.
    pub channels: Vec<String>,
    /// Further recipients of an alert that is not acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate: Option<Escalation>,
    /// Whether to send the notifications as one daily digest instead of immediately.
    #[serde(default)]
    pub digest: bool,
}

/// Recipients of an alert that is not acknowledged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Escalation {
    /// Delay after the alert in seconds.
    pub after_seconds: u32,
    /// Names of the channels to notify.
    pub channels: Vec<String>,
}

/// A silence: matching alerts are raised and listed without notifications.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silence {
    /// Condition on the alerts.
    pub when: Matcher,
    /// Start of the silence, µs.
    #[serde(default)]
    pub from_us: i64,
    /// End of the silence, µs.
    pub until_us: i64,
    /// Reason for the silence.
    pub reason: String,
}

/// Channels to notify about an alert, according to the rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Routing {
    /// Channels that are notified immediately.
    pub(crate) now: Vec<String>,
    /// Channels that are notified by digest, without those that are notified immediately.
    pub(crate) digest: Vec<String>,
    /// Delay of the earliest escalation, in seconds.
    pub(crate) escalate_after: Option<u32>,
}

/// Returns the recipients according to all matching rules.
pub(crate) fn route(
    rules: &[(Uuid, Rule)],
    kind: &str,
    subject: &str,
    severity: Severity,
    of: &Attributes,
) -> Routing {
    let mut routing = Routing::default();
    for (_, rule) in rules.iter().filter(|(_, rule)| rule.when.matches(kind, subject, severity, of)) {
        let list = if rule.digest { &mut routing.digest } else { &mut routing.now };
        list.extend(rule.channels.iter().cloned());
        if let Some(escalation) = &rule.escalate {
            let sooner = routing.escalate_after.is_none_or(|known| escalation.after_seconds < known);
            if sooner {
                routing.escalate_after = Some(escalation.after_seconds);
            }
        }
    }
    for list in [&mut routing.now, &mut routing.digest] {
        list.sort();
        list.dedup();
    }
    routing.digest.retain(|channel| !routing.now.contains(channel));
    routing
}

/// Returns the escalation channels of all matching rules.
pub(crate) fn escalation_channels(
    rules: &[(Uuid, Rule)],
    kind: &str,
    subject: &str,
    severity: Severity,
    of: &Attributes,
) -> Vec<String> {
    let matching = rules.iter().filter(|(_, rule)| rule.when.matches(kind, subject, severity, of));
    let mut all: Vec<String> =
        matching.filter_map(|(_, rule)| rule.escalate.as_ref()).flat_map(|to| to.channels.clone()).collect();
    all.sort();
    all.dedup();
    all
}

/// Returns the silence that applies to an alert at a time.
pub(crate) fn silence(
    silences: &[(Uuid, Silence)],
    kind: &str,
    subject: &str,
    severity: Severity,
    of: &Attributes,
    now_us: i64,
) -> Option<Uuid> {
    let holds = |silence: &Silence| {
        (silence.from_us..silence.until_us).contains(&now_us)
            && silence.when.matches(kind, subject, severity, of)
    };
    silences.iter().find(|(_, silence)| holds(silence)).map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        Attributes {
            team: Some("web".to_owned()),
            tags: [("tier".to_owned(), "1".to_owned())].into(),
            ..Attributes::default()
        }
    }

    #[test]
    fn matcher_requires_all_its_conditions() {
        let text = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let table = [
            (Matcher::default(), true),
            (Matcher { kinds: text(&["certificate"]), ..Matcher::default() }, true),
            (Matcher { kinds: text(&["certificate.expiring"]), ..Matcher::default() }, true),
            (Matcher { kinds: text(&["cert"]), ..Matcher::default() }, false),
            (Matcher { teams: text(&["web", "db"]), ..Matcher::default() }, true),
            (Matcher { teams: text(&["db"]), ..Matcher::default() }, false),
            (Matcher { owners: text(&["ann"]), ..Matcher::default() }, false),
            (Matcher { min_severity: Severity::High, ..Matcher::default() }, true),
            (Matcher { min_severity: Severity::Critical, ..Matcher::default() }, false),
            (Matcher { tags: [("tier".into(), "1".into())].into(), ..Matcher::default() }, true),
            (Matcher { tags: [("tier".into(), "2".into())].into(), ..Matcher::default() }, false),
            (Matcher { subjects: text(&["certificate/1"]), ..Matcher::default() }, true),
        ];
        for (matcher, fits) in table {
            let found =
                matcher.matches("certificate.expiring", "certificate/1", Severity::High, &attributes());
            assert_eq!(found, fits, "{matcher:?}");
        }
    }

    #[test]
    fn immediately_notified_channel_is_left_out_of_the_digest() {
        let rule = |channels: &[&str], digest| {
            let channels = channels.iter().map(|one| (*one).to_owned()).collect();
            (Uuid::nil(), Rule { channels, digest, ..Rule::default() })
        };
        let rules = [rule(&["pager", "chat"], false), rule(&["chat", "mail"], true), rule(&["pager"], false)];
        let routing = route(&rules, "a.b", "c", Severity::Info, &Attributes::default());
        assert_eq!(routing.now, ["chat", "pager"]);
        assert_eq!(routing.digest, ["mail"]);
    }

    #[test]
    fn silence_applies_only_between_its_start_and_end() {
        let quiet =
            Silence { when: Matcher::default(), from_us: 10, until_us: 20, reason: "move".to_owned() };
        let all = [(Uuid::max(), quiet)];
        let at = |now| silence(&all, "a.b", "c", Severity::Critical, &Attributes::default(), now);
        assert_eq!((at(9), at(10), at(19), at(20)), (None, Some(Uuid::max()), Some(Uuid::max()), None));
    }
}
