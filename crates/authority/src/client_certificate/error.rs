//! Errors in the verification of client certificates.

use std::sync::Arc;

use store::StoreError;

/// Reason why the identity in a client certificate is not accepted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientCertificateError {
    /// The certificate cannot be parsed. The client must present another one.
    #[error("the client certificate cannot be read")]
    Unreadable,
    /// The certificate is expired or not yet valid. The client must renew it.
    #[error("the client certificate is not valid now")]
    NotValidNow,
    /// The certificate is revoked. The client must request another one.
    #[error("the client certificate is revoked")]
    Revoked,
    /// The certificate is not for TLS clients. The operator must add `clientAuth` to the profile.
    #[error(
        "the client certificate is not for TLS clients: add clientAuth to extended_key_usage of the profile that issues it. EST's \
         simplereenroll renews it all the same"
    )]
    NotForClients,
    /// No CRL is available for this CA. The operator must configure one.
    #[error("the client certificate's CA {0:?} has no CRL among server.client_crl_files")]
    NoCrl(String),
    /// An error of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}
