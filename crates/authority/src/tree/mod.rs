//! Roots and intermediates: creation, import, cross-signing, retirement.
//!
//! All CAs are cached while the change counter in the database is unchanged. The signer in a [`Ca`] decrypts its key at the first
//! use.

mod ca;
mod certificate;
mod create;
mod credential;
mod default;
mod error;
mod forest;
mod import;
mod lookup;
mod renew;
mod retire;
mod specification;
mod urls;

pub use ca::{Ca, CaState, DerChain, PendingCa};
pub use certificate::inventory_row;
pub use credential::CredentialCa;
pub use default::CaChoice;
pub use error::{CaError, DefaultError, ImportError, NewCaError, RetireError};
pub use forest::CaCache;
pub use import::Request;
pub use retire::Retirement;
pub use specification::{BadCa, NameLimits, NewCa};
pub use urls::Urls;

pub(crate) use certificate::{
    Body, Dates, Issuer, PublicationUrls, certify, path_length_below, random_serial,
};
pub(crate) use default::planned_name;
pub(crate) use specification::check_name;
