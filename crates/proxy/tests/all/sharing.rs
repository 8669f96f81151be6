//! Connections to upstreams by HTTP/2, which requests share.

use std::time::Duration;

use futures_util::future::join_all;

use crate::world::{Client, Http2, PATIENCE, Speaks, Upstream, World, answer, authority, get, http2};

/// A client of `world` that speaks HTTP/2 with `upstream` behind it.
async fn client(world: &World, upstream: &Upstream) -> (Http2, String) {
    let target = format!("localhost:{}", upstream.address.port());
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    (http2(stream).await.0, format!("https://{target}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_ask_at_once_share_one_connection() {
    // So that all have asked before there is one.
    let slow = Speaks { takes: Duration::from_millis(500), ..Speaks::default() };
    let upstream = Upstream::that(slow).await;
    let world = World::new(&upstream.root, |_| {}).await;
    let (sender, url) = client(&world, &upstream).await;
    let all = join_all((0..50).map(|_| answer(&sender, get(&url)))).await;
    assert!(all.iter().all(|(status, said)| *status == 200 && said.contains("HTTP/2.0")), "{all:?}");
    assert_eq!(upstream.made(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_that_cannot_share_are_asked_by_connections_of_their_own() {
    let upstream = Upstream::that(Speaks { alpn: &["http/1.1"], ..Speaks::default() }).await;
    let world = World::new(&upstream.root, |_| {}).await;
    let (sender, url) = client(&world, &upstream).await;
    for _ in 0..2 {
        let all = join_all((0..8).map(|_| answer(&sender, get(&url)))).await;
        assert!(all.iter().all(|(status, said)| *status == 200 && said.contains("HTTP/1.1")), "{all:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_wait_are_told_why_there_is_no_connection() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&authority().1, |_| {}).await;
    let (sender, url) = client(&world, &upstream).await;
    let all = join_all((0..8).map(|_| answer(&sender, get(&url)))).await;
    assert!(
        all.iter().all(|(status, said)| *status == 502 && said.contains("TLS handshake failed")),
        "{all:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_full_has_another_made_up_to_the_limit() {
    let upstream = Upstream::that(Speaks { streams_max: 2, ..Speaks::default() }).await;
    let world = World::new(&upstream.root, |options| options.upstream_per_host_max = 3).await;
    let (sender, url) = client(&world, &upstream).await;
    let held = async || {
        let mut sender = sender.clone();
        let asked = sender.send_request(get(&format!("{url}/held")));
        tokio::time::timeout(PATIENCE, asked).await.expect("nobody waits for a place").unwrap()
    };
    let mut all = Vec::new();
    for made in [1, 1, 2, 2, 3, 3] {
        all.push(held().await);
        assert_eq!((all.len(), upstream.made()), (all.len(), made));
    }
    assert!(all.iter().all(|response| response.status() == 200));
    assert_eq!(held().await.status(), 503, "there is an end to it");
    // A place that is free again is used.
    all.pop();
    let again = async {
        while answer(&sender, get(&url)).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
    assert_eq!(upstream.made(), 3);
}
