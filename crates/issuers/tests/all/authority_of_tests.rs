//! A minimal CA that can also issue wrong certificates.

use keys::{KeyType, PrivateKey, Signer};
use x509::build::{
    Attribute, CertificateSpec, Extension, distinguished_name, key_id, signed, tbs_certificate,
};
use x509::csr::CertificateRequest;
use x509::{BasicConstraints, GeneralName, KeyUsage, SerialNumber, UnixTime};

pub(crate) const HOUR: i64 = 3_600;
pub(crate) const DAY: i64 = 86_400;

/// A key and its certificate.
pub(crate) struct TestCa {
    pub(crate) key: PrivateKey,
    pub(crate) der: Vec<u8>,
    pub(crate) name: x509::DistinguishedName,
}

/// The contents of a leaf certificate.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) names: Vec<GeneralName>,
    pub(crate) spki: Vec<u8>,
    pub(crate) common_name: Option<String>,
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
    pub(crate) ca: bool,
    pub(crate) serial: u8,
}

impl Leaf {
    pub(crate) fn of(csr: &[u8], now: UnixTime) -> Self {
        let request = CertificateRequest::parse(csr).unwrap();
        Self {
            names: request.names(),
            spki: request.public_key.spki.to_vec(),
            common_name: None,
            not_before: now.plus(-HOUR),
            not_after: now.plus(90 * DAY),
            ca: false,
            serial: 1,
        }
    }
}

fn certificate(
    issuer: &x509::DistinguishedName,
    key: &PrivateKey,
    subject: &x509::DistinguishedName,
    leaf: &Leaf,
    issuer_spki: &[u8],
) -> Vec<u8> {
    let mut extensions = vec![
        Extension::basic_constraints(BasicConstraints { ca: leaf.ca, path_len: None }),
        Extension::subject_key_id(&key_id(&leaf.spki)),
        Extension::authority_key_id(&key_id(issuer_spki)),
    ];
    if leaf.ca {
        extensions.push(Extension::key_usage(KeyUsage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN)));
    } else {
        extensions.push(Extension::key_usage(KeyUsage(KeyUsage::DIGITAL_SIGNATURE)));
        extensions.push(Extension::subject_alt_names(&leaf.names).critical(subject.is_empty()));
        extensions.push(Extension::extended_key_usage(&["1.3.6.1.5.5.7.3.1".to_owned()]));
    }
    let tbs = tbs_certificate(&CertificateSpec {
        serial: &SerialNumber::from_random([leaf.serial; 16]),
        signature: key.algorithm(),
        issuer: &issuer.der,
        subject: &subject.der,
        not_before: leaf.not_before,
        not_after: leaf.not_after,
        spki: &leaf.spki,
        extensions: &extensions,
    });
    signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap())
}

impl TestCa {
    pub(crate) fn root(name: &str, now: UnixTime) -> Self {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let name = distinguished_name(&[(Attribute::CommonName, name.to_owned())]);
        let der = certificate(&name, &key, &name, &authority(key.spki(), now), key.spki());
        Self { key, der, name }
    }

    pub(crate) fn below(&self, name: &str, now: UnixTime) -> Self {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let name = distinguished_name(&[(Attribute::CommonName, name.to_owned())]);
        let der = certificate(&self.name, &self.key, &name, &authority(key.spki(), now), self.key.spki());
        Self { key, der, name }
    }

    pub(crate) fn sign(&self, leaf: &Leaf) -> Vec<u8> {
        let named = leaf.common_name.iter().map(|name| (Attribute::CommonName, name.clone()));
        let subject = distinguished_name(&named.collect::<Vec<_>>());
        certificate(&self.name, &self.key, &subject, leaf, self.key.spki())
    }

    pub(crate) fn pem(&self) -> String {
        x509::pem::encode("CERTIFICATE", &self.der)
    }
}

fn authority(spki: &[u8], now: UnixTime) -> Leaf {
    Leaf {
        names: Vec::new(),
        spki: spki.to_vec(),
        common_name: None,
        not_before: now.plus(-DAY),
        not_after: now.plus(3_650 * DAY),
        ca: true,
        serial: 2,
    }
}

/// Returns a CSR for these names and the new key that signed it.
pub(crate) fn request(names: &[&str]) -> (Vec<u8>, PrivateKey) {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    (request_with(&key, names), key)
}

pub(crate) fn request_with(key: &PrivateKey, names: &[&str]) -> Vec<u8> {
    let names: Vec<GeneralName> = names.iter().map(|name| GeneralName::parse(name).unwrap()).collect();
    let subject = distinguished_name(&[]);
    let tbs = x509::csr::tbs(
        &subject.der,
        key.spki(),
        &[Extension::subject_alt_names(&names).critical(true)],
        None,
    );
    signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap())
}
