//! Routes: jobs.
