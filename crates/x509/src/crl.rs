//! Certificate revocation lists (RFC 5280 section 5).
