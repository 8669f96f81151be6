//! HTTP/2 connections to upstreams, which requests share.

use std::time::Duration;

use futures_util::future::join_all;

use crate::world::{Client, Http2, Speaks, TIMEOUT, Upstream, World, answer, authority, get, http2};

/// Opens an HTTP/2 connection to `upstream` through `world`. Returns the URL too.
async fn client(world: &World, upstream: &Upstream) -> (Http2, String) {
    let target = format!("localhost:{}", upstream.address.port());
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    (http2(stream).await.0, format!("https://{target}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_share_one_http2_connection() {
    // All requests arrive before the first connection is ready.
    let slow = Speaks { takes: Duration::from_millis(500), ..Speaks::default() };
    let upstream = Upstream::start_with(slow).await;
    let world = World::new(&upstream.root, |_| {}).await;
    let (sender, url) = client(&world, &upstream).await;
    let all = join_all((0..50).map(|_| answer(&sender, get(&url)))).await;
    assert!(all.iter().all(|(status, reply)| *status == 200 && reply.contains("HTTP/2.0")), "{all:?}");
    assert_eq!(upstream.made(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_to_an_http1_upstream_succeed() {
    let upstream = Upstream::start_with(Speaks { alpn: &["http/1.1"], ..Speaks::default() }).await;
    let world = World::new(&upstream.root, |_| {}).await;
    let (sender, url) = client(&world, &upstream).await;
    for _ in 0..2 {
        let all = join_all((0..8).map(|_| answer(&sender, get(&url)))).await;
        assert!(all.iter().all(|(status, reply)| *status == 200 && reply.contains("HTTP/1.1")), "{all:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_error_is_reported_to_all_waiting_requests() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&authority().1, |_| {}).await;
    let (sender, url) = client(&world, &upstream).await;
    let all = join_all((0..8).map(|_| answer(&sender, get(&url)))).await;
    assert!(
        all.iter().all(|(status, reply)| *status == 502 && reply.contains("TLS handshake failed")),
        "{all:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn new_connection_opens_when_streams_are_used_up_to_the_limit() {
    let upstream = Upstream::start_with(Speaks { streams_max: 2, ..Speaks::default() }).await;
    let world = World::new(&upstream.root, |options| options.upstream_per_host_max = 3).await;
    let (sender, url) = client(&world, &upstream).await;
    let open_held = async || {
        let mut sender = sender.clone();
        let response_future = sender.send_request(get(&format!("{url}/held")));
        tokio::time::timeout(TIMEOUT, response_future).await.expect("nobody waits for a place").unwrap()
    };
    let mut all = Vec::new();
    for made in [1, 1, 2, 2, 3, 3] {
        all.push(open_held().await);
        assert_eq!((all.len(), upstream.made()), (all.len(), made));
    }
    assert!(all.iter().all(|response| response.status() == 200));
    assert_eq!(open_held().await.status(), 503, "there is an end to it");
    // A released stream slot is used again.
    all.pop();
    let retrying = async {
        while answer(&sender, get(&url)).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, retrying).await.unwrap();
    assert_eq!(upstream.made(), 3);
}
