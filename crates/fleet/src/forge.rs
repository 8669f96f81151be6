//! Creates certificates with arbitrary content, including invalid ones.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use x509::UnixTime;
use x509::der::{self, Writer};

use crate::FleetError;
use crate::key::{Key, SignedWith};
use crate::old_key::sha1;

/// A subject alternative name.
#[derive(Clone, Debug)]
pub(crate) enum AlternativeName {
    Dns(String),
    Address([u8; 4]),
}

/// Role of a certificate: server or CA.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    Server,
    Authority,
}

/// Content of a certificate to create.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) role: Role,
    pub(crate) common_name: Option<String>,
    pub(crate) names: Vec<AlternativeName>,
    /// Content bytes of the serial number's INTEGER.
    pub(crate) serial: Vec<u8>,
    pub(crate) not_before: UnixTime,
    pub(crate) not_after: UnixTime,
    pub(crate) signed_with: SignedWith,
    /// URL of the CRL distribution point.
    pub(crate) crl_url: Option<String>,
}

/// A CA that issues certificates with arbitrary content.
#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) name: Vec<u8>,
    pub(crate) key: Arc<Key>,
}

impl Authority {
    /// Creates a self-signed root.
    pub(crate) fn root(name: &str, key: Arc<Key>, from: UnixTime, to: UnixTime) -> Result<Self, FleetError> {
        let order = Order::authority(name, from, to);
        let certificate = forge_self_signed(&order, &key)?;
        Ok(Self { certificate, name: common_name(Some(name)), key })
    }

    /// Creates an intermediate CA that is signed by this CA.
    pub(crate) fn below(
        &self,
        name: &str,
        key: Arc<Key>,
        from: UnixTime,
        to: UnixTime,
    ) -> Result<Self, FleetError> {
        let certificate = forge(&Order::authority(name, from, to), &key, self)?;
        Ok(Self { certificate, name: common_name(Some(name)), key })
    }
}

impl Order {
    fn authority(name: &str, not_before: UnixTime, not_after: UnixTime) -> Self {
        Self {
            role: Role::Authority,
            common_name: Some(name.to_owned()),
            names: Vec::new(),
            serial: random_serial(),
            not_before,
            not_after,
            signed_with: SignedWith::Usual,
            crl_url: None,
        }
    }
}

/// Returns sixteen random bytes as a positive number in its shortest form.
pub(crate) fn random_serial() -> Vec<u8> {
    let mut serial = vec![0; 16];
    // If randomness failed, creating keys would have failed before.
    let _ = aws_lc_rs::rand::fill(&mut serial);
    serial[0] = serial[0] & 0x3f | 0x40;
    serial
}

/// Creates a certificate for `key`, signed by `issuer`.
pub(crate) fn forge(
    order: &Order,
    key: &Key,
    issuer: &Authority,
) -> Result<CertificateDer<'static>, FleetError> {
    let issuer_key_id = key_id(&issuer.key.spki());
    signed(order, key, &issuer.name, Some(&issuer_key_id), &issuer.key)
}

/// Creates a self-signed certificate for `key`.
pub(crate) fn forge_self_signed(order: &Order, key: &Key) -> Result<CertificateDer<'static>, FleetError> {
    let name = common_name(order.common_name.as_deref());
    signed(order, key, &name, None, key)
}

fn signed(
    order: &Order,
    key: &Key,
    issuer: &[u8],
    issuer_key_id: Option<&[u8]>,
    issuer_key: &Key,
) -> Result<CertificateDer<'static>, FleetError> {
    let algorithm = issuer_key.algorithm(order.signed_with);
    let spki = key.spki();
    let mut tbs = Writer::new();
    tbs.sequence(|w| {
        w.context(0, |w| {
            w.integer(2);
        });
        w.integer_content(&order.serial).raw(&algorithm).raw(issuer);
        w.sequence(|w| {
            w.time(order.not_before).time(order.not_after);
        });
        w.raw(&common_name(order.common_name.as_deref())).raw(&spki);
        w.context(3, |w| {
            w.sequence(|w| extensions(w, order, key, &spki, issuer_key_id));
        });
    });
    let tbs = tbs.finish();
    let signature = issuer_key.sign_certificate(order.signed_with, &tbs)?;
    let whole = der::write(|w| {
        w.sequence(|w| {
            w.raw(&tbs).raw(&algorithm).bits(&signature);
        });
    });
    Ok(CertificateDer::from(whole))
}

/// Encodes a Name with one common name, or an empty Name.
pub(crate) fn common_name(name: Option<&str>) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            let Some(name) = name else { return };
            w.set(|w| {
                w.sequence(|w| {
                    w.oid(&[2, 5, 4, 3]).utf8(name);
                });
            });
        });
    })
}

/// Returns a key identifier similar to RFC 5280 section 4.2.1.2, method 1, but computed over the whole SubjectPublicKeyInfo.
pub(crate) fn key_id(spki: &[u8]) -> Vec<u8> {
    sha1(spki)
}

fn extensions(w: &mut Writer, order: &Order, key: &Key, spki: &[u8], issuer_key_id: Option<&[u8]>) {
    let authority = order.role == Role::Authority;
    extension(w, 15, true, |w| {
        let encipherment = matches!(key, Key::Rsa(_) | Key::OldRsa(_));
        // digitalSignature is bit 0, keyEncipherment 2, keyCertSign 5, cRLSign 6.
        w.named_bits(match order.role {
            Role::Authority => 1 << 5 | 1 << 6,
            Role::Server => 1 | u16::from(encipherment) << 2,
        });
    });
    extension(w, 19, true, |w| {
        w.sequence(|w| {
            if authority {
                w.boolean(true);
            }
        });
    });
    extension(w, 14, false, |w| {
        w.octets(&key_id(spki));
    });
    if let Some(id) = issuer_key_id {
        extension(w, 35, false, |w| {
            w.sequence(|w| {
                w.context_primitive(0, id);
            });
        });
    }
    if authority {
        return;
    }
    extension(w, 37, false, |w| {
        w.sequence(|w| {
            w.oid(&[1, 3, 6, 1, 5, 5, 7, 3, 1]);
        });
    });
    if let Some(url) = &order.crl_url {
        extension(w, 31, false, |w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    // distributionPoint [0], fullName [0], uniformResourceIdentifier [6]
                    w.context(0, |w| {
                        w.context(0, |w| {
                            w.context_primitive(6, url.as_bytes());
                        });
                    });
                });
            });
        });
    }
    if !order.names.is_empty() {
        // Critical where the subject is empty (RFC 5280 section 4.2.1.6).
        extension(w, 17, order.common_name.is_none(), |w| {
            w.sequence(|w| {
                for name in &order.names {
                    match name {
                        AlternativeName::Dns(name) => w.context_primitive(2, name.as_bytes()),
                        AlternativeName::Address(octets) => w.context_primitive(7, octets),
                    };
                }
            });
        });
    }
}

/// Writes an extension with an object identifier below 2.5.29.
fn extension(w: &mut Writer, number: u64, critical: bool, value: impl FnOnce(&mut Writer)) {
    w.sequence(|w| {
        w.oid(&[2, 5, 29, number]);
        if critical {
            w.boolean(true);
        }
        w.octets_of(value);
    });
}

/// Creates an OCSP response for stapling (RFC 6960 section 4.2), signed by `issuer`: the certificate is good, valid for a week.
pub(crate) fn ocsp_good(serial: &[u8], issuer: &Authority, now: UnixTime) -> Result<Vec<u8>, FleetError> {
    let spki = issuer.key.spki();
    let produced = now.plus(-3_600);
    let data = der::write(|w| {
        w.sequence(|w| {
            w.context(1, |w| {
                w.raw(&issuer.name);
            });
            w.generalized_time(produced);
            w.sequence(|w| {
                w.sequence(|w| {
                    w.sequence(|w| {
                        w.sequence(|w| {
                            w.oid(&[1, 3, 14, 3, 2, 26]).null();
                        });
                        w.octets(&sha1(&issuer.name)).octets(&sha1(&public_key_bits(&spki)));
                        w.integer_content(serial);
                    });
                    w.context_primitive(0, &[]).generalized_time(produced);
                    w.context(0, |w| {
                        w.generalized_time(now.plus(7 * x509::DAY));
                    });
                });
            });
        });
    });
    let signature = issuer.key.sign_certificate(SignedWith::Usual, &data)?;
    let basic = der::write(|w| {
        w.sequence(|w| {
            w.raw(&data).raw(&issuer.key.algorithm(SignedWith::Usual)).bits(&signature);
        });
    });
    Ok(der::write(|w| {
        w.sequence(|w| {
            w.enumerated(0).context(0, |w| {
                w.sequence(|w| {
                    w.oid(&[1, 3, 6, 1, 5, 5, 7, 48, 1, 1]).octets(&basic);
                });
            });
        });
    }))
}

/// Returns the bytes of the BIT STRING in a SubjectPublicKeyInfo.
fn public_key_bits(spki: &[u8]) -> Vec<u8> {
    let read = || {
        let mut inside = der::Reader::new(spki).sequence().ok()?;
        inside.any().ok()?;
        inside.any().ok()?.whole_bits().ok().map(<[u8]>::to_vec)
    };
    read().unwrap_or_default()
}
