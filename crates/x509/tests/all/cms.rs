//! Tests of CMS messages: OpenSSL's messages are parsed here, and ours by OpenSSL.

use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;
use x509::cms::{
    Attribute, ContentCipher, DATA, Digest, EnvelopedData, Identity, KeyTransport, Recipient, SignedData,
    SignedSpec, certificates_of, certs_only, signed_attributes, signed_data,
};
use x509::crl::{CrlSpec, Scope, tbs_crl};
use x509::{Certificate, DistinguishedName, SerialNumber, SignatureAlgorithm, SignatureError};

use crate::fields::{openssl, pem};
use crate::signing::{Authority, Key, LONG, algorithms, openssl_knows};

fn read(folder: &TempDir, name: &str) -> Vec<u8> {
    fs::read(folder.path().join(name)).unwrap()
}

fn write(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) {
    fs::write(folder.path().join(name), bytes).unwrap();
}

/// Creates the key file `k` and the certificate file `c` with OpenSSL. The key is RSA or another type.
fn certificate(folder: &TempDir, how: &str) -> Certificate {
    openssl(folder, &format!("req -x509 -nodes -keyout k -out c -days 30 -subj /CN=Client -newkey {how}"));
    Certificate::parse(&x509::pem::certificates(&read(folder, "c")).next().unwrap().1).unwrap()
}

#[test]
fn certificate_bundles_are_exchanged_with_openssl() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(SignatureAlgorithm::EcdsaSha256);
    let leaf = Key::new(SignatureAlgorithm::EcdsaSha256);
    let subject = DistinguishedName::from_text("CN=leaf").unwrap();
    let leaf = ca.issue(&SerialNumber::from_random([1; 16]), &subject.der, &leaf.spki, &[]);
    let spec = CrlSpec {
        signature: ca.key.algorithm.clone(),
        issuer: &ca.certificate.subject.der,
        this_update: LONG.0,
        next_update: LONG.1,
        number: 1,
        authority_key_id: b"id",
        base: None,
        distribution_point: None,
        scope: Scope::All,
        freshest: None,
    };
    let crl = ca.key.signed(&tbs_crl(&spec, []));
    let bundle = certs_only(&[&leaf, &ca.certificate.der], &[&crl]);
    let signed = SignedData::parse(&bundle).unwrap();
    assert_eq!((signed.content, signed.signers), (None, vec![]));
    assert_eq!(
        (signed.certificates, signed.crls),
        (vec![leaf.clone(), ca.certificate.der.to_vec()], vec![crl])
    );
    assert_eq!(certificates_of(&certs_only(&[], &[])), Ok(vec![]));

    write(&folder, "b", &bundle);
    let listed = String::from_utf8(openssl(&folder, "pkcs7 -inform der -in b -print_certs")).unwrap();
    let found: Vec<_> = x509::pem::certificates(listed.as_bytes()).map(|(_, der)| der).collect();
    assert_eq!(found, [leaf.clone(), ca.certificate.der.to_vec()]);
    assert!(listed.contains("subject=CN = leaf"), "{listed}");

    write(&folder, "both", pem(&leaf) + &pem(&ca.certificate.der));
    let theirs = openssl(&folder, "crl2pkcs7 -nocrl -certfile both -outform der");
    assert_eq!(certificates_of(&theirs).unwrap().len(), 2);
}

#[test]
fn openssl_signed_messages_are_parsed_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "m", "hello\r\n".repeat(2_000));
    let keys = ["rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-384", "rsa:2048 -sigopt rsa_padding_mode:pss"];
    let variants =
        ["", "-md sha512", "-md sha1 -nosmimecap", "-keyid", "-noattr", "-stream", "-stream -md sha384"];
    for key in keys {
        let certificate = certificate(&folder, key);
        for variant in
            variants.iter().chain(key.starts_with("rsa").then_some(&"-keyopt rsa_padding_mode:pss"))
        {
            let variant =
                format!("cms -sign -binary -nodetach -outform der -in m -signer c -inkey k {variant}");
            let message = openssl(&folder, variant.trim());
            let signed = SignedData::parse(&message).unwrap();
            assert_eq!(signed.certificates, [certificate.der.to_vec()], "{key} {variant}");
            let (content, signer) = (signed.content.unwrap(), &signed.signers[0]);
            assert_eq!(content, read(&folder, "m"));
            assert!(signer.id.names(&certificate));
            let verified = |content: &[u8], kind| signer.verify(&certificate.public_key, kind, content);
            let sha1_ecdsa = variant.contains("sha1") && key.starts_with("ec");
            assert_eq!(verified(&content, DATA).is_ok(), !sha1_ecdsa, "{key} {variant}");
            assert!(verified(&content[1..], DATA).is_err());
            let other = Key::new(SignatureAlgorithm::EcdsaSha384);
            let other = x509::PublicKey::parse(&other.spki).unwrap();
            assert!(signer.verify(&other, DATA, &content).is_err());
            if !variant.contains("-noattr") {
                assert_eq!(verified(&content, x509::cms::SIGNED_DATA), Err(SignatureError::Invalid));
            }
        }
    }
}

#[test]
fn openssl_verifies_our_signed_messages() {
    let folder = tempfile::tempdir().unwrap();
    let leaf_subject = DistinguishedName::from_text("CN=leaf").unwrap();
    for algorithm in algorithms().into_iter().filter(openssl_knows) {
        // OpenSSL 3.0 cannot verify Ed25519 in CMS with the hash of these attributes.
        if algorithm == SignatureAlgorithm::Ed25519 {
            continue;
        }
        let ca = Authority::new(algorithm.clone());
        let key = Key::new(algorithm.clone());
        let der = ca.issue(&SerialNumber::from_random([1; 16]), &leaf_subject.der, &key.spki, &[]);
        let certificate = Certificate::parse(&der).unwrap();
        let digest = match algorithm {
            SignatureAlgorithm::RsaSha384
            | SignatureAlgorithm::EcdsaSha384
            | SignatureAlgorithm::RsaPss(384) => Digest::Sha384,
            SignatureAlgorithm::RsaSha512
            | SignatureAlgorithm::EcdsaSha512
            | SignatureAlgorithm::RsaPss(512) => Digest::Sha512,
            _ => Digest::Sha256,
        };
        let status = Attribute {
            oid: "2.16.840.1.113733.1.9.3".to_owned(),
            value: x509::der::write(|w| {
                w.printable("0");
            }),
        };
        let attributes = signed_attributes(DATA, &digest.of(b"hello"), std::slice::from_ref(&status));
        let spec = SignedSpec {
            content_type: DATA,
            content: Some(b"hello"),
            certificates: &[&der],
            signer: &Identity::of(&certificate),
            digest,
            attributes: &attributes,
            algorithm: &algorithm,
            signature: &key.sign(&attributes),
        };
        let message = signed_data(&spec);
        let read = SignedData::parse(&message).unwrap();
        assert_eq!(read.signers[0].attribute(&status.oid), Some(&*status.value));
        assert_eq!(read.signers[0].verify(&certificate.public_key, DATA, b"hello"), Ok(()), "{algorithm}");
        write(&folder, "s", &message);
        write(&folder, "ca", pem(&ca.certificate.der));
        let verified = openssl(&folder, "cms -verify -binary -inform der -in s -CAfile ca -purpose any");
        assert_eq!(verified, b"hello", "{algorithm}");
    }
}

#[test]
fn openssl_encrypted_messages_are_parsed_and_reencoded() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = certificate(&folder, "rsa:2048");
    write(&folder, "m", "hello ".repeat(1_000));
    let sha256 =
        "-recip c -keyopt rsa_padding_mode:oaep -keyopt rsa_oaep_md:sha256 -keyopt rsa_mgf1_md:sha256";
    let variants = [
        ("-aes-128-cbc -recip c", ContentCipher::Aes128, KeyTransport::RsaPkcs1),
        ("-aes-192-cbc -recip c", ContentCipher::Aes192, KeyTransport::RsaPkcs1),
        ("-aes-256-cbc -stream -recip c", ContentCipher::Aes256, KeyTransport::RsaPkcs1),
        ("-des-ede3-cbc -keyid -recip c", ContentCipher::DesEde3, KeyTransport::RsaPkcs1),
        (sha256, ContentCipher::DesEde3, KeyTransport::RsaOaep(Digest::Sha256)),
        (
            "-aes-128-cbc -recip c -keyopt rsa_padding_mode:oaep",
            ContentCipher::Aes128,
            KeyTransport::RsaOaep(Digest::Sha1),
        ),
    ];
    for (variant, cipher, transport) in variants {
        let message = openssl(&folder, &format!("cms -encrypt -binary -outform der -in m {variant}"));
        let read = EnvelopedData::parse(&message).unwrap();
        assert_eq!((read.cipher, read.recipients.len()), (cipher, 1), "{variant}");
        assert_eq!(read.recipients[0].transport, transport, "{variant}");
        assert!(read.recipients[0].id.names(&certificate), "{variant}");
        write(&folder, "e", read.encode());
        let plain = openssl(&folder, "cms -decrypt -binary -inform der -in e -recip c -inkey k");
        assert_eq!(plain, "hello ".repeat(1_000).as_bytes(), "{variant}");
        assert_eq!(EnvelopedData::parse(&read.encode()), Ok(read));
    }
}

#[test]
fn malformed_messages_are_rejected() {
    let bundle = certs_only(&[], &[]);
    let deep = [[0x30, 0x80].repeat(40), vec![0; 80]].concat();
    let unclosed = [&bundle[..0], &[0x30, 0x80, 0x30, 0x80, 0, 0]].concat();
    let huge = vec![0x30; x509::cms::MESSAGE_MAX + 1];
    for bad in [
        &[][..],
        &[0, 0],
        &[0x30, 0],
        &[0x30, 0x80, 0, 0],
        &deep,
        &unclosed,
        &huge,
        &bundle[..9],
        &[&bundle[..], &[0]].concat(),
    ] {
        assert!(SignedData::parse(bad).is_err());
        assert!(EnvelopedData::parse(bad).is_err());
    }
}

fn enveloped() -> EnvelopedData {
    let id = Identity::IssuerSerial {
        issuer: DistinguishedName::empty().der.to_vec(),
        serial: SerialNumber::from_random([1; 16]),
    };
    let recipient = |id, transport| Recipient { id, transport, encrypted_key: vec![1; 256] };
    EnvelopedData {
        recipients: vec![
            recipient(id, KeyTransport::RsaPkcs1),
            recipient(Identity::KeyId(vec![1; 20]), KeyTransport::RsaOaep(Digest::Sha512)),
        ],
        cipher: ContentCipher::Aes256,
        iv: vec![2; 16],
        ciphertext: vec![3; 64],
    }
}

#[test]
fn envelope_with_two_recipients_round_trips() {
    let read = EnvelopedData::parse(&enveloped().encode()).unwrap();
    assert_eq!(read.recipients.len(), 2);
    assert!(enveloped().recipients.iter().all(|recipient| read.recipients.contains(recipient)));
}

fn sample() -> Vec<u8> {
    let key = Key::new(SignatureAlgorithm::EcdsaSha256);
    let attributes = signed_attributes(DATA, &Digest::Sha256.of(b"hello"), &[]);
    signed_data(&SignedSpec {
        content_type: DATA,
        content: Some(b"hello"),
        certificates: &[&[0x30, 0]],
        signer: &Identity::KeyId(vec![1; 20]),
        digest: Digest::Sha256,
        attributes: &attributes,
        algorithm: &key.algorithm,
        signature: &key.sign(&attributes),
    })
}

/// Rewrites DER as BER: every constructed element gets an indefinite length.
fn indefinite(der: &[u8], out: &mut Vec<u8>) {
    for element in x509::der::Reader::new(der) {
        let element = element.unwrap();
        if element.tag & 0x20 == 0 {
            out.extend_from_slice(element.whole);
        } else {
            out.extend([element.tag, 0x80]);
            indefinite(element.content, out);
            out.extend([0, 0]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// The same check as the fuzz target `message`, on stable Rust.
    #[test]
    fn corrupted_messages_are_parsed_or_rejected_without_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ber: bool,
        which: bool,
    ) {
        static SAMPLE: std::sync::OnceLock<[Vec<u8>; 2]> = std::sync::OnceLock::new();
        let samples = SAMPLE.get_or_init(|| [sample(), enveloped().encode()]);
        let mut message = samples[usize::from(which)].clone();
        if ber {
            let mut out = Vec::new();
            indefinite(&message, &mut out);
            message = out;
        }
        let is_unchanged = edits.is_empty();
        for (at, byte) in edits {
            let at = at.index(message.len());
            message[at] = byte;
        }
        let signed = SignedData::parse(&message);
        let enveloped = EnvelopedData::parse(&message);
        if is_unchanged {
            prop_assert_eq!((signed.is_ok(), enveloped.is_ok()), (!which, which));
        }
        if let Ok(envelope) = enveloped {
            let reparsed = EnvelopedData::parse(&envelope.encode());
            prop_assert!(reparsed.is_ok_and(|reparsed| reparsed.ciphertext == envelope.ciphertext));
        }
    }

    #[test]
    fn random_bytes_are_rejected_as_messages(noise: Vec<u8>) {
        prop_assert!(SignedData::parse(&noise).is_err() && EnvelopedData::parse(&noise).is_err());
    }
}
