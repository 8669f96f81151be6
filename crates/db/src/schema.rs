//! The schema that the owner of the tables passes when opening a database.

use crate::migrate::Migration;

/// Migrations for both kinds of database.
#[derive(Clone, Copy)]
pub struct Schema {
    /// Migrations for SQLite, in ascending order of their versions.
    pub sqlite: &'static [Migration],
    /// Migrations for PostgreSQL, in ascending order of their versions.
    pub postgres: &'static [Migration],
}
