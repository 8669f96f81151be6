//! Limits of memory and work that a peer can cause. The caller sets the timeout.

/// Maximum certificates in one message. Real chains have two to five; some appliances send their whole trust store, which is
/// rejected with a reason.
pub const CHAIN_MAX: usize = 32;
/// Longest certificate in bytes: the limit of the certificate parser.
pub const CERTIFICATE_MAX: usize = x509::Certificate::DER_MAX;
/// Maximum total bytes of handshake messages. A chain with post-quantum signatures takes 50 KB. 2,048 concurrent malicious peers
/// cause at most a gigabyte of memory (the messages and a copy of the chain).
pub const HANDSHAKE_MAX: usize = 256 * 1024;
/// Longest content of an unprotected record in bytes: 2^14, plus the possible expansion by compression up to TLS 1.2 (RFC 5246
/// section 6.2.2).
pub const RECORD_MAX: usize = (1 << 14) + 1024;
/// Longest protected record in bytes (RFC 8446 section 5.2).
pub const PROTECTED_RECORD_MAX: usize = (1 << 14) + 256;
/// Maximum number of records: with 16 bytes each they still make up the largest handshake.
pub const RECORDS_MAX: usize = 16_384;
/// Maximum number of records without progress (empty records, warnings, ChangeCipherSpec, heartbeats): the limit of OpenSSL.
pub const IDLE_RECORDS_MAX: usize = 32;
/// Stored bytes of a response that is not TLS: the first line of a banner.
pub const FIRST_BYTES_MAX: usize = 64;
/// Longest cookie in bytes, which the second ClientHello repeats (RFC 8446 section 4.2.2 allows 2^16-1; real cookies contain a hash
/// and a MAC).
pub const COOKIE_MAX: usize = 4_096;
