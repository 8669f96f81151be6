//! Tests of certificate fields, compared with openssl, which made the certificates, and with x509-parser.

use std::process::Command;

use x509::ocsp::{self, Outcome, Responder, Status};
use x509::{
    Certificate, GeneralName, KeyAlgorithm, NameMatch, ReferenceName, SignatureAlgorithm, SignatureError,
    matches_name,
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Returns a certificate in PEM.
pub(crate) fn pem(der: &[u8]) -> String {
    x509::pem::encode("CERTIFICATE", der)
}

/// Runs an openssl command in `folder`; returns its output.
pub(crate) fn openssl(folder: &tempfile::TempDir, arguments: &str) -> Vec<u8> {
    let output = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder.path())
        .output()
        .expect("openssl is missing: apt-get install -y openssl");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments}: {errors}");
    output.stdout
}

struct OpensslCertificate {
    /// Arguments of `openssl req -x509` that choose the key and signature.
    how: &'static str,
    key: KeyAlgorithm,
    bits: u32,
    signature: SignatureAlgorithm,
    /// The expected result of verifying the certificate with its own key.
    checks: Result<(), &'static str>,
}

fn made() -> Vec<OpensslCertificate> {
    use KeyAlgorithm as K;
    use SignatureAlgorithm as S;
    let row = |how, key, bits, signature, checks| OpensslCertificate { how, key, bits, signature, checks };
    let secp256k1 = || K::EcOther("1.3.132.0.10".into());
    vec![
        row("-newkey rsa:2048 -sha256", K::Rsa, 2048, S::RsaSha256, Ok(())),
        row("-newkey rsa:2048 -sha384", K::Rsa, 2048, S::RsaSha384, Ok(())),
        row("-newkey rsa:2048 -sha512", K::Rsa, 2048, S::RsaSha512, Ok(())),
        row("-newkey rsa:2048 -sha1", K::Rsa, 2048, S::RsaSha1, Ok(())),
        row("-newkey rsa:2048 -md5", K::Rsa, 2048, S::RsaMd5, Err("MD5")),
        row("-newkey rsa:1024 -sha1", K::Rsa, 1024, S::RsaSha1, Ok(())),
        row("-newkey rsa:1024 -sha256", K::Rsa, 1024, S::RsaSha256, Ok(())),
        row("-newkey rsa:512 -sha256", K::Rsa, 512, S::RsaSha256, Err("1,024")),
        row(
            "-newkey rsa:2048 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:digest -sha256",
            K::Rsa,
            2048,
            S::RsaPss(256),
            Ok(()),
        ),
        row(
            "-newkey rsa:2048 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:max -sha384",
            K::Rsa,
            2048,
            S::RsaPss(384),
            Ok(()),
        ),
        row("-newkey rsa-pss -pkeyopt rsa_keygen_bits:2048 -sha256", K::RsaPss, 2048, S::RsaPss(256), Ok(())),
        row("-newkey ec -pkeyopt ec_paramgen_curve:P-256 -sha256", K::EcP256, 256, S::EcdsaSha256, Ok(())),
        row("-newkey ec -pkeyopt ec_paramgen_curve:P-256 -sha512", K::EcP256, 256, S::EcdsaSha512, Ok(())),
        row("-newkey ec -pkeyopt ec_paramgen_curve:P-256 -sha1", K::EcP256, 256, S::EcdsaSha1, Ok(())),
        row("-newkey ec -pkeyopt ec_paramgen_curve:P-384 -sha384", K::EcP384, 384, S::EcdsaSha384, Ok(())),
        row("-newkey ec -pkeyopt ec_paramgen_curve:P-521 -sha512", K::EcP521, 521, S::EcdsaSha512, Ok(())),
        row(
            "-newkey ec -pkeyopt ec_paramgen_curve:secp256k1 -sha256",
            secp256k1(),
            256,
            S::EcdsaSha256,
            Ok(()),
        ),
        row(
            "-newkey ec -pkeyopt ec_paramgen_curve:secp224r1 -sha256",
            K::EcOther("1.3.132.0.33".into()),
            224,
            S::EcdsaSha256,
            Err("curve"),
        ),
        row("-newkey ed25519", K::Ed25519, 256, S::Ed25519, Ok(())),
        row("-newkey ed448", K::Ed448, 448, S::Ed448, Err("Ed448")),
    ]
}

const EXTENSIONS: &str = "-days 90 -nodes -keyout k -outform DER -subj /C=DE/O=Acme,Inc/CN=a.example \
    -addext subjectAltName=DNS:a.example,DNS:*.a.example,IP:127.0.0.1,IP:::1,email:x@a.example,URI:https://a.example/ \
    -addext keyUsage=digitalSignature,keyEncipherment -addext extendedKeyUsage=serverAuth,clientAuth \
    -addext tlsfeature=status_request -addext certificatePolicies=2.23.140.1.2.1 \
    -addext authorityInfoAccess=OCSP;URI:http://o.example/,caIssuers;URI:http://c.example/ca \
    -addext crlDistributionPoints=URI:http://c.example/crl";

#[test]
fn keys_and_signatures_of_every_type_are_parsed_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    for made in made() {
        let der = openssl(&folder, &format!("req -x509 {} {EXTENSIONS}", made.how));
        let certificate = Certificate::parse(&der).unwrap();
        let how = made.how;
        assert_eq!(certificate.faults, [""; 0], "{how}");
        assert_eq!(certificate.public_key.algorithm, made.key, "{how}");
        assert_eq!(certificate.public_key.bits, made.bits, "{how}");
        assert_eq!(certificate.signature, made.signature, "{how}");
        match (certificate.signed_by(&certificate.public_key), made.checks) {
            (Ok(()), Ok(())) => {}
            (Err(SignatureError::Unsupported(why)), Err(word)) => assert!(why.contains(word), "{why}"),
            (got, want) => panic!("{how}: {got:?}, not {want:?}"),
        }
        matches_openssl_options(&certificate);
        agrees_with_x509_parser(&certificate);
    }
}

fn matches_openssl_options(certificate: &Certificate) {
    assert_eq!(certificate.version, 3);
    assert_eq!(certificate.subject.text, "CN=a.example, O=Acme\\,Inc, C=DE");
    assert!(certificate.is_self_issued());
    assert_eq!(certificate.not_after.since(certificate.not_before), 90 * x509::DAY);
    assert_eq!(certificate.names(), ["a.example", "*.a.example", "127.0.0.1", "::1"]);
    assert!(certificate.subject_alt_names.contains(&GeneralName::Email("x@a.example".into())));
    assert!(certificate.subject_alt_names.contains(&GeneralName::Uri("https://a.example/".into())));
    assert_eq!(certificate.key_usage.map(|usage| usage.0), Some(0b101));
    let usages = ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"].map(str::to_owned);
    assert_eq!(certificate.extended_key_usage.as_deref(), Some(&usages[..]));
    assert!(certificate.must_staple && !certificate.precertificate && certificate.is_ca());
    assert_eq!(certificate.policies, ["2.23.140.1.2.1"]);
    assert_eq!(certificate.ocsp_urls, ["http://o.example/"]);
    assert_eq!(certificate.issuer_urls, ["http://c.example/ca"]);
    assert_eq!(certificate.crl_urls, ["http://c.example/crl"]);
    assert_eq!(certificate.subject_key_id, certificate.authority_key_id);
    assert!(certificate.unknown_critical.is_empty());
}

fn agrees_with_x509_parser(ours: &Certificate) {
    let (_, theirs) = X509Certificate::from_der(&ours.der).unwrap();
    assert_eq!(ours.tbs(), theirs.tbs_certificate.as_ref());
    assert_eq!(ours.signature_value(), &*theirs.signature_value.data);
    assert_eq!(ours.serial.content(), theirs.raw_serial());
    assert_eq!(&*ours.issuer.der, theirs.issuer().as_raw());
    assert_eq!(&*ours.subject.der, theirs.subject().as_raw());
    assert_eq!(&*ours.public_key.spki, theirs.public_key().raw);
    assert_eq!(ours.not_before.0, theirs.validity().not_before.timestamp());
    assert_eq!(ours.not_after.0, theirs.validity().not_after.timestamp());
    assert_eq!(ours.key_usage.map(|usage| usage.0), theirs.key_usage().unwrap().map(|u| u.value.flags));
}

#[test]
fn certificate_matches_its_host_names_as_in_openssl() {
    let folder = tempfile::tempdir().unwrap();
    let der = openssl(&folder, &format!("req -x509 -newkey ed25519 {EXTENSIONS}"));
    let certificate = Certificate::parse(&der).unwrap();
    let names = [
        ("a.example", true),
        ("b.a.example", true),
        ("c.b.a.example", false),
        ("b.example", false),
        ("127.0.0.1", true),
        ("127.0.0.2", false),
        ("::1", true),
    ];
    std::fs::write(folder.path().join("c.pem"), pem(&der)).unwrap();
    for (name, want) in names {
        let (reference, check) = match name.parse::<std::net::IpAddr>() {
            Ok(address) => (ReferenceName::Ip(address), "-checkip"),
            Err(_) => (ReferenceName::Host(name.parse().unwrap()), "-checkhost"),
        };
        let got = matches_name(&certificate, &reference) == NameMatch::SubjectAlternativeName;
        assert_eq!(got, want, "{name}");
        let output = openssl(&folder, &format!("x509 -in c.pem -noout {check} {name}"));
        let theirs = String::from_utf8_lossy(&output).contains("does match");
        assert_eq!(theirs, want, "openssl on {name}");
    }
}

#[test]
fn match_by_common_name_only_is_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let der = openssl(&folder, "req -x509 -newkey ed25519 -nodes -keyout k -outform DER -subj /CN=a.example");
    let certificate = Certificate::parse(&der).unwrap();
    let name_match = |name: &str| matches_name(&certificate, &ReferenceName::Host(name.parse().unwrap()));
    assert_eq!(name_match("a.example"), NameMatch::CommonNameOnly);
    assert_eq!(name_match("b.example"), NameMatch::None);
    assert_eq!(certificate.names(), ["a.example"]);
}

#[test]
fn certificate_is_found_in_openssl_text_output() {
    let folder = tempfile::tempdir().unwrap();
    let der = openssl(&folder, &format!("req -x509 -newkey ed25519 {EXTENSIONS}"));
    let text = [openssl_text(&folder, &der), pem(&der), "trailing".to_owned()].concat();
    let found: Vec<_> = x509::pem::certificates(text.as_bytes()).collect();
    assert_eq!(found, [("CERTIFICATE".to_owned(), der)]);
}

fn openssl_text(folder: &tempfile::TempDir, der: &[u8]) -> String {
    std::fs::write(folder.path().join("c.pem"), pem(der)).unwrap();
    String::from_utf8(openssl(folder, "x509 -in c.pem -noout -text")).unwrap()
}

#[test]
fn openssl_ocsp_responses_are_parsed() {
    let folder = tempfile::tempdir().unwrap();
    openssl(&folder, "req -x509 -newkey ed25519 -nodes -keyout k -out ca -subj /CN=Root -days 30");
    let index = "V\t300101000000Z\t\t1234\tunknown\t/CN=a\n\
                 R\t300101000000Z\t260501000000Z\t5678\tunknown\t/CN=b\n";
    std::fs::write(folder.path().join("index"), index).unwrap();
    let at = x509::UnixTime::from_civil(2026, 5, 1, 0, 0, 0).unwrap();
    let revoked = Status::Revoked { at, reason: None };
    let table = [("1234", Status::Good), ("5678", revoked), ("9999", Status::Unknown)];
    for (serial, status) in table {
        openssl(&folder, &format!("ocsp -issuer ca -serial 0x{serial} -reqout q -no_nonce"));
        let answer = "ocsp -index index -rsigner ca -rkey k -CA ca -reqin q -respout r -ndays 7";
        openssl(&folder, answer);
        let der = std::fs::read(folder.path().join("r")).unwrap();
        let response = ocsp::parse_response(&der).unwrap();
        assert_eq!(response.status, Outcome::Status(status), "{serial}");
        assert_eq!(response.is_revoked(), serial == "5678");
        assert_eq!(response.serial.unwrap().to_string(), serial);
        assert_eq!(response.responder, Some(Responder::Name("CN=Root".to_owned())));
        let (from, to) = (response.this_update.unwrap(), response.next_update.unwrap());
        assert_eq!(to.since(from), 7 * x509::DAY);
        assert!(response.produced_at >= Some(from));
    }
    // tryLater: an error response contains no answer.
    let response = ocsp::parse_response(&[0x30, 3, 0x0a, 1, 3]).unwrap();
    assert_eq!(response.status, Outcome::NoAnswer(3));
    assert!(ocsp::parse_response(&[0x30, 0]).is_err());
}

#[test]
fn faulty_certificates_are_parsed_and_their_faults_reported() {
    use crate::forge::{Key, SUBJECT_ALT_NAME, leaf};
    let key = Key::new();
    let healthy = leaf(&key, "Root", &key).der(&key);
    let replaced = |from: &[u8], to: &[u8]| {
        let at = healthy.windows(from.len()).position(|window| window == from).unwrap();
        [&healthy[..at], to, &healthy[at + from.len()..]].concat()
    };
    let not_before = b"260522000000Z";
    let mut repeated = leaf(&key, "Root", &key);
    let duplicate = crate::forge::Extension {
        id: SUBJECT_ALT_NAME,
        critical: false,
        value: x509::der::write(|w| {
            w.sequence(|_| {});
        }),
    };
    repeated.extensions.push(duplicate);
    let table: [(Vec<u8>, &str); 9] = [
        (healthy.clone(), ""),
        ([&healthy[..], &[0]].concat(), "1 extra bytes after the certificate"),
        (replaced(not_before, b"26052200000XZ"), "notBefore: malformed time"),
        (replaced(not_before, b"261322000000Z"), "notBefore: malformed time"),
        (replaced(not_before, b"202605220000Z"), "is a UTCTime with a four-digit year"),
        (replaced(b"\x0c\x09a.example", b"\x0c\x09a\xff\xffxample"), ""),
        (replaced(b"\x82\x09a.example", b"\x82\x09a\xffexample"), "not ASCII"),
        (repeated.der(&key), "extension 2.5.29.17 is repeated"),
        (replaced(&[2, 1, 2], &[2, 1, 7]), "version field 7"),
    ];
    for (der, fault) in table {
        let certificate = Certificate::parse(&der).unwrap();
        let faults = certificate.faults.join("; ");
        assert!(faults.contains(fault) && faults.is_empty() == fault.is_empty(), "{faults}");
        assert_eq!(certificate.issuer.text, "CN=Root");
    }
    for garbage in [&b""[..], b"-----BEGIN", &[0x30, 0], &healthy[..healthy.len() - 1]] {
        assert!(Certificate::parse(garbage).is_err());
    }
    let long = vec![0x30; Certificate::DER_MAX + 1];
    assert_eq!(Certificate::parse(&long).unwrap_err(), x509::ParseError::TooLong(long.len()));
}
