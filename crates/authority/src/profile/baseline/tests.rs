use keys::{KeyType, PrivateKey, Signer};

use super::*;

fn day(year: i64, month: i64, day: i64) -> UnixTime {
    UnixTime::from_civil(year, month, day, 0, 0, 0).unwrap()
}

/// A test case: the change to a valid proposal.
struct Case {
    names: Vec<GeneralName>,
    common_names: Vec<String>,
    organizational_unit: bool,
    key: PublicKey,
    signature: SignatureAlgorithm,
    serial: SerialNumber,
    not_before: UnixTime,
    seconds: i64,
    purposes: Vec<String>,
    policies: Vec<String>,
    crl: bool,
    now: UnixTime,
}

impl Case {
    fn good() -> Self {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        Self {
            names: vec![GeneralName::Dns("www.example.com".to_owned())],
            common_names: vec!["www.example.com".to_owned()],
            organizational_unit: false,
            key: PublicKey::parse(key.spki()).unwrap(),
            signature: SignatureAlgorithm::EcdsaSha256,
            serial: SerialNumber::from_random([7; 16]),
            not_before: day(2026, 11, 21),
            seconds: 90 * DAY,
            purposes: vec![SERVER_AUTH.to_owned()],
            policies: vec![POLICIES[0].to_owned()],
            crl: true,
            now: day(2026, 11, 21),
        }
    }

    fn sections(&self) -> Vec<&'static str> {
        let proposal = ProposedCertificate {
            names: &self.names,
            common_names: &self.common_names,
            organizational_unit: self.organizational_unit,
            key: &self.key,
            signature: &self.signature,
            serial: &self.serial,
            not_before: self.not_before,
            not_after: self.not_before.plus(self.seconds - 1),
            purposes: &self.purposes,
            policies: &self.policies,
            crl: self.crl,
            ocsp: false,
        };
        violations(&proposal, self.now).into_iter().map(|violation| violation.section).collect()
    }
}

#[test]
fn maximum_lifetime_shortens_on_its_dates() {
    let table = [
        (day(2026, 3, 14), 398),
        (day(2026, 3, 15), 200),
        (day(2027, 3, 14), 200),
        (day(2027, 3, 15), 100),
        (day(2029, 3, 14), 100),
        (day(2029, 3, 15), 47),
        (day(2040, 1, 1), 47),
    ];
    for (now, days) in table {
        assert_eq!(lifetime_max_seconds(now), days * DAY, "{now}");
        let within = Case { now, not_before: now, seconds: days * DAY, ..Case::good() };
        assert!(within.sections().is_empty(), "{now}: {:?}", within.sections());
        let over = Case { seconds: days * DAY + 1, ..within };
        assert_eq!(over.sections(), ["BR section 6.3.2"], "{now}");
    }
}

#[test]
fn backdating_does_not_apply_older_rules() {
    let now = day(2027, 3, 15);
    let case = Case { now, not_before: now.plus(-DAY), seconds: 150 * DAY, ..Case::good() };
    assert_eq!(case.sections(), ["BR section 6.3.2"]);
    let case = Case { not_before: day(2026, 11, 21).plus(-3 * DAY), ..Case::good() };
    assert_eq!(case.sections(), ["BR section 7.1.2.7"]);
}

#[test]
fn internal_names_and_public_suffixes_are_rejected() {
    let table: [(&str, &[&str]); 21] = [
        ("www.example.com", &[]),
        ("*.example.com", &[]),
        ("example.co.uk", &[]),
        ("*.github.io", &[]),
        ("8.8.8.8", &[]),
        ("2606:4700::1111", &[]),
        ("server", &["BR section 4.2.2"]),
        ("db.internal.corp", &["BR section 4.2.2"]),
        ("host.local", &["BR section 4.2.2"]),
        ("com", &["BR section 7.1.2.7.12"]),
        ("*.co.uk", &["BR section 3.2.2.6"]),
        ("*.com", &["BR section 3.2.2.6"]),
        ("a_b.example.com", &["BR section 7.1.2.7.12"]),
        ("ab--cd.example.com", &["BR section 7.1.2.7.12"]),
        ("xn--bcher-kva.example.com", &[]),
        ("10.1.2.3", &["BR section 7.1.2.7.12"]),
        ("127.0.0.1", &["BR section 7.1.2.7.12"]),
        ("100.64.0.1", &["BR section 7.1.2.7.12"]),
        ("fd00::1", &["BR section 7.1.2.7.12"]),
        ("::ffff:10.0.0.1", &["BR section 7.1.2.7.12"]),
        ("2001:db8::1", &["BR section 7.1.2.7.12"]),
    ];
    for (text, sections) in table {
        let name = text.parse().map_or_else(|_| GeneralName::Dns(text.to_owned()), GeneralName::Ip);
        let case = Case { names: vec![name], common_names: Vec::new(), ..Case::good() };
        assert_eq!(case.sections(), sections, "{text}");
    }
}

#[test]
fn each_baseline_requirement_violation_is_reported() {
    let key = |kind| PublicKey::parse(PrivateKey::generate(kind).unwrap().spki()).unwrap();
    let weak = PublicKey { bits: 2_047, ..key(KeyType::Rsa2048) };
    let even = PublicKey { rsa_exponent: Some(65_536), ..key(KeyType::Rsa2048) };
    let cases: [(Case, &[&str]); 15] = [
        (Case { names: Vec::new(), common_names: Vec::new(), ..Case::good() }, &["BR section 7.1.2.7.12"]),
        (
            Case {
                names: vec![GeneralName::Email("a@example.com".into())],
                common_names: Vec::new(),
                ..Case::good()
            },
            &["BR section 7.1.2.7.12"],
        ),
        (Case { common_names: vec!["other.example.com".into()], ..Case::good() }, &["BR section 7.1.4.3"]),
        (Case { organizational_unit: true, ..Case::good() }, &["BR section 7.1.2.7.2"]),
        (Case { key: key(KeyType::Rsa2048), ..Case::good() }, &[]),
        (Case { key: weak, ..Case::good() }, &["BR section 6.1.5"]),
        (Case { key: even, ..Case::good() }, &["BR section 6.1.6"]),
        (Case { key: key(KeyType::Ed25519), ..Case::good() }, &["BR section 7.1.3.1"]),
        (Case { signature: SignatureAlgorithm::Ed25519, ..Case::good() }, &["BR section 7.1.3.2"]),
        (Case { purposes: vec![CLIENT_AUTH.into()], ..Case::good() }, &["BR section 7.1.2.7.10"]),
        (
            Case { purposes: vec![SERVER_AUTH.into(), "1.3.6.1.5.5.7.3.3".into()], ..Case::good() },
            &["BR section 7.1.2.7.10"],
        ),
        (Case { policies: Vec::new(), ..Case::good() }, &["BR section 7.1.2.7.9"]),
        (Case { crl: false, ..Case::good() }, &["BR section 7.1.2.11.2"]),
        (Case { crl: false, seconds: 7 * DAY, ..Case::good() }, &[]),
        (Case { serial: SerialNumber::from_content(&[1, 2, 3]), ..Case::good() }, &["BR section 7.1.2.7"]),
    ];
    for (number, (case, sections)) in cases.iter().enumerate() {
        assert_eq!(case.sections(), *sections, "case {number}");
    }
}
