//! Errors in the verification of client certificates.

use std::sync::Arc;

use store::StoreError;

/// Reason why the identity in a client certificate is not accepted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientCertificateError {
    /// The certificate cannot be parsed. The client must present another one.
    #[error("cannot parse the client certificate")]
    Unreadable,
    /// The certificate is expired or not yet valid. The client must renew it.
    #[error("the client certificate is expired or not yet valid")]
    NotValidNow,
    /// The certificate is revoked. The client must request another one.
    #[error("the client certificate is revoked")]
    Revoked,
    /// The certificate is not for TLS clients. The operator must add `clientAuth` to the profile.
    #[error(
        "the client certificate is not for TLS clients: add clientAuth to extended_key_usage of the profile that issues \
         it. EST simplereenroll still accepts it for renewal"
    )]
    NotForClients,
    /// No CRL is available for this CA. The operator must configure one.
    #[error("server.client_crl_files has no CRL of the client certificate's CA {0:?}")]
    NoCrl(String),
    /// An error of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}
