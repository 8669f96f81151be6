//! Certificates and keys as PKCS#11 objects with attributes (PKCS#11 2.40 base, section 4; Ed25519 keys as in 3.0).

use std::collections::HashMap;
use std::sync::Arc;

use cryptoki_sys::*;
use keys::KeyType;
use x509::der::{self, Reader, tag};

use crate::certificates::{CertificateKey, Named};

/// Value of a PKCS#11 attribute.
#[derive(Debug)]
enum Value {
    Bytes(Vec<u8>),
    /// The attribute exists, but its value is never revealed.
    Secret,
}

/// Reason why an attribute is not returned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AttributeError {
    Secret,
    Unknown,
}

/// A certificate, a public key or a private key.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: Arc<CertificateKey>,
    class: CK_OBJECT_CLASS,
    attributes: HashMap<CK_ATTRIBUTE_TYPE, Value>,
}

impl Object {
    pub(crate) fn is_private_key(&self) -> bool {
        self.class == CKO_PRIVATE_KEY
    }

    pub(crate) fn attribute(&self, kind: CK_ATTRIBUTE_TYPE) -> Result<&[u8], AttributeError> {
        match self.attributes.get(&kind) {
            Some(Value::Bytes(octets)) => Ok(octets),
            Some(Value::Secret) => Err(AttributeError::Secret),
            None => Err(AttributeError::Unknown),
        }
    }

    /// Returns whether the object has these attributes with these values. Secret values never match.
    pub(crate) fn matches(&self, wanted: &[(CK_ATTRIBUTE_TYPE, Vec<u8>)]) -> bool {
        wanted.iter().all(|(kind, value)| self.attribute(*kind) == Ok(value))
    }

    /// Returns the size of the readable attributes in bytes.
    pub(crate) fn size(&self) -> usize {
        let sizes = self.attributes.values().map(|value| match value {
            Value::Bytes(octets) => octets.len(),
            Value::Secret => 0,
        });
        sizes.sum()
    }
}

/// Identity of an object, by which it is recognized after the files are read again.
type Identity = (CK_OBJECT_CLASS, String, [u8; 32]);

/// All objects by handle. An object that still exists after the files are read again keeps its handle.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    by_handle: HashMap<CK_OBJECT_HANDLE, Arc<Object>>,
    /// Order of search results.
    order: Vec<CK_OBJECT_HANDLE>,
    handles: HashMap<Identity, CK_OBJECT_HANDLE>,
    certificates: Vec<Named>,
    last: CK_OBJECT_HANDLE,
}

impl Objects {
    /// Returns the objects of these certificates. Objects that already exist keep their handles.
    pub(crate) fn after(&self, certificates: Vec<Named>) -> Self {
        let mut next = Self { last: self.last, ..Self::default() };
        for (label, known) in &certificates {
            for class in [CKO_PRIVATE_KEY, CKO_PUBLIC_KEY, CKO_CERTIFICATE] {
                let identity = (class, label.clone(), *known.leaf.fingerprint.as_bytes());
                let before = self.handles.get(&identity);
                let handle = before.copied().unwrap_or_else(|| {
                    next.last += 1;
                    next.last
                });
                let object = before.and_then(|handle| self.by_handle.get(handle)).cloned();
                let object = object.unwrap_or_else(|| Arc::new(object_of(class, label, known)));
                next.by_handle.insert(handle, object);
                next.order.push(handle);
                next.handles.insert(identity, handle);
            }
        }
        Self { certificates, ..next }
    }

    /// Returns the certificates of the objects.
    pub(crate) fn certificates(&self) -> &[Named] {
        &self.certificates
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn get(&self, handle: CK_OBJECT_HANDLE) -> Option<&Arc<Object>> {
        self.by_handle.get(&handle)
    }

    /// Returns the handles of objects with these attributes.
    pub(crate) fn find(&self, wanted: &[(CK_ATTRIBUTE_TYPE, Vec<u8>)]) -> Vec<CK_OBJECT_HANDLE> {
        let has =
            |handle: &&CK_OBJECT_HANDLE| self.get(**handle).is_some_and(|object| object.matches(wanted));
        self.order.iter().filter(has).copied().collect()
    }
}

fn object_of(class: CK_OBJECT_CLASS, label: &str, known: &Arc<CertificateKey>) -> Object {
    let mut attributes = Attributes(HashMap::new());
    attributes.number(CKA_CLASS, class);
    attributes.octets(CKA_LABEL, label.as_bytes());
    attributes.octets(CKA_ID, &known.ski.0);
    attributes.octets(CKA_SUBJECT, &known.leaf.subject.der);
    attributes.octets(CKA_PUBLIC_KEY_INFO, &known.leaf.public_key.spki);
    attributes.boolean(CKA_TOKEN, true);
    // No login is needed to find an object: the key service decides who may sign.
    for no in [CKA_PRIVATE, CKA_MODIFIABLE, CKA_COPYABLE, CKA_DESTROYABLE] {
        attributes.boolean(no, false);
    }
    match class {
        CKO_CERTIFICATE => attributes.certificate(known),
        CKO_PUBLIC_KEY => attributes.public_key(known),
        _ => attributes.private_key(known),
    }
    Object { key: Arc::clone(known), class, attributes: attributes.0 }
}

struct Attributes(HashMap<CK_ATTRIBUTE_TYPE, Value>);

impl Attributes {
    fn octets(&mut self, kind: CK_ATTRIBUTE_TYPE, octets: &[u8]) {
        self.0.insert(kind, Value::Bytes(octets.to_vec()));
    }

    fn number(&mut self, kind: CK_ATTRIBUTE_TYPE, number: CK_ULONG) {
        self.octets(kind, &number.to_ne_bytes());
    }

    fn boolean(&mut self, kind: CK_ATTRIBUTE_TYPE, boolean: bool) {
        self.octets(kind, &[if boolean { CK_TRUE } else { CK_FALSE }]);
    }

    /// Sets the attributes of PKCS#11 section 4.6.3.
    fn certificate(&mut self, known: &CertificateKey) {
        let leaf = &known.leaf;
        self.number(CKA_CERTIFICATE_TYPE, CKC_X_509);
        self.boolean(CKA_TRUSTED, false);
        // 1: a certificate of the token's user.
        self.number(CKA_CERTIFICATE_CATEGORY, 1);
        self.octets(CKA_ISSUER, &leaf.issuer.der);
        let serial = der::write(|serial| {
            serial.integer_content(leaf.serial.content());
        });
        self.octets(CKA_SERIAL_NUMBER, &serial);
        self.octets(CKA_VALUE, &leaf.der);
    }

    /// Sets the attributes of PKCS#11 sections 4.7 and 4.8.
    fn public_key(&mut self, known: &CertificateKey) {
        self.key(known);
        self.boolean(CKA_VERIFY, true);
        for no in [CKA_ENCRYPT, CKA_WRAP, CKA_VERIFY_RECOVER, CKA_TRUSTED] {
            self.boolean(no, false);
        }
        if let Some(bits) = known.kind.rsa_bits() {
            self.number(CKA_MODULUS_BITS, bits.into());
        }
    }

    /// Sets the attributes of PKCS#11 sections 4.7 and 4.9.
    fn private_key(&mut self, known: &CertificateKey) {
        self.key(known);
        for yes in [CKA_SIGN, CKA_SENSITIVE] {
            self.boolean(yes, true);
        }
        // This module does not know the history of the key before its import into the key service.
        for no in [CKA_ALWAYS_SENSITIVE, CKA_EXTRACTABLE, CKA_NEVER_EXTRACTABLE, CKA_ALWAYS_AUTHENTICATE] {
            self.boolean(no, false);
        }
        for no in [CKA_DECRYPT, CKA_UNWRAP, CKA_SIGN_RECOVER, CKA_WRAP_WITH_TRUSTED] {
            self.boolean(no, false);
        }
        let secrets: &[CK_ATTRIBUTE_TYPE] = match known.kind.rsa_bits() {
            Some(_) => &[
                CKA_PRIVATE_EXPONENT,
                CKA_PRIME_1,
                CKA_PRIME_2,
                CKA_EXPONENT_1,
                CKA_EXPONENT_2,
                CKA_COEFFICIENT,
            ],
            None => &[CKA_VALUE],
        };
        for secret in secrets {
            self.0.insert(*secret, Value::Secret);
        }
    }

    /// Sets the attributes that both keys share. By the standard only the public key has the point of the elliptic curve
    /// (CKA_EC_POINT), but programs read it from the private key.
    fn key(&mut self, known: &CertificateKey) {
        for no in [CKA_DERIVE, CKA_LOCAL] {
            self.boolean(no, false);
        }
        self.number(CKA_KEY_GEN_MECHANISM, CK_UNAVAILABLE_INFORMATION);
        let key = &known.leaf.public_key;
        if known.kind.rsa_bits().is_some() {
            self.number(CKA_KEY_TYPE, CKK_RSA);
            let (modulus, exponent) = rsa_parts(key.key_bytes()).unwrap_or_default();
            self.octets(CKA_MODULUS, modulus);
            self.octets(CKA_PUBLIC_EXPONENT, exponent);
        } else {
            let is_edwards = known.kind == KeyType::Ed25519;
            self.number(CKA_KEY_TYPE, if is_edwards { CKK_EC_EDWARDS } else { CKK_EC });
            self.octets(CKA_EC_PARAMS, curve(known.kind));
            // Also for Ed25519, as in version 3.0, which programs expect. Version 3.1 uses the bare point.
            let point = der::write(|point| {
                point.octets(key.key_bytes());
            });
            self.octets(CKA_EC_POINT, &point);
        }
    }
}

/// Returns modulus and exponent of an RSAPublicKey, without leading zeros.
fn rsa_parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = Reader::new(key).sequence().ok()?;
    let mut next = || {
        let content = parts.expect(tag::INTEGER).ok()?.content;
        Some(&content[content.iter().take_while(|byte| **byte == 0).count()..])
    };
    Some((next()?, next()?))
}

/// Returns a curve as its object identifier (RFC 5480 section 2.1.1.1). For a curve that more programs recognize by name, returns
/// the name (PKCS#11 3.0 mechanisms, section 2.3.10).
fn curve(kind: KeyType) -> &'static [u8] {
    match kind {
        KeyType::P384 => b"\x06\x05\x2b\x81\x04\x00\x22",
        KeyType::P521 => b"\x06\x05\x2b\x81\x04\x00\x23",
        KeyType::Ed25519 => b"\x13\x0cedwards25519",
        _ => b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07",
    }
}
