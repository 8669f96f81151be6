//! The TLS handshake of an observation in JSON, for programs.

use std::borrow::Cow;

use scan::tls::{Evidence, Proof, TicketOffer, names};
use serde::Serialize;

/// The handshake, up to the point that it reached.
#[derive(Serialize)]
pub(crate) struct Session<'a> {
    /// Protocol version: its name (`TLS 1.3`), or its number in hexadecimal if it has no name. The next three fields have the
    /// same form.
    version: Option<Cow<'static, str>>,
    cipher_suite: Option<Cow<'static, str>>,
    key_exchange_group: Option<Cow<'static, str>>,
    signature_scheme: Option<Cow<'static, str>>,
    /// Bits of the Diffie-Hellman prime or of the export key, if one was used.
    key_exchange_bits: Option<u32>,
    alpn: Option<&'a str>,
    /// Whether the server requested another key share first, which cost a round trip.
    hello_retry: bool,
    /// Whether the server sent session tickets: `offered`, `not-offered` or `not-asked` (the probe stopped before the server
    /// sends tickets).
    session_tickets: &'static str,
    /// Whether the server requested a client certificate; `null` if the probe stopped before a request was possible.
    client_certificate_requested: Option<bool>,
    ocsp_staple_octets: Option<usize>,
    sct_list_octets: Option<usize>,
    /// Always false, because only full handshakes provide evidence.
    resumed: bool,
    /// Result of the proof that the server has the private key: `verified`, `unverifiable`, `invalid` or `none`.
    proof_of_key: &'static str,
    proof_detail: Option<&'a str>,
    /// Whether something prevented the server from using a newer version (RFC 8446 section 4.1.3).
    downgraded: bool,
    received_octets: u64,
}

impl<'a> Session<'a> {
    /// Creates the view of `evidence`.
    pub(crate) fn of(evidence: &'a Evidence) -> Self {
        let (proof_of_key, proof_detail) = match &evidence.proof {
            Proof::Verified => ("verified", None),
            Proof::Unverifiable(why) => ("unverifiable", Some(*why)),
            Proof::Invalid(why) => ("invalid", Some(why.as_str())),
            Proof::None => ("none", None),
        };
        Self {
            version: evidence.version.map(names::version),
            cipher_suite: evidence.cipher.map(names::cipher_suite),
            key_exchange_group: evidence.group.map(names::group),
            signature_scheme: evidence.signature_scheme.map(names::signature_scheme),
            key_exchange_bits: evidence.exchange_bits,
            alpn: evidence.alpn.as_deref(),
            hello_retry: evidence.hello_retry,
            session_tickets: match evidence.session_ticket {
                TicketOffer::Offered => "offered",
                TicketOffer::NotOffered => "not-offered",
                TicketOffer::Unknown => "not-asked",
            },
            client_certificate_requested: evidence.client_certificate,
            ocsp_staple_octets: evidence.ocsp_staple.as_ref().map(Vec::len),
            sct_list_octets: evidence.scts.as_ref().map(Vec::len),
            resumed: false,
            proof_of_key,
            proof_detail,
            downgraded: evidence.downgraded,
            received_octets: evidence.bytes_in,
        }
    }
}
