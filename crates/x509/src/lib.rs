//! X.509: names, serial numbers and fingerprints; parsing, verification and linting of certificates.
//!
//! All functions are pure, without clock and I/O. Time is always an argument. A certificate that breaks rules can still be parsed:
//! its errors are [`Finding`]s.

pub mod build;
mod certificate;
pub mod cms;
pub mod crl;
pub mod csr;
pub mod der;
mod distinguished_name;
mod extension;
mod faults;
mod fingerprint;
mod host_or_ip;
pub mod jwk;
mod key;
pub mod lint;
pub mod merkle;
pub mod name;
pub mod ocsp;
mod oid;
mod parse;
pub mod pem;
mod public_suffix;
mod rule;
pub mod sct;
mod serial;
mod signature;
pub mod star;
mod time;
pub mod verify;

pub use build::BadName;
pub use certificate::{
    BasicConstraints, Certificate, DistinguishedName, GeneralName, KeyAlgorithm, KeyUsage, NameConstraints,
    ParseError, PublicKey, SignatureAlgorithm, Subtree,
};
pub use fingerprint::{Fingerprint, SpkiHash};
pub use host_or_ip::{HostOrIp, InvalidHostOrIp};
pub use name::{HostName, InvalidHostName, NameMatch, ReferenceName, matches as matches_name};
pub use public_suffix::{PublicSuffix, SuffixKind, public_suffix, registered_domain};
pub use rule::{Finding, Rule, Severity};
pub use serial::{InvalidSerialNumber, SerialNumber};
pub use signature::{SignatureError, verify_document, verify_signature};
pub use time::{CivilDateTime, DAY, UnixTime};
