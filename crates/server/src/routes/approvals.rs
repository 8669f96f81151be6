//! Routes: approvals.
