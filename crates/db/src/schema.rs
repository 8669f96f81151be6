//! What the owner of the tables tells the engine about them when it opens a database.

use crate::migrate::Migration;

/// How the tables of a database are made.
#[derive(Clone, Copy)]
pub struct Schema {
    /// Migrations for SQLite, in ascending order of their versions.
    pub sqlite: &'static [Migration],
    /// Migrations for PostgreSQL, likewise.
    pub postgres: &'static [Migration],
}
