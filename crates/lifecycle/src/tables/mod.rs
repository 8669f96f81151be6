//! The tables of managed certificates, their jobs, policies, approvals and people.
//!
//! Each group of tables has a handle, created by `Name::of(&store)`. Functions that change rows take the transaction.

pub mod approvals;
pub mod jobs;
pub mod managed;
pub mod people;
pub mod policies;
pub mod schedule;

use db::Sends;

pub use approvals::Approvals;
pub use jobs::Jobs;
pub use managed::Managed;
pub use people::People;
pub use policies::Policies;

/// All SQL statements of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[Sends] = &[
    Sends {
        both: managed::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: managed::BULKS,
        composed: managed::composed,
    },
    Sends {
        both: managed::SEARCH,
        sqlite: managed::SEARCH_SQLITE,
        postgres: managed::SEARCH_POSTGRES,
        bulks: &[],
        composed: Vec::new,
    },
    Sends { both: jobs::ALL, sqlite: &[], postgres: &[], bulks: jobs::BULKS, composed: jobs::composed },
    Sends {
        both: policies::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: policies::BULKS,
        composed: policies::composed,
    },
    Sends::of(approvals::ALL, approvals::BULKS),
    Sends::of(people::ALL, people::BULKS),
    Sends::of(schedule::ALL, &[]),
];
