//! The one way to use a private key.
