//! What can go wrong with authorities.

use std::sync::Arc;

use keys::SignError;
use store::StoreError;
use uuid::Uuid;
use x509::UnixTime;

use crate::keystore::KeyStoreError;
use crate::profile::ProfileError;
use crate::tables;
use crate::tree::BadCa;

/// Why an authority cannot be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CaError {
    /// Neither a name nor an id of one.
    #[error("there is no certification authority {0:?}; `bulla ca list` lists them")]
    Unknown(String),
    /// None was named, and none issues.
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

/// Why an authority, or a certificate for one, was not made. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum NewCaError {
    /// What was asked for is not possible at all.
    #[error(transparent)]
    Bad(#[from] BadCa),
    /// An authority has this name.
    #[error("there is a certification authority of the name {0:?} already, or there are {max}", max = tables::CAS_MAX)]
    NameTaken(String),
    /// The parent's state or dates forbid it.
    #[error("{0} does not issue: it is retiring, retired or out of its dates")]
    NotIssuing(String),
    /// Nothing can stand below the parent.
    #[error("{0} has path length 0: no authority can stand below it")]
    NoneBelow(String),
    /// More could stand below the new one than the parent allows.
    #[error("path length {asked} is greater than the parent permits, {allowed}")]
    PathLength {
        /// The requested value.
        asked: u32,
        /// The most.
        allowed: u32,
    },
    /// Its parent is no authority here.
    #[error("{0} was certified elsewhere: ask there, and import what comes back")]
    Elsewhere(String),
    /// Its certificate is a credential's.
    #[error("{0} is the credential {1}: `bulla credential regenerate {1}` makes it anew")]
    Credential(String, Arc<str>),
    /// The validity is too short.
    #[error("an authority lives for {min} seconds at least", min = super::specification::LIFETIME_MIN)]
    TooShort,
    /// It would live longer than its issuer.
    #[error("it would end on {asked}, after its issuer: ask for {seconds} seconds at most, until {until}")]
    Outlives {
        /// The requested end of validity.
        asked: UnixTime,
        /// When its issuer ends.
        until: UnixTime,
        /// The longest lifetime from now, seconds.
        seconds: i64,
    },
    /// An authority cannot sign across itself, or something above it or with its key.
    #[error("{0} and {1} are the same authority or have the same key")]
    SameKey(String, String),
    /// The parent CA does not exist.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The key cannot be made or stored.
    #[error(transparent)]
    Key(#[from] KeyStoreError),
    /// The issuer's key did not sign.
    #[error("the key of the issuer: {0}")]
    Sign(#[from] SignError),
    /// What was signed does not verify: a broken key or module. It was thrown away.
    #[error("the certificate made does not verify under its issuer's key: {0}")]
    Unverified(String),
    /// Its public key is blocked.
    #[error("this public key is blocked: nothing is issued for it any more")]
    Blocked,
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a certificate was not taken in. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The input contains no certificate.
    #[error("no certificate here; give PEM, the authority's certificate first, then those above it")]
    NoCertificate,
    /// One does not parse.
    #[error("certificate {position} of the chain: {reason}")]
    Certificate {
        /// Its place, from 1.
        position: usize,
        /// The error.
        reason: String,
    },
    /// The first is not of an authority.
    #[error("the first certificate is of no certification authority: {0}")]
    NotCa(&'static str),
    /// The certificates do not make a chain.
    #[error(
        "certificate {position} of the chain is not signed by the one after it; put them in order, the authority's first"
    )]
    NotChain {
        /// Its place, from 1.
        position: usize,
    },
    /// The certificate is out of its dates.
    #[error("the certificate is valid from {from} until {until}, and not now")]
    Dates {
        /// First second.
        from: UnixTime,
        /// Last second.
        until: UnixTime,
    },
    /// Key and certificate do not belong together.
    #[error("the key and the certificate do not belong together")]
    OtherKey,
    /// The key cannot be read.
    #[error(transparent)]
    Key(#[from] keys::KeyError),
    /// CA keys are in a signer process, which certifies only CA keys that it made.
    #[error(
        "the CA keys are in a signer process, which accepts no key from outside: make a new CA with `bulla ca create`, or \
         keep the key in a security module"
    )]
    SignerApart,
    /// Kinds of key we cannot sign with.
    #[error("keys of this kind are not supported")]
    KeyKind,
    /// Its name is not one.
    #[error(transparent)]
    Bad(#[from] BadCa),
    /// An authority has this name.
    #[error("there is a certification authority of the name {0:?} already, or there are {max}", max = tables::CAS_MAX)]
    NameTaken(String),
    /// More versions of credentials are authorities than are kept track of.
    #[error("there are {max} authorities among the credentials already", max = super::specification::CREDENTIAL_CAS_MAX)]
    TooMany,
    /// It waits for no certificate.
    #[error("{0} waits for no certificate: `bulla ca list` shows those pending")]
    NotPending(Uuid),
    /// The CA does not exist.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an authority was not made the default.
#[derive(Debug, thiserror::Error)]
pub enum DefaultError {
    /// It is retiring or retired, out of its dates, or a credential.
    #[error("{0} cannot be the default: it does not issue, or belongs to a credential")]
    NotIssuing(String),
    /// The CA does not exist.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an authority was not retired.
#[derive(Debug, thiserror::Error)]
pub enum RetireError {
    /// Certificates live that need its CRL.
    #[error(
        "{name} cannot be retired yet: {certificates} certificates it issued are still valid and need its CRL; \
         wait until they end, or force it"
    )]
    StillNeeded {
        /// Which.
        name: String,
        /// Certificates that have not expired, those of authorities included.
        certificates: u64,
    },
    /// Profiles name it to issue from.
    #[error(
        "{name} cannot be retired yet: {profiles} issue from it; let them name another CA first, or force it"
    )]
    Named {
        /// Which.
        name: String,
        /// Names of the first profiles.
        profiles: String,
    },
    /// No other authority issues.
    #[error("{0} cannot be retired yet: no other CA issues; create one first, or force it")]
    Last(String),
    /// Nothing is left to do.
    #[error("{0} is retired")]
    Retired(String),
    /// Another request made the change first.
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
