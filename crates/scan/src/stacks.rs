//! Cache of the versions and suites that servers accept in addition to those that they choose. Endpoints that behave alike are
//! tested once.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::target::Protocol;
use crate::tls::{Accepted, Evidence};

/// Maximum cached stacks; about 200 bytes each. At this number the cache is cleared.
const STACKS_MAX: usize = 65_536;

/// Key of endpoints that behave in the same way: the socket address and the first response. The address is included, because two
/// servers may respond alike to a modern ClientHello although only one accepts TLS 1.0.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct TlsStackKey {
    socket: SocketAddr,
    protocol: Protocol,
    version: Option<u16>,
    cipher: Option<u16>,
    group: Option<u16>,
    signature_scheme: Option<u16>,
    alpn: Option<String>,
}

impl TlsStackKey {
    pub(crate) fn new(socket: SocketAddr, protocol: Protocol, first: &Evidence) -> Self {
        Self {
            socket,
            protocol,
            version: first.version,
            cipher: first.cipher,
            group: first.group,
            signature_scheme: first.signature_scheme,
            alpn: first.alpn.clone(),
        }
    }
}

/// Accepted versions and suites by TLS stack.
#[derive(Debug, Default)]
pub(crate) struct TlsStackCache(Mutex<HashMap<TlsStackKey, Arc<OnceCell<Accepted>>>>);

impl TlsStackCache {
    /// Returns the versions and suites that `stack` accepts; calls `probe` if they are not cached. Concurrent callers with the same
    /// stack share one call. A call without a result is not cached.
    pub(crate) async fn accepted(
        &self,
        stack: TlsStackKey,
        probe: impl Future<Output = Option<Accepted>>,
    ) -> Option<Accepted> {
        let cell = {
            let mut known = self.0.lock();
            if known.len() >= STACKS_MAX {
                known.clear();
            }
            known.entry(stack).or_default().clone()
        };
        cell.get_or_try_init(|| async { probe.await.ok_or(()) }).await.ok().cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn accepted_versions_are_probed_once_per_tls_stack() {
        let (stacks, probes) = (TlsStackCache::default(), AtomicUsize::new(0));
        let first = Evidence { version: Some(0x0304), ..Evidence::default() };
        let stack = |port| TlsStackKey::new(SocketAddr::from(([127, 0, 0, 1], port)), Protocol::Tls, &first);
        let accepted = Accepted { obsolete_version: Some(0x0301), ..Accepted::default() };
        let probe = |answer: Option<Accepted>| async {
            probes.fetch_add(1, Ordering::Relaxed);
            answer
        };
        assert_eq!(stacks.accepted(stack(1), probe(None)).await, None);
        for _ in 0..3 {
            assert_eq!(
                stacks.accepted(stack(1), probe(Some(accepted.clone()))).await,
                Some(accepted.clone())
            );
        }
        assert_eq!(
            stacks.accepted(stack(2), probe(Some(Accepted::default()))).await,
            Some(Accepted::default())
        );
        assert_eq!(probes.load(Ordering::Relaxed), 3);
    }
}
