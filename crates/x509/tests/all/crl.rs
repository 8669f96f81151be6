//! Tests of CRLs: ours are parsed by OpenSSL, and OpenSSL's here.

use std::fs;

use proptest::prelude::*;
use x509::crl::{Crl, CrlSpec, ParseError, Reason, Revoked, Scope, tbs_crl};
use x509::{DAY, SerialNumber, SignatureAlgorithm, UnixTime};

use crate::fields::{openssl, pem};
use crate::signing::{Authority, Key, LONG, algorithms, openssl_knows};

fn spec(ca: &Authority) -> CrlSpec<'_> {
    CrlSpec {
        signature: ca.key.algorithm.clone(),
        issuer: &ca.certificate.subject.der,
        this_update: LONG.0,
        next_update: LONG.1,
        number: u64::MAX,
        authority_key_id: ca.certificate.subject_key_id.as_deref().unwrap(),
        base: None,
        distribution_point: None,
        scope: Scope::All,
        freshest: None,
    }
}

fn entries() -> Vec<Revoked> {
    let entry = |number: u8, reason, invalidity_date| Revoked {
        serial: SerialNumber::from_random([number; 16]),
        at: UnixTime(1_780_272_000),
        reason,
        invalidity_date,
    };
    let mut entries: Vec<_> =
        Reason::ALL.into_iter().map(|reason| entry(reason as u8, Some(reason), None)).collect();
    entries[0].reason = None;
    entries.push(entry(20, None, Some(UnixTime(1_700_000_000))));
    entries.push(entry(21, Some(Reason::KeyCompromise), Some(UnixTime(1_700_000_000))));
    // From 2050 on, times are encoded as GeneralizedTime.
    entries.push(Revoked { at: UnixTime(2_600_000_000), ..entry(22, None, None) });
    entries
}

#[test]
fn built_crls_are_parsed_back() {
    let ca = Authority::new(SignatureAlgorithm::EcdsaSha256);
    let full = CrlSpec { freshest: Some("http://c.example/delta"), ..spec(&ca) };
    let delta = CrlSpec { base: Some(7), ..spec(&ca) };
    let point = "http://c.example/shard/3";
    let shard = CrlSpec { distribution_point: Some(point), scope: Scope::EndEntities, ..spec(&ca) };
    let authorities = CrlSpec { scope: Scope::Authorities, ..spec(&ca) };
    for (spec, entries) in [(full, entries()), (delta, vec![]), (shard, entries()), (authorities, vec![])] {
        let crl = Crl::parse(&ca.key.signed(&tbs_crl(&spec, &entries))).unwrap();
        assert_eq!(crl.signed_by(&ca.certificate.public_key), Ok(()));
        assert_eq!(crl.issuer.der, ca.certificate.subject.der);
        assert_eq!((crl.this_update, crl.next_update), (LONG.0, Some(LONG.1)));
        assert_eq!(crl.number.as_ref().unwrap().as_u64(), Some(u64::MAX));
        assert_eq!(crl.base.as_ref().and_then(SerialNumber::as_u64), spec.base);
        assert_eq!(crl.authority_key_id, ca.certificate.subject_key_id);
        assert_eq!(crl.distribution_points.first().map(String::as_str), spec.distribution_point);
        assert_eq!(crl.freshest.first().map(String::as_str), spec.freshest);
        assert_eq!(crl.scope, spec.scope);
        assert_eq!(crl.unknown_critical, [""; 0]);
        assert_eq!(crl.entries().collect::<Vec<_>>(), entries);
        assert_eq!(crl.len(), entries.len());
        let found = crl.find(&SerialNumber::from_random([1; 16]));
        assert_eq!(found.and_then(|entry| entry.reason), entries.get(1).and_then(|entry| entry.reason));
        assert_eq!(crl.find(&SerialNumber::from_random([99; 16])), None);
    }
}

#[test]
fn openssl_verifies_our_crls_and_checks_certificates_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let leaf = Key::new(SignatureAlgorithm::EcdsaSha256);
    let subject = x509::DistinguishedName::from_text("CN=leaf").unwrap();
    for algorithm in algorithms().into_iter().filter(openssl_knows) {
        let ca = Authority::new(algorithm);
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        write("ca", pem(&ca.certificate.der));
        for (name, number) in [("good", 99), ("bad", 1)] {
            let serial = SerialNumber::from_random([number; 16]);
            write(name, pem(&ca.issue(&serial, &subject.der, &leaf.spki, &[])));
        }
        let crl = ca.key.signed(&tbs_crl(&spec(&ca), &entries()));
        fs::write(folder.path().join("crl"), &crl).unwrap();
        openssl(&folder, "crl -inform der -in crl -CAfile ca -noout -verify");
        fs::write(folder.path().join("crl.pem"), openssl(&folder, "crl -inform der -in crl")).unwrap();
        openssl(&folder, "verify -CAfile ca -CRLfile crl.pem -crl_check good");
        let refused = std::process::Command::new("openssl")
            .args(["verify", "-CAfile", "ca", "-CRLfile", "crl.pem", "-crl_check", "bad"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let openssl_output = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && openssl_output.contains("certificate revoked"),
            "{openssl_output}"
        );
    }
}

#[test]
fn openssl_prints_the_contents_of_our_crl() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(SignatureAlgorithm::Ed25519);
    let point = Some("http://c.example/shard/3");
    let spec = CrlSpec { base: Some(7), distribution_point: point, scope: Scope::EndEntities, ..spec(&ca) };
    fs::write(folder.path().join("crl"), ca.key.signed(&tbs_crl(&spec, &entries()))).unwrap();
    let text = String::from_utf8(openssl(&folder, "crl -inform der -in crl -noout -text")).unwrap();
    let openssl_output = [
        "Version 2 (0x1)",
        "Issuer: C = DE, O = Acme, CN = Test Root",
        "18446744073709551615",
        "X509v3 Delta CRL Indicator: critical",
        "X509v3 Issuing Distribution Point: critical",
        "URI:http://c.example/shard/3",
        "Only User Certificates",
        "Serial Number: 41010101010101010101010101010101",
        "Key Compromise",
        "Remove From CRL",
        "Nov 14 22:13:20 2023 GMT",
    ];
    for line in openssl_output {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn openssl_crl_is_parsed() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[ca]\ndefault_ca = d\n[d]\ndatabase = index\ncrlnumber = number\ndefault_md = sha256\ncrl_extensions = e\n[e]\nauthorityKeyIdentifier = keyid\n";
    let index = "R\t300101000000Z\t260501000000Z,keyCompromise\t1234\tunknown\t/CN=a\n\
                 R\t300101000000Z\t260502000000Z\t00FF\tunknown\t/CN=b\n";
    for (name, text) in [("cnf", config), ("index", index), ("number", "1F\n")] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    openssl(&folder, "req -x509 -newkey rsa:2048 -nodes -keyout k -out ca -subj /CN=Root -days 30");
    openssl(&folder, "ca -config cnf -gencrl -keyfile k -cert ca -crldays 7 -out crl.pem");
    let pem = fs::read(folder.path().join("crl.pem")).unwrap();
    let (_, der) = x509::pem::blocks(&pem).next().unwrap();
    let crl = Crl::parse(&der).unwrap();
    assert_eq!(crl.number.as_ref().unwrap().as_u64(), Some(0x1f));
    assert_eq!(crl.next_update.unwrap().since(crl.this_update), 7 * DAY);
    let serials: Vec<_> = crl.entries().map(|entry| (entry.serial.to_string(), entry.reason)).collect();
    assert_eq!(serials, [("ff".to_owned(), None), ("1234".to_owned(), Some(Reason::KeyCompromise))]);
    let ca = fs::read(folder.path().join("ca")).unwrap();
    let ca = x509::Certificate::parse(&x509::pem::certificates(&ca).next().unwrap().1).unwrap();
    assert_eq!(crl.signed_by(&ca.public_key), Ok(()));
}

#[test]
fn malformed_crls_are_rejected() {
    let ca = Authority::new(SignatureAlgorithm::Ed25519);
    let good = ca.key.signed(&tbs_crl(&spec(&ca), &entries()));
    assert!(Crl::parse(&good).is_ok());
    for bad in [
        &[][..],
        &[0x30, 0],
        &good[1..],
        &good[..good.len() - 1],
        &[&good[..], &[0]].concat(),
        &ca.certificate.der,
    ] {
        assert!(Crl::parse(bad).is_err());
    }
    let huge = vec![0; Crl::DER_MAX + 1];
    assert_eq!(Crl::parse(&huge).unwrap_err(), ParseError::TooLong(huge.len()));
}

#[test]
fn crl_with_50000_entries_is_parsed_completely() {
    let ca = Authority::new(SignatureAlgorithm::Ed25519);
    let entry = |number: u64| Revoked {
        serial: SerialNumber::from_random((u128::from(number) * 0x9e37_79b9_7f4a_7c15).to_be_bytes()),
        at: UnixTime(1_780_272_000 + number as i64),
        reason: Some(Reason::Superseded),
        invalidity_date: None,
    };
    let entries: Vec<_> = (0..50_000).map(entry).collect();
    let tbs = tbs_crl(&spec(&ca), &entries);
    let crl = Crl::parse(&ca.key.signed(&tbs)).unwrap();
    assert!(crl.entries().eq(entries.iter().cloned()));
}

proptest! {
    #[test]
    fn arbitrary_crl_entries_round_trip(
        entries in prop::collection::vec((any::<[u8; 16]>(), -631_152_000i64..253_402_300_799, 0usize..11, prop::option::of(0i64..253_402_300_799)), 0..20)
    ) {
        let read = |(serial, at, reason, invalid): ([u8; 16], i64, usize, Option<i64>)| Revoked {
            serial: SerialNumber::from_random(serial),
            at: UnixTime(at),
            reason: Reason::ALL.get(reason).copied().filter(|reason| *reason != Reason::Unspecified),
            invalidity_date: invalid.map(UnixTime),
        };
        let entries: Vec<Revoked> = entries.into_iter().map(read).collect();
        static CA: std::sync::OnceLock<Authority> = std::sync::OnceLock::new();
        let ca = CA.get_or_init(|| Authority::new(SignatureAlgorithm::Ed25519));
        let der = ca.key.signed(&tbs_crl(&spec(ca), &entries));
        prop_assert_eq!(x509::der::first_sloppy_length(&der), None);
        prop_assert_eq!(Crl::parse(&der).unwrap().entries().collect::<Vec<_>>(), entries);
    }

    /// The same check as the fuzz target `crl`, on stable Rust.
    #[test]
    fn corrupted_crls_are_parsed_or_rejected_without_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        static SAMPLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let sample = SAMPLE.get_or_init(|| {
            let ca = Authority::new(SignatureAlgorithm::Ed25519);
            let spec = CrlSpec { distribution_point: Some("http://c.example"), base: Some(1), ..spec(&ca) };
            ca.key.signed(&tbs_crl(&spec, &entries()))
        });
        let mut der = sample.clone();
        for (at, byte) in edits {
            let at = at.index(der.len());
            der[at] = byte;
        }
        if let Ok(crl) = Crl::parse(&der) {
            prop_assert_eq!(crl.entries().count(), crl.len());
        }
    }
}
