//! Writes on PostgreSQL.
