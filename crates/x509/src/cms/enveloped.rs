//! EnvelopedData (RFC 5652 section 6) with RSA key transport.

use super::ber::pieces;
use super::digest::Digest;
use super::identity::Identity;
use super::message::{DATA, ENVELOPED_DATA, content_info, content_of, parse};
use crate::build::identifier;
use crate::der::{self, DerError, Element, Reader, Writer, tag};
use crate::oid;

/// Maximum recipients of a message. SCEP messages have one.
const RECIPIENTS_MAX: usize = 16;

/// `1.2.840.113549.1.1.7`
const RSAES_OAEP: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 7];
/// Prefix of NIST's AES object identifiers. The last arcs 2, 22 and 42 are the CBC modes.
const AES: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 1];
/// `1.2.840.113549.3.7`
const DES_EDE3_CBC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 3, 7];

/// Ciphers of encrypted content, all in CBC mode with the padding of RFC 5652 section 6.3.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ContentCipher {
    /// AES with 128 bits, mandatory by RFC 8894 section 2.9.
    Aes128,
    /// AES with 192 bits.
    Aes192,
    /// AES with 256 bits.
    Aes256,
    /// Triple DES, used by old devices.
    DesEde3,
}

impl ContentCipher {
    /// Returns the length of the key in bytes.
    #[must_use]
    pub const fn key_length(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes192 | Self::DesEde3 => 24,
            Self::Aes256 => 32,
        }
    }

    /// Returns the length of a block, and so of the initialization vector, in bytes.
    #[must_use]
    pub const fn block_length(self) -> usize {
        match self {
            Self::DesEde3 => 8,
            _ => 16,
        }
    }

    fn oid(self) -> Vec<u8> {
        match self {
            Self::Aes128 => [AES, &[2]].concat(),
            Self::Aes192 => [AES, &[22]].concat(),
            Self::Aes256 => [AES, &[42]].concat(),
            Self::DesEde3 => DES_EDE3_CBC.to_vec(),
        }
    }

    fn of_oid(content: &[u8]) -> Result<Self, DerError> {
        match content.strip_prefix(AES) {
            Some([2]) => Ok(Self::Aes128),
            Some([22]) => Ok(Self::Aes192),
            Some([42]) => Ok(Self::Aes256),
            _ if content == DES_EDE3_CBC => Ok(Self::DesEde3),
            _ => Err(DerError::Malformed("content encryption: only AES in CBC mode is supported")),
        }
    }
}

/// Algorithm that encrypts the content key for a recipient.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum KeyTransport {
    /// RSAES-PKCS1-v1_5 (RFC 3370 section 4.2.1), used by SCEP clients.
    RsaPkcs1,
    /// RSAES-OAEP with this hash, MGF1 with the same hash, and no label (RFC 3560).
    RsaOaep(Digest),
}

impl KeyTransport {
    fn read(mut fields: Reader<'_>) -> Result<Self, DerError> {
        match fields.expect(tag::OID)?.content {
            oid::RSA => Ok(Self::RsaPkcs1),
            RSAES_OAEP => {
                let parameters = if fields.is_empty() { Reader::new(&[]) } else { fields.sequence()? };
                oaep_hash(parameters).map(Self::RsaOaep)
            }
            _ => Err(DerError::Malformed("key encryption: only RSA is supported")),
        }
    }

    fn to_der(self) -> Vec<u8> {
        let Self::RsaOaep(hash) = self else {
            return identifier(oid::RSA, true);
        };
        der::write(|w| {
            w.sequence(|w| {
                w.element(tag::OID, RSAES_OAEP);
                w.sequence(|w| {
                    if hash == Digest::Sha1 {
                        return; // the default of both
                    }
                    w.context(0, |w| {
                        w.raw(&hash.to_der());
                    });
                    w.context(1, |w| {
                        w.sequence(|w| {
                            w.element(tag::OID, oid::MGF1).raw(&hash.to_der());
                        });
                    });
                });
            });
        })
    }
}

/// Parses RSAES-OAEP-params (RFC 4055 section 4.1) in which both hashes are the same.
fn oaep_hash(mut fields: Reader<'_>) -> Result<Digest, DerError> {
    let other = DerError::Malformed("RSAES-OAEP parameters: only equal hashes without a label are supported");
    let hash = match fields.optional(tag::context_constructed(0))? {
        Some(hash) => Digest::read(hash.inside().sequence()?)?,
        None => Digest::Sha1,
    };
    let mask = match fields.optional(tag::context_constructed(1))? {
        Some(mask) => {
            let mut generator = mask.inside().sequence()?;
            if generator.expect(tag::OID)?.content != oid::MGF1 {
                return Err(other);
            }
            Digest::read(generator.sequence()?)?
        }
        None => Digest::Sha1,
    };
    if hash == mask && fields.is_empty() { Ok(hash) } else { Err(other) }
}

/// A recipient of an encrypted CMS message (KeyTransRecipientInfo).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recipient {
    /// Identity of the recipient's certificate.
    pub id: Identity,
    /// Algorithm with which [`Self::encrypted_key`] is encrypted.
    pub transport: KeyTransport,
    /// The encrypted content key.
    pub encrypted_key: Vec<u8>,
}

/// A CMS message that is encrypted for one or more recipients.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EnvelopedData {
    /// Recipients with RSA keys. Other recipients are left out.
    pub recipients: Vec<Recipient>,
    /// Cipher with which the content is encrypted.
    pub cipher: ContentCipher,
    /// The initialization vector, one block long.
    pub iv: Vec<u8>,
    /// The encrypted content: at least one block, and whole blocks only.
    pub ciphertext: Vec<u8>,
}

impl EnvelopedData {
    /// Parses a ContentInfo with EnvelopedData, in DER or BER.
    ///
    /// # Errors
    /// If the message is not EnvelopedData, uses unsupported algorithms, or exceeds [`super::MESSAGE_MAX`] or 16 recipients.
    pub fn parse(message: &[u8]) -> Result<Self, DerError> {
        parse(message, Self::read)
    }

    fn read(message: &[u8]) -> Result<Self, DerError> {
        let mut fields = content_of(message, ENVELOPED_DATA)?;
        fields.expect(tag::INTEGER)?; // version
        fields.optional(tag::context_constructed(0))?; // originatorInfo
        let mut recipients = Vec::new();
        for (index, recipient) in fields.set()?.enumerate() {
            if index == RECIPIENTS_MAX {
                return Err(DerError::Malformed("recipients: too many"));
            }
            let recipient = recipient?;
            if recipient.tag == tag::SEQUENCE {
                recipients.push(Recipient::read(recipient.inside())?);
            }
        }
        let mut encrypted = fields.sequence()?;
        encrypted.expect(tag::OID)?; // contentType
        let mut algorithm = encrypted.sequence()?;
        let cipher = ContentCipher::of_oid(algorithm.expect(tag::OID)?.content)?;
        let iv = algorithm.expect(tag::OCTET_STRING)?.content.to_vec();
        let ciphertext = ciphertext(encrypted.any()?)?;
        encrypted.end()?;
        let blocks = ciphertext.len() / cipher.block_length();
        if iv.len() != cipher.block_length() || blocks == 0 || blocks * iv.len() != ciphertext.len() {
            return Err(DerError::Malformed(
                "encrypted content: the length is not a multiple of the block size",
            ));
        }
        Ok(Self { recipients, cipher, iv, ciphertext })
    }

    /// Encodes the DER ContentInfo. The type of the encrypted content is [`DATA`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        content_info(ENVELOPED_DATA, |w| {
            w.sequence(|w| {
                let named = self.recipients.iter().all(|recipient| recipient.id.version(0, 2) == 0);
                w.integer(if named { 0 } else { 2 });
                w.set_of(self.recipients.iter().map(Recipient::to_der).collect());
                w.sequence(|w| {
                    w.oid_text(DATA);
                    w.sequence(|w| {
                        w.element(tag::OID, &self.cipher.oid()).octets(&self.iv);
                    });
                    w.context_primitive(0, &self.ciphertext);
                });
            });
        })
    }
}

impl Recipient {
    fn read(mut fields: Reader<'_>) -> Result<Self, DerError> {
        fields.expect(tag::INTEGER)?; // version
        let id = Identity::read(fields.any()?)?;
        let transport = KeyTransport::read(fields.sequence()?)?;
        let encrypted_key = fields.expect(tag::OCTET_STRING)?.content.to_vec();
        fields.end()?;
        Ok(Self { id, transport, encrypted_key })
    }

    fn to_der(&self) -> Vec<u8> {
        der::write(|w: &mut Writer| {
            w.sequence(|w| {
                w.integer(self.id.version(0, 2));
                self.id.write(w);
                w.raw(&self.transport.to_der()).octets(&self.encrypted_key);
            });
        })
    }
}

/// Parses `[0] IMPLICIT OCTET STRING`, whole or in pieces.
fn ciphertext(element: Element<'_>) -> Result<Vec<u8>, DerError> {
    match element.tag {
        0x80 => Ok(element.content.to_vec()),
        0xa0 => pieces(element.content),
        found => Err(DerError::Unexpected { expected: 0x80, found }),
    }
}
