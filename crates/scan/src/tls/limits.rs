//! What a peer may make us hold or do. Time is bounded by the caller.

/// Certificates in one message. Real chains have two to five; servers that send their whole trust
/// store (seen with some appliances) are cut off with a reason.
pub const CHAIN_MAX: usize = 32;
/// Bytes of one certificate: what the reader of certificates accepts.
pub const CERTIFICATE_MAX: usize = x509::Certificate::DER_MAX;
/// Bytes of handshake messages in all. A chain of post-quantum signatures takes 50 KB, and 2,048
/// hostile peers at once make us hold a gigabyte (the messages, and the chain copied out), no more.
pub const HANDSHAKE_MAX: usize = 256 * 1024;
/// Bytes of an unprotected record's content: 2^14 are allowed, plus what compression might have
/// added up to TLS 1.2 (RFC 5246 section 6.2.2).
pub const RECORD_MAX: usize = (1 << 14) + 1024;
/// Bytes of a protected record (RFC 8446 section 5.2).
pub const PROTECTED_RECORD_MAX: usize = (1 << 14) + 256;
/// Records in all: even 16 bytes each make up the largest handshake.
pub const RECORDS_MAX: usize = 16_384;
/// Records that bring nothing (empty ones, warnings, ChangeCipherSpec, heartbeats): OpenSSL's own
/// limit.
pub const IDLE_RECORDS_MAX: usize = 32;
/// Bytes kept of what is not TLS: a banner's first line.
pub const FIRST_OCTETS_MAX: usize = 64;
/// Bytes of a cookie, echoed in the second hello (RFC 8446 section 4.2.2 allows 2^16-1; real ones
/// hold a hash and a MAC).
pub const COOKIE_MAX: usize = 4_096;
