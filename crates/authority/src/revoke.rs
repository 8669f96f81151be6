//! Revocation.
