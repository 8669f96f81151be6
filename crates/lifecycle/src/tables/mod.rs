//! The tables of managed certificates, their jobs, policies, approvals and people.
//!
//! Each group of tables has a handle, created by `Name::of(&store)`. Functions that change rows take the transaction.

pub mod approvals;
pub mod jobs;
pub mod managed;
pub mod people;
pub mod policies;
pub mod schedule;

use db::ModuleStatements;

pub use approvals::Approvals;
pub use jobs::Jobs;
pub use managed::Managed;
pub use people::People;
pub use policies::Policies;

/// All SQL statements of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] = &[
    ModuleStatements {
        both: managed::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: managed::BULKS,
        composed: managed::composed,
    },
    ModuleStatements {
        both: managed::SEARCH,
        sqlite: managed::SEARCH_SQLITE,
        postgres: managed::SEARCH_POSTGRES,
        bulks: &[],
        composed: Vec::new,
    },
    ModuleStatements {
        both: &[],
        sqlite: managed::NAME_PART_SQLITE,
        postgres: managed::NAME_PART_POSTGRES,
        bulks: &[],
        composed: Vec::new,
    },
    ModuleStatements {
        both: jobs::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: jobs::BULKS,
        composed: jobs::composed,
    },
    ModuleStatements {
        both: policies::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: policies::BULKS,
        composed: policies::composed,
    },
    ModuleStatements::of(approvals::ALL, approvals::BULKS),
    ModuleStatements::of(people::ALL, people::BULKS),
    ModuleStatements::of(schedule::ALL, &[]),
];
