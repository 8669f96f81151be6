//! Cache of servers that support only HTTP/2.

use std::sync::Arc;
use std::time::Duration;

use flight::BoundedMap;

use super::super::target::Origin;

/// Maximum servers that are remembered as supporting only HTTP/2. For WebSockets, the pool does not try HTTP/1.1 on these servers
/// first.
const HTTP2_ALONE_MAX: u64 = 4_096;
/// Time after which a server is no longer remembered as supporting only HTTP/2.
const HTTP2_ALONE_LIFE: Duration = Duration::from_secs(60);

/// Servers that support only HTTP/2.
pub(super) type Http2OnlyServers = BoundedMap<Arc<Origin>, ()>;

pub(super) fn http2_alone() -> Http2OnlyServers {
    BoundedMap::builder(HTTP2_ALONE_MAX).time_to_live(HTTP2_ALONE_LIFE).build()
}
