//! When a certificate is renewed.
