//! What the owner of the tables tells the engine about them when it opens a database.

use crate::migrate::Migration;
use crate::statement::Sends;

/// The tables of a database and the statements sent to them.
#[derive(Clone, Copy)]
pub struct Schema {
    /// Migrations for SQLite, in ascending order of their versions.
    pub sqlite: &'static [Migration],
    /// Migrations for PostgreSQL, likewise.
    pub postgres: &'static [Migration],
    /// Every statement that this build may send, by module. For the tests that prepare and plan them all.
    pub statements: &'static [Sends],
}
