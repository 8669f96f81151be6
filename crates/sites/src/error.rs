//! Why something about sites or nodes was not done.

use authority::keystore::KeyStoreError;
use enrollment::CertifyError;
use keyless::places::{BadAttribute, StatementError};
use store::StoreError;

/// Why something about sites or nodes was not done.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// Nothing by that identity or name.
    #[error("there is no {0}")]
    NotFound(&'static str),
    /// The request is invalid; the text says what to change.
    #[error("{0}")]
    Invalid(String),
    /// An attribute that cannot be.
    #[error(transparent)]
    Attribute(#[from] BadAttribute),
    /// Another has that name.
    #[error("the name {0:?} is taken")]
    NameTaken(String),
    /// Another node has that key.
    #[error("another node, perhaps a retired one, was enrolled with this key: make a new one")]
    KeyTaken,
    /// The object was changed since the caller read it.
    #[error("another request changed the object: read it again")]
    Changed,
    /// A site with nodes stays.
    #[error("{0} nodes are at this site: retire them first")]
    NotEmpty(i64),
    /// No more are taken.
    #[error("there are {max} {what} already, and no more are taken")]
    Full {
        /// The kind of the object.
        what: &'static str,
        /// How many.
        max: i64,
    },
    /// The node is retired.
    #[error("the node is retired")]
    Retired,
    /// The certificate or the KEM public key is not the node's.
    #[error("this is not the key the node was enrolled with")]
    OtherKey,
    /// Unknown, used, or expired: not told apart, so that guessing teaches nothing.
    #[error("the node token is not good: it is unknown, used, or expired")]
    Token,
    /// The request cannot be read, or is not signed by its key.
    #[error("the CSR is not good: {0}")]
    Csr(String),
    /// No certificate for the node.
    #[error(transparent)]
    Certify(#[from] CertifyError),
    /// The key that signs statements cannot be opened.
    #[error("the key that signs statements cannot be had: {0}")]
    Signer(#[from] KeyStoreError),
    /// Signing the statement failed.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}
