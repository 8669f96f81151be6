//! TLS for our own clients.

/// The certificates this system trusts, in DER; empty on a machine without any.
#[must_use]
pub fn system_roots() -> Vec<Vec<u8>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some system roots could not be read");
    }
    found.certs.into_iter().map(|root| root.to_vec()).collect()
}
