//! The signer's socket: who may connect, and how a server reports an unavailable signer.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use authority::ca_keys::CaKeys;
use authority::issue::IssueError;
use keys::SignError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::world::{World, own_user};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_signer_is_reported_and_reconnected() {
    let mut world = World::sqlite().await;
    world.client.ready().await.unwrap();
    world.stop_signer().await;
    let unavailable = world.issue("web", &["a.example"]).await;
    assert!(
        matches!(&unavailable, Err(IssueError::Sign(SignError::Unavailable(reason)))
            if reason.contains("cannot be reached") && reason.contains("--roles signer")),
        "{unavailable:?}"
    );
    assert!(matches!(world.client.ready().await, Err(SignError::Unavailable(_))));
    world.start_signer_for(own_user()).await;
    world.client.ready().await.unwrap();
    world.issue("web", &["a.example"]).await.unwrap();
    // The old connections are closed. A restart between two orders goes unnoticed.
    world.restart_signer().await;
    world.issue("web", &["b.example"]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_configured_users_may_connect() {
    let mut world = World::sqlite().await;
    let mode = std::fs::metadata(world.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    world.stop_signer().await;
    let other = own_user().into_iter().map(|user| user + 1).collect::<BTreeSet<u32>>();
    world.start_signer_for(other).await;
    assert!(matches!(world.client.ready().await, Err(SignError::Unavailable(_))));
    let unavailable = world.issue("web", &["a.example"]).await;
    assert!(matches!(unavailable, Err(IssueError::Sign(SignError::Unavailable(_)))), "{unavailable:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_frame_closes_only_its_own_connection() {
    let world = World::sqlite().await;
    for nonsense in [&[0xff; 64][..], b"\0\0\0\x02\0\0\0\0{}", b"\0\0\0\x04\0\0\0\0nine"] {
        let mut stream = UnixStream::connect(world.socket()).await.unwrap();
        stream.write_all(nonsense).await.unwrap();
        let mut answer = Vec::new();
        // Closed, with or without a reset for unread data.
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer, b"");
    }
    world.issue("web", &["a.example"]).await.unwrap();
}
