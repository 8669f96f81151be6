//! CAs and leaf certificates of both sides, created by the tests.

use std::sync::Arc;

use keys::{KeyType, PrivateKey, Signer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509::build::{CertificateSpec, Extension, signed, tbs_certificate};
use x509::{BasicConstraints, DistinguishedName, GeneralName, SerialNumber, UnixTime};

pub(crate) const SERVER_AUTH: &str = "1.3.6.1.5.5.7.3.1";
pub(crate) const CLIENT_AUTH: &str = "1.3.6.1.5.5.7.3.2";

/// Default expiry time.
pub(crate) const NOT_AFTER: UnixTime = UnixTime(2_500_000_000);

/// The CA of one side.
pub(crate) struct Authority {
    pub(crate) key: PrivateKey,
    pub(crate) name: DistinguishedName,
    pub(crate) der: Vec<u8>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let name = DistinguishedName::from_text(&format!("CN={name}")).unwrap();
        let extensions = [Extension::basic_constraints(BasicConstraints { ca: true, path_len: None })];
        let der = certificate((&key, &name), (&key, &name), &extensions, NOT_AFTER);
        Self { key, name, der }
    }

    /// Issues a leaf for `localhost` with these extended key usages. With an empty list the extension is absent.
    pub(crate) fn leaf(&self, purposes: &[&str]) -> Identity {
        self.leaf_of("CN=localhost", &[GeneralName::Dns("localhost".to_owned())], purposes)
    }

    /// Issues a leaf with this subject, these names and these extended key usages.
    pub(crate) fn leaf_of(&self, subject: &str, names: &[GeneralName], purposes: &[&str]) -> Identity {
        self.leaf_until(subject, names, purposes, NOT_AFTER)
    }

    /// As [`Self::leaf_of`], with this expiry time.
    pub(crate) fn leaf_until(
        &self,
        subject: &str,
        names: &[GeneralName],
        purposes: &[&str],
        not_after: UnixTime,
    ) -> Identity {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let name = DistinguishedName::from_text(subject).unwrap();
        let mut extensions = vec![Extension::subject_alt_names(names)];
        if !purposes.is_empty() {
            let purposes: Vec<String> = purposes.iter().map(|purpose| (*purpose).to_owned()).collect();
            extensions.push(Extension::extended_key_usage(&purposes));
        }
        Identity { der: certificate((&self.key, &self.name), (&key, &name), &extensions, not_after), key }
    }
}

fn certificate(
    (issuer, issuer_name): (&PrivateKey, &DistinguishedName),
    (of, name): (&PrivateKey, &DistinguishedName),
    extensions: &[Extension],
    not_after: UnixTime,
) -> Vec<u8> {
    let mut serial = [0; 16];
    aws_lc_rs::rand::fill(&mut serial).unwrap();
    let tbs = tbs_certificate(&CertificateSpec {
        serial: &SerialNumber::from_random(serial),
        signature: issuer.algorithm(),
        issuer: &issuer_name.der,
        subject: &name.der,
        not_before: UnixTime(1_700_000_000),
        not_after,
        spki: of.spki(),
        extensions,
    });
    signed(&tbs, &issuer.algorithm(), &issuer.sign_now(&tbs).unwrap())
}

/// A certificate with its private key.
pub(crate) struct Identity {
    pub(crate) der: Vec<u8>,
    pub(crate) key: PrivateKey,
}

impl Identity {
    pub(crate) fn chain_and_key(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivatePkcs8KeyDer::from(self.key.to_pkcs8_der().to_vec());
        (vec![CertificateDer::from(self.der.clone())], PrivateKeyDer::Pkcs8(key))
    }

    pub(crate) fn spki_sha256(&self) -> x509::SpkiHash {
        x509::SpkiHash::of(self.key.spki())
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        let (chain, key) = self.chain_and_key();
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
        Arc::new(CertifiedKey::new(chain, key))
    }
}
