//! Limits of requests in flight: for one key, one tenant, one stream and one node, and in total.

use crate::stage::Cost;

/// Maximum requests in flight to one remote key (in a security module, a cloud or another node). 2 KB each, 8 MB in total. This
/// permits 40,000 requests per second at 100 ms each, or 2,000 at 2 s.
pub const REMOTE_PER_KEY_MAX: usize = 4_096;

/// Maximum requests in flight to remote keys, over all keys and connections. 2 KB each.
pub const REMOTE_MAX: usize = 16_384;

/// Default limit of one tenant: half of [`REMOTE_MAX`], so that one tenant cannot use all of it.
pub const TENANT_MAX: usize = 8_192;

/// Maximum requests in flight on one stream, including unread replies. 1 KB each, 8 MB in total.
pub const STREAM_MAX: usize = 8_192;

/// Maximum requests in flight to one node: as many as a node accepts on one stream. Each takes 2 KB on this node and 1 KB on the
/// other.
pub const NODE_MAX: usize = STREAM_MAX;

/// Maximum requests of one tenant in flight to one node. This permits 40,960 requests per second at 100 ms, and leaves the same for
/// other tenants. The expected rate is only half of that, which leaves a reserve for slower replies under load.
pub const NODE_PER_TENANT_MAX: usize = NODE_MAX / 2;

// One tenant with one key can reach this limit: no other limit, on this node or the other one, is lower.
const _: () = assert!(
    NODE_PER_TENANT_MAX <= REMOTE_PER_KEY_MAX
        && NODE_PER_TENANT_MAX <= TENANT_MAX
        && NODE_PER_TENANT_MAX <= Cost::Light.waiting_max()
);
