//! ClientHello and ServerHello.

use std::net::IpAddr;

use super::cursor::{Cursor, put_extension, put_u16, put_vec8, put_vec16, set_u16};
use super::shares::{KeyShares, X25519_MLKEM768};
use super::{ClientHelloContent, Profile, extension, record};

/// Types of handshake messages (RFC 8446 section 4; RFC 5246 section 7.4).
pub(super) mod message {
    pub(crate) const HELLO_REQUEST: u8 = 0;
    pub(crate) const CLIENT_HELLO: u8 = 1;
    pub(crate) const SERVER_HELLO: u8 = 2;
    pub(crate) const NEW_SESSION_TICKET: u8 = 4;
    pub(crate) const ENCRYPTED_EXTENSIONS: u8 = 8;
    pub(crate) const CERTIFICATE: u8 = 11;
    pub(crate) const SERVER_KEY_EXCHANGE: u8 = 12;
    pub(crate) const CERTIFICATE_REQUEST: u8 = 13;
    pub(crate) const SERVER_HELLO_DONE: u8 = 14;
    pub(crate) const CERTIFICATE_VERIFY: u8 = 15;
    pub(crate) const FINISHED: u8 = 20;
    pub(crate) const CERTIFICATE_STATUS: u8 = 22;
    pub(crate) const MESSAGE_HASH: u8 = 254;
}

pub(super) const SSL_3_0: u16 = 0x0300;
pub(super) const TLS_1_2: u16 = 0x0303;
pub(super) const TLS_1_3: u16 = 0x0304;

/// TLS 1.3 suites. Every TLS 1.3 server supports at least one of them; the CCM suites are for DTLS devices.
const MODERN_SUITES: &[u16] = &[0x1301, 0x1302, 0x1303];

/// Suites up to TLS 1.2. Modern suites are first, so that servers that follow the client's order show the best suite that they
/// support. Anonymous and pre-shared-key suites are missing: such handshakes have no certificate.
#[rustfmt::skip]
pub(super) const OLD_SUITES: &[u16] = &[
    // ECDHE with AEAD
    0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc0ac, 0xc0ad, 0xc0ae, 0xc0af,
    0xc05c, 0xc05d, 0xc060, 0xc061,
    // DHE with AEAD
    0x009e, 0x009f, 0xccaa, 0xc09e, 0xc09f,
    // ECDHE, then DHE, with CBC
    0xc023, 0xc024, 0xc027, 0xc028, 0xc009, 0xc00a, 0xc013, 0xc014, 0xc072, 0xc073, 0xc076, 0xc077,
    0x0067, 0x006b, 0x0033, 0x0039, 0x0045, 0x0088,
    // Static RSA.
    0x009c, 0x009d, 0xc09c, 0xc09d, 0xc0a0, 0xc0a1, 0x003c, 0x003d, 0x002f, 0x0035, 0x0041, 0x0084,
    0x0096,
    // DSS
    0x00a2, 0x00a3, 0x0040, 0x006a, 0x0032, 0x0038,
    // Static ECDH.
    0xc02d, 0xc031, 0xc004, 0xc005, 0xc00e, 0xc00f,
    // 3DES, RC4, DES, export, no encryption
    0xc008, 0xc012, 0x0016, 0x000a, 0x0013, 0xc007, 0xc011, 0x0005, 0x0004, 0x0015, 0x0012, 0x0009,
    0x0014, 0x0011, 0x0008, 0x0006, 0x0003, 0xc006, 0xc010, 0x003b, 0x0002, 0x0001,
];

/// The cipher suite value that signals secure renegotiation without an extension (RFC 5746 section 3.3).
const RENEGOTIATION_SCSV: u16 = 0x00ff;

/// Groups for TLS 1.3, then those for older versions only. x448 and ffdhe are left out, because a TLS 1.3 server could require them
/// and they are not supported here. Older servers use their own Diffie-Hellman groups only if no ffdhe group is listed (RFC 7919
/// section 4). The old curves are listed because servers check their certificate's curve against this list.
const GROUPS: &[u16] =
    &[X25519_MLKEM768, 0x001d, 0x0017, 0x0018, 0x0019, 0x001a, 0x001b, 0x001c, 0x0016, 0x0015, 0x0013];

/// All signature schemes of certificates and handshakes. A server does not send a certificate if the client lacks its scheme.
/// PKCS #1 v1.5 comes before PSS, so that RSA keys that are too short for PSS can still sign up to TLS 1.2; TLS 1.3 ignores PKCS
/// #1 v1.5.
#[rustfmt::skip]
const SIGNATURE_SCHEMES: &[u16] = &[
    0x0403, 0x0401, 0x0804, 0x0807, 0x0503, 0x0501, 0x0805, 0x0603, 0x0601, 0x0806,
    0x0809, 0x080a, 0x080b, 0x0808, 0x0904, 0x0905, 0x0906, 0x081a, 0x081b, 0x081c,
    0x0303, 0x0301, 0x0203, 0x0201, 0x0402, 0x0502, 0x0602, 0x0302, 0x0202, 0x0101,
];
/// Signature schemes in a ClientHello without TLS 1.3.
#[rustfmt::skip]
const OLD_SIGNATURE_SCHEMES: &[u16] = &[
    0x0403, 0x0401, 0x0503, 0x0501, 0x0603, 0x0601, 0x0804, 0x0805, 0x0806, 0x0807, 0x0808,
    0x0809, 0x080a, 0x080b, 0x0303, 0x0301, 0x0203, 0x0201, 0x0402, 0x0502, 0x0602, 0x0302, 0x0202, 0x0101,
];

/// Minimum length of a ClientHello that is padded (RFC 7685). Some F5 load balancers hang on a length between this and
/// [`PADDED_TO`].
const PADDED_FROM: usize = 256;
/// Length to which a ClientHello is padded.
const PADDED_TO: usize = 512;

/// The random value that distinguishes a HelloRetryRequest from a ServerHello (RFC 8446 section 4.1.3).
const HELLO_RETRY_REQUEST: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// A sent ClientHello, stored for the transcript and for a second ClientHello.
pub(super) struct ClientHello {
    /// The handshake message, header included.
    pub(super) message: Vec<u8>,
    /// Offset of the extension list, which starts with its length.
    extensions_at: usize,
    /// Offset of the key_share extension, always the last one.
    key_share_at: usize,
}

impl ClientHello {
    pub(super) fn new(
        offer: &ClientHelloContent,
        shares: &KeyShares,
        random: &[u8; 32],
        session_id: &[u8; 32],
    ) -> Self {
        let modern = offer.profile != Profile::Legacy;
        let mut out = Vec::with_capacity(2_048);
        out.extend_from_slice(&[message::CLIENT_HELLO, 0, 0, 0]);
        put_u16(&mut out, TLS_1_2);
        out.extend_from_slice(random);
        // A random session identifier, as for middlebox compatibility (RFC 8446 appendix D.4). No server can resume it.
        put_vec8(&mut out, if modern { session_id } else { &[] });
        put_vec16(&mut out, |out| {
            if modern {
                put_all(out, MODERN_SUITES);
            }
            put_all(out, OLD_SUITES);
            if !modern {
                put_u16(out, RENEGOTIATION_SCSV);
            }
        });
        put_vec8(&mut out, &[0]); // no compression
        let extensions_at = out.len();
        put_u16(&mut out, 0);
        put_common_extensions(&mut out, offer, modern);
        let key_share = match offer.profile {
            Profile::Modern => shares.initial_key_share(true),
            Profile::Compact => shares.initial_key_share(false),
            Profile::Legacy => &[],
        };
        if modern {
            put_modern_extensions(&mut out);
        }
        put_padding(&mut out, key_share.len());
        let mut hello = Self { key_share_at: out.len(), message: out, extensions_at };
        hello.message.extend_from_slice(key_share);
        hello.set_lengths();
        hello
    }

    /// Creates the second ClientHello after a HelloRetryRequest: the same with another key share and the cookie (RFC 8446 section
    /// 4.1.2).
    pub(super) fn retry(&mut self, key_share: Option<&[u8]>, cookie: Option<&[u8]>) {
        if let Some(key_share) = key_share {
            self.message.truncate(self.key_share_at);
            self.message.extend_from_slice(key_share);
        }
        if let Some(cookie) = cookie {
            put_extension(&mut self.message, extension::COOKIE, |out| {
                put_vec16(out, |out| out.extend_from_slice(cookie));
            });
        }
        self.set_lengths();
    }

    /// Returns the message in a record. The record version is TLS 1.0, which very old servers require.
    pub(super) fn record(&self) -> Vec<u8> {
        record::plain(record::HANDSHAKE, 0x0301, &self.message)
    }

    fn set_lengths(&mut self) {
        let length = self.message.len();
        set_u16(&mut self.message, self.extensions_at, length - self.extensions_at - 2);
        set_u16(&mut self.message, 2, length - 4);
    }
}

/// Creates a record with a ClientHello of TLS 1.2 and earlier that offers only `suites`.
pub(super) fn old(
    version: u16,
    suites: &[u16],
    server_name: Option<&str>,
    alpn: &[&str],
    random: &[u8; 32],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(&[message::CLIENT_HELLO, 0, 0, 0]);
    put_u16(&mut out, version);
    out.extend_from_slice(random);
    put_vec8(&mut out, &[]);
    put_vec16(&mut out, |out| {
        put_all(out, suites);
        put_u16(out, RENEGOTIATION_SCSV);
    });
    put_vec8(&mut out, &[0]); // no compression
    let extensions_at = out.len();
    put_u16(&mut out, 0);
    put_server_name(&mut out, server_name);
    put_extension(&mut out, extension::SUPPORTED_GROUPS, |out| {
        put_vec16(out, |out| put_all(out, &GROUPS[1..]));
    });
    put_extension(&mut out, extension::EC_POINT_FORMATS, |out| put_vec8(out, &[0]));
    put_alpn(&mut out, alpn);
    put_extension(&mut out, extension::SIGNATURE_ALGORITHMS, |out| {
        put_vec16(out, |out| put_all(out, OLD_SIGNATURE_SCHEMES));
    });
    put_padding(&mut out, 0);
    let length = out.len();
    set_u16(&mut out, extensions_at, length - extensions_at - 2);
    set_u16(&mut out, 2, length - 4);
    record::plain(record::HANDSHAKE, 0x0301, &out)
}

fn put_all(out: &mut Vec<u8>, numbers: &[u16]) {
    for number in numbers {
        put_u16(out, *number);
    }
}

fn put_common_extensions(out: &mut Vec<u8>, offer: &ClientHelloContent, modern: bool) {
    put_server_name(out, offer.server_name.as_deref());
    put_extension(out, extension::EXTENDED_MASTER_SECRET, |_| {});
    if modern {
        put_extension(out, extension::RENEGOTIATION_INFO, |out| out.push(0));
    }
    put_extension(out, extension::SUPPORTED_GROUPS, |out| {
        put_vec16(out, |out| match offer.profile {
            Profile::Modern => put_all(out, GROUPS),
            Profile::Compact | Profile::Legacy => put_all(out, &GROUPS[1..]),
        });
    });
    put_extension(out, extension::EC_POINT_FORMATS, |out| put_vec8(out, &[0]));
    put_extension(out, extension::SESSION_TICKET, |_| {});
    put_alpn(out, offer.alpn);
    put_extension(out, extension::STATUS_REQUEST, |out| out.extend_from_slice(&[1, 0, 0, 0, 0]));
    put_extension(out, extension::SIGNATURE_ALGORITHMS, |out| {
        put_vec16(out, |out| {
            put_all(out, if modern { SIGNATURE_SCHEMES } else { OLD_SIGNATURE_SCHEMES });
        });
    });
    put_extension(out, extension::SIGNED_CERTIFICATE_TIMESTAMP, |_| {});
}

fn put_server_name(out: &mut Vec<u8>, server_name: Option<&str>) {
    if let Some(name) = server_name.and_then(sni_name) {
        put_extension(out, extension::SERVER_NAME, |out| {
            put_vec16(out, |out| {
                out.push(0); // host_name
                put_vec16(out, |out| out.extend_from_slice(name.as_bytes()));
            });
        });
    }
}

fn put_modern_extensions(out: &mut Vec<u8>) {
    put_extension(out, extension::SUPPORTED_VERSIONS, |out| {
        put_vec8(out, &[3, 4, 3, 3, 3, 2, 3, 1]);
    });
    // PSK with (EC)DHE; without this extension servers issue no tickets (RFC 8446 section 4.2.9).
    put_extension(out, extension::PSK_KEY_EXCHANGE_MODES, |out| put_vec8(out, &[1]));
}

fn put_alpn(out: &mut Vec<u8>, protocols: &[&str]) {
    if protocols.is_empty() {
        return;
    }
    put_extension(out, extension::ALPN, |out| {
        put_vec16(out, |out| protocols.iter().for_each(|p| put_vec8(out, p.as_bytes())));
    });
}

/// Pads a ClientHello to which `bytes_to_add` bytes are still added.
fn put_padding(out: &mut Vec<u8>, bytes_to_add: usize) {
    const EXTENSION_HEADER: usize = 4;
    let length = out.len() + bytes_to_add;
    if (PADDED_FROM..PADDED_TO).contains(&length) {
        // Padding without content could be an empty last extension, which other old servers reject.
        let padding = (PADDED_TO - length).saturating_sub(EXTENSION_HEADER).max(1);
        put_extension(out, extension::PADDING, |out| out.resize(out.len() + padding, 0));
    }
}

/// Returns the name for the SNI extension: `None` for address literals; without a trailing dot (RFC 6066 section 3).
fn sni_name(name: &str) -> Option<&str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let literal = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    // 253 is the maximum length of a DNS name.
    (!name.is_empty() && name.len() <= 253 && !literal).then_some(name)
}

/// A parsed ServerHello or HelloRetryRequest.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerHello<'a> {
    /// The negotiated version, from the supported_versions extension if present.
    pub(super) version: u16,
    pub(super) random: [u8; 32],
    pub(super) session_id: &'a [u8],
    pub(super) cipher: u16,
    /// The selected group and, except in a HelloRetryRequest, the server's share.
    pub(super) key_share: Option<(u16, &'a [u8])>,
    pub(super) cookie: Option<&'a [u8]>,
    pub(super) alpn: Option<&'a [u8]>,
    pub(super) ticket: bool,
    pub(super) scts: Option<&'a [u8]>,
    /// Whether a pre-shared key was selected, although none was offered.
    pub(super) pre_shared_key: bool,
}

impl<'a> ServerHello<'a> {
    /// Parses the message's body (RFC 8446 section 4.1.3; RFC 5246 section 7.4.1.3).
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let mut body = Cursor::new(body);
        let mut hello = Self { version: body.u16()?, random: body.array()?, ..Self::default() };
        hello.session_id = body.vec8().filter(|id| id.len() <= 32)?;
        hello.cipher = body.u16()?;
        body.u8()?; // compression: only "none" was offered, and nothing else could be read anyway
        // Up to TLS 1.2 the extension list may be missing.
        let mut extensions = match body.is_empty() {
            true => Cursor::new(&[]),
            false => Cursor::new(body.vec16()?),
        };
        while !extensions.is_empty() {
            let (kind, data) = extensions.extension()?;
            hello.read_extension(kind, data)?;
        }
        Some(hello)
    }

    fn read_extension(&mut self, kind: u16, mut data: Cursor<'a>) -> Option<()> {
        match kind {
            extension::SUPPORTED_VERSIONS => self.version = data.u16()?,
            extension::KEY_SHARE => {
                let group = data.u16()?;
                let share = if data.is_empty() { &[] } else { data.vec16()? };
                self.key_share = Some((group, share));
            }
            extension::COOKIE => self.cookie = Some(data.vec16()?),
            extension::ALPN => self.alpn = Some(chosen_protocol(data)?),
            extension::SESSION_TICKET => self.ticket = true,
            extension::SIGNED_CERTIFICATE_TIMESTAMP => self.scts = Some(data.rest()),
            41 => self.pre_shared_key = true,
            _ => {}
        }
        Some(())
    }

    pub(super) fn is_retry_request(&self) -> bool {
        self.random == HELLO_RETRY_REQUEST
    }

    /// Returns whether the server indicates that it supports a newer version than it chose (RFC 8446 section 4.1.3).
    pub(super) fn downgraded(&self) -> bool {
        self.random.ends_with(b"DOWNGRD\x01") || self.random.ends_with(b"DOWNGRD\x00")
    }
}

/// Returns the protocol in a server's ALPN extension (RFC 7301 section 3.1).
pub(super) fn chosen_protocol(mut data: Cursor<'_>) -> Option<&[u8]> {
    Cursor::new(data.vec16()?).vec8()
}
