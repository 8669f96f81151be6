//! Lengths and counts that rules of ownership may have.

/// Bytes of a part of an issuer's name.
pub const ISSUER_OCTETS_MAX: usize = 256;

/// Bytes of an owner, team, environment, tag or its value.
pub const LABEL_OCTETS_MAX: usize = 200;

/// Tags that one rule adds, and that one certificate has.
pub const TAGS_MAX: usize = 32;
