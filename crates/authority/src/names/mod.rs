//! The names that a profile allows.
//!
//! A name is allowed if an allow rule of its kind matches and no deny rule matches. Without an allow rule, names of a kind are
//! denied.

pub(crate) mod constraints;
mod dns;
mod mailbox;
mod uri;

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use x509::GeneralName;

pub(crate) use dns::check_delegable;
pub use dns::{DnsRule, SuffixRule};
pub use mailbox::EmailRule;
pub use uri::UriRule;

/// Default for the maximum number of names in one certificate; the same as at Let's Encrypt.
pub const NAMES_MAX_DEFAULT: u32 = 100;

/// Largest value that a profile may set as the maximum number of names in one certificate. Its DER then stays below the 64 KiB that
/// parsers accept.
pub const NAMES_MAX: u32 = 1_000;

/// Maximum number of rules of one kind. For every name, the rules are checked one after the other.
pub const RULES_MAX: usize = 1_000;

/// The names that a profile allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameRules {
    /// Rules for allowed DNS names. Without a rule, no DNS name is allowed.
    #[serde(default)]
    pub dns_allowed: Vec<DnsRule>,
    /// Denied DNS names. They take precedence over `dns_allowed`. A wildcard that covers a denied name is denied too.
    #[serde(default)]
    pub dns_denied: Vec<DnsRule>,
    /// Allowed IP addresses, as prefixes (`10.0.0.0/8`, `2001:db8::/32`).
    #[serde(default)]
    pub ip_allowed: Vec<IpNet>,
    /// Denied IP addresses, as prefixes. They take precedence over `ip_allowed`.
    #[serde(default)]
    pub ip_denied: Vec<IpNet>,
    /// Allowed URIs, by prefix (`spiffe://trust.example`, `https://a.example/devices`).
    #[serde(default)]
    pub uri_allowed: Vec<UriRule>,
    /// Allowed email addresses: one (`ops@a.example`), all of a host (`a.example`) or all of its subdomains (`.a.example`).
    #[serde(default)]
    pub email_allowed: Vec<EmailRule>,
    /// Whether a certificate must have at least one name.
    #[serde(default = "yes")]
    pub required: bool,
    /// Maximum number of names in one certificate, 1 to [`NAMES_MAX`].
    #[serde(default = "names_max_default")]
    pub max: u32,
}

fn yes() -> bool {
    true
}

fn names_max_default() -> u32 {
    NAMES_MAX_DEFAULT
}

impl Default for NameRules {
    fn default() -> Self {
        Self {
            dns_allowed: Vec::new(),
            dns_denied: Vec::new(),
            ip_allowed: Vec::new(),
            ip_denied: Vec::new(),
            uri_allowed: Vec::new(),
            email_allowed: Vec::new(),
            required: true,
            max: NAMES_MAX_DEFAULT,
        }
    }
}

/// A name that is not allowed, with the reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NameRefusal {
    /// The name; `None` if the reason does not apply to a single name.
    pub name: Option<GeneralName>,
    /// Human-readable reason.
    pub reason: String,
}

impl std::fmt::Display for NameRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// Returns whether one DNS name is equal to the other or a subdomain of it. All names are below the root.
fn is_dns_related(one: &str, other: &str) -> bool {
    let below = |name: &str, parent: &str| {
        parent.is_empty()
            || name == parent
            || name.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    below(one, other) || below(other, one)
}

impl NameRules {
    /// Returns whether both rule sets may allow the same name. The result can be a false positive, because denied names and depths
    /// are not evaluated.
    #[must_use]
    pub fn may_overlap(&self, other: &Self) -> bool {
        let pairs = |one: &DnsRule, other: &DnsRule| is_dns_related(one.base(), other.base());
        let dns = self.dns_allowed.iter().any(|one| other.dns_allowed.iter().any(|two| pairs(one, two)));
        let nets = |one: &IpNet, two: &IpNet| one.contains(&two.network()) || two.contains(&one.network());
        let ip = self.ip_allowed.iter().any(|one| other.ip_allowed.iter().any(|two| nets(one, two)));
        let uri = !self.uri_allowed.is_empty() && !other.uri_allowed.is_empty();
        let email = !self.email_allowed.is_empty() && !other.email_allowed.is_empty();
        let none = !self.required && !other.required;
        dns || ip || uri || email || none
    }

    /// Checks that the rules are valid.
    ///
    /// # Errors
    /// Describes the fault, beginning with the name of the field.
    pub fn validate(&self) -> Result<(), String> {
        if !(1..=NAMES_MAX).contains(&self.max) {
            return Err(format!("names.max is {}: give 1 to {NAMES_MAX}", self.max));
        }
        let counts = [
            ("dns_allowed", self.dns_allowed.len()),
            ("dns_denied", self.dns_denied.len()),
            ("ip_allowed", self.ip_allowed.len()),
            ("ip_denied", self.ip_denied.len()),
            ("uri_allowed", self.uri_allowed.len()),
            ("email_allowed", self.email_allowed.len()),
        ];
        for (field, count) in counts {
            if count > RULES_MAX {
                return Err(format!("names.{field} has {count} rules; at most {RULES_MAX} are allowed"));
            }
        }
        let allows_nothing = self.dns_allowed.is_empty()
            && self.ip_allowed.is_empty()
            && self.uri_allowed.is_empty()
            && self.email_allowed.is_empty();
        if self.required && allows_nothing {
            return Err("names allows no name but requires one: give dns_allowed, ip_allowed, uri_allowed or email_allowed, \
             or set required = false"
                .to_owned());
        }
        Ok(())
    }

    /// Returns whether clients may request any DNS name. Such names cannot authenticate a client, because any client can choose
    /// them.
    #[must_use]
    pub fn allows_any_host(&self) -> bool {
        self.dns_allowed.iter().any(DnsRule::is_for_any_host)
    }

    /// Returns every name that is not allowed.
    #[must_use]
    pub fn refusals(&self, names: &[GeneralName]) -> Vec<NameRefusal> {
        let all = |reason| vec![NameRefusal { name: None, reason }];
        if names.is_empty() && self.required {
            return all("at least one name is required".to_owned());
        }
        if names.len() > self.max as usize {
            return all(format!(
                "{} names requested; this profile allows at most {} in one certificate",
                names.len(),
                self.max
            ));
        }
        let refuse = |name: &GeneralName| {
            self.refusal(name).map(|reason| NameRefusal { name: Some(name.clone()), reason })
        };
        names.iter().filter_map(refuse).collect()
    }

    /// Returns the reason why this name is not allowed; `None` if it is allowed.
    #[must_use]
    pub fn refusal(&self, name: &GeneralName) -> Option<String> {
        match name {
            GeneralName::Dns(text) => self.dns_refusal(text),
            GeneralName::Ip(address) => self.ip_refusal(*address),
            GeneralName::Uri(text) => uri::refusal(&self.uri_allowed, text),
            GeneralName::Email(text) => mailbox::refusal(&self.email_allowed, text),
            _ => Some("this type of name is not supported".to_owned()),
        }
    }

    fn dns_refusal(&self, name: &str) -> Option<String> {
        if let Err(reason) = dns::check_hostname(name) {
            return Some(reason);
        }
        if let Some(rule) = self.dns_denied.iter().find(|rule| rule.denies(name)) {
            return Some(format!("denied by the rule {rule}"));
        }
        if self.dns_allowed.iter().any(|rule| rule.allows(name)) {
            return None;
        }
        if self.dns_allowed.is_empty() {
            return Some("this profile does not allow DNS names".to_owned());
        }
        let concrete = name.strip_prefix("*.").map(|parent| format!("x.{parent}"));
        if concrete.is_some_and(|host| self.dns_allowed.iter().any(|rule| rule.allows(&host))) {
            return Some("this profile does not allow a wildcard here".to_owned());
        }
        Some("outside the names this profile allows".to_owned())
    }

    fn ip_refusal(&self, address: IpAddr) -> Option<String> {
        // Otherwise an IPv4-mapped IPv6 address could bypass the rules for IPv4.
        let address = address.to_canonical();
        if let Some(rule) = self.ip_denied.iter().find(|rule| rule.contains(&address)) {
            return Some(format!("denied by the rule {rule}"));
        }
        if self.ip_allowed.iter().any(|rule| rule.contains(&address)) {
            return None;
        }
        Some(if self.ip_allowed.is_empty() {
            "this profile does not allow IP addresses".to_owned()
        } else {
            "outside the IP addresses this profile allows".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(toml_like: serde_json::Value) -> NameRules {
        serde_json::from_value(toml_like).unwrap()
    }

    #[test]
    fn name_rules_apply_by_name_type() {
        let rules = rules(serde_json::json!({
            "dns_allowed": ["www.a.example", ".b.example", {"suffix": "c.example", "wildcards": true}],
            "dns_denied": ["secret.c.example", {"suffix": "hr.c.example"}],
            "ip_allowed": ["10.0.0.0/8", "2001:db8::/32"],
            "ip_denied": ["10.9.0.0/16"],
            "uri_allowed": ["spiffe://td.example/ns"],
            "email_allowed": ["a.example", "ops@b.example"],
        }));
        let dns = |text: &str| GeneralName::Dns(text.to_owned());
        let table = [
            (dns("www.a.example"), true),
            (dns("x.www.a.example"), false),
            (dns("b.example"), false),
            (dns("x.b.example"), true),
            (dns("x.y.b.example"), true),
            (dns("*.b.example"), false),
            (dns("c.example"), true),
            (dns("x.c.example"), true),
            (dns("secret.c.example"), false),
            (dns("x.secret.c.example"), true),
            (dns("hr.c.example"), false),
            (dns("x.hr.c.example"), false),
            // The wildcard would also cover `secret.c.example` and `hr.c.example`.
            (dns("*.c.example"), false),
            (dns("*.x.c.example"), true),
            (dns("evilc.example"), false),
            (dns("c.example.evil"), false),
            (dns("C.example"), false),
            (dns("x..c.example"), false),
            (dns("10.0.0.1"), false),
            (GeneralName::Ip("10.0.0.1".parse().unwrap()), true),
            (GeneralName::Ip("::ffff:10.0.0.1".parse().unwrap()), true),
            (GeneralName::Ip("10.9.0.1".parse().unwrap()), false),
            (GeneralName::Ip("::ffff:10.9.0.1".parse().unwrap()), false),
            (GeneralName::Ip("11.0.0.1".parse().unwrap()), false),
            (GeneralName::Ip("2001:db8::1".parse().unwrap()), true),
            (GeneralName::Uri("spiffe://td.example/ns/a".to_owned()), true),
            (GeneralName::Uri("spiffe://td.example/nsx".to_owned()), false),
            (GeneralName::Email("x@a.example".to_owned()), true),
            (GeneralName::Email("x@b.example".to_owned()), false),
            (GeneralName::Email("ops@b.example".to_owned()), true),
            (GeneralName::BadIp("00".to_owned()), false),
        ];
        for (name, allowed) in table {
            assert_eq!(rules.refusal(&name).is_none(), allowed, "{name:?}: {:?}", rules.refusal(&name));
        }
    }

    #[test]
    fn name_type_without_a_rule_is_rejected_and_counts_are_limited() {
        let rules = rules(serde_json::json!({"dns_allowed": ["."], "max": 2}));
        assert!(rules.refusal(&GeneralName::Ip("10.0.0.1".parse().unwrap())).is_some());
        assert!(rules.refusal(&GeneralName::Uri("spiffe://a/b".to_owned())).is_some());
        assert!(rules.refusal(&GeneralName::Email("a@b.example".to_owned())).is_some());
        assert!(rules.refusal(&GeneralName::Dns("anything.example".to_owned())).is_none());
        assert_eq!(rules.refusals(&[]).len(), 1);
        let three = ["a", "b", "c"].map(|name| GeneralName::Dns(name.to_owned()));
        assert_eq!(rules.refusals(&three).len(), 1);
    }

    #[test]
    fn profile_that_allows_any_host_is_detected() {
        for (rule, any) in [
            (serde_json::json!("."), true),
            (serde_json::json!({"suffix": "", "depth_max": 3}), true),
            (serde_json::json!({"suffix": ".", "depth_max": 0, "wildcards": true}), true),
            (serde_json::json!(".example"), false),
            (serde_json::json!("a.example"), false),
        ] {
            let rules = rules(serde_json::json!({"dns_allowed": ["b.example", rule]}));
            assert_eq!(rules.allows_any_host(), any, "{rule}");
        }
    }

    #[test]
    fn invalid_name_rules_are_rejected() {
        for (bad, part) in [
            (serde_json::json!({}), "names allows no name but requires one: give"),
            (serde_json::json!({"dns_allowed": ["a"], "max": 0}), "names.max"),
            (serde_json::json!({"dns_allowed": ["a"], "max": 1001}), "names.max"),
        ] {
            let error = rules(bad).validate().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let unknown = serde_json::from_value::<NameRules>(serde_json::json!({"dns": ["a"]})).unwrap_err();
        assert!(unknown.to_string().contains("unknown field `dns`"), "{unknown}");
    }
}
