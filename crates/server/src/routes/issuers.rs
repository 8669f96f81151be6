//! Routes: issuers.
