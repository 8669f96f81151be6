//! Tests of built certificates, parsed here and by OpenSSL.

use proptest::prelude::*;
use x509::build::{Attribute, Extension, distinguished_name, key_id};
use x509::{
    BasicConstraints, Certificate, DistinguishedName, GeneralName, KeyUsage, NameConstraints, SerialNumber,
    SignatureAlgorithm, Subtree,
};

use crate::fields::openssl;
use crate::signing::{Authority, Key, algorithms, openssl_knows};

fn names() -> Vec<GeneralName> {
    let texts =
        ["a.example", "*.b.example", "10.0.0.1", "2001:db8::1", "me@a.example", "spiffe://a.example/x"];
    let mut names: Vec<_> = texts.iter().map(|text| GeneralName::parse(text).unwrap()).collect();
    names.push(GeneralName::Directory("CN=x, O=Acme".to_owned()));
    names
}

fn constraints() -> NameConstraints {
    let directory = DistinguishedName::from_text("O=Acme").unwrap();
    NameConstraints {
        permitted: vec![
            Subtree::Dns("a.example".to_owned()),
            Subtree::Ip([10, 0, 0, 0].into(), [255, 0, 0, 0].into()),
            Subtree::Directory(directory.der),
        ],
        excluded: vec![Subtree::Email("b.example".to_owned()), Subtree::Uri(".c.example".to_owned())],
    }
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

fn every_extension(key: &Key, issuer: &Certificate) -> Vec<Extension> {
    vec![
        Extension::subject_alt_names(&names()),
        Extension::basic_constraints(BasicConstraints { ca: true, path_len: Some(3) }),
        Extension::key_usage(KeyUsage(KeyUsage::KEY_CERT_SIGN | KeyUsage::DECIPHER_ONLY)),
        Extension::extended_key_usage(&texts(&["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"])),
        Extension::subject_key_id(&key_id(&key.spki)),
        Extension::authority_key_id(issuer.subject_key_id.as_deref().unwrap()),
        Extension::authority_info_access(&texts(&["http://o.example/"]), &texts(&["http://i.example/i"])),
        Extension::crl_distribution_points(&texts(&["http://c.example/1", "http://c.example/2"])),
        Extension::freshest_crl(&texts(&["http://c.example/delta"])),
        Extension::certificate_policies(&texts(&["2.23.140.1.2.1", "1.3.6.1.4.1.99999.1"])),
        Extension::name_constraints(&constraints()),
        Extension::must_staple(),
        Extension::ocsp_no_check(),
        Extension::custom("1.3.6.1.4.1.99999.2", vec![5, 0]),
    ]
}

#[test]
fn every_extension_is_built_and_parsed_back() {
    let ca = Authority::new(SignatureAlgorithm::EcdsaSha256);
    let key = Key::new(SignatureAlgorithm::EcdsaSha256);
    let extensions = every_extension(&key, &ca.certificate);
    let subject = DistinguishedName::from_text("CN=a.example, O=Acme").unwrap();
    let serial = SerialNumber::from_random([0xff; 16]);
    let der = ca.issue(&serial, &subject.der, &key.spki, &extensions);
    let read = Certificate::parse(&der).unwrap();
    assert_eq!(read.faults, [""; 0]);
    assert_eq!((read.version, &read.serial), (3, &serial));
    assert_eq!(read.subject, subject);
    assert_eq!(read.subject_alt_names, names());
    assert_eq!(read.basic_constraints, Some(BasicConstraints { ca: true, path_len: Some(3) }));
    assert_eq!(read.key_usage, Some(KeyUsage(KeyUsage::KEY_CERT_SIGN | KeyUsage::DECIPHER_ONLY)));
    assert_eq!(read.extended_key_usage.as_ref().unwrap().len(), 2);
    assert_eq!(read.subject_key_id.as_deref(), Some(&key_id(&key.spki)[..]));
    assert_eq!(read.authority_key_id, ca.certificate.subject_key_id);
    assert_eq!(read.ocsp_urls, ["http://o.example/"]);
    assert_eq!(read.issuer_urls, ["http://i.example/i"]);
    assert_eq!(read.crl_urls, ["http://c.example/1", "http://c.example/2"]);
    assert_eq!(read.policies, ["2.23.140.1.2.1", "1.3.6.1.4.1.99999.1"]);
    assert_eq!(read.name_constraints, Some(constraints()));
    assert!(read.must_staple);
    assert_eq!(read.extensions(), extensions);
    assert_eq!(read.signed_by(&ca.certificate.public_key), Ok(()));

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c"), &der).unwrap();
    let text = String::from_utf8(openssl(&folder, "x509 -inform der -in c -noout -text")).unwrap();
    let expected_lines = [
        "Version: 3 (0x2)",
        "7f:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff",
        "Issuer: C = DE, O = Acme, CN = Test Root",
        "Subject: O = Acme, CN = a.example",
        "DNS:a.example, DNS:*.b.example, IP Address:10.0.0.1, IP Address:2001:DB8:0:0:0:0:0:1, \
         email:me@a.example, URI:spiffe://a.example/x, DirName:/O=Acme/CN=x",
        "CA:TRUE, pathlen:3",
        "Certificate Sign, Decipher Only",
        "TLS Web Server Authentication, TLS Web Client Authentication",
        "OCSP - URI:http://o.example/",
        "CA Issuers - URI:http://i.example/i",
        "URI:http://c.example/2",
        "X509v3 Freshest CRL",
        "Policy: 2.23.140.1.2.1",
        "IP:10.0.0.0/255.0.0.0",
        "DirName:O = Acme",
        "email:b.example",
        "status_request",
        "OCSP No Check",
    ];
    for line in expected_lines {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn openssl_verifies_certificates_of_every_algorithm() {
    let folder = tempfile::tempdir().unwrap();
    let leaf = Key::new(SignatureAlgorithm::EcdsaSha256);
    for algorithm in algorithms() {
        let ca = Authority::new(algorithm.clone());
        assert_eq!(ca.certificate.signature, algorithm);
        assert_eq!(ca.certificate.signed_by(&ca.certificate.public_key), Ok(()), "{algorithm}");
        let extensions = [
            Extension::subject_alt_names(&names()[..1]).critical(true),
            Extension::authority_key_id(ca.certificate.subject_key_id.as_deref().unwrap()),
        ];
        let empty = DistinguishedName::empty();
        let der = ca.issue(&SerialNumber::from_random([1; 16]), &empty.der, &leaf.spki, &extensions);
        let certificate = Certificate::parse(&der).unwrap();
        assert_eq!(certificate.signed_by(&ca.certificate.public_key), Ok(()), "{algorithm}");
        assert_eq!(certificate.faults, [""; 0]);
        if openssl_knows(&algorithm) {
            std::fs::write(folder.path().join("ca"), crate::fields::pem(&ca.certificate.der)).unwrap();
            std::fs::write(folder.path().join("c"), crate::fields::pem(&der)).unwrap();
            openssl(&folder, "verify -x509_strict -check_ss_sig -CAfile ca c");
        }
    }
}

#[test]
fn subject_is_built_from_attributes_and_parsed_back() {
    let attributes = [
        (Attribute::Country, "DE".to_owned()),
        (Attribute::Organization, "Ä & Co, \"KG\"".to_owned()),
        (Attribute::DomainComponent, "example".to_owned()),
        (Attribute::CommonName, " a#b ".to_owned()),
        (Attribute::Email, "me@a.example".to_owned()),
    ];
    let name = distinguished_name(&attributes);
    assert_eq!(name.attributes(), attributes);
    assert_eq!(DistinguishedName::from_text(&name.text), Ok(name));
}

proptest! {
    #[test]
    fn distinguished_names_round_trip_through_text(values in prop::collection::vec("\\PC{1,20}", 1..5)) {
        let attributes: Vec<_> = values.into_iter().map(|value| (Attribute::CommonName, value)).collect();
        let name = distinguished_name(&attributes);
        prop_assert_eq!(DistinguishedName::from_text(&name.text).unwrap().attributes(), attributes);
    }

    #[test]
    fn serial_numbers_are_positive_and_round_trip_through_text(bytes: [u8; 16]) {
        let serial = SerialNumber::from_random(bytes);
        prop_assert!(!serial.is_zero() && !serial.is_negative() && serial.content().len() == 16);
        prop_assert_eq!(serial.to_string().parse::<SerialNumber>().unwrap(), serial);
    }

    #[test]
    fn object_identifiers_round_trip_through_dotted_text(first in 0u64..3, second in 0u64..40, rest: Vec<u64>) {
        let arcs: Vec<u64> = [first, second].into_iter().chain(rest).collect();
        let dotted = arcs.iter().map(u64::to_string).collect::<Vec<_>>().join(".");
        let content = x509::der::oid_content(&dotted).unwrap();
        prop_assert_eq!(x509::der::oid_text(&content), dotted);
    }

    #[test]
    fn arbitrary_text_parses_without_panic(text: String) {
        let _ = DistinguishedName::from_text(&text);
        let _ = x509::der::oid_content(&text);
        if let Ok(name) = GeneralName::parse(&text) {
            prop_assert!(name.is_writable());
            prop_assert_eq!(GeneralName::parse(&name.to_string()), Ok(name));
        }
    }
}

#[test]
fn invalid_dotted_identifiers_are_rejected() {
    for text in ["", "1", "1.", ".1", "3.1", "1.40", "1.2.-3", "1.2.+3", "1.2.18446744073709551616", "bad:1"]
    {
        assert_eq!(x509::der::oid_content(text), None, "{text}");
    }
    assert_eq!(x509::der::oid_content("bad:ff"), Some(vec![0xff]));
}
