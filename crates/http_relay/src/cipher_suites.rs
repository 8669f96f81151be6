//! The order in which TLS cipher suites are offered.

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// The TLS library's provider, with AES-128-GCM and SHA-256 first, for which processors have instructions. SHA-384 makes a handshake a
/// tenth longer. All suites of rustls are still offered.
pub fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        !suite.suite().as_str().is_some_and(|name| name.ends_with("AES_128_GCM_SHA256"))
    });
    provider
}
