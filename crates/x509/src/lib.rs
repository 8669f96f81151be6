//! Names, serials and fingerprints; certificates parsed, verified and linted.
//!
//! Pure: no clock, no I/O. Time is always an argument, and a certificate that breaks the rules is
//! still read: what is wrong with it is a [`Finding`], not an error.

mod certificate;
pub mod der;
mod fingerprint;
mod rule;
mod serial;
mod time;
mod words;

pub use certificate::{
    BasicConstraints, Certificate, DistinguishedName, GeneralName, KeyAlgorithm, KeyUsage,
    NameConstraints, ParseError, PublicKey, SignatureAlgorithm,
};
pub use fingerprint::{Fingerprint, SpkiHash};
pub use rule::{Finding, Rule, Severity};
pub use serial::SerialNumber;
pub use time::{Civil, DAY, UnixTime};
