//! Builds certificates for tests, valid and invalid.

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use x509::der::{self, Writer};
use x509::{Certificate, DAY, KeyUsage, UnixTime};

/// 2026-06-01T00:00:00Z: the current time in tests.
pub(crate) const NOW: UnixTime = UnixTime(1_780_272_000);

pub(crate) const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];
pub(crate) const KEY_USAGE: &[u64] = &[2, 5, 29, 15];
pub(crate) const EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37];
pub(crate) const SUBJECT_ALT_NAME: &[u64] = &[2, 5, 29, 17];
pub(crate) const NAME_CONSTRAINTS: &[u64] = &[2, 5, 29, 30];
pub(crate) const SUBJECT_KEY_ID: &[u64] = &[2, 5, 29, 14];
pub(crate) const AUTHORITY_KEY_ID: &[u64] = &[2, 5, 29, 35];
pub(crate) const AUTHORITY_INFO_ACCESS: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 1];
pub(crate) const CT_POISON: &[u64] = &[1, 3, 6, 1, 4, 1, 11129, 2, 4, 3];
pub(crate) const SERVER_AUTH: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 1];
pub(crate) const CLIENT_AUTH: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 2];
const ECDSA_SHA256: &[u64] = &[1, 2, 840, 10045, 4, 3, 2];

/// A P-256 key.
pub(crate) struct Key(EcdsaKeyPair);

impl Key {
    pub(crate) fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap())
    }

    pub(crate) fn spki(&self) -> Vec<u8> {
        der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(&[1, 2, 840, 10045, 2, 1]).oid(&[1, 2, 840, 10045, 3, 1, 7]);
                });
                w.bits(self.0.public_key().as_ref());
            });
        })
    }

    /// Returns a key identifier similar to the identifiers of RFC 7093.
    pub(crate) fn id(&self) -> Vec<u8> {
        x509::Fingerprint::of(self.0.public_key().as_ref()).as_bytes()[..20].to_vec()
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
    }
}

pub(crate) struct Extension {
    pub(crate) id: &'static [u64],
    pub(crate) critical: bool,
    pub(crate) value: Vec<u8>,
}

/// The fields of a certificate to build. Every field may be invalid.
pub(crate) struct Spec {
    pub(crate) version: u8,
    pub(crate) serial: Vec<u8>,
    pub(crate) subject: Vec<u8>,
    pub(crate) issuer: Vec<u8>,
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
    pub(crate) spki: Vec<u8>,
    pub(crate) extensions: Vec<Extension>,
    /// Both AlgorithmIdentifiers. The actual signature is always ECDSA with SHA-256.
    pub(crate) algorithm: Vec<u8>,
}

impl Spec {
    fn new(subject: Vec<u8>, issuer: Vec<u8>, key: &Key) -> Self {
        Self {
            version: 3,
            serial: [&[0x4a][..], &key.id()[..15]].concat(),
            subject,
            issuer,
            not_before: NOW.plus(-10 * DAY),
            not_after: NOW.plus(80 * DAY),
            spki: key.spki(),
            extensions: Vec::new(),
            algorithm: der::write(|w| {
                w.sequence(|w| {
                    w.oid(ECDSA_SHA256);
                });
            }),
        }
    }

    pub(crate) fn drop(&mut self, id: &[u64]) {
        self.extensions.retain(|extension| extension.id != id);
    }

    pub(crate) fn put(&mut self, id: &'static [u64], critical: bool, fill: impl FnOnce(&mut Writer)) {
        self.drop(id);
        self.extensions.push(Extension { id, critical, value: der::write(fill) });
    }

    pub(crate) fn ca(&mut self, path_len: Option<i64>) {
        self.put(BASIC_CONSTRAINTS, true, |w| {
            w.sequence(|w| {
                w.boolean(true);
                if let Some(length) = path_len {
                    w.integer(length);
                }
            });
        });
    }

    pub(crate) fn usage(&mut self, bits: u16) {
        self.put(KEY_USAGE, true, |w| {
            w.named_bits(bits);
        });
    }

    pub(crate) fn purposes(&mut self, purposes: &[&[u64]]) {
        self.put(EXTENDED_KEY_USAGE, false, |w| {
            w.sequence(|w| {
                for purpose in purposes {
                    w.oid(purpose);
                }
            });
        });
    }

    /// Sets the names, each with its context tag and content.
    pub(crate) fn names(&mut self, names: &[(u8, &[u8])]) {
        self.put(SUBJECT_ALT_NAME, false, |w| {
            w.sequence(|w| {
                for (number, content) in names {
                    w.context_primitive(*number, content);
                }
            });
        });
    }

    pub(crate) fn hosts(&mut self, hosts: &[&str]) {
        let names: Vec<(u8, &[u8])> = hosts.iter().map(|host| (2, host.as_bytes())).collect();
        self.names(&names);
    }

    /// Adds name constraints for DNS names.
    pub(crate) fn constrain(&mut self, permitted: &[&str], excluded: &[&str]) {
        self.put(NAME_CONSTRAINTS, true, |w| {
            w.sequence(|w| {
                for (number, bases) in [(0, permitted), (1, excluded)] {
                    if bases.is_empty() {
                        continue;
                    }
                    w.context(number, |w| {
                        for base in bases {
                            w.sequence(|w| {
                                w.context_primitive(2, base.as_bytes());
                            });
                        }
                    });
                }
            });
        });
    }

    pub(crate) fn der(&self, signer: &Key) -> Vec<u8> {
        let tbs = der::write(|w| {
            w.sequence(|w| self.tbs(w));
        });
        der::write(|w| {
            w.sequence(|w| {
                w.raw(&tbs).raw(&self.algorithm).bits(&signer.sign(&tbs));
            });
        })
    }

    pub(crate) fn certificate(&self, signer: &Key) -> Arc<Certificate> {
        Arc::new(Certificate::parse(&self.der(signer)).unwrap())
    }

    fn tbs(&self, w: &mut Writer) {
        if self.version > 1 {
            w.context(0, |w| {
                w.integer(i64::from(self.version) - 1);
            });
        }
        w.integer_content(&self.serial).raw(&self.algorithm).raw(&self.issuer);
        w.sequence(|w| {
            w.time(self.not_before).time(self.not_after);
        });
        w.raw(&self.subject).raw(&self.spki);
        if self.extensions.is_empty() {
            return;
        }
        w.context(3, |w| {
            w.sequence(|w| {
                for extension in &self.extensions {
                    w.sequence(|w| {
                        w.oid(extension.id);
                        if extension.critical {
                            w.boolean(true);
                        }
                        w.octets(&extension.value);
                    });
                }
            });
        });
    }
}

/// Returns `CN=text`, or an empty name for empty text.
pub(crate) fn name(text: &str) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            if !text.is_empty() {
                w.set(|w| {
                    w.sequence(|w| {
                        w.oid(&[2, 5, 4, 3]).utf8(text);
                    });
                });
            }
        });
    })
}

/// Creates a healthy CA certificate, not yet signed.
pub(crate) fn authority(subject: &str, key: &Key, issuer: &str, issuer_key: &Key) -> Spec {
    let mut spec = Spec::new(name(subject), name(issuer), key);
    spec.not_before = NOW.plus(-1_000 * DAY);
    spec.not_after = NOW.plus(1_000 * DAY);
    spec.ca(None);
    spec.usage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN);
    key_ids(&mut spec, key, issuer_key);
    spec
}

/// Returns a healthy leaf for `a.example`, not yet signed.
pub(crate) fn leaf(key: &Key, issuer: &str, issuer_key: &Key) -> Spec {
    let mut spec = Spec::new(name("a.example"), name(issuer), key);
    spec.usage(KeyUsage::DIGITAL_SIGNATURE);
    spec.purposes(&[SERVER_AUTH]);
    spec.hosts(&["a.example"]);
    key_ids(&mut spec, key, issuer_key);
    spec
}

fn key_ids(spec: &mut Spec, key: &Key, issuer_key: &Key) {
    spec.put(SUBJECT_KEY_ID, false, |w| {
        w.octets(&key.id());
    });
    spec.put(AUTHORITY_KEY_ID, false, |w| {
        w.sequence(|w| {
            w.context_primitive(0, &issuer_key.id());
        });
    });
}
