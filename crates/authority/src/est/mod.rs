//! The EST server (RFC 7030).
