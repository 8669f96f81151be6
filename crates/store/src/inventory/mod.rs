//! The inventory: scans, their observations, and the endpoints and certificates they found.

pub(crate) mod certificates;
pub(crate) mod changes;
pub(crate) mod endpoints;
pub(crate) mod handle;
pub(crate) mod key;
pub(crate) mod model;
pub(crate) mod pruning;
pub(crate) mod recording;
pub(crate) mod scans;
pub(crate) mod search;
pub(crate) mod statements;
pub(crate) mod writer;
