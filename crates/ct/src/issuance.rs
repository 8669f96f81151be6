//! Issued certificates. An issuance is stored once, regardless of how often it was logged, and is judged as expected or unexpected.
//!
//! A precertificate and its certificate are one issuance, regardless of the number of logs and search services that report it. The
//! verdict is a pure function ([`judge`]); the caller looks up the known certificates.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use x509::{Certificate, SerialNumber, UnixTime};

use super::domains::{DomainSet, registered_domain};
use super::entry::LoggedCertificate;
use super::merkle::{Hash, sha256};
use super::names::{Name, Reading, names};

/// Maximum stored names of one issuance. CAs allow 100 to 2,000; an issuance with more counts as unreadable.
pub const NAMES_MAX: usize = 2_048;

/// Identity of an issuance: equal for all log entries about it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct IssuanceId {
    /// SHA-256 over issuer and serial number, which are unique according to RFC 5280 section 4.1.2.2. For an unreadable
    /// certificate: SHA-256 of the whole certificate.
    pub issuer_serial: Hash,
    /// SHA-256 of the tbsCertificate without poison and SCT extensions (RFC 6962 section 3.2), if known. Some search services do
    /// not return it.
    pub tbs: Option<Hash>,
}

impl IssuanceId {
    /// Creates the identity from an issuer name as text (attributes in any order) and a serial number.
    #[must_use]
    pub fn new(issuer: &str, serial: &SerialNumber, tbs: Option<Hash>) -> Self {
        let mut bytes = issuer_key(issuer).into_bytes();
        bytes.push(0);
        bytes.extend(serial.to_string().bytes());
        Self { issuer_serial: sha256(&bytes), tbs }
    }

    /// Returns whether both are the same issuance. Compares the `tbs` hashes if both are known, because a CA may reuse a serial
    /// number; otherwise the hashes of issuer and serial number.
    #[must_use]
    pub fn is_same_issuance(&self, other: &Self) -> bool {
        match (self.tbs, other.tbs) {
            (Some(own), Some(other)) => own == other,
            _ => self.issuer_serial == other.issuer_serial,
        }
    }
}

/// Returns an issuer name in a canonical form: the attributes, sorted. `CN=R3, O=X, C=US` (RFC 4514) and `C=US, O=X, CN=R3`
/// (OpenSSL) have the same key. If two sources format the same name so differently that the keys differ, the issuance is stored
/// twice. No issuance is hidden.
fn issuer_key(text: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut part = String::new();
    let (mut escaped, mut quoted) = (false, false);
    for c in text.chars() {
        match c {
            _ if escaped => {
                part.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ',' | '+' if !quoted => parts.push(std::mem::take(&mut part)),
            _ => part.push(c),
        }
    }
    parts.push(part);
    // crt.sh does not escape commas in values: a part without an attribute type belongs to the part before it.
    let mut attributes: Vec<String> = Vec::new();
    for part in parts {
        let part = part.trim();
        match attributes.last_mut() {
            Some(last) if !is_attribute_start(part) => {
                last.push(',');
                last.push_str(part);
            }
            _ => attributes.push(part.to_owned()),
        }
    }
    let mut folded: Vec<String> = attributes
        .iter()
        .map(|one| one.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase())
        .collect();
    folded.sort_unstable();
    folded.join("\n")
}

/// Returns the organization in an [`issuer_key`], or the whole key if the name has no organization. Issuers are compared by
/// organization, because CAs change their intermediate certificates.
fn issuer_organization(issuer_key: &str) -> &str {
    issuer_key.lines().find(|attribute| attribute.starts_with("o=")).unwrap_or(issuer_key)
}

fn is_attribute_start(part: &str) -> bool {
    part.split_once('=').is_some_and(|(kind, _)| {
        !kind.is_empty() && kind.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
    })
}

/// An issued certificate as reported by a log or a search service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Issuance {
    /// Identifies precertificate and certificate as one issuance.
    pub id: IssuanceId,
    /// Issuer name for display, as the source formats it.
    pub issuer: String,
    /// Serial number; `None` if it cannot be parsed.
    pub serial: Option<SerialNumber>,
    /// dNSNames, common names that look like host names, and IP addresses; case-folded, sorted, at most [`NAMES_MAX`].
    pub names: Vec<String>,
    /// First second of validity.
    pub not_before: UnixTime,
    /// Last second of validity.
    pub not_after: UnixTime,
    /// SHA-256 of the SubjectPublicKeyInfo, if known.
    pub spki_sha256: Option<Hash>,
    /// SHA-256 of the certificate or precertificate, if known.
    pub certificate_sha256: Option<Hash>,
    /// Whether a precertificate was seen. The final certificate may also have been logged.
    pub precertificate: bool,
    /// Whether the certificate parses. An unreadable certificate is reported with the names found in it.
    pub readable: bool,
    /// The certificate or precertificate, DER, if the source returns it.
    pub der: Option<Vec<u8>>,
}

impl Issuance {
    /// Creates an issuance from a certificate or precertificate. Never fails: an unreadable certificate is represented by its hash
    /// and the names found in it.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Self {
        match Certificate::parse(der) {
            Ok(certificate) => {
                let tbs = x509::sct::logged_tbs(certificate.tbs()).map(|tbs| sha256(&tbs)).ok();
                Self::from_certificate(&certificate, tbs)
            }
            Err(_) => Self::unreadable(der),
        }
    }

    /// Creates an issuance from a log entry. For a precertificate, the data comes from the tbsCertificate that the log signs, not
    /// from the submitted precertificate.
    #[must_use]
    pub fn from_logged(logged: LoggedCertificate<'_>) -> Self {
        let LoggedCertificate::Precertificate { tbs, precertificate, .. } = logged else {
            return Self::from_der(logged.der());
        };
        let issuance = match Certificate::parse(&wrap_tbs(tbs)) {
            Ok(certificate) => Self::from_certificate(&certificate, Some(sha256(tbs))),
            Err(_) => Self::unreadable(tbs),
        };
        Self {
            precertificate: true,
            certificate_sha256: Some(sha256(precertificate)),
            der: Some(precertificate.to_vec()),
            ..issuance
        }
    }

    fn from_certificate(certificate: &Certificate, tbs: Option<Hash>) -> Self {
        let (names, whole) = certificate_names(&certificate.der);
        Self {
            id: IssuanceId::new(&certificate.issuer.text, &certificate.serial, tbs),
            issuer: certificate.issuer.text.clone(),
            serial: Some(certificate.serial.clone()),
            names,
            not_before: certificate.not_before,
            not_after: certificate.not_after,
            spki_sha256: Some(*certificate.public_key.spki_sha256.as_bytes()),
            certificate_sha256: Some(*certificate.fingerprint.as_bytes()),
            precertificate: certificate.precertificate,
            readable: whole,
            der: Some(certificate.der.to_vec()),
        }
    }

    fn unreadable(der: &[u8]) -> Self {
        Self {
            id: IssuanceId { issuer_serial: sha256(der), tbs: None },
            issuer: String::new(),
            serial: None,
            names: certificate_names(der).0,
            not_before: UnixTime::default(),
            not_after: UnixTime::default(),
            spki_sha256: None,
            certificate_sha256: Some(sha256(der)),
            precertificate: false,
            readable: false,
            der: Some(der.to_vec()),
        }
    }

    /// Returns the numbers of the watched domains that the certificate covers, sorted.
    #[must_use]
    pub fn matches(&self, domains: &DomainSet) -> Vec<u32> {
        let mut found = BTreeSet::new();
        for name in &self.names {
            domains.matches(Name::Dns(name.as_bytes()), |id| {
                found.insert(id);
            });
        }
        found.into_iter().collect()
    }
}

/// Wraps a tbsCertificate in an unsigned certificate.
fn wrap_tbs(tbs: &[u8]) -> Vec<u8> {
    x509::der::write(|w| {
        w.sequence(|w| {
            w.raw(tbs).sequence(|_| {}).bits(&[]);
        });
    })
}

/// Returns the names in a certificate, case-folded and sorted. The second value is false if the certificate does not parse
/// completely or has too many names.
fn certificate_names(der: &[u8]) -> (Vec<String>, bool) {
    let mut all = BTreeSet::new();
    let mut too_many = false;
    let reading = names(der, |name| {
        let text = match name {
            Name::Ip(address) => address.to_string(),
            Name::Dns(bytes) => folded(bytes),
            // The common name of a person or organization is not a host name.
            Name::Common(bytes) if bytes.contains(&b'.') && !bytes.contains(&b' ') => folded(bytes),
            Name::Common(_) => return,
        };
        if all.len() < NAMES_MAX {
            all.insert(text);
        } else if !all.contains(&text) {
            too_many = true;
        }
    });
    (all.into_iter().collect(), reading == Reading::Whole && !too_many)
}

fn folded(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().trim_end_matches('.').to_lowercase()
}

/// A known certificate: issued by the CA of this installation, managed, in the inventory, or logged and expected.
#[derive(Clone, Debug)]
pub struct KnownCertificate {
    /// Identity, for comparison with logged certificates.
    pub id: IssuanceId,
    /// Issuer name as text.
    pub issuer: String,
    /// Names, case-folded.
    pub names: Vec<String>,
    /// SHA-256 of the SubjectPublicKeyInfo, if known.
    pub spki_sha256: Option<Hash>,
    /// First second of validity.
    pub not_before: UnixTime,
    /// Last second of validity.
    pub not_after: UnixTime,
    /// Source through which the certificate is known.
    pub known_as: KnownAs,
}

impl KnownCertificate {
    /// Parses the first certificate in `der` (the leaf of a chain); `None` if it cannot be parsed.
    #[must_use]
    pub fn from_der(der: &[u8], known_as: KnownAs) -> Option<Self> {
        let leaf = x509::der::Reader::new(der).any().ok()?.whole;
        let issuance = Issuance::from_der(leaf);
        Some(Self {
            id: issuance.id,
            spki_sha256: Some(issuance.spki_sha256?),
            issuer: issuance.issuer,
            names: issuance.names,
            not_before: issuance.not_before,
            not_after: issuance.not_after,
            known_as,
        })
    }
}

/// Reason why a logged certificate is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KnownAs {
    /// The certificate was issued by the CA of this installation.
    Issued,
    /// The certificate is a version of a managed certificate.
    Managed,
    /// The certificate was seen on an endpoint, in a file or in a cloud.
    Inventory,
    /// The certificate was logged before and is expected: part of the baseline, a renewal, or confirmed by a person.
    Expected,
}

/// Allowed issuers of a domain, similar to CAA (RFC 8659), but checked against certificates that were already issued.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerRule {
    /// Texts that an allowed issuer name contains, in any case: an organization (`Let's Encrypt`) or a common name. Empty: any
    /// issuer that has issued a known certificate for the domain.
    #[serde(default)]
    pub allowed: Vec<String>,
    /// Whether certificates of an allowed issuer are always expected, for every name below the domain. Otherwise an issuance must
    /// match a known certificate, or it is unexpected.
    #[serde(default)]
    pub trust_allowed: bool,
}

/// Verdict on an issuance: whether it was expected.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The certificate is already known, from the given source.
    Known(KnownAs),
    /// Renewal of a known certificate: the same or fewer names, the same issuer organization, and either the same key or a time
    /// close to expiry.
    Renewal {
        /// The issuer-and-serial hash of the predecessor, in hexadecimal.
        of: String,
        /// Whether the certificate has the same key as its predecessor. Only this installation has the private key.
        same_key: bool,
    },
    /// The issuer is always allowed for the domain.
    AllowedIssuer,
    /// The matched domains are no longer watched.
    NotWatched,
    /// The certificate existed when watching its domain began.
    Baseline,
    /// A person confirmed that the issuance is legitimate.
    Accepted(Decision),
    /// The issuance is unexpected, and a person acknowledged it.
    Acknowledged(Decision),
    /// The issuance is unexpected and raises an alert.
    Unasked(Vec<Unasked>),
}

/// A person's decision on an issuance.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Decision {
    /// The person who decided.
    pub by: String,
    /// Reason that the person gave.
    pub reason: String,
    /// Time of the decision, seconds since 1970-01-01 UTC.
    pub at: i64,
}

impl Verdict {
    /// Returns whether the verdict raises an alert.
    #[must_use]
    pub fn raises_alert(&self) -> bool {
        matches!(self, Self::Unasked(_))
    }
}

/// Reason why an issuance is unexpected.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unasked {
    /// The rule does not allow the issuer.
    IssuerNotAllowed,
    /// No known certificate of this issuer has all of the names. Contains the names that no such certificate has.
    NamesNotKnown(Vec<String>),
    /// A known certificate already has all names of this one, and less than half of its lifetime had passed at the issuance.
    TooEarly {
        /// Time at which half of the predecessor's lifetime had passed, seconds since 1970-01-01 UTC.
        not_before: i64,
    },
    /// The certificate cannot be parsed, so no other verdict is possible.
    Unreadable,
}

/// Fraction of a certificate's lifetime after which a certificate with a new key counts as its renewal. ACME clients renew after
/// two thirds, and the windows of RFC 9773 are later still; one half allows for early renewals.
const RENEWED_AFTER: (i64, i64) = (1, 2);
/// Seconds after expiry in which a new certificate still counts as a renewal.
pub(super) const LATE_RENEWAL: i64 = 30 * x509::DAY;

/// Judges whether `issuance`, which matched `domain`, was expected. `known` contains the relevant known certificates: the same
/// issuance, and certificates of the same registered domain.
///
/// A known certificate is expected regardless of the rule. Any other certificate of an issuer that `rule` does not allow is
/// unexpected, even a renewal.
#[must_use]
pub fn judge(issuance: &Issuance, domain: &str, rule: &IssuerRule, known: &[KnownCertificate]) -> Verdict {
    if let Some(same) = known.iter().find(|one| one.id.is_same_issuance(&issuance.id)) {
        return Verdict::Known(same.known_as);
    }
    if !issuance.readable {
        return Verdict::Unasked(vec![Unasked::Unreadable]);
    }
    let issuer = issuer_key(&issuance.issuer);
    if !rule.allowed.is_empty() {
        let allowed = |word: &String| !word.trim().is_empty() && issuer.contains(&word.trim().to_lowercase());
        if !rule.allowed.iter().any(allowed) {
            return Verdict::Unasked(vec![Unasked::IssuerNotAllowed]);
        }
        if rule.trust_allowed && has_only_names_below(issuance, domain) {
            return Verdict::AllowedIssuer;
        }
    }
    // Only this installation has the private key of a known certificate. A new certificate for this key was therefore requested by
    // this installation, regardless of the CA that issued it.
    let by_key = known.iter().find(|one| {
        one.spki_sha256.is_some()
            && one.spki_sha256 == issuance.spki_sha256
            && unknown_names(issuance, [*one]).is_empty()
    });
    if let Some(one) = by_key {
        return Verdict::Renewal { of: hexadecimal(&one.id.issuer_serial), same_key: true };
    }
    let organization = issuer_organization(&issuer);
    let by_issuer: Vec<&KnownCertificate> =
        known.iter().filter(|one| issuer_organization(&issuer_key(&one.issuer)) == organization).collect();
    if by_issuer.is_empty() && rule.allowed.is_empty() {
        return Verdict::Unasked(vec![Unasked::IssuerNotAllowed]);
    }
    let with_all_names: Vec<&&KnownCertificate> =
        by_issuer.iter().filter(|one| unknown_names(issuance, [**one]).is_empty()).collect();
    if let Some(one) = with_all_names.iter().find(|one| in_time(one, issuance.not_before)) {
        return Verdict::Renewal { of: hexadecimal(&one.id.issuer_serial), same_key: false };
    }
    let renewable_at = with_all_names
        .iter()
        .map(|one| renewable_from(one))
        .filter(|from| *from > issuance.not_before.0)
        .min();
    Verdict::Unasked(vec![match renewable_at {
        Some(not_before) => Unasked::TooEarly { not_before },
        None => Unasked::NamesNotKnown(unknown_names(issuance, by_issuer)),
    }])
}

/// Returns the names that none of `certificates` has.
fn unknown_names<'k>(
    issuance: &Issuance,
    certificates: impl IntoIterator<Item = &'k KnownCertificate>,
) -> Vec<String> {
    let known: BTreeSet<&str> =
        certificates.into_iter().flat_map(|one| one.names.iter().map(String::as_str)).collect();
    issuance.names.iter().filter(|name| !known.contains(name.as_str())).cloned().collect()
}

fn renewable_from(certificate: &KnownCertificate) -> i64 {
    let life = certificate.not_after.since(certificate.not_before).max(0);
    certificate.not_before.0.saturating_add(life / RENEWED_AFTER.1 * RENEWED_AFTER.0)
}

fn in_time(certificate: &KnownCertificate, at: UnixTime) -> bool {
    at.0 >= renewable_from(certificate) && at <= certificate.not_after.plus(LATE_RENEWAL)
}

/// Returns whether all names are at or below `domain`: the rule of one domain does not apply to others.
fn has_only_names_below(issuance: &Issuance, domain: &str) -> bool {
    let domain = registered_domain(domain).unwrap_or_else(|| domain.to_lowercase());
    let below =
        |name: &String| *name == domain || name.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.'));
    issuance.names.iter().all(below)
}

fn hexadecimal(hash: &Hash) -> String {
    x509::Fingerprint::from_bytes(*hash).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const R3: &str = "CN=R3, O=Let's Encrypt, C=US";
    const OTHER: &str = "CN=Other CA, O=Other, C=US";
    const DAY: i64 = x509::DAY;

    fn serial(number: u8) -> SerialNumber {
        SerialNumber::from_content(&[number])
    }

    fn issuance(issuer: &str, number: u8, names: &[&str], day: i64) -> Issuance {
        Issuance {
            id: IssuanceId::new(issuer, &serial(number), Some([number; 32])),
            issuer: issuer.to_owned(),
            serial: Some(serial(number)),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            not_before: UnixTime(day * DAY),
            not_after: UnixTime((day + 90) * DAY),
            spki_sha256: Some([number; 32]),
            certificate_sha256: None,
            precertificate: true,
            readable: true,
            der: None,
        }
    }

    fn known(issuance: &Issuance, known_as: KnownAs) -> KnownCertificate {
        KnownCertificate {
            id: issuance.id,
            issuer: issuance.issuer.clone(),
            names: issuance.names.clone(),
            spki_sha256: issuance.spki_sha256,
            not_before: issuance.not_before,
            not_after: issuance.not_after,
            known_as,
        }
    }

    #[test]
    fn issuance_id_ignores_issuer_name_formatting() {
        let id = |issuer| IssuanceId::new(issuer, &serial(7), None);
        for other in
            ["C=US, O=Let's Encrypt, CN=R3", "CN=R3,O=Let's Encrypt,C=US", "cn=r3, o=let's  encrypt, c=us"]
        {
            assert_eq!(id(R3), id(other), "{other}");
        }
        assert_eq!(id(r"CN=A\, Inc., C=US"), id("C=US, CN=\"A, Inc.\""));
        assert_eq!(id("C=US, CN=A, Inc."), id(r"CN=A\,Inc., C=US"), "unescaped, as crt.sh has it");
        assert_ne!(id(R3), id(OTHER));
        assert_ne!(id(R3), IssuanceId::new(R3, &serial(8), None));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_yield_an_unreadable_issuance(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let logged = LoggedCertificate::Precertificate { tbs: &bytes, issuer_key_hash: &[0; 32], precertificate: &bytes };
            for issuance in [Issuance::from_der(&bytes), Issuance::from_logged(logged)] {
                prop_assert!(!issuance.readable && issuance.names.len() <= NAMES_MAX);
                prop_assert!(issuance.id.is_same_issuance(&issuance.id));
            }
        }

        #[test]
        fn issuance_id_of_any_issuer_text_is_deterministic(text: String) {
            let id = IssuanceId::new(&text, &serial(7), None);
            prop_assert_eq!(id, IssuanceId::new(&text, &serial(7), None));
        }
    }

    #[test]
    fn issuances_match_unless_their_tbs_hashes_differ() {
        let with = |tbs| IssuanceId::new(R3, &serial(7), tbs);
        assert!(
            with(Some([1; 32])).is_same_issuance(&with(None)),
            "one that a service told without its hash"
        );
        assert!(with(Some([1; 32])).is_same_issuance(&with(Some([1; 32]))));
        assert!(
            !with(Some([1; 32])).is_same_issuance(&with(Some([2; 32]))),
            "a serial number used twice hides nothing"
        );
    }

    #[test]
    fn issuances_are_classified_as_known_renewal_or_unexpected() {
        let old = known(&issuance(R3, 1, &["a.example.com", "example.com"], 0), KnownAs::Managed);
        let any = IssuerRule::default();
        let only = |word: &str| IssuerRule { allowed: vec![word.to_owned()], trust_allowed: false };
        let trusting = IssuerRule { trust_allowed: true, ..only("let's encrypt") };
        let of = hexadecimal(&old.id.issuer_serial);
        let renewal = |same_key| Verdict::Renewal { of: of.clone(), same_key };
        let unasked = |why| Verdict::Unasked(vec![why]);
        let both = ["a.example.com", "example.com"];
        let same_key = Issuance { spki_sha256: Some([1; 32]), ..issuance(OTHER, 5, &["example.com"], 3) };
        let broken = Issuance { readable: false, ..issuance(R3, 6, &both, 60) };
        let foreign = ["a.example.com", "login.example.com"];
        let table = [
            ("itself", issuance(R3, 1, &both, 0), any.clone(), Verdict::Known(KnownAs::Managed)),
            ("renewed in time", issuance(R3, 2, &both, 60), any.clone(), renewal(false)),
            (
                "by another intermediate",
                issuance("CN=E5, O=Let's Encrypt, C=US", 2, &both, 60),
                any.clone(),
                renewal(false),
            ),
            ("with fewer names", issuance(R3, 2, &both[..1], 60), any.clone(), renewal(false)),
            ("late", issuance(R3, 2, &both, 110), any.clone(), renewal(false)),
            (
                "years later",
                issuance(R3, 2, &both, 1_000),
                any.clone(),
                unasked(Unasked::NamesNotKnown(vec![])),
            ),
            (
                "too early",
                issuance(R3, 2, &both, 10),
                any.clone(),
                unasked(Unasked::TooEarly { not_before: 45 * DAY }),
            ),
            ("same key, elsewhere", same_key.clone(), any.clone(), renewal(true)),
            ("same key, not allowed", same_key, only("let's encrypt"), unasked(Unasked::IssuerNotAllowed)),
            (
                "another issuer",
                issuance(OTHER, 3, &both, 60),
                any.clone(),
                unasked(Unasked::IssuerNotAllowed),
            ),
            (
                "a new name",
                issuance(R3, 4, &foreign, 60),
                any.clone(),
                unasked(Unasked::NamesNotKnown(vec!["login.example.com".to_owned()])),
            ),
            ("allowed for anything", issuance(R3, 4, &foreign, 10), trusting.clone(), Verdict::AllowedIssuer),
            (
                "allowed, but for others too",
                issuance(R3, 4, &["a.example.com", "other.example"], 60),
                trusting,
                unasked(Unasked::NamesNotKnown(vec!["other.example".to_owned()])),
            ),
            ("unreadable", broken, any, unasked(Unasked::Unreadable)),
        ];
        for (what, issuance, rule, verdict) in table {
            assert_eq!(judge(&issuance, "example.com", &rule, std::slice::from_ref(&old)), verdict, "{what}");
        }
    }
}
