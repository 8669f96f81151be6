//! Cryptographic messages (RFC 5652): certificates only, and what SCEP needs.
