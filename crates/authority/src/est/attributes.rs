//! CSR attributes (RFC 7030 section 4.5.2): the preferred key type of the profile.

use keys::KeyType;
use x509::build::Extension;
use x509::der::{self, Writer};

use crate::profile::{MustStaple, Profile};

/// OID of extensionRequest (RFC 2985 section 5.4.2).
const EXTENSION_REQUEST: &str = "1.2.840.113549.1.9.14";

/// Returns the CsrAttrs in DER.
pub(super) fn of(profile: &Profile) -> Vec<u8> {
    der::write(|w| {
        w.sequence(|w| {
            if let Some(kind) = profile.key_types.first() {
                write_key(w, *kind);
            }
            if profile.must_staple == MustStaple::Always {
                attribute(w, EXTENSION_REQUEST, |w| {
                    w.sequence(|w| {
                        write_extension(w, &Extension::must_staple());
                    });
                });
            }
        });
    })
}

/// Writes the key type and the signature algorithm for the CSR.
fn write_key(w: &mut Writer, kind: KeyType) {
    let curve = |w: &mut Writer, curve: &str| {
        attribute(w, "1.2.840.10045.2.1", |w| {
            w.oid_text(curve);
        });
    };
    match kind {
        KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => {
            attribute(w, "1.2.840.113549.1.1.1", |w| {
                w.integer(kind.rsa_bits().unwrap_or_default() as i64);
            });
        }
        KeyType::P256 => curve(w, "1.2.840.10045.3.1.7"),
        KeyType::P384 => curve(w, "1.3.132.0.34"),
        KeyType::P521 => curve(w, "1.3.132.0.35"),
        // For these key types, one algorithm identifier covers both the key and the signature.
        KeyType::Ed25519 | KeyType::MlDsa44 | KeyType::MlDsa65 | KeyType::MlDsa87 => {}
    }
    // The object identifier within the AlgorithmIdentifier.
    let algorithm = kind.algorithm().to_der();
    if let Ok(id) = der::Reader::new(&algorithm).sequence().and_then(|mut fields| fields.any()) {
        w.raw(id.whole);
    }
}

fn attribute(w: &mut Writer, kind: &str, value: impl FnOnce(&mut Writer)) {
    w.sequence(|w| {
        w.oid_text(kind).set(value);
    });
}

fn write_extension(w: &mut Writer, extension: &Extension) {
    w.sequence(|w| {
        w.oid_text(&extension.oid).octets(&extension.value);
    });
}
