//! How many requests may be in flight: to one key, of one tenant, to one node, in all.

use crate::stage::Cost;

/// Requests to one key elsewhere (a token, a service, another node) that may be under way, 2 KB each, 8 MB: at 100 ms each
/// 40,000 a second, at 2 s 2,000.
pub const ELSEWHERE_PER_KEY_MAX: usize = 4_096;

/// Requests to keys elsewhere that may be under way, over all keys and connections: 2 KB each.
pub const ELSEWHERE_MAX: usize = 16_384;

/// Requests of one tenant under way unless it is said otherwise: half of those to keys elsewhere that may be, so that no
/// tenant takes all of these.
pub const TENANT_MAX: usize = 8_192;

/// Requests of one stream under way, replies that are not read yet among them: some 1 KB each, 8 MB.
pub const STREAM_MAX: usize = 8_192;

/// Requests under way by one connection, 2 KB each here and 1 KB there: as many as a node takes of one stream.
pub const NODE_MAX: usize = STREAM_MAX;

/// Of one tenant: at 100 ms 40,960 a second, and the same is left for the others. What is asked for is half of that, for
/// replies are late when there is much to do, and then more are under way for the same rate.
pub const NODE_PER_TENANT_MAX: usize = NODE_MAX / 2;

// One tenant with one key gets as far as that: its other bounds, here and there, are no narrower.
const _: () = assert!(
    NODE_PER_TENANT_MAX <= ELSEWHERE_PER_KEY_MAX
        && NODE_PER_TENANT_MAX <= TENANT_MAX
        && NODE_PER_TENANT_MAX <= Cost::Light.waiting_max()
);
