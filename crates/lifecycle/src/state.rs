//! The state machine of a managed certificate.
