//! Public keys and signatures as JOSE writes them (RFC 7517, RFC 7518, RFC 8037): what is written (`encoding`), and what strangers send,
//! which is read and verified (`key`, `algorithm`).

mod algorithm;
mod encoding;
mod key;

pub use algorithm::Algorithm;
pub use encoding::{canonical, fixed_width};
pub use key::{BadJwk, JwkKey, thumbprint_of_spki};
