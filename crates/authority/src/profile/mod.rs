//! Certificate profiles: the rules for the certificates that may be issued.

pub mod baseline;
mod cache;
mod error;
mod manage;
mod usage;

use keys::KeyType;
use serde::{Deserialize, Serialize};
use x509::{DAY, DistinguishedName, PublicKey};

use crate::names::NameRules;
use crate::quorum::APPROVALS_MAX;

pub(crate) use cache::Profiles;
pub use error::ProfileError;
pub use manage::{ProfileRecord, StoredProfile, profiles_requiring_approval};
pub use usage::{KeyPurpose, KeyUsageName};

/// Maximum length of a profile name in bytes.
const NAME_MAX: usize = 64;
/// Minimum lifetime in seconds. A shorter one leaves too little time for renewal.
const LIFETIME_MIN_SECONDS: i64 = 60;
/// Maximum lifetime in seconds, for certificates that are never renewed.
const LIFETIME_MAX_SECONDS: i64 = 100 * 366 * DAY;
/// Maximum time in seconds by which the start of validity may precede the current time. Clocks of clients are assumed to be slow by
/// less than this time.
const BACKDATE_MAX_SECONDS: i64 = 30 * DAY;
/// Maximum size of RSA keys in bits. Most clients reject larger ones.
const RSA_BITS_MAX: u32 = 8_192;
/// Minimum size of RSA keys in bits. Smaller keys are insecure.
const RSA_BITS_MIN: u32 = 2_048;

/// A certificate profile. It is stored as JSON and written as TOML or JSON. Unknown fields are rejected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name of the profile: letters, digits, `-`, `_` and `.`; at most 64.
    pub name: String,
    /// Human-readable description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Name of the CA that issues; `None` for the default CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Types of keys for which certificates may be issued.
    #[serde(default = "key_types_default")]
    pub key_types: Vec<KeyType>,
    /// Minimum size in bits of RSA keys. When present, RSA keys of any size from this minimum to 8,192 bits are allowed in addition
    /// to `key_types`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsa_bits_min: Option<u32>,
    /// Default and maximum lifetime of certificates.
    #[serde(default)]
    pub validity: Validity,
    /// Rules that subject alternative names must match.
    pub names: NameRules,
    /// Rules that the requested subject must match.
    #[serde(default)]
    pub subject: SubjectRules,
    /// Key usage extension; `None` to determine it from the key type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_usage: Option<Vec<KeyUsageName>>,
    /// Extended key usage extension; omitted if the list is empty.
    #[serde(default = "extended_key_usage_default")]
    pub extended_key_usage: Vec<KeyPurpose>,
    /// Certificate policies, as dotted OIDs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Presence of the must-staple extension (RFC 7633).
    #[serde(default)]
    pub must_staple: MustStaple,
    /// URLs for revocation status (CRL, OCSP).
    #[serde(default)]
    pub urls: Urls,
    /// Extensions that a CSR may contain, as dotted OIDs. Other extensions are rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested_extensions: Vec<String>,
    /// Predefined set of rules that applies in addition to this profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Whether issuance requires the approval of a second person. The code that receives requests from people enforces this.
    #[serde(default)]
    pub requires_approval: bool,
    /// Number of people who must approve, if approval is required: 1 to 16. The requester and the person who last changed the plan
    /// do not count.
    #[serde(default = "approvals_default")]
    pub approvals: u32,
    /// Share of the lifetime after which a certificate is renewed, between 0 and 1.
    #[serde(default = "renew_at_default")]
    pub renew_at: f64,
}

/// Lifetime of certificates, in seconds. A lifetime is the time from notBefore to notAfter, including both.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validity {
    /// Lifetime if the request contains none.
    pub default_seconds: i64,
    /// Maximum lifetime; `None` for the default lifetime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<i64>,
    /// Seconds by which the start of validity precedes the current time, for clients whose clocks are slow.
    #[serde(default = "backdate_default")]
    pub backdate_seconds: i64,
}

/// Rules for the subject (the distinguished name) of certificates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubjectRules {
    /// Source of the common name.
    #[serde(default)]
    pub common_name: CommonName,
    /// Attributes that every certificate has, such as `O=Example, C=DE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<String>,
    /// Whether all attributes of the requested subject are used. Otherwise only its common name is used.
    #[serde(default)]
    pub requested: bool,
    /// Whether the subject may have an organizational unit `app:…`, by which the credential store identifies applications.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub application_identities: bool,
}

/// Source of the common name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommonName {
    /// No common name.
    None,
    /// The requested common name if it is one of the names, otherwise the first name that is short enough.
    #[default]
    FirstName,
    /// The requested common name if it is one of the names, otherwise none.
    Requested,
    /// The requested common name, without restrictions.
    Any,
}

/// Presence of the must-staple extension.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MustStaple {
    /// Never; a request for the extension is rejected.
    Never,
    /// The extension is present if the CSR contains it.
    #[default]
    OnRequest,
    /// The extension is always present.
    Always,
}

/// The URLs that a certificate contains. Short-lived certificates need none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Urls {
    /// Whether the certificate contains the URL of the CRL (RFC 5280 section 4.2.1.13).
    #[serde(default = "yes")]
    pub crl: bool,
    /// Whether the certificate contains the URL of the OCSP responder (RFC 5280 section 4.2.2.1).
    #[serde(default = "yes")]
    pub ocsp: bool,
    /// Whether the certificate contains the URL of the issuer's certificate (RFC 5280 section 4.2.2.1).
    #[serde(default = "yes")]
    pub issuer: bool,
}

/// A predefined set of rules that a profile can apply in addition to its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// The Baseline Requirements of the CA/Browser Forum for TLS server certificates, in the version in force on the day of issue:
    /// see [`baseline`].
    BaselineTls,
}

fn yes() -> bool {
    true
}

fn key_types_default() -> Vec<KeyType> {
    vec![KeyType::P256, KeyType::P384, KeyType::Ed25519, KeyType::Rsa2048, KeyType::Rsa3072, KeyType::Rsa4096]
}

fn extended_key_usage_default() -> Vec<KeyPurpose> {
    vec![KeyPurpose::server_auth()]
}

fn backdate_default() -> i64 {
    60
}

fn approvals_default() -> u32 {
    1
}

fn renew_at_default() -> f64 {
    2.0 / 3.0
}

impl Default for Validity {
    /// Returns the default of 47 days: the maximum lifetime for publicly trusted CAs from 2029 on.
    fn default() -> Self {
        Self { default_seconds: 47 * DAY, max_seconds: None, backdate_seconds: backdate_default() }
    }
}

impl Default for Urls {
    fn default() -> Self {
        Self { crl: true, ocsp: true, issuer: true }
    }
}

impl Validity {
    /// Returns the maximum lifetime in seconds.
    #[must_use]
    pub fn max_lifetime_seconds(&self) -> i64 {
        self.max_seconds.unwrap_or(self.default_seconds)
    }
}

impl Profile {
    /// Returns a profile for TLS servers with these rules for names and defaults for all other fields.
    #[must_use]
    pub fn for_servers(name: &str, names: NameRules) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            ca: None,
            key_types: key_types_default(),
            rsa_bits_min: None,
            validity: Validity::default(),
            names,
            subject: SubjectRules::default(),
            key_usage: None,
            extended_key_usage: extended_key_usage_default(),
            policies: Vec::new(),
            must_staple: MustStaple::default(),
            urls: Urls::default(),
            requested_extensions: Vec::new(),
            preset: None,
            requires_approval: false,
            approvals: approvals_default(),
            renew_at: renew_at_default(),
        }
    }

    /// Parses a profile from JSON and validates it.
    ///
    /// # Errors
    /// Describes the fault, with the name of the field.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let profile: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        profile.validate().map(|()| profile)
    }

    /// Checks that the profile is valid.
    ///
    /// # Errors
    /// Describes the fault, beginning with the name of the field.
    pub fn validate(&self) -> Result<(), String> {
        self.validate_name()?;
        self.validate_keys()?;
        self.validate_validity()?;
        self.names.validate()?;
        self.validate_subject()?;
        let dotted = self.policies.iter().map(|oid| ("policies", oid));
        let dotted = dotted.chain(self.requested_extensions.iter().map(|oid| ("requested_extensions", oid)));
        for (field, oid) in dotted {
            if !usage::is_dotted(oid) {
                return Err(format!("{field}: {oid:?} is not a dotted object identifier"));
            }
        }
        if let Some(known) = self
            .requested_extensions
            .iter()
            .find(|oid| usage::CA_CONTROLLED_EXTENSIONS.contains(&oid.as_str()))
        {
            return Err(format!("requested_extensions: the CA always sets {known} itself"));
        }
        if let Some(purpose) = self.extended_key_usage.iter().find(|purpose| purpose.is_ca_delegation()) {
            return Err(format!(
                "extended_key_usage: {purpose} is not allowed: the certificate could sign in the CA's place"
            ));
        }
        if !(1..=APPROVALS_MAX).contains(&self.approvals) || self.approvals > 1 && !self.requires_approval {
            return Err(format!(
                "approvals is {}: give 1 to {APPROVALS_MAX}, and more than 1 only with requires_approval = true",
                self.approvals
            ));
        }
        if !(self.renew_at > 0.0 && self.renew_at < 1.0) {
            return Err(format!(
                "renew_at is {}: give a fraction of the lifetime between 0 and 1, such as 0.67",
                self.renew_at
            ));
        }
        Ok(())
    }

    fn validate_name(&self) -> Result<(), String> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let bad = self.name.is_empty() || self.name.len() > NAME_MAX || !self.name.chars().all(is_allowed);
        if bad || self.name.starts_with('.') {
            return Err(format!(
                "name is {:?}: use 1 to {NAME_MAX} letters, digits, '-', '_' and '.'",
                self.name
            ));
        }
        Ok(())
    }

    fn validate_keys(&self) -> Result<(), String> {
        if self.key_types.is_empty() && self.rsa_bits_min.is_none() {
            return Err("key_types is empty: list at least one, such as \"p256\"".to_owned());
        }
        match self.rsa_bits_min {
            Some(bits) if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) => {
                Err(format!("rsa_bits_min is {bits}: give {RSA_BITS_MIN} to {RSA_BITS_MAX}"))
            }
            _ => Ok(()),
        }
    }

    fn validate_validity(&self) -> Result<(), String> {
        let Validity { default_seconds, max_seconds, backdate_seconds } = self.validity;
        for (field, seconds) in [("default_seconds", Some(default_seconds)), ("max_seconds", max_seconds)] {
            let Some(seconds) = seconds else { continue };
            if !(LIFETIME_MIN_SECONDS..=LIFETIME_MAX_SECONDS).contains(&seconds) {
                return Err(format!(
                    "validity.{field} is {seconds}: give {LIFETIME_MIN_SECONDS} to {LIFETIME_MAX_SECONDS} seconds"
                ));
            }
        }
        if max_seconds.is_some_and(|max| max < default_seconds) {
            return Err(format!("validity.max_seconds is less than default_seconds ({default_seconds})"));
        }
        if !(0..=BACKDATE_MAX_SECONDS).contains(&backdate_seconds) || backdate_seconds >= default_seconds {
            return Err(format!(
                "validity.backdate_seconds is {backdate_seconds}: give 0 to {BACKDATE_MAX_SECONDS}, and less than default_seconds"
            ));
        }
        Ok(())
    }

    fn validate_subject(&self) -> Result<(), String> {
        let Some(fixed) = &self.subject.fixed else { return Ok(()) };
        let name = DistinguishedName::from_text(fixed).map_err(|error| format!("subject.fixed: {error}"))?;
        if !name.common_names.is_empty() {
            return Err("subject.fixed: set the common name with common_name".to_owned());
        }
        Ok(())
    }

    /// Returns the reason why a key of this type is not allowed; `None` if it is allowed. It does not check for weak keys: see
    /// [`crate::lint`].
    #[must_use]
    pub fn key_refusal(&self, key: &PublicKey) -> Option<String> {
        let kind = KeyType::of(key);
        if kind.is_some_and(|kind| self.key_types.contains(&kind)) {
            return None;
        }
        let rsa = key.algorithm == x509::KeyAlgorithm::Rsa;
        if rsa && self.rsa_bits_min.is_some_and(|min| (min..=RSA_BITS_MAX).contains(&key.bits)) {
            return None;
        }
        let mut allowed: Vec<String> = self.key_types.iter().map(ToString::to_string).collect();
        allowed.extend(self.rsa_bits_min.map(|bits| format!("RSA from {bits} bits")));
        let found =
            kind.map_or_else(|| format!("{} of {} bits", key.algorithm, key.bits), |kind| kind.to_string());
        Some(format!("this profile does not allow keys of type {found}: use {}", allowed.join(", ")))
    }

    /// Returns whether this profile bypasses the approval of `guarded`: it may issue names without approval that `guarded` issues
    /// only with approval. Returns false if its earlier version `before` already issued the same names from the same CA without
    /// approval. A profile without a CA counts as a profile of every CA.
    #[must_use]
    pub fn bypasses_approval(&self, before: Option<&Self>, guarded: &Self) -> bool {
        let one_ca = self.ca.is_none() || guarded.ca.is_none() || self.ca == guarded.ca;
        let was = before.is_some_and(|before| {
            !before.requires_approval && before.ca == self.ca && before.names == self.names
        });
        !self.requires_approval && one_ca && !was && self.names.may_overlap(&guarded.names)
    }

    /// Returns whether certificates of this profile are for TLS servers.
    #[must_use]
    pub fn is_for_servers(&self) -> bool {
        self.extended_key_usage.is_empty() || self.extended_key_usage.contains(&KeyPurpose::server_auth())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn minimal_profile_gets_defaults_and_round_trips() {
        let text = r#"{"name": "web", "names": {"dns_allowed": [".a.example"]}}"#;
        let profile = Profile::from_json(text).unwrap();
        assert_eq!(profile.validity.default_seconds, 47 * DAY);
        assert!(profile.is_for_servers() && !profile.requires_approval);
        let parsed = Profile::from_json(&serde_json::to_string(&profile).unwrap()).unwrap();
        assert_eq!(parsed, profile);
    }

    #[test]
    fn profile_without_approval_for_the_same_names_is_an_evasion() {
        let profile = |names: serde_json::Value, more: serde_json::Value| {
            let mut whole = json!({ "name": "web", "names": names });
            whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Profile::from_json(&whole.to_string()).unwrap()
        };
        let dns = |rule: &str| json!({ "dns_allowed": [rule] });
        let guarded = profile(dns(".vip.example"), json!({ "requires_approval": true }));
        for rule in [".", ".example", ".a.vip.example", "www.vip.example", "*.vip.example", "vip.example"] {
            assert!(profile(dns(rule), json!({})).bypasses_approval(None, &guarded), "{rule}");
        }
        for names in [dns(".notvip.example"), dns("a.example"), json!({ "ip_allowed": ["10.0.0.0/8"] })] {
            assert!(!profile(names.clone(), json!({})).bypasses_approval(None, &guarded), "{names}");
        }
        let same = profile(dns(".vip.example"), json!({}));
        assert!(!profile(dns("."), json!({ "requires_approval": true })).bypasses_approval(None, &guarded));
        assert!(
            !profile(dns(".vip.example"), json!({ "renew_at": 0.5 }))
                .bypasses_approval(Some(&same), &guarded)
        );
        assert!(same.bypasses_approval(Some(&guarded), &guarded));
        let other = profile(dns(".vip.example"), json!({ "ca": "two" }));
        assert!(
            other.bypasses_approval(None, &guarded),
            "the guarded profile is of the default CA, which may be this one"
        );
        assert!(!other.bypasses_approval(None, &Profile { ca: Some("one".to_owned()), ..guarded }));
    }

    #[test]
    fn invalid_profile_fields_are_named() {
        let table = [
            (json!({"name": ""}), "name is"),
            (json!({"name": "a/b"}), "name is"),
            (json!({"key_types": []}), "key_types is empty"),
            (json!({"key_types": ["rsa1024"]}), "rsa1024"),
            (json!({"rsa_bits_min": 1024}), "rsa_bits_min"),
            (json!({"validity": {"default_seconds": 1}}), "validity.default_seconds"),
            (json!({"validity": {"default_seconds": 3600, "max_seconds": 60}}), "validity.max_seconds"),
            (
                json!({"validity": {"default_seconds": 3600, "backdate_seconds": 3600}}),
                "validity.backdate_seconds",
            ),
            (json!({"validity": {"days": 90}}), "unknown field `days`"),
            (json!({"names": {}}), "names allows no name but requires one: give"),
            (json!({"subject": {"fixed": "CN=a"}}), "subject.fixed"),
            (json!({"subject": {"fixed": "nonsense"}}), "subject.fixed"),
            (json!({"policies": ["1.2.x"]}), "policies"),
            (json!({"requested_extensions": ["2.5.29.17"]}), "the CA always sets 2.5.29.17"),
            (json!({"extended_key_usage": ["serverauth!"]}), "serverauth!"),
            (json!({"extended_key_usage": ["OCSPSigning"]}), "is not allowed: the certificate could sign"),
            (json!({"key_usage": ["keyCertSign"]}), "keyCertSign"),
            (json!({"renew_at": 1.0}), "renew_at"),
            (json!({"requires_approval": true, "approvals": 0}), "approvals is 0"),
            (json!({"requires_approval": true, "approvals": 17}), "approvals is 17"),
            (json!({"approvals": 2}), "only with requires_approval"),
            (json!({"preset": "br"}), "baseline-tls"),
            (json!({"color": 1}), "unknown field `color`"),
        ];
        for (change, part) in table {
            let mut whole = json!({"name": "web", "names": {"dns_allowed": [".a.example"]}});
            for (key, value) in change.as_object().unwrap() {
                whole[key] = value.clone();
            }
            let error = Profile::from_json(&whole.to_string()).unwrap_err();
            assert!(error.contains(part), "{change}: {error}");
        }
    }
}
