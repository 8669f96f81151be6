//! Certification requests (RFC 2986).
