//! What an agent passes on, and what it makes of the answers.

use futures_util::FutureExt;
use serde_json::json;

use crate::store::{FakeStore, ask};

#[tokio::test]
async fn no_path_leads_out_of_what_the_agent_passes_on() {
    let store = FakeStore::start(|_| async { (200, json!({})) }.boxed());
    let socket = store.agent(&store.client(client::Limits::default())).await;
    let out = [
        "/v1/auth/token/lookup-self",
        "/oauth/token",
        "/api/../v1/auth/token/lookup-self",
        "/api/%2e%2e/oauth/token",
        "/api/.%2E/oauth/token",
        "/api/..\\management",
        "/api/v1/../../management",
        "/info/../oauth/token",
        "//api/v1/data",
    ];
    for path in out {
        assert_eq!(ask(&socket, "GET", path, "").await.0, 404, "{path}");
    }
    assert!(store.asked().is_empty(), "{:?}", store.asked());
    // What stays within is sent as it was judged.
    for path in ["/api/v1/certificates?name=/a%20b", "/api/v2/../v1/permissions?path=/a/../b", "/info"] {
        assert_eq!(ask(&socket, "GET", path, "").await.0, 200, "{path}");
    }
    let asked: Vec<_> = store.asked().into_iter().map(|asked| asked.path).collect();
    assert_eq!(
        asked,
        ["/api/v1/certificates?name=/a%20b", "/api/v1/permissions?path=/a/../b", "/info"]
    );
    assert!(store.asked().iter().all(|asked| asked.token.as_deref() == Some("Bearer own-token")));
}
