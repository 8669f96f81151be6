//! Tests of OCSP: OpenSSL's requests are parsed here. Our requests are parsed and our responses accepted by OpenSSL.

use std::fs;

use proptest::prelude::*;
use x509::build::{Extension, key_sha1};
use x509::crl::Reason;
use x509::ocsp::{
    BasicResponse, CertificateId, ErrorStatus, OcspHash, Outcome, Request, Responder, ResponderError, Status,
    basic_response, error_response, parse_response, tbs_response,
};
use x509::{DAY, DistinguishedName, SerialNumber, SignatureAlgorithm, UnixTime};

use crate::fields::{openssl, pem};
use crate::signing::{Authority, Key, LONG, algorithms, openssl_knows};

fn serial(number: u8) -> SerialNumber {
    SerialNumber::from_random([number; 16])
}

#[test]
fn openssl_ocsp_requests_are_parsed() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(SignatureAlgorithm::EcdsaSha256);
    fs::write(folder.path().join("ca"), pem(&ca.certificate.der)).unwrap();
    let two = format!("-serial 0x{} -serial 0x{}", serial(1), serial(2));
    for (options, hash, nonce) in [
        ("-no_nonce", OcspHash::Sha1, false),
        ("-nonce", OcspHash::Sha1, true),
        ("-sha256", OcspHash::Sha256, true),
    ] {
        // The digest option applies to the serial numbers after it.
        openssl(&folder, &format!("ocsp {options} -issuer ca {two} -reqout q"));
        let der = fs::read(folder.path().join("q")).unwrap();
        let request = Request::parse(&der).unwrap();
        let want = [1, 2].map(|number| CertificateId::of(&ca.certificate, serial(number), hash));
        assert_eq!(request.certificates, want, "{options}");
        assert_eq!(request.nonce.is_some(), nonce, "{options}");
        assert_eq!(request.encode(), der, "{options}");
    }
}

#[test]
fn ocsp_requests_round_trip_and_invalid_ones_are_rejected() {
    let ca = Authority::new(SignatureAlgorithm::Ed25519);
    let id = |number| CertificateId::of(&ca.certificate, serial(number), OcspHash::Sha256);
    let of = |certificates, nonce: Option<usize>| Request {
        certificates,
        nonce: nonce.map(|length| vec![7; length]),
    };
    for good in [of(vec![id(1)], None), of((0..32).map(id).collect(), Some(128)), of(vec![id(1)], Some(1))] {
        assert_eq!(Request::parse(&good.encode()), Ok(good));
    }
    for bad in [
        of(vec![], None),
        of((0..33).map(id).collect(), None),
        of(vec![id(1)], Some(129)),
        of(vec![id(1)], Some(0)),
    ] {
        assert!(Request::parse(&bad.encode()).is_err());
    }
    let mut short = id(1);
    short.issuer_key_hash.truncate(20);
    assert!(Request::parse(&of(vec![short], None).encode()).is_err());
}

/// Returns the output of `openssl ocsp`: the status of each serial number, or its error.
fn run_openssl_ocsp(folder: &tempfile::TempDir, options: &str) -> String {
    let output = std::process::Command::new("openssl")
        .args(format!("ocsp -no_nonce -reqin q -respin r -issuer ca {options}").split(' '))
        .current_dir(folder.path())
        .output()
        .unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

#[test]
fn openssl_accepts_our_ocsp_responses() {
    let folder = tempfile::tempdir().unwrap();
    let responder_subject = DistinguishedName::from_text("CN=Responder").unwrap();
    for algorithm in algorithms().into_iter().filter(openssl_knows) {
        let ca = Authority::new(algorithm.clone());
        fs::write(folder.path().join("ca"), pem(&ca.certificate.der)).unwrap();
        let id = |number| CertificateId::of(&ca.certificate, serial(number), OcspHash::Sha1);
        let request = Request { certificates: vec![id(1), id(2), id(3)], nonce: Some(vec![9; 32]) };
        fs::write(folder.path().join("q"), request.encode()).unwrap();
        let revoked = Status::Revoked { at: LONG.0, reason: Some(Reason::KeyCompromise) };
        let answers = [Status::Good, revoked, Status::Unknown]
            .into_iter()
            .zip(request.certificates.clone())
            .map(|(status, id)| (id, status, LONG.0, Some(LONG.1)))
            .collect::<Vec<_>>();

        let delegate = Key::new(algorithm.clone());
        let delegation =
            [Extension::extended_key_usage(&["1.3.6.1.5.5.7.3.9".to_owned()]), Extension::ocsp_no_check()];
        let certificate = ca.issue(&serial(9), &responder_subject.der, &delegate.spki, &delegation);
        for (key, certificates) in [(&ca.key, vec![]), (&delegate, vec![&certificate[..]])] {
            let tbs = tbs_response(&key_sha1(&key.spki), LONG.0, &answers, request.nonce.as_deref());
            let response = basic_response(&tbs, &key.algorithm, &key.sign(&tbs), &certificates);
            fs::write(folder.path().join("r"), &response).unwrap();
            let serials = format!("-serial 0x{} -serial 0x{} -serial 0x{}", serial(1), serial(2), serial(3));
            let openssl_output = run_openssl_ocsp(&folder, &format!("{serials} -CAfile ca"));
            for line in ["Response verify OK", ": good", ": revoked", "Reason: keyCompromise", ": unknown"] {
                assert!(openssl_output.contains(line), "{algorithm}: {line:?} is not in\n{openssl_output}");
            }
            assert!(
                !openssl_output.contains("WARNING") && !openssl_output.contains("Nonce Verify error"),
                "{openssl_output}"
            );
            let read = parse_response(&response).unwrap();
            assert_eq!(read.status, Outcome::Status(Status::Good));
            assert_eq!(read.responder, Some(Responder::KeyHash(key_sha1(&key.spki).to_vec())));
            assert_eq!((read.this_update, read.next_update), (Some(LONG.0), Some(LONG.1)));
            assert_eq!(read.serial, Some(serial(1)));
            let strict = BasicResponse::parse(&response).unwrap();
            assert_eq!(Outcome::Status(strict.answers[0].status), read.status, "both readers agree");
            assert_eq!(strict.single_response(&ca.certificate, &serial(2)).unwrap().status, revoked);
            assert!(strict.single_response(&ca.certificate, &serial(4)).is_none());
            assert_eq!(strict.verify_authorized_by(&ca.certificate, LONG.0), Ok(()), "{algorithm}");
            let stranger = Authority::new(algorithm.clone());
            assert_eq!(
                strict.verify_authorized_by(&stranger.certificate, LONG.0),
                Err(ResponderError::NotAuthorized)
            );
        }
    }
}

#[test]
fn revoked_status_is_parsed_with_its_reason() {
    let ca = Authority::new(SignatureAlgorithm::Ed25519);
    let id = CertificateId::of(&ca.certificate, serial(1), OcspHash::Sha1);
    for reason in [None, Some(Reason::Superseded)] {
        let status = Status::Revoked { at: UnixTime(1_780_272_000), reason };
        let tbs = tbs_response(
            &key_sha1(&ca.key.spki),
            LONG.0,
            &[(id.clone(), status, LONG.0.plus(DAY), None)],
            None,
        );
        let read = parse_response(&basic_response(&tbs, &ca.key.algorithm, &ca.key.sign(&tbs), &[])).unwrap();
        assert_eq!((read.status, read.next_update), (Outcome::Status(status), None));
        assert!(read.is_revoked());
    }
}

#[test]
fn error_responses_are_parsed_here_and_by_openssl() {
    let folder = tempfile::tempdir().unwrap();
    let all = [
        (ErrorStatus::MalformedRequest, "malformedrequest (1)"),
        (ErrorStatus::InternalError, "internalerror (2)"),
        (ErrorStatus::TryLater, "trylater (3)"),
        (ErrorStatus::SigRequired, "sigrequired (5)"),
        (ErrorStatus::Unauthorized, "unauthorized (6)"),
    ];
    for (status, text) in all {
        let der = error_response(status);
        assert_eq!(parse_response(&der).unwrap().status, Outcome::NoAnswer(status as i64));
        fs::write(folder.path().join("r"), &der).unwrap();
        let output = std::process::Command::new("openssl")
            .args(["ocsp", "-respin", "r", "-noverify"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let openssl_output = [output.stdout, output.stderr].concat();
        let openssl_output = String::from_utf8_lossy(&openssl_output);
        assert!(openssl_output.contains(text), "{openssl_output}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// The same check as the fuzz target `ocsp_request`, on stable Rust.
    #[test]
    fn corrupted_requests_are_parsed_or_rejected_without_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        static SAMPLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let sample = SAMPLE.get_or_init(|| {
            let ca = Authority::new(SignatureAlgorithm::Ed25519);
            let id = CertificateId::of(&ca.certificate, serial(1), OcspHash::Sha1);
            Request { certificates: vec![id], nonce: Some(vec![1; 16]) }.encode()
        });
        let mut der = sample.clone();
        for (at, byte) in edits {
            let at = at.index(der.len());
            der[at] = byte;
        }
        if let Ok(request) = Request::parse(&der) {
            prop_assert_eq!(Request::parse(&request.encode()), Ok(request));
        }
    }
}
