//! Problem documents (RFC 9457).
