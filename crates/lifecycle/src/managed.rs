//! Certificates under management.
