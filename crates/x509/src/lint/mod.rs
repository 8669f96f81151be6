//! Linting of certificates.
//!
//! A rule applies only to certificates that were issued while the rule was in force. Baseline Requirements that bind only public
//! CAs are `Low` or `Info` for private CAs, or left out. Every finding follows from the certificate itself.

mod context;
mod expiry;
mod findings;
mod names;
mod rules;

use self::findings::Findings;
use crate::verify::is_for_servers;
use crate::{Certificate, DAY, Finding, KeyAlgorithm, KeyUsage, Severity, SignatureAlgorithm, UnixTime};

pub use context::LintContext;
pub use expiry::{EXPIRY_THRESHOLDS, ExpiryThreshold, expiry_severity};
pub use rules::*;

/// Maximum findings for one certificate. There are only slightly more rules, and no certificate breaks half of them. All names that
/// break a rule share one finding.
pub const FINDINGS_MAX: usize = 32;

/// Returns the rules that `certificate` breaks, most severe first, at most [`FINDINGS_MAX`].
#[must_use]
pub fn lint(certificate: &Certificate, context: &LintContext) -> Vec<Finding> {
    let mut findings = Findings { certificate, found: Vec::new() };
    dates(certificate, context, &mut findings);
    key(certificate, &mut findings);
    signature(certificate, &mut findings);
    serial(certificate, context, &mut findings);
    form(certificate, context, &mut findings);
    if context.leaf {
        lifetime(certificate, context, &mut findings);
        usage(certificate, &mut findings);
        names::check(certificate, context, &mut findings);
    } else {
        authority(certificate, &mut findings);
    }
    findings.found.sort_by_key(|finding| std::cmp::Reverse(finding.rule.severity));
    findings.found.truncate(FINDINGS_MAX);
    findings.found
}

fn dates(certificate: &Certificate, context: &LintContext, findings: &mut Findings<'_>) {
    let (from, to, now) = (certificate.not_before, certificate.not_after, context.now);
    if to < from {
        return findings.add(&VALIDITY_INVERTED, format!("valid from {from} to {to}"));
    }
    if now > to {
        let ago = now.since(to) / DAY;
        return findings.add(&EXPIRED, format!("expired at {to}, {ago} days ago"));
    }
    if now < from {
        return findings.add(&NOT_YET_VALID, format!("valid from {from}"));
    }
    expiry(certificate, context, findings);
}

/// Checks for an approaching expiry. The severity rises at [`EXPIRY_THRESHOLDS`].
fn expiry(certificate: &Certificate, context: &LintContext, findings: &mut Findings<'_>) {
    let (from, to, now) = (certificate.not_before, certificate.not_after, context.now);
    let left = to.since(now);
    let soon = i64::from(context.expiring_within_days) * DAY;
    let last_part = (to.since(from) as f64 * context.expiring_fraction) as i64;
    let evidence = || format!("expires at {to}, in {} days", left / DAY);
    // Uses the smaller limit: otherwise a week-long certificate would always be "within 30 days", and a ten-year one would be in
    // its last third for years.
    if last_part < soon {
        if left < last_part {
            let life = to.since(from) / DAY;
            let rule = match expiry_severity(from, to, now) {
                Some(Severity::Critical) => &EXPIRING_FRACTION_CRITICAL,
                Some(Severity::High) => &EXPIRING_FRACTION_HIGH,
                _ => &EXPIRING_FRACTION,
            };
            findings.add(rule, format!("{} of {life}", evidence()));
        }
    } else if left < soon {
        let rule = match expiry_severity(from, to, now) {
            Some(Severity::Critical) => &EXPIRING_CRITICAL,
            Some(Severity::High) => &EXPIRING_HIGH,
            _ => &EXPIRING,
        };
        findings.add(rule, evidence());
    }
}

fn key(certificate: &Certificate, findings: &mut Findings<'_>) {
    const RSA_BITS_MIN: u32 = 2_048;
    const EC_BITS_MIN: u32 = 256;
    /// Smallest exponent that BR section 6.1.6 recommends.
    const EXPONENT_MIN: u64 = 65_537;
    let key = &certificate.public_key;
    let weak = match key.algorithm {
        KeyAlgorithm::Rsa | KeyAlgorithm::RsaPss => (1..RSA_BITS_MIN).contains(&key.bits),
        KeyAlgorithm::Dsa => true,
        KeyAlgorithm::EcOther(_) => (1..EC_BITS_MIN).contains(&key.bits),
        _ => false,
    };
    if weak {
        findings.add(&WEAK_KEY, format!("{} of {} bits", key.algorithm, key.bits));
    }
    let is_rsa = matches!(key.algorithm, KeyAlgorithm::Rsa | KeyAlgorithm::RsaPss);
    if is_rsa && !key.bits.is_multiple_of(8) {
        findings.add(&ODD_KEY_SIZE, format!("{} bits", key.bits));
    }
    if let Some(exponent) = key.rsa_exponent.filter(|e| *e < EXPONENT_MIN || e % 2 == 0) {
        findings.add(&WEAK_EXPONENT, format!("exponent {exponent}"));
    }
}

fn signature(certificate: &Certificate, findings: &mut Findings<'_>) {
    use SignatureAlgorithm as S;
    let rule = match &certificate.signature {
        S::RsaMd2 | S::RsaMd5 => &WEAK_SIGNATURE,
        S::RsaSha1 | S::RsaPss(160) | S::EcdsaSha1 | S::DsaSha1 => &SHA1_SIGNATURE,
        _ => return,
    };
    // Clients do not check the signature of a self-signed certificate. They do check the signature of a self-issued one, which another key
    // of the same CA signed.
    if !certificate.is_self_signed() {
        findings.add(rule, certificate.signature.name());
    }
}

fn serial(certificate: &Certificate, context: &LintContext, findings: &mut Findings<'_>) {
    const BYTES_MAX: usize = 20;
    /// Minimum bytes of a serial number. A random 64-bit number has fewer bytes only once in 65,536 times.
    const BYTES_MIN: usize = 7;
    let serial = &certificate.serial;
    let zeros = serial.content().iter().take_while(|&&b| b == 0).count();
    let length = serial.content().len() - zeros;
    if serial.is_zero() {
        findings.add(&SERIAL_ZERO, "serial number 0");
    } else if serial.is_negative() {
        findings.add(&SERIAL_NEGATIVE, format!("serial number {serial} in two's complement"));
    } else if length > BYTES_MAX {
        findings.add(&SERIAL_TOO_LONG, format!("serial number of {length} bytes"));
    } else if length < BYTES_MIN && (context.leaf || !certificate.is_self_issued()) {
        findings.add(&SERIAL_SHORT, format!("serial number {serial}"));
    }
}

/// Checks rules about version, issuer and extensions that apply to leaves and CAs.
fn form(certificate: &Certificate, context: &LintContext, findings: &mut Findings<'_>) {
    let self_issued = certificate.is_self_issued();
    if certificate.version < 3 && (context.leaf || !self_issued) {
        findings.add(&OLD_VERSION, format!("version {}", certificate.version));
    }
    if certificate.version == 3 && !self_issued && certificate.authority_key_id.is_none() {
        findings.add(&NO_AUTHORITY_KEY_ID, format!("issued by {}", certificate.issuer.text));
    }
    if certificate.issuer.is_empty() {
        findings.add(&EMPTY_ISSUER, "the issuer name is empty");
    }
    if certificate.precertificate {
        findings.add(&PRECERTIFICATE, "the certificate has the CT poison extension");
    }
    if !certificate.unknown_critical.is_empty() {
        findings.add(&UNKNOWN_CRITICAL, certificate.unknown_critical.join(", "));
    }
    if !certificate.faults.is_empty() {
        findings.add(&MALFORMED, certificate.faults.join("; "));
    }
}

/// Start of each lifetime limit, and its days (BR section 6.3.2, ballots 193, SC-31 and SC-081), newest first. Certificates issued
/// before the oldest entry have expired or are private.
const LIFETIME_SCHEDULE: [(i64, i64); 5] = [
    (1_868_227_200, 47),  // 2029-03-15
    (1_805_068_800, 100), // 2027-03-15
    (1_773_532_800, 200), // 2026-03-15
    (1_598_918_400, 398), // 2020-09-01
    (1_519_862_400, 825), // 2018-03-01
];

/// Maximum lifetime that Apple's clients accept, also from private CAs, in days.
const PRIVATE_LIFETIME_DAYS: i64 = 825;

/// Returns the maximum lifetime in days for a public CA on the day `issued`; `None` before 2018-03-01.
#[must_use]
pub fn lifetime_limit_days(issued: UnixTime) -> Option<i64> {
    LIFETIME_SCHEDULE.iter().find(|(from, _)| issued.0 >= *from).map(|(_, days)| *days)
}

fn lifetime(certificate: &Certificate, context: &LintContext, findings: &mut Findings<'_>) {
    let Some(limit) = lifetime_limit_days(certificate.not_before) else { return };
    let limit = if context.publicly_trusted { limit } else { PRIVATE_LIFETIME_DAYS };
    // The first and the last second are both included (RFC 5280 section 4.1.2.5).
    let seconds = certificate.not_after.since(certificate.not_before).saturating_add(1);
    if seconds > limit * DAY {
        // A fraction of a day counts as a whole day (BR section 6.3.2).
        let days = (seconds - 1) / DAY + 1;
        let rule = if context.publicly_trusted { &LIFETIME_PUBLIC } else { &LIFETIME };
        let issued = certificate.not_before;
        findings.add(rule, format!("{days} days, issued at {issued}; the limit is {limit}"));
    }
}

fn usage(certificate: &Certificate, findings: &mut Findings<'_>) {
    if !is_for_servers(certificate) {
        let usages = certificate.extended_key_usage.as_deref().unwrap_or_default();
        findings.add(&NOT_SERVER_AUTH, format!("only for {}", usages.join(", ")));
    }
    if certificate.is_ca() {
        findings.add(&LEAF_IS_CA, "basic constraints have CA:TRUE");
    } else {
        if certificate.key_usage.is_some_and(|usage| usage.allows(KeyUsage::KEY_CERT_SIGN)) {
            findings.add(&CERT_SIGN_WITHOUT_CA, "key usage has keyCertSign");
        }
        if certificate.name_constraints.is_some() {
            findings.add(&CONSTRAINTS_WITHOUT_CA, "the certificate has the name constraints extension");
        }
    }
    let signs_only = matches!(
        certificate.public_key.algorithm,
        KeyAlgorithm::EcP256
            | KeyAlgorithm::EcP384
            | KeyAlgorithm::EcP521
            | KeyAlgorithm::Ed25519
            | KeyAlgorithm::Ed448
            | KeyAlgorithm::MlDsa(_)
    );
    let may_sign = |usage: KeyUsage| usage.allows(KeyUsage::DIGITAL_SIGNATURE);
    if signs_only && certificate.key_usage.is_some_and(|usage| !may_sign(usage)) {
        findings.add(&KEY_USAGE, "key usage without digitalSignature");
    }
}

fn authority(certificate: &Certificate, findings: &mut Findings<'_>) {
    if !certificate.is_ca() {
        return;
    }
    if certificate.key_usage.is_some_and(|usage| !usage.allows(KeyUsage::KEY_CERT_SIGN)) {
        findings.add(&CA_WITHOUT_CERT_SIGN, "key usage without keyCertSign");
    }
    if certificate.subject_key_id.is_none() && !certificate.is_self_issued() {
        findings.add(&NO_SUBJECT_KEY_ID, certificate.subject.text.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetime_limit_follows_the_dated_schedule() {
        let day = |y, m, d| UnixTime::from_civil(y, m, d, 0, 0, 0).unwrap();
        let table = [
            (day(2018, 2, 28), None),
            (day(2018, 3, 1), Some(825)),
            (day(2020, 9, 1).plus(-1), Some(825)),
            (day(2020, 9, 1), Some(398)),
            (day(2026, 3, 14), Some(398)),
            (day(2026, 3, 15), Some(200)),
            (day(2027, 3, 15), Some(100)),
            (day(2029, 3, 14), Some(100)),
            (day(2029, 3, 15), Some(47)),
        ];
        for (issued, want) in table {
            assert_eq!(lifetime_limit_days(issued), want, "{issued}");
        }
    }

    #[test]
    fn rule_codes_are_unique_and_have_a_source_and_advice() {
        for (index, rule) in RULES.iter().enumerate() {
            assert!(rule.code.starts_with("certificate."), "{}", rule.code);
            assert!(RULES[..index].iter().all(|other| other.code != rule.code), "{}", rule.code);
            assert!(rule.source.starts_with("RFC ") || rule.source.starts_with("BR "));
            assert!(rule.advice.ends_with('.'), "{}", rule.code);
        }
    }
}
