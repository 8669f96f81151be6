//! The OCSP responder.
