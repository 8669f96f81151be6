//! Keys as objects of a token: generates and finds keys, and assembles their public keys.

use cryptoki::error::Error;
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType as Kind, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use data_encoding::HEXLOWER;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode_byte, utf8_percent_encode};
use x509::der::{self, Reader, tag};

use crate::KeyType;
use crate::random::random;

/// CKA_EC_PARAMS of secp256r1, secp384r1, secp521r1 and Ed25519.
const CURVES: &[(KeyType, &[u8])] = &[
    (KeyType::P256, &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]),
    (KeyType::P384, &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22]),
    (KeyType::P521, &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23]),
    (KeyType::Ed25519, &[0x06, 0x03, 0x2b, 0x65, 0x70]),
    // PKCS#11 3.0 names Ed25519 by a PrintableString, "edwards25519".
    (KeyType::Ed25519, b"\x13\x0cedwards25519"),
];
/// Bytes of the CKA_ID of a generated key.
const ID: usize = 16;

/// Search criterion for a private key.
#[derive(Clone, Debug)]
pub(super) enum Search {
    Label(String),
    Id(Vec<u8>),
}

/// A private key of a token, with its attributes.
#[derive(Clone, Debug)]
pub(super) struct TokenKey {
    pub(super) handle: ObjectHandle,
    pub(super) id: Vec<u8>,
    pub(super) label: String,
    pub(super) kind: KeyType,
    pub(super) spki: Vec<u8>,
}

/// Result of a search, other than errors of the token.
#[derive(Clone, Debug)]
pub(super) enum SearchOutcome {
    Found(Box<TokenKey>),
    None(String),
    Several(String),
    Unusable(String),
}

impl Search {
    fn attribute(&self) -> Attribute {
        match self {
            Self::Label(label) => Attribute::Label(label.as_bytes().to_vec()),
            Self::Id(id) => Attribute::Id(id.clone()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Label(label) => format!("labelled {label:?}"),
            Self::Id(id) => format!("with id {}", HEXLOWER.encode(id)),
        }
    }
}

pub(super) fn find(session: &Session, search: &Search) -> Result<SearchOutcome, Error> {
    let template = [Attribute::Class(ObjectClass::PRIVATE_KEY), search.attribute()];
    match session.find_objects(&template)?[..] {
        [] => Ok(SearchOutcome::None(search.text())),
        [handle] => describe(session, handle),
        _ => Ok(SearchOutcome::Several(search.text())),
    }
}

/// Finds the handle of the key with this id. Another session may have a different handle for it.
pub(super) fn handle_of(session: &Session, id: &[u8]) -> Result<Option<ObjectHandle>, Error> {
    let template = [Attribute::Class(ObjectClass::PRIVATE_KEY), Attribute::Id(id.to_vec())];
    Ok(session.find_objects(&template)?.first().copied())
}

pub(super) fn generate(session: &Session, kind: KeyType, label: &str) -> Result<SearchOutcome, Error> {
    let id = random::<ID>().to_vec();
    let named = || {
        vec![Attribute::Token(true), Attribute::Id(id.clone()), Attribute::Label(label.as_bytes().to_vec())]
    };
    let mut public = named();
    public.extend([Attribute::Verify(true), Attribute::Private(false)]);
    let mut private = named();
    private.extend([
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
    ]);
    let mechanism = match kind.rsa_bits() {
        Some(bits) => {
            public.push(Attribute::ModulusBits(u64::from(bits).into()));
            public.push(Attribute::PublicExponent(vec![1, 0, 1]));
            // Some modules allow every use that is not forbidden. A signing key must not decrypt.
            private.push(Attribute::Decrypt(false));
            Mechanism::RsaPkcsKeyPairGen
        }
        None => {
            let Some((_, curve)) = CURVES.iter().find(|(of, _)| *of == kind) else {
                return Ok(SearchOutcome::Unusable(format!(
                    "would have the type {kind}, which tokens cannot generate"
                )));
            };
            public.push(Attribute::EcParams(curve.to_vec()));
            if kind == KeyType::Ed25519 { Mechanism::EccEdwardsKeyPairGen } else { Mechanism::EccKeyPairGen }
        }
    };
    let (_, handle) = session.generate_key_pair(&mechanism, &public, &private)?;
    describe(session, handle)
}

fn describe(session: &Session, handle: ObjectHandle) -> Result<SearchOutcome, Error> {
    let (mut id, mut label, mut kind) = (Vec::new(), Vec::new(), None);
    for attribute in
        session.get_attributes(handle, &[AttributeType::Id, AttributeType::Label, AttributeType::KeyType])?
    {
        match attribute {
            Attribute::Id(value) => id = value,
            Attribute::Label(value) => label = value,
            Attribute::KeyType(value) => kind = Some(value),
            _ => {}
        }
    }
    let label = String::from_utf8_lossy(&label).into_owned();
    let name = format!("{label:?} (id {})", HEXLOWER.encode(&id));
    let spki = match kind {
        Some(Kind::RSA) => rsa_spki(session, handle)?,
        Some(Kind::EC | Kind::EC_EDWARDS) => ec_spki(session, handle, &id)?,
        _ => None,
    };
    let Some(spki) = spki else {
        return Ok(SearchOutcome::Unusable(format!(
            "{name} has no public key on the token, or has another type"
        )));
    };
    let Some(kind) = KeyType::of_spki(&spki) else {
        return Ok(SearchOutcome::Unusable(format!("{name} has an unsupported size or curve")));
    };
    Ok(SearchOutcome::Found(Box::new(TokenKey { handle, id, label, kind, spki })))
}

fn rsa_spki(session: &Session, handle: ObjectHandle) -> Result<Option<Vec<u8>>, Error> {
    let (mut modulus, mut exponent) = (Vec::new(), Vec::new());
    let wanted = [AttributeType::Modulus, AttributeType::PublicExponent];
    for attribute in session.get_attributes(handle, &wanted)? {
        match attribute {
            Attribute::Modulus(value) => modulus = value,
            Attribute::PublicExponent(value) => exponent = value,
            _ => {}
        }
    }
    if modulus.is_empty() || exponent.is_empty() {
        return Ok(None);
    }
    Ok(Some(der::write(|w| {
        w.sequence(|w| {
            w.sequence(|w| {
                w.oid(&[1, 2, 840, 113_549, 1, 1, 1]).null();
            });
            w.bits_containing(|w| {
                w.sequence(|w| {
                    w.unsigned(&modulus).unsigned(&exponent);
                });
            });
        });
    })))
}

/// Reads the point from the public key object, which has the same id.
fn ec_spki(session: &Session, private: ObjectHandle, id: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let template = [Attribute::Class(ObjectClass::PUBLIC_KEY), Attribute::Id(id.to_vec())];
    let public = session.find_objects(&template)?.first().copied();
    for handle in public.into_iter().chain([private]) {
        let (mut curve, mut point) = (Vec::new(), Vec::new());
        for attribute in session.get_attributes(handle, &[AttributeType::EcParams, AttributeType::EcPoint])? {
            match attribute {
                Attribute::EcParams(value) => curve = value,
                Attribute::EcPoint(value) => point = value,
                _ => {}
            }
        }
        let known = CURVES.iter().find(|(_, parameters)| *parameters == curve);
        if let Some((kind, parameters)) = known.filter(|_| !point.is_empty()) {
            return Ok(Some(point_spki(*kind, parameters, &point)));
        }
    }
    Ok(None)
}

fn point_spki(kind: KeyType, parameters: &[u8], point: &[u8]) -> Vec<u8> {
    // The standard demands an OCTET STRING. Some tokens return the point without this encoding.
    let mut reader = Reader::new(point);
    let wrapped = reader.expect(tag::OCTET_STRING).ok().filter(|_| reader.is_empty());
    let point = wrapped.map_or(point, |element| element.content);
    der::write(|w| {
        w.sequence(|w| {
            w.sequence(|w| {
                if kind == KeyType::Ed25519 {
                    w.oid(&[1, 3, 101, 112]);
                } else {
                    w.oid(&[1, 2, 840, 10_045, 2, 1]).raw(parameters);
                }
            });
            w.bits(point);
        });
    })
}

/// Returns the PKCS#11 URI (RFC 7512) of a private key.
pub(super) fn locator_of(token: &str, id: &[u8]) -> String {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let token = utf8_percent_encode(token, RESERVED);
    let id: String = id.iter().copied().map(percent_encode_byte).collect();
    format!("pkcs11:token={token};id={id};type=private")
}

/// Returns the CKA_ID in a PKCS#11 URI.
pub(super) fn id_of_locator(locator: &str) -> Option<Vec<u8>> {
    let parts = locator.strip_prefix("pkcs11:")?.split('?').next()?.split(';');
    let id = parts.filter_map(|part| part.strip_prefix("id=")).next()?;
    coded::percent_decoded(id).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkcs11_uris_are_formatted_and_parsed() {
        let id = [0, 1, 0x7f, 0x80, 0xff];
        let locator = locator_of("my token;1", &id);
        assert_eq!(locator, "pkcs11:token=my%20token%3B1;id=%00%01%7F%80%FF;type=private");
        assert_eq!(id_of_locator(&locator).as_deref(), Some(&id[..]));
        assert_eq!(id_of_locator("pkcs11:id=ab%43?pin-value=1").as_deref(), Some(&b"abC"[..]));
        for bad in
            ["", "pkcs11:", "pkcs11:token=a", "pkcs11:id=", "pkcs11:id=%4", "pkcs11:id=%zz", "file:id=a"]
        {
            assert_eq!(id_of_locator(bad), None, "{bad}");
        }
    }
}
