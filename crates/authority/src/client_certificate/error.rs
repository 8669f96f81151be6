//! Why the identity in a client certificate does not count.

use std::sync::Arc;

use store::StoreError;

/// Why the identity in a client certificate does not count.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientCertificateError {
    /// Client: present another.
    #[error("the client certificate cannot be read")]
    Unreadable,
    /// Client: renew the certificate.
    #[error("the client certificate is not valid now")]
    NotValidNow,
    /// Client: ask for another.
    #[error("the client certificate is revoked")]
    Revoked,
    /// Operator: let the profile issue for clients.
    #[error(
        "the client certificate is not for TLS clients: add clientAuth to extended_key_usage of the profile that issues it. EST's \
         simplereenroll renews it all the same"
    )]
    NotForClients,
    /// Operator: name a CRL of that CA.
    #[error("the client certificate's CA {0:?} has no CRL among server.client_crl_files")]
    NoCrl(String),
    /// An error of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}
