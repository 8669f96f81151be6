//! Routes: policies.
