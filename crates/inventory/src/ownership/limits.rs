//! Limits of ownership rules.

/// Longest substring of an issuer name, in bytes.
pub const ISSUER_BYTES_MAX: usize = 256;

/// Longest owner, team, environment, tag or tag value, in bytes.
pub const LABEL_BYTES_MAX: usize = 200;

/// Maximum tags that one rule assigns, and maximum tags of one certificate.
pub const TAGS_MAX: usize = 32;
