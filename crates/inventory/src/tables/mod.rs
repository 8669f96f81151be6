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

use db::Sends;

pub use endpoint_notices::EndpointNotices;
pub use history::History;
pub use kept_tags::PlaceTags;
pub use ownership::Ownership;
pub use sources::Sources;
pub use watch_parts::WatchParts;
pub use watches::Watches;

/// Every statement of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[Sends] = &[
    Sends { both: sources::ALL, sqlite: &[], postgres: &[], bulks: &[], composed: sources::composed },
    Sends::of(&[], kept_tags::BULKS),
    Sends::of(endpoint_notices::ALL, endpoint_notices::BULKS),
    Sends::of(history::ALL, history::BULKS),
    Sends::of(watches::ALL, watches::BULKS),
    Sends::of(watch_parts::ALL, watch_parts::BULKS),
    Sends::of(ownership::ALL, ownership::BULKS),
];
