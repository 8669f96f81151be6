//! Errors in the lookup, creation, import and retirement of CAs.

use std::sync::Arc;

use keys::SignError;
use store::StoreError;
use uuid::Uuid;
use x509::UnixTime;

use crate::keystore::KeyStoreError;
use crate::profile::ProfileError;
use crate::tables;
use crate::tree::BadCa;

/// Reason why a CA is not available.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CaError {
    /// No CA has this name or identifier.
    #[error("unknown certification authority {0:?}; `bulla ca list` lists them")]
    Unknown(String),
    /// The request named no CA, and no CA issues.
    #[error("no certification authority can issue; create one with `bulla ca create`")]
    NoneIssues,
    /// An error of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for CaError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// Reason why a CA or a CA certificate was not created. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum NewCaError {
    /// The specification is invalid.
    #[error(transparent)]
    Bad(#[from] BadCa),
    /// Another CA has this name.
    #[error("a certification authority named {0:?} already exists, or the maximum of {max} is reached", max = tables::CAS_MAX)]
    NameTaken(String),
    /// The parent CA cannot issue, because of its state or its dates.
    #[error("the CA {0} issues no certificates: it is retiring, retired, expired or not yet valid")]
    NotIssuing(String),
    /// The path length of the parent allows no CA below it.
    #[error("the CA {0} has path length 0: it cannot issue CA certificates")]
    NoneBelow(String),
    /// The requested path length exceeds what the parent allows.
    #[error("path length {requested} is above the maximum {allowed} that the parent allows")]
    PathLength {
        /// Requested path length.
        requested: u32,
        /// Maximum path length that the parent allows.
        allowed: u32,
    },
    /// The parent is not a CA of this server.
    #[error("the CA {0} has an external issuer: request the renewal there, and import the certificate")]
    Elsewhere(String),
    /// The CA belongs to the credential store. Regenerate the credential instead.
    #[error("the CA {0} is the credential {1}: regenerate it with `bulla credential regenerate {1}`")]
    Credential(String, Arc<str>),
    /// The validity is too short.
    #[error("the lifetime of a CA must be at least {min} seconds", min = super::specification::LIFETIME_MIN)]
    TooShort,
    /// The certificate would expire after its issuer.
    #[error(
        "the CA certificate would expire at {requested}, after its issuer: request at most {seconds} seconds, until {until}"
    )]
    Outlives {
        /// The requested end of validity.
        requested: UnixTime,
        /// Expiry time of the issuer.
        until: UnixTime,
        /// Maximum lifetime from now in seconds.
        seconds: i64,
    },
    /// A CA cannot cross-sign itself, or a CA with the same key.
    #[error("the CAs {0} and {1} are the same, or have the same key")]
    SameKey(String, String),
    /// The parent of a CA cannot cross-sign it.
    #[error("the CA {1} is already the parent of {0}: cross-sign with another CA, or renew {0}")]
    Parent(String, String),
    /// The certificate of the CA to cross-sign has expired.
    #[error("the certificate of the CA {0} has expired: renew {0} before it is cross-signed")]
    Expired(String),
    /// The parent CA cannot be found or read.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The key cannot be generated or stored.
    #[error(transparent)]
    Key(#[from] KeyStoreError),
    /// Signing with the key of the issuer failed.
    #[error("the key of the issuer failed to sign: {0}")]
    Sign(#[from] SignError),
    /// The new signature is not valid because of a faulty key or module. The certificate was discarded.
    #[error("the signature on the new certificate is not valid for its issuer's key: {0}")]
    Unverified(String),
    /// The public key is blocked.
    #[error("this public key is blocked: no certificates are issued for it")]
    Blocked,
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reason why a certificate was not imported. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The input contains no certificate.
    #[error("no PEM certificate found; give the CA certificate first, then the certificates above it")]
    NoCertificate,
    /// A certificate cannot be parsed.
    #[error("invalid certificate {position} of the chain: {reason}")]
    Certificate {
        /// Position in the input, from 1.
        position: usize,
        /// Reason why the certificate is invalid.
        reason: String,
    },
    /// The first certificate is not a CA certificate.
    #[error("the first certificate is not a CA certificate: {0}")]
    NotCa(&'static str),
    /// The certificates do not make a chain.
    #[error(
        "certificate {position} of the chain is not signed by the next one; put the certificates in order, the CA certificate first"
    )]
    NotChain {
        /// Position in the input, from 1.
        position: usize,
    },
    /// The certificate is expired or not yet valid.
    #[error("the certificate is valid from {from} until {until}, but not now")]
    Dates {
        /// First second of validity.
        from: UnixTime,
        /// Last second of validity.
        until: UnixTime,
    },
    /// The key does not match the certificate.
    #[error("the key does not match the certificate")]
    OtherKey,
    /// The key cannot be parsed.
    #[error(transparent)]
    Key(#[from] keys::KeyError),
    /// The CA keys are in a signer process, which only certifies keys that it generated.
    #[error(
        "the CA keys are in a signer process, which cannot import keys: create a new CA with `bulla ca create`, or keep \
         the key in a security module"
    )]
    SignerApart,
    /// The key type is not supported for signing.
    #[error("this key type is not supported")]
    KeyKind,
    /// The name of the CA is invalid.
    #[error(transparent)]
    Bad(#[from] BadCa),
    /// Another CA has this name.
    #[error("a certification authority named {0:?} already exists, or the maximum of {max} is reached", max = tables::CAS_MAX)]
    NameTaken(String),
    /// The number of CAs from credentials has reached its limit.
    #[error("the maximum of {max} CA credentials is reached", max = super::specification::CREDENTIAL_CAS_MAX)]
    TooMany,
    /// The CA does not wait for a certificate.
    #[error("the CA {0} does not wait for a certificate: `bulla ca list` shows pending CAs")]
    NotPending(Uuid),
    /// The CA does not exist.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reason why a CA was not made the default.
#[derive(Debug, thiserror::Error)]
pub enum DefaultError {
    /// The CA is retiring or retired, not valid now, or a credential.
    #[error("the CA {0} cannot be the default: it issues no certificates, or belongs to a credential")]
    NotIssuing(String),
    /// The CA does not exist.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reason why a CA was not retired.
#[derive(Debug, thiserror::Error)]
pub enum RetireError {
    /// Certificates of the CA are still valid and need its CRL.
    #[error(
        "the CA {name} cannot be retired yet: {certificates} valid certificates of this CA need its CRL; wait until they expire, \
         or use force"
    )]
    StillNeeded {
        /// Name of the CA.
        name: String,
        /// Number of certificates that have not expired, including CA certificates.
        certificates: u64,
    },
    /// Profiles issue from the CA.
    #[error(
        "the CA {name} cannot be retired yet: {profiles} issue from it; set another CA in them first, or use force"
    )]
    Named {
        /// Name of the CA.
        name: String,
        /// Names of the first profiles.
        profiles: String,
    },
    /// No other CA issues certificates.
    #[error("the CA {0} cannot be retired yet: no other CA can issue; create one first, or use force")]
    Last(String),
    /// The CA is already retired.
    #[error("the CA {0} is already retired")]
    Retired(String),
    /// Another request changed the CA first.
    #[error("another request changed the CA {0}: read it again")]
    Changed(String),
    /// The profiles cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The CA does not exist.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}
