//! Routes: inventory.
