//! Parsing and building of SCEP messages (RFC 8894 section 3).

use std::fmt;

use x509::cms::{
    Attribute, ContentCipher, DATA, Digest, EnvelopedData, Identity, SignedData, SignedSpec, Signer,
    signed_attributes, signed_data,
};
use x509::der::{self, Reader, tag};
use x509::{Certificate, SerialNumber, SignatureAlgorithm, SignatureError};

/// Maximum length of a transaction identifier in bytes; most have 32 or 40 hexadecimal digits.
const TRANSACTION_MAX: usize = 255;
/// Maximum length of a nonce in bytes; usual nonces have 16.
const NONCE_MAX: usize = 64;

/// OIDs of the attributes of RFC 8894 section 3.2.1.
const MESSAGE_TYPE: &str = "2.16.840.1.113733.1.9.2";
const PKI_STATUS: &str = "2.16.840.1.113733.1.9.3";
const FAIL_INFO: &str = "2.16.840.1.113733.1.9.4";
const SENDER_NONCE: &str = "2.16.840.1.113733.1.9.5";
const RECIPIENT_NONCE: &str = "2.16.840.1.113733.1.9.6";
const TRANSACTION_ID: &str = "2.16.840.1.113733.1.9.7";
const FAIL_INFO_TEXT: &str = "1.3.6.1.5.5.7.24.1";

/// Type of a message (RFC 8894 section 3.2.1.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MessageType {
    RenewalRequest,
    Request,
    Poll,
    GetCertificate,
    GetCrl,
}

impl MessageType {
    fn read(number: &str) -> Option<Self> {
        Some(match number {
            "17" => Self::RenewalRequest,
            "19" => Self::Request,
            "20" => Self::Poll,
            "21" => Self::GetCertificate,
            "22" => Self::GetCrl,
            _ => return None,
        })
    }
}

/// Reason of a failure (RFC 8894 section 3.2.1.4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FailInfo {
    Algorithm = 0,
    MessageCheck = 1,
    Request = 2,
    CertificateId = 4,
}

/// A failure, with a text that explains it to the client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Failure {
    pub(super) info: FailInfo,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(info: FailInfo, text: impl Into<String>) -> Self {
        Self { info, text: text.into() }
    }
}

/// A message from a client, not yet verified.
pub(super) struct Incoming {
    pub(super) kind: Option<MessageType>,
    pub(super) transaction: String,
    nonce: Option<Vec<u8>>,
    /// Certificate whose key signed the message; self-signed for a first enrolment.
    pub(super) signer: Certificate,
    pub(super) digest: Digest,
    signature: Signer,
    content_type: String,
    content: Vec<u8>,
}

impl Incoming {
    /// Parses the parts of a message that a reply needs.
    ///
    /// # Errors
    /// Names the missing part. Such a message gets no SCEP reply.
    pub(super) fn read(message: &[u8]) -> Result<Self, String> {
        let signed =
            SignedData::parse(message).map_err(|error| format!("not a CMS SignedData message: {error}"))?;
        let [signature] = <[Signer; 1]>::try_from(signed.signers)
            .map_err(|_| "the message does not have exactly one signer".to_owned())?;
        let mut certificates = signed.certificates.iter().filter_map(|der| Certificate::parse(der).ok());
        let signer = certificates.find(|certificate| signature.id.names(certificate));
        let text = |oid| signature.attribute(oid).and_then(printable);
        let transaction = text(TRANSACTION_ID).filter(|id| (1..=TRANSACTION_MAX).contains(&id.len()));
        Ok(Self {
            kind: text(MESSAGE_TYPE).and_then(|number| MessageType::read(&number)),
            transaction: transaction.ok_or("no transactionID")?,
            nonce: signature.attribute(SENDER_NONCE).and_then(octets),
            signer: signer.ok_or("the message does not include the signer's certificate")?,
            digest: signature.digest,
            signature,
            content_type: signed.content_type,
            content: signed.content.ok_or("no content")?,
        })
    }

    /// Verifies the signature with the key of the signer.
    pub(super) fn verify(&self) -> Result<(), SignatureError> {
        self.signature.verify(&self.signer.public_key, &self.content_type, &self.content)
    }

    /// Parses the encrypted content of the message.
    pub(super) fn envelope(&self) -> Result<EnvelopedData, der::DerError> {
        EnvelopedData::parse(&self.content)
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("kind", &self.kind)
            .field("transaction", &self.transaction)
            .finish_non_exhaustive()
    }
}

fn printable(value: &[u8]) -> Option<String> {
    let mut reader = Reader::new(value);
    let element = reader.any().ok()?;
    let text = element.text();
    let is_text = [tag::PRINTABLE_STRING, tag::UTF8_STRING, tag::IA5_STRING].contains(&element.tag);
    (is_text && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')).then_some(text)
}

fn octets(value: &[u8]) -> Option<Vec<u8>> {
    let nonce = Reader::new(value).expect(tag::OCTET_STRING).ok()?.content;
    (nonce.len() <= NONCE_MAX).then(|| nonce.to_vec())
}

#[derive(Debug)]
pub(super) enum Reply {
    /// Success, with an EnvelopedData.
    Success(Vec<u8>),
    Failure(Failure),
    /// The request is pending. The client must poll.
    Pending,
}

/// An unsigned reply: sign [`Self::attributes`], then call [`Self::signed`].
pub(super) struct Outgoing {
    content: Option<Vec<u8>>,
    /// DER to sign with [`ALGORITHM`].
    pub(super) attributes: Vec<u8>,
}

/// Hash of replies, independent of the request. Every client must support it (section 2.9).
const DIGEST: Digest = Digest::Sha256;
pub(super) const ALGORITHM: SignatureAlgorithm = SignatureAlgorithm::RsaSha256;

impl Outgoing {
    /// Builds the reply to `to` with a fresh nonce of 16 bytes.
    pub(super) fn new(to: &Incoming, reply: Reply, nonce: &[u8; 16]) -> Self {
        let printable = |oid: &str, text: &str| Attribute {
            oid: oid.to_owned(),
            value: der::write(|w| {
                w.printable(text);
            }),
        };
        let octets = |oid: &str, content: &[u8]| Attribute {
            oid: oid.to_owned(),
            value: der::write(|w| {
                w.octets(content);
            }),
        };
        const CERT_REP: &str = "3";
        let mut attributes = vec![
            printable(TRANSACTION_ID, &to.transaction),
            printable(MESSAGE_TYPE, CERT_REP),
            octets(SENDER_NONCE, nonce),
        ];
        attributes.extend(to.nonce.as_ref().map(|nonce| octets(RECIPIENT_NONCE, nonce)));
        let content = match reply {
            Reply::Success(envelope) => {
                attributes.push(printable(PKI_STATUS, "0"));
                Some(envelope)
            }
            Reply::Failure(failure) => {
                attributes.push(printable(PKI_STATUS, "2"));
                attributes.push(printable(FAIL_INFO, &(failure.info as u8).to_string()));
                let value = der::write(|w| {
                    w.utf8(&failure.text);
                });
                attributes.push(Attribute { oid: FAIL_INFO_TEXT.to_owned(), value });
                None
            }
            Reply::Pending => {
                attributes.push(printable(PKI_STATUS, "3"));
                None
            }
        };
        let hash = DIGEST.of(content.as_deref().unwrap_or_default());
        let attributes = signed_attributes(DATA, &hash, &attributes);
        Self { content, attributes }
    }

    /// Combines the reply, the signature and the certificate of the signer into the message for the client.
    pub(super) fn signed(&self, by: &Certificate, signature: &[u8]) -> Vec<u8> {
        signed_data(&SignedSpec {
            content_type: DATA,
            content: self.content.as_deref(),
            certificates: &[&by.der],
            signer: &Identity::of(by),
            digest: DIGEST,
            attributes: &self.attributes,
            algorithm: &ALGORITHM,
            signature,
        })
    }
}

/// Returns the issuer and the subject in a CertPoll message (section 3.3.3), as DER `Name`s.
pub(super) fn issuer_and_subject(content: &[u8]) -> Result<(Vec<u8>, Vec<u8>), der::DerError> {
    let mut fields = Reader::new(content).sequence()?;
    let issuer = fields.expect(tag::SEQUENCE)?.whole.to_vec();
    let subject = fields.expect(tag::SEQUENCE)?.whole.to_vec();
    fields.end()?;
    Ok((issuer, subject))
}

/// Returns the issuer and serial number in a GetCert or GetCRL message (sections 3.3.4 and 3.3.5).
pub(super) fn issuer_and_serial(content: &[u8]) -> Result<(Vec<u8>, SerialNumber), der::DerError> {
    let mut fields = Reader::new(content).sequence()?;
    let issuer = fields.expect(tag::SEQUENCE)?.whole.to_vec();
    let serial = SerialNumber::from_content(fields.expect(tag::INTEGER)?.content);
    fields.end()?;
    Ok((issuer, serial))
}

/// Returns whether the cipher of a message is allowed (section 2.9).
pub(super) fn is_cipher_allowed(cipher: ContentCipher) -> bool {
    matches!(cipher, ContentCipher::Aes128 | ContentCipher::Aes192 | ContentCipher::Aes256)
}
