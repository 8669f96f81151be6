//! The Baseline Requirements of the CA/Browser Forum for TLS server certificates, as a function of the planned certificate and the
//! date. `BR` below is version 2 with ballot SC-081v3.

use std::net::IpAddr;

use x509::{
    DAY, GeneralName, KeyAlgorithm, PublicKey, SerialNumber, SignatureAlgorithm, SuffixKind, UnixTime, lint,
};

/// A certificate that is about to be issued.
#[derive(Clone, Debug)]
pub struct ProposedCertificate<'a> {
    /// Subject alternative names.
    pub names: &'a [GeneralName],
    /// Common names of the subject.
    pub common_names: &'a [String],
    /// Whether the subject has an organizational unit.
    pub organizational_unit: bool,
    /// Key of the subject.
    pub key: &'a PublicKey,
    /// Signature algorithm of the certificate.
    pub signature: &'a SignatureAlgorithm,
    /// Serial number of the certificate; at least 8 bytes are required.
    pub serial: &'a SerialNumber,
    /// First second of validity.
    pub not_before: UnixTime,
    /// Last second of validity.
    pub not_after: UnixTime,
    /// Extended key usages, as dotted OIDs.
    pub purposes: &'a [String],
    /// Certificate policies, as dotted OIDs.
    pub policies: &'a [String],
    /// Whether the certificate contains the URL of a CRL.
    pub crl: bool,
    /// Whether the certificate contains the URL of an OCSP responder.
    pub ocsp: bool,
}

/// A violation of the Baseline Requirements by a planned certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// Section of the Baseline Requirements that the certificate violates.
    pub section: &'static str,
    /// Description of the violation.
    pub text: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.text, self.section)
    }
}

/// OIDs of the policies domain, organization and individual validated, and extended validation (BR section 7.1.6.1).
const POLICIES: [&str; 4] = ["2.23.140.1.2.1", "2.23.140.1.2.2", "2.23.140.1.2.3", "2.23.140.1.1"];
const SERVER_AUTH: &str = "1.3.6.1.5.5.7.3.1";
const CLIENT_AUTH: &str = "1.3.6.1.5.5.7.3.2";
/// 2026-03-15 as Unix time. From this date on, a short-lived certificate has a lifetime of at most 7 days; before this date, of at
/// most 10 days (BR section 1.6.1).
const SHORT_LIVED_7_DAYS_FROM: i64 = 1_773_532_800;
/// Minimum length of a serial number in bytes, for 64 random bits (BR section 7.1.2.7).
const SERIAL_BYTES_MIN: usize = 8;
/// Maximum lifetime in days before the first date of the schedule in BR section 6.3.2.
const DAYS_BEFORE_SCHEDULE: i64 = 825;
/// Maximum time in seconds by which notBefore may precede the current time (BR section 7.1.2.7: 48 hours).
const BACKDATE_MAX: i64 = 2 * DAY;

/// Returns the maximum lifetime in seconds of a certificate issued at the given time, including the first and the last second.
#[must_use]
pub fn lifetime_max_seconds(issued: UnixTime) -> i64 {
    lint::lifetime_limit_days(issued).unwrap_or(DAYS_BEFORE_SCHEDULE) * DAY
}

/// Returns whether a certificate issued at the given time is short-lived, so that it needs no CRL and no OCSP (BR section
/// 7.1.2.11.2).
#[must_use]
pub fn is_short_lived(issued: UnixTime, seconds: i64) -> bool {
    seconds <= if issued.0 >= SHORT_LIVED_7_DAYS_FROM { 7 * DAY } else { 10 * DAY }
}

/// Returns every rule that `proposal`, issued at `now`, would violate.
#[must_use]
pub fn violations(proposal: &ProposedCertificate<'_>, now: UnixTime) -> Vec<Violation> {
    let mut found = Violations(Vec::new());
    validity(proposal, now, &mut found);
    names(proposal, &mut found);
    key(proposal, &mut found);
    other_rules(proposal, now, &mut found);
    found.0
}

struct Violations(Vec<Violation>);

impl Violations {
    fn add(&mut self, section: &'static str, text: impl Into<String>) {
        self.0.push(Violation { section, text: text.into() });
    }
}

fn validity(proposal: &ProposedCertificate<'_>, now: UnixTime, found: &mut Violations) {
    let seconds = proposal.not_after.since(proposal.not_before).saturating_add(1);
    // A backdated certificate must obey the rules of today.
    let limit = lifetime_max_seconds(now.max(proposal.not_before));
    if seconds > limit {
        found.add(
            "BR section 6.3.2",
            format!("the lifetime would be {seconds} seconds; at most {} days are allowed", limit / DAY),
        );
    }
    if now.since(proposal.not_before).abs() > BACKDATE_MAX {
        found.add(
            "BR section 7.1.2.7",
            format!("notBefore would be {}, more than 48 hours from now", proposal.not_before),
        );
    }
}

fn names(proposal: &ProposedCertificate<'_>, found: &mut Violations) {
    if proposal.names.is_empty() {
        found.add("BR section 7.1.2.7.12", "the certificate has no name");
    }
    for name in proposal.names {
        match name {
            GeneralName::Dns(text) => dns(text, found),
            GeneralName::Ip(address) if !is_public(*address) => {
                found.add("BR section 7.1.2.7.12", format!("{address} is a reserved or private address"));
            }
            GeneralName::Ip(_) => {}
            other => {
                found.add("BR section 7.1.2.7.12", format!("{other} is neither a DNS name nor an IP address"))
            }
        }
    }
    for common in proposal.common_names {
        let named = proposal.names.iter().any(|name| match name {
            GeneralName::Dns(text) => text.eq_ignore_ascii_case(common),
            GeneralName::Ip(address) => address.to_string() == *common,
            _ => false,
        });
        if !named {
            found.add("BR section 7.1.4.3", format!("the common name {common:?} is not one of the names"));
        }
    }
    if proposal.common_names.len() > 1 {
        found.add("BR section 7.1.4.3", "the subject has more than one common name");
    }
    if proposal.organizational_unit {
        found.add("BR section 7.1.2.7.2", "the subject has an organizational unit");
    }
}

fn dns(text: &str, found: &mut Violations) {
    const SECTION: &str = "BR section 7.1.2.7.12";
    if text.contains('_') {
        found.add(SECTION, format!("{text} has an underscore"));
    }
    let host = text.strip_prefix("*.").unwrap_or(text);
    match x509::public_suffix(host) {
        Some(suffix) if suffix.kind != SuffixKind::Unlisted => {
            // A top-level domain, or a wildcard directly below a public suffix, is not allowed (BR section 3.2.2.6). The private
            // section of the public suffix list is an exception: the owner of a suffix such as github.io may have a wildcard.
            let whole = suffix.text == host;
            let icann = suffix.kind == SuffixKind::Icann;
            if whole && icann && text.starts_with("*.") {
                found.add(
                    "BR section 3.2.2.6",
                    format!("{text} is a wildcard directly below a public suffix"),
                );
            } else if whole && icann && !host.contains('.') {
                found.add(SECTION, format!("{text} is a top-level domain"));
            }
        }
        _ => found.add(
            "BR section 4.2.2",
            format!("{text} is an internal name: its top-level domain is not in the public DNS"),
        ),
    }
    if let Some(label) = host.split('.').find(|label| is_reserved_label(label)) {
        found.add(SECTION, format!("{text}: the label {label} is reserved"));
    }
}

/// Returns whether a label is reserved (R-LDH) but not an A-label (RFC 5890 section 2.3.1).
fn is_reserved_label(label: &str) -> bool {
    label.get(2..4) == Some("--") && !label.starts_with("xn--")
}

/// Returns whether an address is public according to the special-purpose registries of IANA.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let shared = a == 100 && (64..128).contains(&b);
            let special = a == 192 && b == 0 && c == 0
                || a == 192 && b == 88 && c == 99
                || a == 198 && (b & 0xfe) == 18;
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_documentation()
                || v4.is_multicast()
                || a == 0
                || a >= 240
                || shared
                || special)
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            // Global unicast is 2000::/3, except documentation (2001:db8::/32, 3fff::/20) and the special-purpose range 2001::/23.
            let second = v6.segments()[1];
            (first & 0xe000) == 0x2000
                && !(first == 0x2001 && (second < 0x200 || second == 0xdb8))
                && !(first == 0x3fff && second < 0x1000)
                && first != 0x2002
        }
    }
}

fn key(proposal: &ProposedCertificate<'_>, found: &mut Violations) {
    let key = proposal.key;
    match key.algorithm {
        KeyAlgorithm::Rsa => {
            if key.bits < 2_048 || !key.bits.is_multiple_of(8) {
                found.add("BR section 6.1.5", format!("an RSA key of {} bits", key.bits));
            }
            if !key.rsa_exponent.is_none_or(|exponent| exponent >= 3 && exponent % 2 == 1) {
                found.add("BR section 6.1.6", "an RSA exponent that is even or below 3");
            }
        }
        KeyAlgorithm::EcP256 | KeyAlgorithm::EcP384 | KeyAlgorithm::EcP521 => {}
        ref other => found.add("BR section 7.1.3.1", format!("a key of type {other}")),
    }
    use SignatureAlgorithm as S;
    let allowed = matches!(
        proposal.signature,
        S::RsaSha256
            | S::RsaSha384
            | S::RsaSha512
            | S::RsaPss(256 | 384 | 512)
            | S::EcdsaSha256
            | S::EcdsaSha384
            | S::EcdsaSha512
    );
    if !allowed {
        found.add("BR section 7.1.3.2", format!("a signature by {}", proposal.signature));
    }
}

fn other_rules(proposal: &ProposedCertificate<'_>, now: UnixTime, found: &mut Violations) {
    let has = |oid: &str| proposal.purposes.iter().any(|purpose| purpose == oid);
    if !has(SERVER_AUTH) {
        found.add("BR section 7.1.2.7.10", "the extended key usage has no serverAuth");
    }
    if let Some(other) =
        proposal.purposes.iter().find(|purpose| !matches!(purpose.as_str(), SERVER_AUTH | CLIENT_AUTH))
    {
        found.add("BR section 7.1.2.7.10", format!("the extended key usage includes {other}"));
    }
    if !proposal.policies.iter().any(|policy| POLICIES.contains(&policy.as_str())) {
        found.add(
            "BR section 7.1.2.7.9",
            "no certificate policy states the validation method: add 2.23.140.1.2.1",
        );
    }
    let seconds = proposal.not_after.since(proposal.not_before).saturating_add(1);
    if !proposal.crl && !proposal.ocsp && !is_short_lived(now, seconds) {
        found.add(
            "BR section 7.1.2.11.2",
            "the certificate is not short-lived and has no CRL distribution point",
        );
    }
    if proposal.serial.content().len() < SERIAL_BYTES_MIN {
        found.add("BR section 7.1.2.7", "the serial number has fewer than 64 bits");
    }
}

#[cfg(test)]
mod tests;
