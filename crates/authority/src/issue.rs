//! Issuing.
