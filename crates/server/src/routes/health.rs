//! Routes: health.
