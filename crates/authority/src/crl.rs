//! Certificate revocation lists.
