//! The ACME server (RFC 8555).
