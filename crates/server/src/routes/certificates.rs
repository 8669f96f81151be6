//! Routes: certificates.
