//! Tests of each lint rule with a violation, and of healthy certificates without findings.

use std::sync::Arc;

use x509::lint::{FINDINGS_MAX, LintContext, RULES, lint};
use x509::verify::{self, TrustStore};
use x509::{Certificate, DAY, KeyUsage, ReferenceName, UnixTime, der};

use crate::fields::openssl;
use crate::forge::*;

const MD5_RSA: &[u64] = &[1, 2, 840, 113549, 1, 1, 4];
const SHA1_ECDSA: &[u64] = &[1, 2, 840, 10045, 4, 1];

/// Runs every check on bytes that may be a certificate. No check may panic.
pub(crate) fn judge_without_harm(der: &[u8]) {
    let Ok(certificate) = Certificate::parse(der) else { return };
    let certificate = Arc::new(certificate);
    for leaf in [true, false] {
        let context = LintContext { leaf, publicly_trusted: leaf, ..LintContext::for_private_leaf(NOW) };
        assert!(lint(&certificate, &context).len() <= FINDINGS_MAX);
    }
    let sent = [certificate.clone(), certificate.clone()];
    let _ = verify::verify_chain(&certificate, &sent, &TrustStore::new(), NOW, &());
    let _ = verify::chain_order(&certificate, &sent);
    let _ = x509::matches_name(&certificate, &ReferenceName::Ip([127, 0, 0, 1].into()));
    let _ = certificate.names();
}

struct Case {
    /// The modification that violates the rule.
    change: fn(&mut Spec),
    /// The expected codes without `certificate.`, in any order.
    want: &'static [&'static str],
}

fn case(change: fn(&mut Spec), want: &'static [&'static str]) -> Case {
    Case { change, want }
}

fn codes(certificate: &Certificate, context: &LintContext) -> Vec<String> {
    let findings = lint(certificate, context);
    assert!(findings.is_sorted_by(|a, b| a.rule.severity >= b.rule.severity));
    assert!(
        findings.iter().all(|f| RULES.iter().any(|rule| rule.code == f.rule.code) && !f.evidence.is_empty())
    );
    let mut codes: Vec<String> =
        findings.iter().map(|f| f.rule.code.trim_start_matches("certificate.").to_owned()).collect();
    codes.sort();
    codes
}

fn check(cases: &[Case], context: LintContext, make: fn(&Key, &Key) -> Spec) {
    let (key, issuer) = (Key::new(), Key::new());
    for (index, case) in cases.iter().enumerate() {
        let mut spec = make(&key, &issuer);
        (case.change)(&mut spec);
        let mut want = case.want.to_vec();
        want.sort_unstable();
        assert_eq!(codes(&spec.certificate(&issuer), &context), want, "case {index}");
    }
}

fn healthy_leaf(key: &Key, issuer: &Key) -> Spec {
    leaf(key, "Root", issuer)
}

fn set_dates(spec: &mut Spec, from: i64, to: i64) {
    (spec.not_before, spec.not_after) = (NOW.plus(from * DAY), NOW.plus(to * DAY - 1));
}

fn rename(spec: &mut Spec, text: &str) {
    spec.subject = name(text);
}

fn rsa(bits: usize, exponent: &[u8]) -> Vec<u8> {
    rsa_of(&vec![0xff; bits / 8], exponent)
}

fn rsa_of(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            w.sequence(|w| {
                w.oid(&[1, 2, 840, 113549, 1, 1, 1]).null();
            });
            w.bits_containing(|w| {
                w.sequence(|w| {
                    w.unsigned(modulus).unsigned(exponent);
                });
            });
        });
    })
}

fn algorithm(arcs: &[u64]) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            w.oid(arcs);
        });
    })
}

#[test]
fn each_leaf_rule_reports_its_violation() {
    const E65537: &[u8] = &[1, 0, 1];
    let cases = [
        case(|_| {}, &[]),
        case(|s| set_dates(s, -90, 0), &["expired"]),
        case(|s| set_dates(s, 1, 90), &["not-yet-valid"]),
        case(|s| set_dates(s, 10, -10), &["validity-inverted"]),
        // Long lifetimes are judged by the days left.
        case(|s| set_dates(s, -160, 29), &["expiring"]),
        case(|s| set_dates(s, -160, 31), &[]),
        // Short lifetimes are judged by the fraction left.
        case(|s| set_dates(s, -5, 2), &["expiring-fraction"]),
        case(|s| set_dates(s, -2, 5), &[]),
        case(|s| s.spki = rsa(1024, E65537), &["weak-key"]),
        case(|s| s.spki = rsa(2048, E65537), &[]),
        case(|s| s.spki = rsa(2048, &[3]), &["weak-exponent"]),
        case(|s| s.spki = rsa_of(&[0x7f; 256], E65537), &["weak-key", "odd-key-size"]),
        case(|s| s.spki = rsa(512, &[1]), &["weak-key", "weak-exponent"]),
        case(|s| s.algorithm = algorithm(&[1, 2, 840, 113549, 1, 1, 4]), &["weak-signature"]),
        case(|s| s.algorithm = algorithm(&[1, 2, 840, 113549, 1, 1, 5]), &["sha1-signature"]),
        case(|s| s.algorithm = algorithm(&[1, 2, 840, 10045, 4, 1]), &["sha1-signature"]),
        // The lifetime limits of public CAs do not apply to private ones.
        case(|s| set_dates(s, -1, 200), &[]),
        case(|s| set_dates(s, -1, 824), &[]),
        case(|s| set_dates(s, -1, 825), &["lifetime"]),
        case(|s| s.drop(SUBJECT_ALT_NAME), &["common-name-only"]),
        case(|s| s.names(&[(1, b"a@b.example")]), &["common-name-only"]),
        case(|s| rename(s, "b.example"), &[]),
        case(|s| rename(s, "A.EXAMPLE"), &[]),
        case(|s| rename(s, "Our server"), &[]),
        case(|s| rename(s, ""), &[]),
        case(|s| rename(s, &"x".repeat(64)), &[]),
        case(|s| rename(s, &"x".repeat(65)), &["common-name-too-long"]),
        case(|s| s.serial = vec![0], &["serial-zero"]),
        case(|s| s.serial = vec![0x80; 16], &["serial-negative"]),
        case(|s| s.serial = vec![1; 21], &["serial-too-long"]),
        case(|s| s.serial = [&[0][..], &[0xff; 20]].concat(), &[]),
        case(|s| s.serial = vec![1, 2, 3], &["serial-short"]),
        case(|s| s.serial = vec![1; 8], &[]),
        case(|s| s.serial = vec![0, 1, 2, 3, 4, 5, 6, 7, 8], &["malformed"]),
        case(|s| s.hosts(&["a.example", "*.a.example"]), &["wildcard"]),
        case(|s| s.hosts(&["a.example", "*.example"]), &["wildcard-bad"]),
        case(|s| s.hosts(&["a.example", "*", "b*.a.example", "a.*.example"]), &["wildcard-bad"]),
        case(|s| s.purposes(&[CLIENT_AUTH]), &["not-server-auth"]),
        case(|s| s.purposes(&[CLIENT_AUTH, SERVER_AUTH]), &[]),
        case(|s| s.purposes(&[&[2, 5, 29, 37, 0]]), &[]),
        case(|s| s.drop(EXTENDED_KEY_USAGE), &[]),
        case(|s| s.ca(None), &["leaf-is-ca"]),
        case(|s| s.usage(KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_CERT_SIGN), &["cert-sign-without-ca"]),
        case(|s| s.constrain(&["a.example"], &[]), &["constraints-without-ca"]),
        case(
            |s| {
                s.version = 1;
                s.extensions.clear();
            },
            &["version-1", "common-name-only"],
        ),
        case(|s| s.version = 1, &["version-1", "malformed"]),
        case(|s| s.drop(AUTHORITY_KEY_ID), &["no-authority-key-id"]),
        case(|s| s.drop(SUBJECT_KEY_ID), &[]),
        case(|s| s.hosts(&["a.example", "b c", ""]), &["san-invalid"]),
        case(|s| s.hosts(&["a.example", "a_b.example"]), &[]),
        case(|s| s.hosts(&["a.example", "10.0.0.1"]), &["san-address-as-dns"]),
        case(|s| s.names(&[(2, b"a.example"), (7, &[10, 0, 0])]), &["san-bad-address"]),
        case(|s| s.names(&[(2, b"a.example"), (7, &[10, 0, 0, 1])]), &[]),
        case(|s| s.hosts(&["a.example", "nas.local"]), &[]),
        case(
            |s| {
                s.put(CT_POISON, true, |w| {
                    w.null();
                })
            },
            &["precertificate"],
        ),
        case(
            |s| {
                s.put(&[1, 2, 3, 4], true, |w| {
                    w.null();
                })
            },
            &["unknown-critical"],
        ),
        case(
            |s| {
                s.put(&[1, 2, 3, 4], false, |w| {
                    w.null();
                })
            },
            &[],
        ),
        case(|s| s.issuer = name(""), &["empty-issuer"]),
        case(|s| s.usage(KeyUsage::KEY_AGREEMENT), &["key-usage"]),
        case(|s| s.drop(KEY_USAGE), &[]),
        case(
            |s| {
                s.put(EXTENDED_KEY_USAGE, false, |w| {
                    w.null();
                })
            },
            &["malformed"],
        ),
    ];
    check(&cases, LintContext::for_private_leaf(NOW), healthy_leaf);
}

#[test]
fn each_rule_for_publicly_trusted_leaves_reports_its_violation() {
    let cases = [
        case(|_| {}, &[]),
        case(|s| set_dates(s, -1, 199), &[]),
        case(|s| set_dates(s, -1, 200), &["lifetime-public"]),
        case(|s| set_dates(s, -300, 98), &[]),
        case(|s| set_dates(s, -300, 99), &["lifetime-public"]),
        case(|s| s.drop(SUBJECT_ALT_NAME), &["no-san"]),
        case(|s| rename(s, "b.example"), &["common-name-not-in-san"]),
        case(|s| s.hosts(&["a.example", "a_b.example"]), &["san-underscore"]),
        case(|s| s.hosts(&["a.example", "nas.local", "nas"]), &["internal-name"]),
        case(|s| s.names(&[(2, b"a.example"), (7, &[10, 0, 0, 1])]), &["internal-name"]),
    ];
    let context = LintContext { publicly_trusted: true, ..LintContext::for_private_leaf(NOW) };
    check(&cases, context, healthy_leaf);
}

#[test]
fn each_ca_rule_reports_its_violation() {
    let cases = [
        case(|_| {}, &[]),
        case(|s| s.usage(KeyUsage::CRL_SIGN), &["ca-without-cert-sign"]),
        case(|s| s.drop(SUBJECT_KEY_ID), &["no-subject-key-id"]),
        case(|s| set_dates(s, -900, -1), &["expired"]),
        case(|s| s.hosts(&["b c"]), &[]),
        case(|s| s.serial = vec![5], &["serial-short"]),
    ];
    let context = LintContext { leaf: false, ..LintContext::for_private_leaf(NOW) };
    check(&cases, context, |key, issuer| authority("Middle", key, "Root", issuer));
}

#[test]
fn root_is_exempt_from_serial_key_id_and_signature_rules() {
    let key = Key::new();
    let mut root = authority("Root", &key, "Root", &key);
    root.serial = vec![1];
    root.drop(AUTHORITY_KEY_ID);
    root.drop(SUBJECT_KEY_ID);
    root.algorithm = algorithm(MD5_RSA);
    let context = LintContext { leaf: false, ..LintContext::for_private_leaf(NOW) };
    assert_eq!(codes(&root.certificate(&key), &context), [""; 0]);
    let folder = tempfile::tempdir().unwrap();
    let der =
        openssl(&folder, "req -x509 -newkey rsa:2048 -sha1 -nodes -keyout k -outform DER -subj /CN=Root");
    let root = Certificate::parse(&der).unwrap();
    let context = LintContext { leaf: false, ..LintContext::for_private_leaf(root.not_before) };
    assert_eq!(codes(&root, &context), [""; 0]);
}

#[test]
fn root_rollover_certificate_needs_a_strong_signature() {
    let (old, new) = (Key::new(), Key::new());
    let context = LintContext { leaf: false, ..LintContext::for_private_leaf(NOW) };
    for (arcs, want) in [(MD5_RSA, "weak-signature"), (SHA1_ECDSA, "sha1-signature")] {
        let mut rollover = authority("Root", &new, "Root", &old);
        rollover.algorithm = algorithm(arcs);
        assert_eq!(codes(&rollover.certificate(&old), &context), [want]);
    }
    // Without key identifiers, the signature shows which key signed the certificate.
    let mut rollover = authority("Root", &new, "Root", &old);
    rollover.drop(AUTHORITY_KEY_ID);
    rollover.algorithm = algorithm(SHA1_ECDSA);
    assert_eq!(codes(&rollover.certificate(&old), &context), ["sha1-signature"]);
}

#[test]
fn evidence_is_shortened_when_many_names_are_invalid() {
    let (key, issuer) = (Key::new(), Key::new());
    let hosts: Vec<String> = (0..2_000).map(|n| format!("bad name {n}")).collect();
    let mut spec = leaf(&key, "Root", &issuer);
    spec.hosts(&hosts.iter().map(String::as_str).collect::<Vec<_>>());
    let findings = lint(&spec.certificate(&issuer), &LintContext::for_private_leaf(NOW));
    let invalid = findings.iter().find(|f| f.rule.code == "certificate.san-invalid").unwrap();
    assert!(invalid.evidence.ends_with("and 1995 more"), "{}", invalid.evidence);
}

#[test]
fn validity_bounds_are_inclusive() {
    let (key, issuer) = (Key::new(), Key::new());
    let certificate = leaf(&key, "Root", &issuer).certificate(&issuer);
    let at = |now: UnixTime| codes(&certificate, &LintContext::for_private_leaf(now));
    assert_eq!(at(certificate.not_after), ["expiring"]);
    assert_eq!(at(certificate.not_after.plus(1)), ["expired"]);
    assert_eq!(at(certificate.not_before), [""; 0]);
    assert_eq!(at(certificate.not_before.plus(-1)), ["not-yet-valid"]);
}
