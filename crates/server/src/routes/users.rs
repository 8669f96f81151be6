//! Routes: users.
