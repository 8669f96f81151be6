//! Rules for DNS names.

use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use x509::{HostName, SuffixKind};

/// Depth of a rule without a limit: more than the number of labels in any name (RFC 1035: 255 bytes, at least two for each
/// label).
const DEPTH_ANY: u8 = 127;

/// A rule for DNS names, written as text or as a table:
///
/// - `"www.a.example"`: that name. `"*.a.example"`: that wildcard.
/// - `".a.example"`: every name below, no wildcard. `"."`: every name.
/// - `{ suffix = "a.example", … }`: see [`SuffixRule`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DnsRule {
    /// One name, which may be a wildcard.
    Exact(String),
    /// A suffix and the names below it.
    Suffix(SuffixRule),
}

/// A rule for a DNS suffix and the names below it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuffixRule {
    /// The suffix, without a leading dot; empty or `.` for the DNS root.
    pub suffix: String,
    /// Whether the rule matches the suffix itself.
    #[serde(default = "yes")]
    pub itself: bool,
    /// Maximum number of labels before the suffix: 0 for none, 1 for direct subdomains, …; unlimited when absent.
    #[serde(default = "depth_any")]
    pub depth_max: u8,
    /// Whether the rule matches wildcard names.
    #[serde(default)]
    pub wildcards: bool,
    /// Minimum number of labels before the suffix in a wildcard name, including the `*`: 1 is `*.suffix`.
    #[serde(default = "one")]
    pub wildcard_depth_min: u8,
    /// Maximum number of labels before the suffix in a wildcard name, including the `*`; unlimited when absent.
    #[serde(default = "depth_any")]
    pub wildcard_depth_max: u8,
}

fn yes() -> bool {
    true
}

fn one() -> u8 {
    1
}

fn depth_any() -> u8 {
    DEPTH_ANY
}

impl DnsRule {
    /// Returns whether the suffix of the rule is the DNS root, so that the rule is not limited to one domain.
    pub(super) fn is_for_any_host(&self) -> bool {
        matches!(self, Self::Suffix(rule) if rule.suffix.is_empty() || rule.suffix == ".")
    }

    /// Returns the common suffix of all names that the rule matches; empty for the DNS root.
    pub(super) fn base(&self) -> &str {
        match self {
            Self::Exact(exact) => exact.strip_prefix("*.").unwrap_or(exact),
            Self::Suffix(rule) => rule.suffix.trim_start_matches('.'),
        }
    }

    /// Returns whether the rule matches `name` (lower case, may be a wildcard).
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Suffix(rule) => rule.allows(name),
        }
    }

    /// Returns whether a certificate for `name` would be valid for a name that the rule matches.
    #[must_use]
    pub fn denies(&self, name: &str) -> bool {
        let Some(parent) = name.strip_prefix("*.") else {
            return match self {
                Self::Exact(exact) => exact == name || covers(exact, name),
                Self::Suffix(rule) => rule.matches_host(name),
            };
        };
        match self {
            Self::Exact(exact) => exact == name || is_child_of(exact, parent),
            Self::Suffix(rule) => rule.matches_child_of(parent),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix('.') {
            Some(suffix) => {
                let rule = SuffixRule { wildcards: false, ..SuffixRule::wide(suffix.to_owned(), false) };
                rule.checked().map(Self::Suffix)
            }
            None => Ok(Self::Exact(match text.strip_prefix("*.") {
                Some(parent) => format!("*.{}", host(parent)?),
                None => host(text)?,
            })),
        }
    }

    /// Returns the text form of the rule; `None` if only the table form can express the rule.
    fn text(&self) -> Option<String> {
        match self {
            Self::Exact(name) => Some(name.clone()),
            Self::Suffix(rule) => (!rule.itself && rule.depth_max == DEPTH_ANY && !rule.wildcards)
                .then(|| format!(".{}", rule.suffix)),
        }
    }
}

impl SuffixRule {
    /// Returns a rule for all names below the suffix, including wildcards, and for the suffix itself if `itself` is true.
    pub(super) fn wide(suffix: String, itself: bool) -> Self {
        Self {
            suffix,
            itself,
            depth_max: DEPTH_ANY,
            wildcards: true,
            wildcard_depth_min: 1,
            wildcard_depth_max: DEPTH_ANY,
        }
    }

    fn checked(mut self) -> Result<Self, String> {
        if self.suffix == "." {
            self.suffix.clear();
        }
        if self.suffix.starts_with("*.") {
            return Err(format!("suffix {:?}: leave out the star and set wildcards = true", self.suffix));
        }
        if !self.suffix.is_empty() {
            self.suffix = host(&self.suffix)?;
        }
        if self.wildcards
            && (self.wildcard_depth_min == 0 || self.wildcard_depth_max < self.wildcard_depth_min)
        {
            return Err(format!(
                "suffix {:?}: wildcard_depth_min is {} and wildcard_depth_max is {}: the minimum must be at least 1 and \
                 not above the maximum",
                self.suffix, self.wildcard_depth_min, self.wildcard_depth_max
            ));
        }
        if !self.itself && self.depth_max == 0 && !self.wildcards {
            return Err(format!("suffix {:?}: this rule matches no name", self.suffix));
        }
        Ok(self)
    }

    fn allows(&self, name: &str) -> bool {
        if !name.starts_with("*.") {
            return self.matches_host(name);
        }
        let depths = self.wildcard_depth_min..=self.wildcard_depth_max;
        self.wildcards && depth_below(name, &self.suffix).is_some_and(|depth| depths.contains(&depth))
    }

    fn matches_host(&self, name: &str) -> bool {
        match depth_below(name, &self.suffix) {
            Some(0) => self.itself,
            Some(depth) => depth <= self.depth_max,
            None => false,
        }
    }

    /// Returns whether the rule matches a direct subdomain of `parent`.
    fn matches_child_of(&self, parent: &str) -> bool {
        let below = depth_below(parent, &self.suffix).is_some_and(|depth| depth < self.depth_max);
        below || (self.itself && is_child_of(&self.suffix, parent))
    }
}

/// Returns whether `name` is `parent` with exactly one additional label.
fn is_child_of(name: &str, parent: &str) -> bool {
    name.split_once('.').is_some_and(|(_, rest)| rest == parent)
}

/// Returns whether the wildcard `pattern` matches the host `name`.
fn covers(pattern: &str, name: &str) -> bool {
    pattern.strip_prefix("*.").is_some_and(|parent| is_child_of(name, parent))
}

/// Returns the number of labels of `name` before `suffix`; `None` if it is not a subdomain. Every name is below the root.
fn depth_below(name: &str, suffix: &str) -> Option<u8> {
    let labels =
        |text: &str| u8::try_from(text.bytes().filter(|b| *b == b'.').count() + 1).unwrap_or(DEPTH_ANY);
    if suffix.is_empty() {
        return Some(labels(name));
    }
    let head = name.strip_suffix(suffix)?;
    if head.is_empty() { Some(0) } else { head.strip_suffix('.').map(labels) }
}

/// Normalizes a hostname for comparison: A-labels, lower case, no trailing dot.
fn host(text: &str) -> Result<String, String> {
    let ascii = idna::domain_to_ascii(text).map_err(|_| format!("{text:?} is not a DNS name"))?;
    HostName::parse(&ascii).map(|name| name.as_str().to_owned()).map_err(|error| format!("{text:?}: {error}"))
}

/// Checks that `name` is a hostname in lower case, or a wildcard whose `*` is the whole first label (RFC 9525 section 6.3).
pub(super) fn check_hostname(name: &str) -> Result<(), String> {
    let host = name.strip_prefix("*.").unwrap_or(name);
    let parsed = HostName::parse(host).map_err(|error| error.to_string())?;
    if parsed.as_str() != host {
        return Err("write it in lower case and without a trailing dot".to_owned());
    }
    if name.starts_with("*.") && !host.contains('.') {
        return Err("a wildcard for a whole top-level domain is not accepted by clients".to_owned());
    }
    Ok(())
}

/// Checks that the public DNS can delegate `host` (lower case).
///
/// The rules are: letters, digits and inner hyphens (RFC 1123 section 2.1); valid A-labels (RFC 5891 section 5.4); no other
/// reserved labels (RFC 5890 section 2.3.1); a last label with a letter; and no public suffix. Names with an unknown top-level
/// domain (`db.internal`) pass: the rules of the profile decide about them.
///
/// # Errors
/// Describes the fault.
pub(crate) fn check_delegable(host: &str) -> Result<(), String> {
    host.split('.').try_for_each(check_label)?;
    let last = host.rsplit('.').next().unwrap_or(host);
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("the last label is a number".to_owned());
    }
    match x509::public_suffix(host) {
        Some(suffix) if suffix.text == host && suffix.kind == SuffixKind::Icann => {
            Err("this is a public suffix, the domain of a registry".to_owned())
        }
        _ => Ok(()),
    }
}

fn check_label(label: &str) -> Result<(), String> {
    if let Some(bad) = label.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
        return Err(format!("the label {label:?} has {bad:?}: use only letters, digits and hyphens"));
    }
    if label.is_empty() || label.starts_with('-') || label.ends_with('-') {
        return Err(format!("the label {label:?} is empty, or starts or ends with a hyphen"));
    }
    if label.get(2..4) != Some("--") {
        return Ok(());
    }
    let (unicode, decoded) = idna::domain_to_unicode(label);
    let reencoded = idna::domain_to_ascii_strict(&unicode);
    let good = label.starts_with("xn--") && decoded.is_ok() && !unicode.is_ascii();
    if good && reencoded.is_ok_and(|reencoded| reencoded == label) {
        return Ok(());
    }
    Err(format!("the label {label:?} is not a valid A-label of an internationalized name"))
}

impl fmt::Display for DnsRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.text(), self) {
            (Some(text), _) => f.write_str(&text),
            (None, Self::Suffix(rule)) => write!(f, "suffix {}", rule.suffix),
            (None, Self::Exact(name)) => f.write_str(name),
        }
    }
}

impl Serialize for DnsRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.text(), self) {
            (Some(text), _) => serializer.serialize_str(&text),
            (None, Self::Suffix(rule)) => rule.serialize(serializer),
            (None, Self::Exact(name)) => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for DnsRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = DnsRule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a DNS name, a dot and a suffix, or a table with a suffix")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<DnsRule, E> {
                DnsRule::parse(text).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DnsRule, A::Error> {
                let rule = SuffixRule::deserialize(de::value::MapAccessDeserializer::new(map))?;
                rule.checked().map(DnsRule::Suffix).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(TextOrTable)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(value: serde_json::Value) -> DnsRule {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn dns_rules_limit_depth_and_wildcards() {
        let table = [
            (serde_json::json!({"suffix": "a.example", "depth_max": 1}), "x.a.example", true),
            (serde_json::json!({"suffix": "a.example", "depth_max": 1}), "y.x.a.example", false),
            (serde_json::json!({"suffix": "a.example", "depth_max": 0}), "a.example", true),
            (serde_json::json!({"suffix": "a.example", "depth_max": 0}), "x.a.example", false),
            (serde_json::json!({"suffix": "a.example", "itself": false}), "a.example", false),
            (serde_json::json!({"suffix": "a.example"}), "*.a.example", false),
            (serde_json::json!({"suffix": "a.example", "wildcards": true}), "*.a.example", true),
            (serde_json::json!({"suffix": "a.example", "wildcards": true}), "*.x.y.a.example", true),
            (
                serde_json::json!({"suffix": "a.example", "wildcards": true, "wildcard_depth_min": 2}),
                "*.a.example",
                false,
            ),
            (
                serde_json::json!({"suffix": "a.example", "wildcards": true, "wildcard_depth_max": 1}),
                "*.x.a.example",
                false,
            ),
            (serde_json::json!("*.a.example"), "*.a.example", true),
            (serde_json::json!("*.a.example"), "x.a.example", false),
            (serde_json::json!("BÜCHER.example"), "xn--bcher-kva.example", true),
            (serde_json::json!("."), "localhost", true),
            (serde_json::json!("."), "*.a.example", false),
            (
                serde_json::json!({"suffix": ".", "wildcards": true, "wildcard_depth_min": 3}),
                "*.a.example",
                true,
            ),
            (
                serde_json::json!({"suffix": ".", "wildcards": true, "wildcard_depth_min": 3}),
                "*.example",
                false,
            ),
        ];
        for (value, name, allowed) in table {
            assert_eq!(rule(value.clone()).allows(name), allowed, "{value} {name}");
        }
    }

    #[test]
    fn undelegable_dns_names_are_rejected() {
        for good in [
            "a.test",
            "a-b.test",
            "3com.com",
            "xn--bcher-kva.example",
            "intranet",
            "db.internal",
            "a.github.io",
        ] {
            assert_eq!(check_delegable(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("-a.test", "hyphen"),
            ("a-.test", "hyphen"),
            ("a_b.test", "letters, digits"),
            ("_acme-challenge.a.test", "letters, digits"),
            ("xn--a.test", "A-label"),
            ("xn--.test", "hyphen"),
            ("xn--a-.test", "hyphen"),
            ("xn--abc-.test", "hyphen"),
            ("xn--bcher-KVA.example", "A-label"),
            ("ab--c.test", "A-label"),
            ("a..test", "empty"),
            ("10.0.0.256", "number"),
            ("com", "public suffix"),
            ("co.uk", "public suffix"),
        ] {
            let refused = check_delegable(bad).unwrap_err();
            assert!(refused.contains(why), "{bad}: {refused}");
        }
    }

    #[test]
    fn wildcard_is_denied_if_it_covers_a_denied_name() {
        let table = [
            (serde_json::json!("secret.a.example"), "*.a.example", true),
            (serde_json::json!("secret.a.example"), "*.example", false),
            (serde_json::json!("secret.a.example"), "*.b.example", false),
            (serde_json::json!("*.a.example"), "x.a.example", true),
            (serde_json::json!("*.a.example"), "*.a.example", true),
            (serde_json::json!("*.a.example"), "a.example", false),
            (serde_json::json!({"suffix": "hr.a.example"}), "*.a.example", true),
            (serde_json::json!({"suffix": "hr.a.example"}), "*.hr.a.example", true),
            (serde_json::json!({"suffix": "hr.a.example", "itself": false}), "*.a.example", false),
            (serde_json::json!({"suffix": "hr.a.example", "depth_max": 0}), "*.hr.a.example", false),
            (serde_json::json!("."), "*.a.example", true),
        ];
        for (value, name, denied) in table {
            assert_eq!(rule(value.clone()).denies(name), denied, "{value} {name}");
        }
    }

    #[test]
    fn invalid_dns_rules_are_rejected_with_a_reason() {
        for (bad, part) in [
            (serde_json::json!("a..b"), "a..b"),
            (serde_json::json!("10.0.0.1"), "address"),
            (serde_json::json!("a.*.b"), "a.*.b"),
            (serde_json::json!(""), ""),
            (serde_json::json!({"suffix": "*.a"}), "leave out the star"),
            (
                serde_json::json!({"suffix": "a", "itself": false, "depth_max": 0}),
                ": this rule matches no name",
            ),
            (serde_json::json!({"suffix": "a", "wildcards": true, "wildcard_depth_min": 0}), "at least 1"),
            (serde_json::json!({"suffix": "a", "wildcard": true}), "unknown field"),
            (serde_json::json!(7), "a DNS name"),
        ] {
            let error = serde_json::from_value::<DnsRule>(bad.clone()).unwrap_err().to_string();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }

    fn any_rule() -> impl Strategy<Value = DnsRule> {
        let name = "[ab](\\.[ab]){0,3}";
        prop_oneof![
            name.prop_map(|name| DnsRule::parse(&name).unwrap()),
            name.prop_map(|name| DnsRule::parse(&format!("*.{name}")).unwrap()),
            (name, any::<bool>(), 0..4_u8, any::<bool>(), 1..4_u8, 1..4_u8)
                .prop_map(|(suffix, itself, depth_max, wildcards, from, more)| SuffixRule {
                    suffix,
                    itself,
                    depth_max,
                    wildcards,
                    wildcard_depth_min: from,
                    wildcard_depth_max: from + more,
                })
                .prop_filter_map("means nothing", |rule| rule.checked().ok().map(DnsRule::Suffix)),
        ]
    }

    proptest! {
        #[test]
        fn dns_rules_round_trip_through_json(rule in any_rule()) {
            let text = serde_json::to_string(&rule).unwrap();
            prop_assert_eq!(serde_json::from_str::<DnsRule>(&text).unwrap(), rule);
        }

        // A wildcard is denied exactly if one of its hosts is denied.
        #[test]
        fn wildcard_is_denied_exactly_if_a_covered_host_is_denied(rule in any_rule(), parent in "[ab](\\.[ab]){0,3}") {
            let star = format!("*.{parent}");
            let hosts = ["a", "b", "c"].map(|label| format!("{label}.{parent}"));
            let some_host = hosts.iter().any(|host| rule.denies(host));
            let itself = matches!(&rule, DnsRule::Exact(name) if *name == star);
            prop_assert_eq!(rule.denies(&star), some_host || itself);
        }

        #[test]
        fn every_name_a_rule_allows_it_also_denies(rule in any_rule(), name in "(\\*\\.)?[ab](\\.[ab]){0,4}") {
            if rule.allows(&name) && !name.starts_with("*.") {
                prop_assert!(rule.denies(&name));
            }
        }
    }
}
