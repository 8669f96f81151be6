//! Routes: profiles.
