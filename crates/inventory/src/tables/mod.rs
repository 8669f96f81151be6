//! The tables of watches, ownership, history and sources.
//!
//! Each table has a handle, created by `Name::of(&store)`; functions that change rows take the transaction.

pub mod endpoint_notices;
pub mod history;
pub mod kept_tags;
pub mod ownership;
mod sources;
pub mod watch_parts;
pub mod watches;

use db::ModuleStatements;

pub use endpoint_notices::EndpointNotices;
pub use history::History;
pub use kept_tags::ResourceTags;
pub use ownership::Ownership;
pub use sources::Sources;
pub use watch_parts::WatchParts;
pub use watches::Watches;

/// Every statement of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] = &[
    ModuleStatements {
        both: sources::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: &[],
        composed: sources::composed,
    },
    ModuleStatements::of(&[], kept_tags::BULKS),
    ModuleStatements::of(endpoint_notices::ALL, endpoint_notices::BULKS),
    ModuleStatements::of(history::ALL, history::BULKS),
    ModuleStatements::of(watches::ALL, watches::BULKS),
    ModuleStatements::of(watch_parts::ALL, watch_parts::BULKS),
    ModuleStatements::of(ownership::ALL, ownership::BULKS),
];
