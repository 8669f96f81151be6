//! Errors of CAs.

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
    #[error("there is no certification authority {0:?}; `bulla ca list` lists them")]
    Unknown(String),
    /// The request named no CA, and no CA issues.
    #[error("no certification authority issues; create one with `bulla ca create`")]
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
    #[error("there is a certification authority of the name {0:?} already, or there are {max}", max = tables::CAS_MAX)]
    NameTaken(String),
    /// The state or the dates of the parent CA forbid the issue.
    #[error("{0} does not issue: it is retiring, retired or out of its dates")]
    NotIssuing(String),
    /// The path length of the parent allows no CA below it.
    #[error("{0} has path length 0: no authority can stand below it")]
    NoneBelow(String),
    /// The requested path length exceeds what the parent allows.
    #[error("path length {asked} is greater than the parent permits, {allowed}")]
    PathLength {
        /// Requested path length.
        asked: u32,
        /// Maximum path length.
        allowed: u32,
    },
    /// The parent is not a CA of this server.
    #[error("{0} was certified elsewhere: ask there, and import what comes back")]
    Elsewhere(String),
    /// The certificate of the CA is a credential.
    #[error("{0} is the credential {1}: `bulla credential regenerate {1}` makes it anew")]
    Credential(String, Arc<str>),
    /// The validity is too short.
    #[error("an authority lives for {min} seconds at least", min = super::specification::LIFETIME_MIN)]
    TooShort,
    /// The certificate would expire after its issuer.
    #[error("it would end on {asked}, after its issuer: ask for {seconds} seconds at most, until {until}")]
    Outlives {
        /// The requested end of validity.
        asked: UnixTime,
        /// Expiry time of the issuer.
        until: UnixTime,
        /// Maximum lifetime from now in seconds.
        seconds: i64,
    },
    /// A CA cannot cross-sign itself, a CA above it, or a CA with the same key.
    #[error("{0} and {1} are the same authority or have the same key")]
    SameKey(String, String),
    /// The parent CA does not exist.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The key cannot be generated or stored.
    #[error(transparent)]
    Key(#[from] KeyStoreError),
    /// Signing with the key of the issuer failed.
    #[error("the key of the issuer: {0}")]
    Sign(#[from] SignError),
    /// The new signature is not valid because of a faulty key or module. The certificate was discarded.
    #[error("the certificate made does not verify under its issuer's key: {0}")]
    Unverified(String),
    /// The public key is blocked.
    #[error("this public key is blocked: nothing is issued for it any more")]
    Blocked,
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reason why a certificate was not imported. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The input contains no certificate.
    #[error("no certificate here; give PEM, the authority's certificate first, then those above it")]
    NoCertificate,
    /// A certificate cannot be parsed.
    #[error("certificate {position} of the chain: {reason}")]
    Certificate {
        /// Position in the input, from 1.
        position: usize,
        /// The error.
        reason: String,
    },
    /// The first certificate is not a CA certificate.
    #[error("the first certificate is of no certification authority: {0}")]
    NotCa(&'static str),
    /// The certificates do not make a chain.
    #[error(
        "certificate {position} of the chain is not signed by the one after it; put them in order, the authority's first"
    )]
    NotChain {
        /// Position in the input, from 1.
        position: usize,
    },
    /// The certificate is expired or not yet valid.
    #[error("the certificate is valid from {from} until {until}, and not now")]
    Dates {
        /// First second of validity.
        from: UnixTime,
        /// Last second of validity.
        until: UnixTime,
    },
    /// The key does not match the certificate.
    #[error("the key and the certificate do not belong together")]
    OtherKey,
    /// The key cannot be parsed.
    #[error(transparent)]
    Key(#[from] keys::KeyError),
    /// The CA keys are in a signer process, which only certifies keys that it generated.
    #[error(
        "the CA keys are in a signer process, which accepts no key from outside: make a new CA with `bulla ca create`, or \
         keep the key in a security module"
    )]
    SignerApart,
    /// The key type is not supported for signing.
    #[error("keys of this kind are not supported")]
    KeyKind,
    /// The name of the CA is invalid.
    #[error(transparent)]
    Bad(#[from] BadCa),
    /// Another CA has this name.
    #[error("there is a certification authority of the name {0:?} already, or there are {max}", max = tables::CAS_MAX)]
    NameTaken(String),
    /// The number of CAs from credentials has reached its limit.
    #[error("there are {max} authorities among the credentials already", max = super::specification::CREDENTIAL_CAS_MAX)]
    TooMany,
    /// The CA does not wait for a certificate.
    #[error("{0} waits for no certificate: `bulla ca list` shows those pending")]
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
    #[error("{0} cannot be the default: it does not issue, or belongs to a credential")]
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
        "{name} cannot be retired yet: {certificates} certificates it issued are still valid and need its CRL; \
         wait until they end, or force it"
    )]
    StillNeeded {
        /// Name of the CA.
        name: String,
        /// Number of certificates that have not expired, including CA certificates.
        certificates: u64,
    },
    /// Profiles issue from the CA.
    #[error(
        "{name} cannot be retired yet: {profiles} issue from it; let them name another CA first, or force it"
    )]
    Named {
        /// Name of the CA.
        name: String,
        /// Names of the first profiles.
        profiles: String,
    },
    /// No other CA issues certificates.
    #[error("{0} cannot be retired yet: no other CA issues; create one first, or force it")]
    Last(String),
    /// The CA is already retired.
    #[error("{0} is retired")]
    Retired(String),
    /// Another request changed the CA first.
    #[error("another request changed {0}: read it again")]
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
