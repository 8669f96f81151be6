//! Limits of requests in flight: to one key, of one tenant, on one stream, to one node, in all.

use crate::stage::Cost;

/// Requests in flight to one remote key: a key of a security module, a cloud or another node. 2 KB each, 8 MB. At 100 ms each
/// 40,000 a second, at 2 s 2,000.
pub const REMOTE_PER_KEY_MAX: usize = 4_096;

/// Requests in flight to remote keys, over all keys and connections. 2 KB each.
pub const REMOTE_MAX: usize = 16_384;

/// Default limit of one tenant: half of [`REMOTE_MAX`], so that no tenant takes all of it.
pub const TENANT_MAX: usize = 8_192;

/// Requests in flight on one stream, unread replies included. 1 KB each, 8 MB.
pub const STREAM_MAX: usize = 8_192;

/// Requests in flight to one node, 2 KB each here and 1 KB there: as many as a node takes on one stream.
pub const NODE_MAX: usize = STREAM_MAX;

/// Requests of one tenant in flight to one node: at 100 ms 40,960 a second, and the same is left for the others. The expected rate
/// is half of that: replies are slower under load, and then more requests are in flight for the same rate.
pub const NODE_PER_TENANT_MAX: usize = NODE_MAX / 2;

// One tenant with one key reaches this limit: no other limit, here or at the node, is lower.
const _: () = assert!(
    NODE_PER_TENANT_MAX <= REMOTE_PER_KEY_MAX
        && NODE_PER_TENANT_MAX <= TENANT_MAX
        && NODE_PER_TENANT_MAX <= Cost::Light.waiting_max()
);
