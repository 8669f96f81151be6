//! The SCEP server (RFC 8894).
