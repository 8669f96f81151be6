//! Public keys and signatures in JOSE format (RFC 7517, RFC 7518, RFC 8037). `encoding` writes them; `key` and `algorithm` parse
//! and verify untrusted ones.

mod algorithm;
mod encoding;
mod key;

pub use algorithm::Algorithm;
pub use encoding::{canonical, ecdsa_der_to_fixed};
pub use key::{BadJwk, JwkKey, thumbprint_of_spki};
