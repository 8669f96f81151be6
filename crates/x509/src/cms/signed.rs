//! SignedData (RFC 5652 section 5).

use super::digest::Digest;
use super::identity::Identity;
use super::message::{DATA, ITEMS_MAX, SIGNED_DATA, content_info, content_of, parse, write_items};
use crate::build::identifier;
use crate::der::{self, DerError, Element, Reader, Writer, tag};
use crate::{PublicKey, SignatureAlgorithm, SignatureError, oid, verify_document};

/// Maximum signers of a message. SCEP messages have one.
const SIGNERS_MAX: usize = 8;
/// Maximum number of signed attributes per signer. SCEP messages have up to nine.
const ATTRIBUTES_MAX: usize = 64;

/// contentType and messageDigest (RFC 5652 section 11), as dotted object identifiers.
const CONTENT_TYPE: &str = "1.2.840.113549.1.9.3";
const MESSAGE_DIGEST: &str = "1.2.840.113549.1.9.4";

/// A signed attribute with a single value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attribute {
    /// Type as a dotted object identifier.
    pub oid: String,
    /// DER encoding of the value.
    pub value: Vec<u8>,
}

/// One signature of a [`SignedData`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Signer {
    /// Identifier of the signer's certificate.
    pub id: Identity,
    /// Hash of the content.
    pub digest: Digest,
    /// The signed attributes.
    pub attributes: Vec<Attribute>,
    /// Algorithm of [`Self::signature`].
    pub algorithm: SignatureAlgorithm,
    /// Signature over the signed attributes, or over the content if there are no attributes.
    pub signature: Vec<u8>,
    /// The bytes that the signature covers if there are attributes: the DER SET OF attributes.
    signed_attributes: Option<Vec<u8>>,
}

impl Signer {
    /// Returns the DER value of the attribute with this type.
    #[must_use]
    pub fn attribute(&self, dotted: &str) -> Option<&[u8]> {
        self.attributes.iter().find(|attribute| attribute.oid == dotted).map(|a| &*a.value)
    }

    /// Verifies the signature with `key` over `content`, whose type is `content_type` (RFC 5652 section 5.6). If there are
    /// attributes, they must contain this type and the hash of the content, and the signature must cover them.
    ///
    /// # Errors
    /// As [`crate::verify_signature`].
    pub fn verify(&self, key: &PublicKey, content_type: &str, content: &[u8]) -> Result<(), SignatureError> {
        let Some(signed) = &self.signed_attributes else {
            return verify_document(key, &self.algorithm, content, &self.signature);
        };
        let kind = der::write(|w| {
            w.oid_text(content_type);
        });
        let hash = der::write(|w| {
            w.octets(&self.digest.of(content));
        });
        if self.attribute(CONTENT_TYPE) != Some(&kind) || self.attribute(MESSAGE_DIGEST) != Some(&hash) {
            return Err(SignatureError::Invalid);
        }
        verify_document(key, &self.algorithm, signed, &self.signature)
    }

    fn read(element: Element<'_>) -> Result<Self, DerError> {
        let mut fields = Reader::new(element.whole).sequence()?;
        fields.expect(tag::INTEGER)?; // version: 1 or 3, by the identity that follows
        let id = Identity::read(fields.any()?)?;
        let digest = Digest::read(fields.sequence()?)?;
        let signed = fields.optional(tag::context_constructed(0))?;
        let attributes = signed.map_or(Ok(Vec::new()), |signed| attributes(signed.inside()))?;
        let algorithm = algorithm(fields.expect(tag::SEQUENCE)?, digest)?;
        let signature = fields.expect(tag::OCTET_STRING)?.content.to_vec();
        fields.optional(tag::context_constructed(1))?; // unsignedAttrs
        fields.end()?;
        // The signature covers the SET OF, not the implicit tag in the message (section 5.4), and always in DER order.
        let signed_attributes = match signed {
            Some(signed) => Some(set_of(signed.inside())?),
            None => None,
        };
        Ok(Self { id, digest, attributes, algorithm, signature, signed_attributes })
    }

    /// Writes the SignerInfo with a signature over the DER SET OF `attributes`.
    fn write(w: &mut Writer, spec: &SignedSpec<'_>) {
        w.sequence(|w| {
            w.integer(spec.signer.version(1, 3));
            spec.signer.write(w);
            w.raw(&spec.digest.to_der());
            // Replaces the tag of the SET by the implicit tag.
            if let Some((_, rest)) = spec.attributes.split_first() {
                w.raw(&[tag::context_constructed(0)]).raw(rest);
            }
            w.raw(&signature_identifier(spec.algorithm)).octets(spec.signature);
        });
    }
}

/// Returns the identifier of a signature algorithm in DER. RSA with PKCS #1 v1.5 has the identifier of the key algorithm, as in
/// PKCS #7, because some clients support nothing else.
fn signature_identifier(algorithm: &SignatureAlgorithm) -> Vec<u8> {
    use SignatureAlgorithm as S;
    match algorithm {
        S::RsaSha1 | S::RsaSha256 | S::RsaSha384 | S::RsaSha512 => identifier(oid::RSA, true),
        other => other.to_der(),
    }
}

fn algorithm(identifier: Element<'_>, digest: Digest) -> Result<SignatureAlgorithm, DerError> {
    if identifier.inside().expect(tag::OID)?.content == oid::RSA {
        return Ok(digest.with_rsa());
    }
    SignatureAlgorithm::read(identifier.inside())
}

fn attributes(list: Reader<'_>) -> Result<Vec<Attribute>, DerError> {
    let mut out: Vec<Attribute> = Vec::new();
    for attribute in list {
        let mut fields = Reader::new(attribute?.whole).sequence()?;
        let oid = der::oid_text(fields.expect(tag::OID)?.content);
        let mut values = fields.set()?;
        fields.end()?;
        let value = values.any()?.whole.to_vec();
        values.end()?;
        if out.len() == ATTRIBUTES_MAX {
            return Err(DerError::Malformed("signed attributes: too many"));
        }
        if out.iter().any(|seen| seen.oid == oid) {
            return Err(DerError::Malformed("signed attributes: an attribute is repeated"));
        }
        out.push(Attribute { oid, value });
    }
    Ok(out)
}

fn set_of(list: Reader<'_>) -> Result<Vec<u8>, DerError> {
    let members = list.map(|member| Ok(member?.whole.to_vec())).collect::<Result<Vec<_>, DerError>>()?;
    Ok(der::write(|w| {
        w.set_of(members);
    }))
}

/// A CMS message with certificates, CRLs and signatures.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SignedData {
    /// Type of the signed content as a dotted object identifier; usually [`DATA`].
    pub content_type: String,
    /// The signed content. `None` if it is sent separately, or nothing is signed.
    pub content: Option<Vec<u8>>,
    /// DER certificates, unchanged. Attribute certificates and other kinds are left out.
    pub certificates: Vec<Vec<u8>>,
    /// DER revocation lists, unchanged.
    pub crls: Vec<Vec<u8>>,
    /// The signatures. A certs-only message has none.
    pub signers: Vec<Signer>,
}

impl SignedData {
    /// Parses a ContentInfo with SignedData, in DER or BER. Does not verify signatures: see [`Signer::verify`].
    ///
    /// # Errors
    /// If the message is not SignedData, or exceeds [`super::MESSAGE_MAX`], [`ITEMS_MAX`] certificates or lists, 8 signers or 64
    /// attributes.
    pub fn parse(message: &[u8]) -> Result<Self, DerError> {
        parse(message, Self::read)
    }

    fn read(message: &[u8]) -> Result<Self, DerError> {
        let mut fields = content_of(message, SIGNED_DATA)?;
        fields.expect(tag::INTEGER)?; // version
        fields.set()?; // digestAlgorithms: each signer names its own
        let mut encapsulated = fields.sequence()?;
        let content_type = der::oid_text(encapsulated.expect(tag::OID)?.content);
        let content = match encapsulated.optional(tag::context_constructed(0))? {
            Some(content) => {
                let mut content = content.inside();
                let octets = content.expect(tag::OCTET_STRING)?.content.to_vec();
                content.end()?;
                Some(octets)
            }
            None => None,
        };
        encapsulated.end()?;
        let certificates = items(fields.optional(tag::context_constructed(0))?)?;
        let crls = items(fields.optional(tag::context_constructed(1))?)?;
        let mut signers = Vec::new();
        for signer in fields.set()? {
            if signers.len() == SIGNERS_MAX {
                return Err(DerError::Malformed("signers: too many"));
            }
            signers.push(Signer::read(signer?)?);
        }
        fields.end()?;
        Ok(Self { content_type, content, certificates, crls, signers })
    }
}

fn items(set: Option<Element<'_>>) -> Result<Vec<Vec<u8>>, DerError> {
    let mut out = Vec::new();
    for item in set.map(|set| set.inside()).into_iter().flatten() {
        let item = item?;
        if out.len() == ITEMS_MAX {
            return Err(DerError::Malformed("certificates: too many"));
        }
        if item.tag == tag::SEQUENCE {
            out.push(item.whole.to_vec());
        }
    }
    Ok(out)
}

/// Encodes the DER SET OF attributes to sign: the content's type (a dotted object identifier), its hash, and `others`.
#[must_use]
pub fn signed_attributes(content_type: &str, content_hash: &[u8], others: &[Attribute]) -> Vec<u8> {
    let attribute = |kind: &str, fill: &dyn Fn(&mut Writer)| {
        der::write(|w| {
            w.sequence(|w| {
                w.oid_text(kind).set(fill);
            });
        })
    };
    let mut members = vec![
        attribute(CONTENT_TYPE, &|w| {
            w.oid_text(content_type);
        }),
        attribute(MESSAGE_DIGEST, &|w| {
            w.octets(content_hash);
        }),
    ];
    members.extend(others.iter().map(|other| {
        attribute(&other.oid, &|w| {
            w.raw(&other.value);
        })
    }));
    der::write(|w| {
        w.set_of(members);
    })
}

/// Parts of a SignedData message with one signature, to be encoded.
#[derive(Clone, Debug)]
pub struct SignedSpec<'a> {
    /// Type of the content as a dotted object identifier.
    pub content_type: &'a str,
    /// The signed content. `None` leaves it out of the message.
    pub content: Option<&'a [u8]>,
    /// DER certificates to include.
    pub certificates: &'a [&'a [u8]],
    /// Identifier of the signer's certificate.
    pub signer: &'a Identity,
    /// Hash of the content in [`Self::attributes`].
    pub digest: Digest,
    /// The output of [`signed_attributes`].
    pub attributes: &'a [u8],
    /// Algorithm of [`Self::signature`].
    pub algorithm: &'a SignatureAlgorithm,
    /// Signature over the attributes.
    pub signature: &'a [u8],
}

/// Encodes the DER ContentInfo.
#[must_use]
pub fn signed_data(spec: &SignedSpec<'_>) -> Vec<u8> {
    content_info(SIGNED_DATA, |w| {
        w.sequence(|w| {
            // Version 3 for content other than data, or a signer identified by key (section 5.1).
            let version = if spec.content_type == DATA { spec.signer.version(1, 3) } else { 3 };
            w.integer(version).set(|w| {
                w.raw(&spec.digest.to_der());
            });
            w.sequence(|w| {
                w.oid_text(spec.content_type);
                if let Some(content) = spec.content {
                    w.context(0, |w| {
                        w.octets(content);
                    });
                }
            });
            write_items(w, 0, spec.certificates);
            w.set(|w| Signer::write(w, spec));
        });
    })
}
