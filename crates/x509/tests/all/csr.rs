//! Tests of certificate requests: OpenSSL's are parsed here, and ours by OpenSSL.

use std::fs;

use proptest::prelude::*;
use x509::build::Extension;
use x509::csr::{self, CertificateRequest, ParseError};
use x509::{DistinguishedName, GeneralName, KeyAlgorithm, KeyUsage, SignatureAlgorithm, SignatureError};

use crate::fields::openssl;
use crate::signing::{Key, algorithms, openssl_knows};

const CONFIG: &str = "\
[req]
prompt = no
distinguished_name = dn
attributes = attributes
req_extensions = extensions
[dn]
O = Acme
CN = www.A.example
[attributes]
challengePassword = s3cret word
unstructuredName = whatever
[extensions]
subjectAltName = DNS:A.example,DNS:*.b.example,IP:10.0.0.1,email:me@a.example,URI:spiffe://a/x
tlsfeature = status_request
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,1.2.3.4
1.2.3.4.5 = critical,DER:0500
";

#[test]
fn openssl_requests_are_parsed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cnf"), CONFIG).unwrap();
    let keys = [
        ("rsa:2048 -sha256", KeyAlgorithm::Rsa, SignatureAlgorithm::RsaSha256),
        ("rsa:3072 -sha512", KeyAlgorithm::Rsa, SignatureAlgorithm::RsaSha512),
        ("rsa:2048 -sigopt rsa_padding_mode:pss", KeyAlgorithm::Rsa, SignatureAlgorithm::RsaPss(256)),
        ("ec -pkeyopt ec_paramgen_curve:P-256", KeyAlgorithm::EcP256, SignatureAlgorithm::EcdsaSha256),
        (
            "ec -pkeyopt ec_paramgen_curve:P-384 -sha384",
            KeyAlgorithm::EcP384,
            SignatureAlgorithm::EcdsaSha384,
        ),
        ("ed25519", KeyAlgorithm::Ed25519, SignatureAlgorithm::Ed25519),
    ];
    for (how, key, signature) in keys {
        let pem = openssl(&folder, &format!("req -new -config cnf -nodes -keyout k -newkey {how}"));
        let request = CertificateRequest::from_pem_or_der(&pem).unwrap();
        assert_eq!(request.verify(), Ok(()), "{how}");
        assert_eq!((&request.public_key.algorithm, &request.signature), (&key, &signature));
        assert_eq!(request.subject.text, "CN=www.A.example, O=Acme");
        assert_eq!(request.challenge_password.as_deref(), Some("s3cret word"));
        assert!(!format!("{request:?}").contains("s3cret"));
        assert!(request.must_staple);
        assert_eq!(request.other_attributes, ["1.2.840.113549.1.9.2"]);
        assert_eq!(request.key_usage, Some(KeyUsage(KeyUsage::DIGITAL_SIGNATURE)));
        assert_eq!(request.extended_key_usage.as_deref().unwrap(), ["1.3.6.1.5.5.7.3.1", "1.2.3.4"]);
        assert_eq!(request.subject_alt_names[0], GeneralName::Dns("A.example".to_owned()));
        let names: Vec<_> = request.names().iter().map(ToString::to_string).collect();
        let want = ["a.example", "*.b.example", "10.0.0.1", "me@a.example", "spiffe://a/x", "www.a.example"];
        assert_eq!(names, want);
        let critical = request.extensions.last().unwrap();
        assert_eq!(critical, &Extension::custom("1.2.3.4.5", vec![5, 0]).critical(true));
        let der = CertificateRequest::from_pem_or_der(&request.der).unwrap();
        assert_eq!(der.der, request.der);
    }
}

#[test]
fn request_without_attributes_is_parsed() {
    let folder = tempfile::tempdir().unwrap();
    let pem = openssl(&folder, "req -new -subj /CN=Jane -nodes -keyout k -newkey ed25519 -outform der");
    let request = CertificateRequest::parse(&pem).unwrap();
    assert_eq!(request.verify(), Ok(()));
    assert_eq!((request.names(), request.extensions.len()), (vec![], 0));
    assert_eq!((request.challenge_password, request.must_staple), (None, false));
}

fn ours(key: &Key, password: Option<&str>) -> Vec<u8> {
    let subject = DistinguishedName::from_text("CN=a.example, O=Acme").unwrap();
    let names = [GeneralName::parse("a.example").unwrap(), GeneralName::parse("b.example").unwrap()];
    let extensions = [Extension::subject_alt_names(&names), Extension::must_staple()];
    key.signed(&csr::tbs(&subject.der, &key.spki, &extensions, password))
}

#[test]
fn openssl_reads_our_requests() {
    let folder = tempfile::tempdir().unwrap();
    for algorithm in algorithms() {
        let key = Key::new(algorithm.clone());
        let der = ours(&key, Some("pä"));
        let request = CertificateRequest::parse(&der).unwrap();
        assert_eq!(request.verify(), Ok(()), "{algorithm}");
        assert_eq!(request.challenge_password.as_deref(), Some("pä"));
        assert_eq!(request.names().len(), 2);
        assert!(request.must_staple);
        if openssl_knows(&algorithm) {
            fs::write(folder.path().join("r"), &der).unwrap();
            openssl(&folder, "req -inform der -in r -noout -verify");
            let text = openssl(&folder, "req -inform der -in r -noout -text");
            let text = String::from_utf8_lossy(&text);
            assert!(
                text.contains("DNS:a.example, DNS:b.example") && text.contains("status_request"),
                "{text}"
            );
        }
    }
}

#[test]
fn request_with_a_foreign_signature_fails_verification() {
    let (key, other) = (Key::new(SignatureAlgorithm::EcdsaSha256), Key::new(SignatureAlgorithm::EcdsaSha256));
    let request = CertificateRequest::parse(&ours(&key, None)).unwrap();
    let forged = x509::build::signed(request.tbs(), &key.algorithm, &other.sign(request.tbs()));
    assert_eq!(CertificateRequest::parse(&forged).unwrap().verify(), Err(SignatureError::Invalid));
    let moved = x509::build::signed(
        CertificateRequest::parse(&ours(&key, Some("x"))).unwrap().tbs(),
        &key.algorithm,
        request.signature_value(),
    );
    assert_eq!(CertificateRequest::parse(&moved).unwrap().verify(), Err(SignatureError::Invalid));
    let unsigned = x509::build::signed(request.tbs(), &SignatureAlgorithm::Other("1.2.3".into()), b"");
    assert!(matches!(
        CertificateRequest::parse(&unsigned).unwrap().verify(),
        Err(SignatureError::Unsupported(_))
    ));
}

#[test]
fn malformed_requests_are_rejected() {
    let key = Key::new(SignatureAlgorithm::Ed25519);
    let good = ours(&key, None);
    let trailing = [&good[..], &[0]].concat();
    let twice = Extension::must_staple();
    let empty = DistinguishedName::empty();
    let repeated = key.signed(&csr::tbs(&empty.der, &key.spki, &[twice.clone(), twice], None));
    let names = Extension::custom("2.5.29.17", vec![0x30, 1]);
    let cut_names = key.signed(&csr::tbs(&empty.der, &key.spki, &[names], None));
    let long = key.signed(&csr::tbs(&empty.der, &key.spki, &[], Some(&"x".repeat(256))));
    for bad in
        [&[][..], &[0x30, 0], b"hello", &trailing, &repeated, &cut_names, &long, &good[..good.len() - 1]]
    {
        assert!(CertificateRequest::from_pem_or_der(bad).is_err(), "{bad:02x?}");
    }
    let huge = vec![0x30; CertificateRequest::DER_MAX + 1];
    assert_eq!(CertificateRequest::parse(&huge).unwrap_err(), ParseError::TooLong(huge.len()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The same check as the fuzz target `request`, on stable Rust.
    #[test]
    fn corrupted_requests_are_rejected_or_fail_verification(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        static SAMPLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let sample = SAMPLE.get_or_init(|| ours(&Key::new(SignatureAlgorithm::EcdsaSha256), Some("secret")));
        let mut der = sample.clone();
        for (at, byte) in &edits {
            let at = at.index(der.len());
            der[at] = *byte;
        }
        if let Some(cut) = cut {
            der.truncate(cut.index(der.len()));
        }
        if let Ok(request) = CertificateRequest::parse(&der) {
            let _ = request.names();
            // Every byte of the request is either signed or part of the signature.
            prop_assert_eq!(request.verify().is_ok(), der == *sample);
        } else {
            prop_assert!(der != *sample);
        }
    }
}
