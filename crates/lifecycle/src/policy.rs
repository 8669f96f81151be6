//! Policy rules for managed certificates. Pure functions over policies and certificates.

use std::collections::BTreeMap;
use std::sync::Arc;

use keys::KeyType;
use serde::{Deserialize, Serialize};
pub use store::states::PolicySeverity as Severity;
use x509::GeneralName;

use crate::managed::{BadRequest, ManagedCertificate};
use crate::renewal::{BadRule, Lead, RenewalRule, SECOND_US};

/// Maximum policies of an installation. Each certificate is checked against all policies that apply to it.
pub const POLICIES_MAX: usize = 500;
/// Maximum rules of a policy.
pub const RULES_MAX: usize = 50;
/// Maximum entries of a list in a rule.
pub const ENTRIES_MAX: usize = 500;

/// A policy: rules for certificates, and the certificates to which the rules apply. Stored as JSON; unknown keys are rejected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Free-text description, for users.
    pub description: String,
    /// Selects further certificates, in addition to the certificates that name this policy.
    pub applies_to: PolicyScope,
    /// Whether a violation is only listed, or requests that cause it are also rejected.
    pub enforcement: Enforcement,
    /// Rules that each certificate of this policy must meet; at most [`RULES_MAX`].
    pub rules: Vec<Rule>,
    /// Renewal rule of the certificates that name this policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal: Option<RenewalRule>,
    /// Whether every issuance and renewal needs the approval of a second person.
    pub requires_approval: bool,
}

/// Conditions that select the certificates of a policy. All given conditions must match. Without conditions the policy applies
/// only to certificates that name it, unless `all` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyScope {
    /// Whether the policy applies to all certificates.
    pub all: bool,
    /// The certificate is in one of these environments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<String>,
    /// The certificate belongs to one of these teams.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// The certificate has one of these profiles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    /// The certificate has one of these issuers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub issuers: Vec<String>,
    /// The certificate has all of these tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Enforcement mode of a policy: the effect of a violation on requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// Violations are listed, and requests succeed.
    #[default]
    Advisory,
    /// Violations are listed, and requests to create or change a certificate against the policy are rejected.
    Enforced,
}

/// A rule of a policy: a requirement, and the severity of its violations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Severity of a violation: info, warning, error or critical.
    #[serde(default)]
    pub severity: Severity,
    /// Requirement that certificates must meet.
    #[serde(flatten)]
    pub demand: PolicyRequirement,
}

/// A condition that every certificate under the policy must meet, such as a maximum lifetime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyRequirement {
    /// The issuer must be one of `issuers`.
    AllowedIssuers {
        /// Names of the permitted issuers.
        issuers: Vec<String>,
    },
    /// DNS names must be in one of these domains.
    AllowedDomains {
        /// Permitted domains. `example.org` covers itself and its subdomains.
        domains: Vec<String>,
    },
    /// The key must have one of these types.
    KeyTypes {
        /// Permitted key types, named as in profiles.
        key_types: Vec<KeyType>,
    },
    /// The lifetime must not be longer than `seconds`.
    MaxLifetime {
        /// Maximum lifetime in seconds.
        seconds: i64,
    },
    /// The certificate needs an owner.
    RequiredOwner,
    /// The certificate needs a team.
    RequiredTeam,
    /// The certificate needs these tags, with any value.
    RequiredTags {
        /// Names of the required tags.
        tags: Vec<String>,
    },
    /// The certificate needs one of these environments; any environment if the list is empty.
    RequiredEnvironment {
        /// Names of the permitted environments.
        #[serde(default)]
        environments: Vec<String>,
    },
    /// The certificate must be renewed automatically, at least `seconds` before it expires.
    RenewalLead {
        /// Minimum time before expiry, in seconds.
        seconds: i64,
    },
}

impl PolicyRequirement {
    /// Returns the identifier of this rule in violations, such as `key_types`.
    #[must_use]
    pub fn rule_id(&self) -> &'static str {
        match self {
            Self::AllowedIssuers { .. } => "allowed_issuers",
            Self::AllowedDomains { .. } => "allowed_domains",
            Self::KeyTypes { .. } => "key_types",
            Self::MaxLifetime { .. } => "max_lifetime",
            Self::RequiredOwner => "required_owner",
            Self::RequiredTeam => "required_team",
            Self::RequiredTags { .. } => "required_tags",
            Self::RequiredEnvironment { .. } => "required_environment",
            Self::RenewalLead { .. } => "renewal_lead",
        }
    }
}

/// A policy rule that a certificate does not meet.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Violation {
    /// Name of the violated policy.
    pub policy: String,
    /// Identifier of the rule, such as `key_types`.
    pub rule: &'static str,
    /// Severity of the violation: info, warning, error or critical.
    pub severity: Severity,
    /// Human-readable message.
    pub message: String,
    /// Whether the policy is enforced: requests that violate it are rejected.
    pub enforced: bool,
}

/// Reason why the policy is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadPolicy {
    /// The policy has more than [`RULES_MAX`] rules.
    #[error("a policy may have at most {RULES_MAX} rules")]
    TooManyRules,
    /// A list has more than [`ENTRIES_MAX`] entries.
    #[error("a rule may list at most {ENTRIES_MAX} entries")]
    TooManyEntries,
    /// The policy has the same kind of rule twice. Violations are identified by the kind of rule.
    #[error("the rule {0} appears twice: a policy may have each rule once")]
    Twice(&'static str),
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] BadRequest),
    /// The renewal rule is invalid.
    #[error(transparent)]
    Renewal(#[from] BadRule),
}

impl Policy {
    /// Validates the policy.
    ///
    /// # Errors
    /// [`BadPolicy`] says what to correct.
    pub fn check(&self) -> Result<(), BadPolicy> {
        if self.rules.len() > RULES_MAX {
            return Err(BadPolicy::TooManyRules);
        }
        let mut seen = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            let entries = match &rule.demand {
                PolicyRequirement::AllowedIssuers { issuers: list }
                | PolicyRequirement::AllowedDomains { domains: list }
                | PolicyRequirement::RequiredTags { tags: list }
                | PolicyRequirement::RequiredEnvironment { environments: list } => list.len(),
                _ => 0,
            };
            if entries > ENTRIES_MAX {
                return Err(BadPolicy::TooManyEntries);
            }
            let rule_id = rule.demand.rule_id();
            if seen.contains(&rule_id) {
                return Err(BadPolicy::Twice(rule_id));
            }
            seen.push(rule_id);
        }
        if let Some(renewal) = &self.renewal {
            renewal.check()?;
        }
        Ok(())
    }

    fn applies(&self, name: &str, to: &ManagedCertificate) -> bool {
        to.policy.as_deref() == Some(name) || self.applies_to.matches(to)
    }
}

impl PolicyScope {
    fn matches(&self, to: &ManagedCertificate) -> bool {
        let among = |list: &[String], text: Option<&str>| {
            list.is_empty() || text.is_some_and(|text| list.iter().any(|one| one == text))
        };
        let any = !self.environments.is_empty()
            || !self.teams.is_empty()
            || !self.profiles.is_empty()
            || !self.issuers.is_empty()
            || !self.tags.is_empty();
        self.all
            || (any
                && among(&self.environments, to.environment.as_deref())
                && among(&self.teams, to.team.as_deref())
                && among(&self.profiles, Some(&to.profile))
                && among(&self.issuers, Some(&to.issuer))
                && self.tags.iter().all(|(tag, value)| to.tags.get(tag) == Some(value)))
    }
}

/// All policies of an installation.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    policies: BTreeMap<String, Arc<Policy>>,
}

impl FromIterator<(String, Policy)> for PolicySet {
    fn from_iter<I: IntoIterator<Item = (String, Policy)>>(all: I) -> Self {
        Self { policies: all.into_iter().map(|(name, policy)| (name, Arc::new(policy))).collect() }
    }
}

impl PolicySet {
    /// Returns the policy with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Policy> {
        self.policies.get(name).map(AsRef::as_ref)
    }

    fn applicable_policies<'a>(
        &'a self,
        to: &ManagedCertificate,
    ) -> impl Iterator<Item = (&'a String, &'a Arc<Policy>)> {
        self.policies.iter().filter(|(name, policy)| policy.applies(name, to))
    }

    /// Returns the renewal rule of a certificate: its own rule, or else the rule of its policy, or else `renew_at` of its profile
    /// (the fraction of the lifetime after which it is renewed). A certificate whose `auto_renew` is off is never renewed
    /// automatically.
    #[must_use]
    pub fn renewal_rule(&self, of: &ManagedCertificate, renew_at: Option<f64>) -> RenewalRule {
        let named =
            of.policy.as_deref().and_then(|name| self.get(name)).and_then(|policy| policy.renewal.as_ref());
        let mut rule = of.options.renewal.as_ref().or(named).cloned().unwrap_or_else(|| {
            let default = RenewalRule::default();
            match renew_at.filter(|part| (0.0..=1.0).contains(part)) {
                Some(part) => RenewalRule { renew_before: Lead::Fraction(1.0 - part), ..default },
                None => default,
            }
        });
        rule.auto_renew &= of.options.auto_renew;
        rule
    }

    /// Returns the name of a policy that requires the approval of a second person, if any.
    #[must_use]
    pub fn approval_needed<'a>(&'a self, of: &ManagedCertificate) -> Option<&'a str> {
        self.applicable_policies(of)
            .find(|(_, policy)| policy.requires_approval)
            .map(|(name, _)| name.as_str())
    }

    /// Returns all rules that a certificate violates.
    #[must_use]
    pub fn violations(&self, of: &ManagedCertificate, renewal: &RenewalRule) -> Vec<Violation> {
        let mut found = Vec::new();
        for (name, policy) in self.applicable_policies(of) {
            for rule in &policy.rules {
                if let Some(message) = violation_text(&rule.demand, of, renewal) {
                    found.push(Violation {
                        policy: name.clone(),
                        rule: rule.demand.rule_id(),
                        severity: rule.severity,
                        message,
                        enforced: policy.enforcement == Enforcement::Enforced,
                    });
                }
            }
        }
        found
    }
}

/// Returns the error text if the certificate does not meet the demand.
fn violation_text(
    demand: &PolicyRequirement,
    of: &ManagedCertificate,
    renewal: &RenewalRule,
) -> Option<String> {
    let lacks = |present: bool, what: &str| (!present).then(|| format!("the certificate has no {what}"));
    match demand {
        PolicyRequirement::AllowedIssuers { issuers } => (!issuers.contains(&of.issuer))
            .then(|| format!("the issuer {} is not among {}", of.issuer, issuers.join(", "))),
        PolicyRequirement::AllowedDomains { domains } => {
            let strange: Vec<&str> =
                dns_names(of).filter(|name| !domains.iter().any(|d| is_in_domain(name, d))).collect();
            (!strange.is_empty())
                .then(|| format!("{} is not under {}", strange.join(", "), domains.join(", ")))
        }
        PolicyRequirement::KeyTypes { key_types } => (!key_types.contains(&of.key_type)).then(|| {
            let allowed: Vec<&str> = key_types.iter().map(|kind| kind.name()).collect();
            format!("the key type is {}, not {}", of.key_type.name(), allowed.join(" or "))
        }),
        PolicyRequirement::MaxLifetime { seconds } => {
            let life = of.current.map(|version| (version.not_after_us - version.not_before_us) / 1_000_000);
            // A certificate is valid through the whole second of notAfter. The lifetime of a 90-day certificate is therefore 90
            // days minus one second here.
            let life = life.or(of.options.lifetime_seconds)?;
            (life > *seconds).then(|| format!("the lifetime is {life} s, longer than {seconds} s"))
        }
        PolicyRequirement::RequiredOwner => lacks(of.owner.is_some(), "owner"),
        PolicyRequirement::RequiredTeam => lacks(of.team.is_some(), "team"),
        PolicyRequirement::RequiredTags { tags } => {
            let missing: Vec<&str> =
                tags.iter().filter(|tag| !of.tags.contains_key(*tag)).map(String::as_str).collect();
            (!missing.is_empty()).then(|| format!("the certificate lacks the tags {}", missing.join(", ")))
        }
        PolicyRequirement::RequiredEnvironment { environments } => match &of.environment {
            None => Some("the certificate has no environment".to_owned()),
            Some(one) if environments.is_empty() || environments.contains(one) => None,
            Some(one) => Some(format!("the environment {one} is not among {}", environments.join(", "))),
        },
        PolicyRequirement::RenewalLead { seconds } => lead_violation(of, renewal, *seconds),
    }
}

fn lead_violation(of: &ManagedCertificate, renewal: &RenewalRule, seconds: i64) -> Option<String> {
    if !renewal.auto_renew {
        return Some("automatic renewal is disabled".to_owned());
    }
    // Before the first version, the requested lifetime is the best estimate.
    let life_us = match (of.current, of.options.lifetime_seconds, renewal.renew_before) {
        (Some(version), ..) => version.not_after_us - version.not_before_us,
        (None, Some(seconds), _) => seconds.saturating_mul(SECOND_US),
        (None, None, Lead::Fraction(_)) => return None,
        (None, None, Lead::Days(_) | Lead::Hours(_)) => i64::MAX,
    };
    let lead = renewal.renew_before.within_us(life_us) / SECOND_US;
    (lead < seconds).then(|| format!("renewal starts {lead} s before expiry, less than {seconds} s"))
}

fn dns_names(of: &ManagedCertificate) -> impl Iterator<Item = &str> {
    of.names.iter().filter_map(|name| match name {
        GeneralName::Dns(name) => Some(name.as_str()),
        _ => None,
    })
}

/// Returns whether a DNS name equals a domain or is a subdomain of it. A wildcard is treated as its parent domain.
fn is_in_domain(name: &str, domain: &str) -> bool {
    let domain = domain.trim_start_matches("*.").trim_start_matches('.').trim_end_matches('.');
    let name = name.trim_start_matches("*.");
    name.eq_ignore_ascii_case(domain)
        || name
            .len()
            .checked_sub(domain.len() + 1)
            .is_some_and(|at| name.as_bytes()[at] == b'.' && name[at + 1..].eq_ignore_ascii_case(domain))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;
    use x509::Fingerprint;

    use super::*;
    use crate::managed::{CurrentVersion, NewCertificate};

    const DAY: i64 = 86_400;

    fn certificate(change: fn(&mut NewCertificate)) -> ManagedCertificate {
        let mut request = NewCertificate::new(&["www.example.org"], "web");
        change(&mut request);
        request.check(Uuid::nil(), 0).unwrap()
    }

    fn living(days: i64) -> ManagedCertificate {
        let mut of = certificate(|_| {});
        of.current = Some(CurrentVersion {
            fingerprint: Fingerprint::of(b"x"),
            not_before_us: 0,
            not_after_us: days * DAY * 1_000_000,
            revoked: false,
        });
        of
    }

    fn message(demand: PolicyRequirement, of: &ManagedCertificate) -> Option<String> {
        violation_text(&demand, of, &RenewalRule::default())
    }

    #[test]
    fn each_policy_rule_accepts_and_reports_violations() {
        let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let plain = certificate(|_| {});
        let full = certificate(|r| {
            r.owner = Some("ann".to_owned());
            r.team = Some("web".to_owned());
            r.environment = Some("prod".to_owned());
            r.tags = BTreeMap::from([("cost".to_owned(), "1".to_owned())]);
        });
        let foreign =
            certificate(|r| r.names = vec!["a.example.com".to_owned(), "evilexample.org".to_owned()]);
        let table = [
            (PolicyRequirement::AllowedIssuers { issuers: texts(&["internal"]) }, &plain, None),
            (
                PolicyRequirement::AllowedIssuers { issuers: texts(&["le", "gts"]) },
                &plain,
                Some("the issuer internal is not among le, gts"),
            ),
            (PolicyRequirement::AllowedDomains { domains: texts(&["example.org"]) }, &plain, None),
            (
                PolicyRequirement::AllowedDomains { domains: texts(&["example.org"]) },
                &foreign,
                Some("a.example.com, evilexample.org is not under example.org"),
            ),
            (PolicyRequirement::KeyTypes { key_types: vec![KeyType::P256] }, &plain, None),
            (
                PolicyRequirement::KeyTypes { key_types: vec![KeyType::Rsa2048, KeyType::P384] },
                &plain,
                Some("the key type is p256, not rsa2048 or p384"),
            ),
            (PolicyRequirement::MaxLifetime { seconds: 90 * DAY }, &living(90), None),
            (
                PolicyRequirement::MaxLifetime { seconds: 90 * DAY },
                &living(91),
                Some("the lifetime is 7862400 s, longer than 7776000 s"),
            ),
            (PolicyRequirement::MaxLifetime { seconds: 1 }, &plain, None),
            (PolicyRequirement::RequiredOwner, &full, None),
            (PolicyRequirement::RequiredOwner, &plain, Some("the certificate has no owner")),
            (PolicyRequirement::RequiredTeam, &full, None),
            (PolicyRequirement::RequiredTeam, &plain, Some("the certificate has no team")),
            (PolicyRequirement::RequiredTags { tags: texts(&["cost"]) }, &full, None),
            (
                PolicyRequirement::RequiredTags { tags: texts(&["cost"]) },
                &plain,
                Some("the certificate lacks the tags cost"),
            ),
            (PolicyRequirement::RequiredEnvironment { environments: vec![] }, &full, None),
            (
                PolicyRequirement::RequiredEnvironment { environments: vec![] },
                &plain,
                Some("the certificate has no environment"),
            ),
            (
                PolicyRequirement::RequiredEnvironment { environments: texts(&["test"]) },
                &full,
                Some("the environment prod is not among test"),
            ),
            (PolicyRequirement::RenewalLead { seconds: 29 * DAY }, &living(90), None),
            (
                PolicyRequirement::RenewalLead { seconds: 31 * DAY },
                &living(90),
                Some("renewal starts 2592000 s before expiry, less than 2678400 s"),
            ),
        ];
        for (demand, of, expected) in table {
            assert_eq!(message(demand.clone(), of).as_deref(), expected, "{demand:?}");
        }
        let by_hand = certificate(|r| r.options.auto_renew = false);
        let set = PolicySet::default();
        let rule = set.renewal_rule(&by_hand, None);
        assert!(violation_text(&PolicyRequirement::RenewalLead { seconds: 1 }, &by_hand, &rule).is_some());
        // The renewal of a lifetime of 30 days starts after a quarter of it, even with a lead of 30 days.
        let rule = RenewalRule { renew_before: Lead::Days(30), ..RenewalRule::default() };
        assert_eq!(
            violation_text(&PolicyRequirement::RenewalLead { seconds: 29 * DAY }, &living(30), &rule)
                .as_deref(),
            Some("renewal starts 1944000 s before expiry, less than 2505600 s")
        );
    }

    #[test]
    fn domain_rules_match_whole_labels() {
        for (name, domain, is) in [
            ("example.org", "example.org", true),
            ("a.b.example.org", "example.org", true),
            ("*.example.org", "example.org", true),
            ("*.a.example.org", "*.example.org", true),
            ("badexample.org", "example.org", false),
            ("org", "example.org", false),
            ("example.org.evil", "example.org", false),
        ] {
            assert_eq!(is_in_domain(name, domain), is, "{name} {domain}");
        }
    }

    #[test]
    fn policies_apply_by_name_or_condition() {
        let rules = vec![Rule { severity: Severity::Error, demand: PolicyRequirement::RequiredOwner }];
        let policy =
            |applies_to: PolicyScope| Policy { rules: rules.clone(), applies_to, ..Policy::default() };
        let set: PolicySet = [
            ("all".to_owned(), policy(PolicyScope { all: true, ..PolicyScope::default() })),
            ("named".to_owned(), policy(PolicyScope::default())),
            (
                "prod".to_owned(),
                policy(PolicyScope { environments: vec!["prod".to_owned()], ..PolicyScope::default() }),
            ),
        ]
        .into_iter()
        .collect();
        let who = |of: &ManagedCertificate| -> Vec<String> {
            set.violations(of, &RenewalRule::default()).into_iter().map(|one| one.policy).collect()
        };
        assert_eq!(who(&certificate(|_| {})), ["all"]);
        assert_eq!(who(&certificate(|r| r.policy = Some("named".to_owned()))), ["all", "named"]);
        assert_eq!(who(&certificate(|r| r.environment = Some("prod".to_owned()))), ["all", "prod"]);
    }

    #[test]
    fn most_specific_renewal_rule_applies() {
        let rule = |days| RenewalRule { renew_before: Lead::Days(days), ..RenewalRule::default() };
        let set: PolicySet = [("slow".to_owned(), Policy { renewal: Some(rule(30)), ..Policy::default() })]
            .into_iter()
            .collect();
        let named = |r: &mut NewCertificate| r.policy = Some("slow".to_owned());
        assert_eq!(set.renewal_rule(&certificate(named), Some(0.5)), rule(30));
        let mut own = certificate(named);
        own.options.renewal = Some(rule(7));
        assert_eq!(set.renewal_rule(&own, None), rule(7));
        let plain = certificate(|_| {});
        assert_eq!(set.renewal_rule(&plain, Some(0.5)).renew_before, Lead::Fraction(0.5));
        own.options.auto_renew = false;
        assert!(!set.renewal_rule(&own, None).auto_renew);
    }

    #[test]
    fn policies_round_trip_through_json() {
        let text = r#"{"enforcement":"enforced","rules":[{"severity":"critical","rule":"allowed_domains",
            "domains":["example.org"]},{"rule":"required_owner"}],"renewal":{"renew_before":{"days":30}}}"#;
        let policy: Policy = serde_json::from_str(text).unwrap();
        assert_eq!(policy.rules.len(), 2);
        assert!(policy.check().is_ok());
        let decoded: Policy = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
        assert_eq!(decoded, policy);
        assert!(serde_json::from_str::<Policy>(r#"{"rulez":[]}"#).is_err());
        let twice =
            Policy { rules: vec![policy.rules[1].clone(), policy.rules[1].clone()], ..Policy::default() };
        assert_eq!(twice.check(), Err(BadPolicy::Twice("required_owner")));
    }
}
