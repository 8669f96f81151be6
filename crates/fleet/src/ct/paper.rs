//! A CA that issues logged certificates: precertificates and their final certificates (RFC 6962 section 3.1).

use data_encoding::HEXLOWER;
use x509::der::{self, Writer};
use x509::{DAY, UnixTime};

use super::tree::{Hash, sha256};
use crate::FleetError;
use crate::forge::{key_id, random_serial};
use crate::key::{Key, SignedWith};
use crate::key_kind::KeyKind;

/// A CA that issues logged certificates.
#[derive(Debug)]
pub struct CtAuthority {
    key: Key,
    organization: String,
    common_name: String,
    certificate: Vec<u8>,
}

/// A precertificate and its certificate.
#[derive(Clone, Debug)]
pub struct IssuedPair {
    /// The precertificate, DER.
    pub precertificate: Vec<u8>,
    /// The certificate with an SCT list, DER.
    pub certificate: Vec<u8>,
    /// The tbsCertificate without poison and SCT extensions.
    pub tbs: Vec<u8>,
    /// SHA-256 of the issuer's SubjectPublicKeyInfo.
    pub issuer_key_hash: [u8; 32],
    /// The issuer's certificate, DER.
    pub issuer: Vec<u8>,
    /// The issuer's name in OpenSSL's format: `C=XX, O=Fleet 1, CN=Fleet CT 1`.
    pub issuer_name: String,
    /// Serial number in lower-case hexadecimal.
    pub serial: String,
    /// dNSNames, in order.
    pub names: Vec<String>,
    /// First second of validity, in seconds since 1970-01-01 UTC.
    pub not_before: i64,
    /// Last second of validity, in seconds since 1970-01-01 UTC.
    pub not_after: i64,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
}

impl IssuedPair {
    /// Returns the SHA-256 of [`IssuedPair::tbs`].
    #[must_use]
    pub fn tbs_sha256(&self) -> Hash {
        sha256(&self.tbs)
    }
}

const POISON: &[u64] = &[1, 3, 6, 1, 4, 1, 11_129, 2, 4, 3];
const SCT_LIST: &[u64] = &[1, 3, 6, 1, 4, 1, 11_129, 2, 4, 2];

/// The Certificate Transparency extension to add to a certificate (RFC 6962 section 3).
#[derive(Clone, Copy)]
enum CtExtension {
    Poison,
    Timestamps,
    Neither,
}

impl CtAuthority {
    /// Creates a CA, `CN=Fleet CT N`, with its own organization.
    ///
    /// # Errors
    /// [`FleetError::Key`], [`FleetError::Sign`].
    pub fn new(number: u32) -> Result<Self, FleetError> {
        let key = Key::generate(KeyKind::P256)?;
        let common_name = format!("Fleet CT {number}");
        let mut authority =
            Self { key, organization: format!("Fleet {number}"), common_name, certificate: Vec::new() };
        let spki = authority.key.spki();
        let tbs = authority.tbs(&Leaf {
            serial: &random_serial(),
            not_before: crate::clock::now().plus(-365 * DAY),
            not_after: crate::clock::now().plus(3_650 * DAY),
            names: &[],
            spki: &spki,
            with: CtExtension::Neither,
        });
        authority.certificate = authority.signed(&tbs)?;
        Ok(authority)
    }

    /// Issues a certificate for `names` with a new key, valid from `not_before` (seconds since 1970-01-01 UTC) for `days`.
    ///
    /// # Errors
    /// [`FleetError::Key`], [`FleetError::Sign`].
    pub fn issue(&self, names: &[&str], not_before: i64, days: i64) -> Result<IssuedPair, FleetError> {
        let spki = Key::generate(KeyKind::P256)?.spki();
        let serial = random_serial();
        let not_after = not_before + days * DAY - 1;
        let of = |with| {
            self.tbs(&Leaf {
                serial: &serial,
                not_before: UnixTime(not_before),
                not_after: UnixTime(not_after),
                names,
                spki: &spki,
                with,
            })
        };
        Ok(IssuedPair {
            precertificate: self.signed(&of(CtExtension::Poison))?,
            certificate: self.signed(&of(CtExtension::Timestamps))?,
            tbs: of(CtExtension::Neither),
            issuer_key_hash: sha256(&self.key.spki()),
            issuer: self.certificate.clone(),
            issuer_name: format!("C=XX, O={}, CN={}", self.organization, self.common_name),
            serial: HEXLOWER.encode(&serial),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            not_before,
            not_after,
            spki_sha256: sha256(&spki),
        })
    }

    fn name(&self) -> Vec<u8> {
        der::write(|w| {
            w.sequence(|w| {
                for (kind, value) in [(6, "XX"), (10, &self.organization), (3, &self.common_name)] {
                    w.set(|w| {
                        w.sequence(|w| {
                            w.oid(&[2, 5, 4, kind]).utf8(value);
                        });
                    });
                }
            });
        })
    }

    fn tbs(&self, leaf: &Leaf<'_>) -> Vec<u8> {
        let mut w = Writer::new();
        w.sequence(|w| {
            w.context(0, |w| {
                w.integer(2);
            });
            w.integer_content(leaf.serial).raw(&self.key.algorithm(SignedWith::Usual)).raw(&self.name());
            w.sequence(|w| {
                w.time(leaf.not_before).time(leaf.not_after);
            });
            match leaf.names.first() {
                Some(name) => w.raw(&crate::forge::common_name(Some(name))),
                None => w.raw(&self.name()),
            };
            w.raw(leaf.spki);
            w.context(3, |w| {
                w.sequence(|w| self.extensions(w, leaf));
            });
        });
        w.finish()
    }

    fn extensions(&self, w: &mut Writer, leaf: &Leaf<'_>) {
        let extension = |w: &mut Writer, id: &[u64], critical: bool, value: &[u8]| {
            w.sequence(|w| {
                w.oid(id);
                if critical {
                    w.boolean(true);
                }
                w.octets(value);
            });
        };
        let authority_key_id = der::write(|w| {
            w.sequence(|w| {
                w.context_primitive(0, &key_id(&self.key.spki()));
            });
        });
        extension(w, &[2, 5, 29, 35], false, &authority_key_id);
        match leaf.with {
            CtExtension::Poison => extension(w, POISON, true, &[5, 0]),
            // An OCTET STRING with a list of one SCT, which is not verified in tests.
            CtExtension::Timestamps => {
                let sct = [&[0_u8][..], &[3; 32], &[0; 8], &[0, 0], &[4, 3, 0, 2, 0x30, 0]].concat();
                let length = |octets: usize| (octets as u16).to_be_bytes();
                let list = [&length(sct.len() + 2)[..], &length(sct.len()), &sct].concat();
                let value = der::write(|w| {
                    w.octets(&list);
                });
                extension(w, SCT_LIST, false, &value);
            }
            CtExtension::Neither => {}
        }
        if !leaf.names.is_empty() {
            let names = der::write(|w| {
                w.sequence(|w| {
                    for name in leaf.names {
                        w.context_primitive(2, name.as_bytes());
                    }
                });
            });
            extension(w, &[2, 5, 29, 17], false, &names);
        }
    }

    fn signed(&self, tbs: &[u8]) -> Result<Vec<u8>, FleetError> {
        let signature = self.key.sign_certificate(SignedWith::Usual, tbs)?;
        Ok(der::write(|w| {
            w.sequence(|w| {
                w.raw(tbs).raw(&self.key.algorithm(SignedWith::Usual)).bits(&signature);
            });
        }))
    }
}

struct Leaf<'a> {
    serial: &'a [u8],
    not_before: UnixTime,
    not_after: UnixTime,
    names: &'a [&'a str],
    spki: &'a [u8],
    with: CtExtension,
}
