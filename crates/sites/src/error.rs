//! Errors of sites and nodes.

use authority::keystore::KeyStoreError;
use enrollment::CertifyError;
use keyless::places::{BadAttribute, StatementError};
use store::StoreError;

/// Reason why an operation on sites or nodes failed.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// No object has this id or name.
    #[error("there is no {0}")]
    NotFound(&'static str),
    /// The request is invalid; the text says what to change.
    #[error("{0}")]
    Invalid(String),
    /// An attribute is invalid.
    #[error(transparent)]
    Attribute(#[from] BadAttribute),
    /// The name is already taken.
    #[error("the name {0:?} is taken")]
    NameTaken(String),
    /// Another node has this key.
    #[error("another node, perhaps a retired one, was enrolled with this key: generate a new key")]
    KeyTaken,
    /// The object was changed after the caller read it.
    #[error("another request changed the object: read it again")]
    Changed,
    /// A site with nodes cannot be deleted. Contains the number of nodes.
    #[error("{0} nodes are at this site: retire them first")]
    NotEmpty(i64),
    /// The maximum number of objects is reached.
    #[error("the limit of {max} {what} is reached")]
    Full {
        /// Plural name of the objects, such as `nodes`.
        what: &'static str,
        /// Maximum number.
        max: i64,
    },
    /// The node is retired.
    #[error("the node is retired")]
    Retired,
    /// The certificate or the KEM public key is not the node's.
    #[error("the key of the client certificate is not the key that the node was enrolled with")]
    OtherKey,
    /// The token is unknown, used or expired. The error does not say which, so that guessing reveals nothing.
    #[error("invalid node token: unknown, used, or expired")]
    Token,
    /// The CSR cannot be parsed, or is not signed by its key.
    #[error("invalid CSR: {0}")]
    Csr(String),
    /// The node's certificate could not be issued.
    #[error(transparent)]
    Certify(#[from] CertifyError),
    /// The key that signs statements cannot be decrypted.
    #[error("the statement signing key cannot be loaded: {0}")]
    Signer(#[from] KeyStoreError),
    /// Signing the statement failed.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
