//! TLS 1.3 after the ServerHello (RFC 8446).

use aws_lc_rs::{constant_time, digest};

use super::cursor::{Cursor, put_vec8};
use super::hello::{chosen_protocol, message};
use super::limits::CHAIN_MAX;
use super::message::{Flow, Message, read_certificate};
use super::record::{self, RecordProtection, RecordReader};
use super::schedule::{Output, Secrets, Tls13Suite};
use super::{Evidence, Failure, Proof, TicketOffer, extension, proof};

/// The record that old middleboxes expect before protected ones (RFC 8446 appendix D.4).
const CHANGE_CIPHER_SPEC: [u8; 6] = [record::CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1];
/// The alert close_notify. Its level is "warning", but TLS 1.3 ignores levels (RFC 8446 section 6.1).
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// A handshake after the ServerHello.
pub(super) struct Session {
    suite: Tls13Suite,
    transcript: digest::Context,
    secrets: Secrets,
    expected: Expected,
    finish: bool,
    /// The context of a CertificateRequest, which the client must repeat.
    request_context: Option<Vec<u8>>,
    change_cipher_spec_sent: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expected {
    EncryptedExtensions,
    CertificateOrRequest,
    CertificateVerify,
    Finished,
    /// The client's Finished was sent.
    AfterHandshake,
}

impl Expected {
    fn name(self) -> &'static str {
        match self {
            Self::EncryptedExtensions => "encrypted_extensions",
            Self::CertificateOrRequest => "certificate",
            Self::CertificateVerify => "certificate_verify",
            Self::Finished => "finished",
            Self::AfterHandshake => "new_session_ticket",
        }
    }
}

impl Session {
    /// Starts with the shared secret and the transcript up to the ServerHello; from then on `records` decrypts protected records.
    pub(super) fn begin(
        suite: Tls13Suite,
        shared_secret: &[u8],
        transcript: digest::Context,
        finish: bool,
        retried: bool,
        records: &mut RecordReader,
    ) -> Result<Self, Failure> {
        let so_far = transcript.clone().finish();
        let secrets = Secrets::handshake(suite.hash(), shared_secret, so_far.as_ref());
        records.open_with(protection(suite, &secrets.server)?);
        Ok(Self {
            suite,
            transcript,
            secrets,
            expected: Expected::EncryptedExtensions,
            finish,
            request_context: None,
            change_cipher_spec_sent: retried,
        })
    }

    /// Returns whether the client's Finished was sent, so that all further messages are optional.
    pub(super) fn is_over(&self) -> bool {
        self.expected == Expected::AfterHandshake
    }

    pub(super) fn on_message(
        &mut self,
        message: Message<'_>,
        evidence: &mut Evidence,
        records: &mut RecordReader,
        out: &mut Vec<u8>,
    ) -> Result<Flow, Failure> {
        let mut flow = Flow::More;
        match (self.expected, message.kind) {
            (Expected::EncryptedExtensions, message::ENCRYPTED_EXTENSIONS) => {
                read_encrypted_extensions(message.body(), evidence)
                    .ok_or(Failure::Malformed("EncryptedExtensions"))?;
                self.expected = Expected::CertificateOrRequest;
            }
            (Expected::CertificateOrRequest, message::CERTIFICATE_REQUEST) => {
                let context = Cursor::new(message.body()).vec8();
                let context = context.ok_or(Failure::Malformed("CertificateRequest"))?;
                self.request_context = Some(context.to_vec());
                evidence.client_certificate = Some(true);
            }
            (Expected::CertificateOrRequest, message::CERTIFICATE) => {
                evidence.client_certificate.get_or_insert(false);
                read_chain(message.body(), evidence)?;
                self.expected = Expected::CertificateVerify;
            }
            (Expected::CertificateOrRequest, message::FINISHED) => {
                return Err(Failure::NoCertificate("the server used a pre-shared key"));
            }
            (Expected::CertificateVerify, message::CERTIFICATE_VERIFY) => {
                evidence.proof = self.check_signature(message.body(), evidence)?;
                if !self.finish {
                    self.send_close_notify(out)?;
                    flow = Flow::Done;
                }
                self.expected = Expected::Finished;
            }
            (Expected::Finished, message::FINISHED) => {
                self.check_finished(message.body())?;
                self.transcript.update(message.whole);
                self.send_finished(records, out)?;
                evidence.session_ticket = TicketOffer::NotOffered;
                self.expected = Expected::AfterHandshake;
                return Ok(Flow::More);
            }
            (Expected::AfterHandshake, message::NEW_SESSION_TICKET) => {
                evidence.session_ticket = TicketOffer::Offered;
                return Ok(Flow::Done);
            }
            // A KeyUpdate or a post-handshake CertificateRequest: the evidence is complete.
            (Expected::AfterHandshake, _) => return Ok(Flow::Done),
            (expected, found) => {
                return Err(Failure::UnexpectedMessage { expected: expected.name(), found });
            }
        }
        self.transcript.update(message.whole);
        Ok(flow)
    }

    /// Verifies CertificateVerify (RFC 8446 section 4.4.3).
    fn check_signature(&self, body: &[u8], evidence: &mut Evidence) -> Result<Proof, Failure> {
        let mut body = Cursor::new(body);
        let (Some(scheme), Some(signature)) = (body.u16(), body.vec16()) else {
            return Err(Failure::Malformed("CertificateVerify"));
        };
        evidence.signature_scheme = Some(scheme);
        let mut signed = Vec::with_capacity(160);
        signed.resize(64, b' ');
        signed.extend_from_slice(b"TLS 1.3, server CertificateVerify\0");
        signed.extend_from_slice(self.transcript.clone().finish().as_ref());
        let leaf = evidence.chain.first().ok_or(Failure::Malformed("CertificateVerify"))?;
        Ok(proof::check(leaf, Some(scheme), &signed, signature))
    }

    fn check_finished(&self, body: &[u8]) -> Result<(), Failure> {
        let transcript = self.transcript.clone().finish();
        let expected = self.secrets.verify_data(&self.secrets.server, transcript.as_ref());
        constant_time::verify_slices_are_equal(expected.as_slice(), body)
            .map_err(|_| Failure::Cryptography("verifying the server's Finished"))
    }

    /// Ends the handshake early, in a way that servers treat as a clean close.
    fn send_close_notify(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut sealer = protection(self.suite, &self.secrets.client)?;
        self.put_change_cipher_spec(out);
        seal(&mut sealer, record::ALERT, &CLOSE_NOTIFY, out)
    }

    /// Sends the client's last flight: an empty Certificate if one was requested, Finished, and then close_notify. The server sends
    /// its tickets before it reads close_notify.
    fn send_finished(&mut self, records: &mut RecordReader, out: &mut Vec<u8>) -> Result<(), Failure> {
        let so_far = self.transcript.clone().finish();
        let application = self.secrets.application(so_far.as_ref());
        let mut sealer = protection(self.suite, &self.secrets.client)?;
        self.put_change_cipher_spec(out);
        if let Some(context) = self.request_context.take() {
            let certificate = empty_certificate(&context);
            self.transcript.update(&certificate);
            seal(&mut sealer, record::HANDSHAKE, &certificate, out)?;
        }
        let so_far = self.transcript.clone().finish();
        let verify_data = self.secrets.verify_data(&self.secrets.client, so_far.as_ref());
        let length = u8::try_from(verify_data.as_slice().len()).unwrap_or(u8::MAX);
        let mut finished = vec![message::FINISHED, 0, 0, length];
        finished.extend_from_slice(verify_data.as_slice());
        seal(&mut sealer, record::HANDSHAKE, &finished, out)?;
        let mut sealer = protection(self.suite, &application.client)?;
        seal(&mut sealer, record::ALERT, &CLOSE_NOTIFY, out)?;
        records.open_with(protection(self.suite, &application.server)?);
        Ok(())
    }

    fn put_change_cipher_spec(&mut self, out: &mut Vec<u8>) {
        if !self.change_cipher_spec_sent {
            out.extend_from_slice(&CHANGE_CIPHER_SPEC);
            self.change_cipher_spec_sent = true;
        }
    }
}

/// Returns the ChangeCipherSpec record, which is also sent before a second ClientHello.
pub(super) fn change_cipher_spec() -> Vec<u8> {
    CHANGE_CIPHER_SPEC.to_vec()
}

fn protection(suite: Tls13Suite, secret: &Output) -> Result<RecordProtection, Failure> {
    suite.protection(secret).ok_or(Failure::Cryptography("setting up record protection"))
}

fn seal(sealer: &mut RecordProtection, kind: u8, content: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
    sealer.seal(kind, content, out).ok_or(Failure::Cryptography("protecting a record"))
}

fn read_encrypted_extensions(body: &[u8], evidence: &mut Evidence) -> Option<()> {
    let mut extensions = Cursor::new(Cursor::new(body).vec16()?);
    while !extensions.is_empty() {
        let (kind, data) = extensions.extension()?;
        if kind == extension::ALPN {
            let protocol = chosen_protocol(data)?;
            evidence.alpn = Some(String::from_utf8_lossy(protocol).into_owned());
        }
    }
    Some(())
}

/// Parses Certificate (RFC 8446 section 4.4.2).
fn read_chain(body: &[u8], evidence: &mut Evidence) -> Result<(), Failure> {
    const MALFORMED: Failure = Failure::Malformed("Certificate");
    let mut body = Cursor::new(body);
    body.vec8().ok_or(MALFORMED)?; // certificate_request_context
    let mut list = Cursor::new(body.vec24().ok_or(MALFORMED)?);
    while !list.is_empty() {
        if evidence.chain.len() == CHAIN_MAX {
            return Err(Failure::LimitExceeded { what: "certificates", limit: CHAIN_MAX });
        }
        let certificate = read_certificate(&mut list)?;
        let mut extensions = Cursor::new(list.vec16().ok_or(MALFORMED)?);
        let leaf = evidence.chain.is_empty();
        evidence.chain.push(certificate);
        while !extensions.is_empty() {
            let (kind, data) = extensions.extension().ok_or(MALFORMED)?;
            if leaf {
                read_leaf_extension(kind, data, evidence).ok_or(MALFORMED)?;
            }
        }
    }
    if evidence.chain.is_empty() {
        return Err(Failure::NoCertificate("the list of certificates is empty"));
    }
    Ok(())
}

fn read_leaf_extension(kind: u16, mut data: Cursor<'_>, evidence: &mut Evidence) -> Option<()> {
    match kind {
        extension::STATUS_REQUEST if data.u8()? == 1 => {
            evidence.ocsp_staple = Some(data.vec24()?.to_vec());
        }
        extension::SIGNED_CERTIFICATE_TIMESTAMP => evidence.scts = Some(data.rest().to_vec()),
        _ => {}
    }
    Some(())
}

/// Encodes a Certificate message without certificates (RFC 8446 section 4.4.2.3).
fn empty_certificate(context: &[u8]) -> Vec<u8> {
    let mut out = vec![message::CERTIFICATE, 0, 0, 0];
    put_vec8(&mut out, context);
    out.extend_from_slice(&[0, 0, 0]);
    let length = out.len() - 4;
    super::cursor::set_u16(&mut out, 2, length);
    out
}
