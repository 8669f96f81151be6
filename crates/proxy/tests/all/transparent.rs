//! Listeners for redirected connections. The tests with firewall redirection are among the tests of the program.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{TIMEOUT, Upstream, World, exchange};

#[tokio::test(flavor = "multi_thread")]
async fn direct_connection_to_a_redirect_listener_is_closed_without_response() {
    let upstream = Upstream::start("localhost").await;
    let plain = crate::ways::plain().await;
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let world =
        World::new(&upstream.root, |options| options.transparent.listen = vec![loopback, loopback]).await;
    assert_eq!(world.running.redirected.len(), 2);
    for address in &world.running.redirected {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The proxy may already have closed the connection.
        let _ = stream.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await;
        let mut response = Vec::new();
        let _ = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut response)).await.expect("an end");
        assert_eq!(String::from_utf8_lossy(&response), "");
    }
    // The listener cannot be reached through the proxy either.
    for (port, wanted) in [(world.running.redirected[0].port(), "508"), (plain, "200")] {
        let request = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        let response = exchange(&mut world.tcp().await, &request).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {wanted}")), "{response}");
    }
}
