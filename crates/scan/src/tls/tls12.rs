//! TLS 1.2 and earlier, after the ServerHello (RFC 5246, 4346, 2246, 6101): plaintext only.

use super::cursor::Cursor;
use super::hello::{TLS_1_2, message};
use super::limits::CHAIN_MAX;
use super::message::{Flow, Message, read_certificate};
use super::proof::{self, bits};
use super::{Evidence, Failure, Proof, names, record};

/// The alerts user_canceled and close_notify, each a warning in its own record.
const CLOSING_ALERTS: [[u8; 2]; 2] = [[1, 90], [1, 0]];

/// A handshake after the ServerHello.
pub(super) struct Session {
    version: u16,
    exchange: Exchange,
    client_random: [u8; 32],
    server_random: [u8; 32],
    /// Whether a ServerKeyExchange has been read. Each costs a signature verification, so only one is accepted.
    exchanged: bool,
}

/// Key exchange method of the suite, which defines the format of ServerKeyExchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Exchange {
    Ecdhe,
    Dhe,
    RsaExport,
    Rsa,
    StaticEcdh,
    Anonymous,
    Unknown,
}

impl Exchange {
    /// Determines the method from the name of the suite.
    fn of(suite: u16) -> Self {
        let name = names::cipher_suite(suite);
        let starts = |prefix| name.starts_with(prefix);
        match () {
            () if name.contains("_anon_") => Self::Anonymous,
            () if starts("TLS_ECDHE_") => Self::Ecdhe,
            () if starts("TLS_DHE_") => Self::Dhe,
            () if starts("TLS_RSA_EXPORT_") => Self::RsaExport,
            () if starts("TLS_RSA_") => Self::Rsa,
            () if starts("TLS_ECDH_") => Self::StaticEcdh,
            () => Self::Unknown,
        }
    }

    /// Returns the reason why the method has no signature to verify; `None` if it has one.
    fn unsigned(self) -> Option<&'static str> {
        match self {
            Self::Rsa | Self::RsaExport => Some("static RSA: the server signs nothing"),
            Self::StaticEcdh => Some("static ECDH: the server signs nothing"),
            Self::Unknown => Some("a cipher suite that was not offered"),
            Self::Ecdhe | Self::Dhe | Self::Anonymous => None,
        }
    }
}

impl Session {
    pub(super) fn new(version: u16, suite: u16, client_random: [u8; 32], server_random: [u8; 32]) -> Self {
        Self { version, exchange: Exchange::of(suite), client_random, server_random, exchanged: false }
    }

    pub(super) fn on_message(
        &mut self,
        message: Message<'_>,
        evidence: &mut Evidence,
        out: &mut Vec<u8>,
    ) -> Result<Flow, Failure> {
        match message.kind {
            message::CERTIFICATE if evidence.chain.is_empty() => {
                read_chain(message.body(), evidence)?;
                if let Some(why) = self.exchange.unsigned() {
                    evidence.proof = Proof::Unverifiable(why);
                }
                Ok(Flow::More)
            }
            message::SERVER_KEY_EXCHANGE | message::SERVER_HELLO_DONE if evidence.chain.is_empty() => {
                Err(Failure::NoCertificate("the key exchange is anonymous"))
            }
            message::CERTIFICATE_STATUS if !evidence.chain.is_empty() => {
                let mut body = Cursor::new(message.body());
                let (Some(kind), Some(response)) = (body.u8(), body.vec24()) else {
                    return Err(Failure::Malformed("CertificateStatus"));
                };
                if kind == 1 {
                    evidence.ocsp_staple = Some(response.to_vec());
                }
                Ok(Flow::More)
            }
            message::SERVER_KEY_EXCHANGE if !self.exchanged => {
                self.exchanged = true;
                self.read_key_exchange(message.body(), evidence)?;
                Ok(Flow::More)
            }
            message::CERTIFICATE_REQUEST if !evidence.chain.is_empty() => {
                self.end(true, message.kind, evidence, out)
            }
            message::SERVER_HELLO_DONE => self.end(false, message.kind, evidence, out),
            // SupplementalData (RFC 4680) precedes Certificate and is ignored.
            23 => Ok(Flow::More),
            found => {
                let expected = if evidence.chain.is_empty() { "certificate" } else { "server_hello_done" };
                Err(Failure::UnexpectedMessage { expected, found })
            }
        }
    }

    fn end(
        &self,
        client_certificate: bool,
        found: u8,
        evidence: &mut Evidence,
        out: &mut Vec<u8>,
    ) -> Result<Flow, Failure> {
        evidence.client_certificate = Some(client_certificate);
        if evidence.proof == Proof::None {
            return Err(Failure::UnexpectedMessage { expected: "server_key_exchange", found });
        }
        for alert in CLOSING_ALERTS {
            out.extend_from_slice(&record::plain(record::ALERT, self.version, &alert));
        }
        Ok(Flow::Done)
    }

    /// Parses ServerKeyExchange (RFC 5246 section 7.4.3, RFC 8422 section 5.4).
    fn read_key_exchange(&self, body: &[u8], evidence: &mut Evidence) -> Result<(), Failure> {
        const MALFORMED: Failure = Failure::Malformed("ServerKeyExchange");
        let mut rest = Cursor::new(body);
        match self.exchange {
            Exchange::Ecdhe => match rest.u8().ok_or(MALFORMED)? {
                3 => {
                    evidence.group = Some(rest.u16().ok_or(MALFORMED)?);
                    rest.vec8().ok_or(MALFORMED)?;
                }
                _ => {
                    evidence.proof = Proof::Unverifiable("explicit curve parameters");
                    return Ok(());
                }
            },
            Exchange::Dhe => {
                let prime = rest.vec16().ok_or(MALFORMED)?;
                evidence.exchange_bits = u32::try_from(bits(prime)).ok();
                rest.vec16().and_then(|_generator| rest.vec16()).ok_or(MALFORMED)?;
            }
            Exchange::RsaExport => {
                let modulus = rest.vec16().ok_or(MALFORMED)?;
                evidence.exchange_bits = u32::try_from(bits(modulus)).ok();
                rest.vec16().ok_or(MALFORMED)?;
            }
            // No ServerKeyExchange is expected with this key exchange method. The format of the message is unknown, so it is not
            // parsed.
            _ => return Ok(()),
        }
        let parameters = &body[..body.len() - rest.rest().len()];
        evidence.proof = self.check_signature(parameters, rest, evidence).ok_or(MALFORMED)?;
        Ok(())
    }

    fn check_signature(
        &self,
        parameters: &[u8],
        mut rest: Cursor<'_>,
        evidence: &mut Evidence,
    ) -> Option<Proof> {
        let scheme = if self.version >= TLS_1_2 { Some(rest.u16()?) } else { None };
        let signature = rest.vec16()?;
        evidence.signature_scheme = scheme;
        let mut signed = Vec::with_capacity(64 + parameters.len());
        signed.extend_from_slice(&self.client_random);
        signed.extend_from_slice(&self.server_random);
        signed.extend_from_slice(parameters);
        let leaf = evidence.chain.first()?;
        Some(proof::check(leaf, scheme, &signed, signature))
    }
}

/// Parses Certificate (RFC 5246 section 7.4.2).
fn read_chain(body: &[u8], evidence: &mut Evidence) -> Result<(), Failure> {
    let list = Cursor::new(body).vec24().ok_or(Failure::Malformed("Certificate"))?;
    let mut list = Cursor::new(list);
    while !list.is_empty() {
        if evidence.chain.len() == CHAIN_MAX {
            return Err(Failure::LimitExceeded { what: "certificates", limit: CHAIN_MAX });
        }
        evidence.chain.push(read_certificate(&mut list)?);
    }
    if evidence.chain.is_empty() {
        return Err(Failure::NoCertificate("the list of certificates is empty"));
    }
    Ok(())
}
