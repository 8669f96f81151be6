//! Routes: alerts.
