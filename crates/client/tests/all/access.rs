//! A client whose login is no longer valid.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use client::{Error, Limits};
use futures_util::FutureExt;
use serde_json::json;

use crate::store::{FakeStore, found};

#[tokio::test]
async fn denied_lookup_drops_all_cached_values() {
    let is_denied = Arc::new(AtomicBool::new(false));
    let denied = Arc::clone(&is_denied);
    let store = FakeStore::start(move |received| {
        let denied = denied.load(SeqCst);
        async move {
            match denied {
                true => (401, json!({ "error": "invalid_token", "error_description": "revoked" })),
                false => found(&received, "secret"),
            }
        }
        .boxed()
    });
    let client = store.client(Limits::default());
    assert!(client.get("/a").await.is_ok());
    is_denied.store(true, SeqCst);
    assert!(client.get("/a").await.is_ok(), "it is fresh, and nobody has told of the change");
    assert!(matches!(client.get("/b").await, Err(Error::Denied(_))));
    assert!(matches!(client.get("/a").await, Err(Error::Denied(_))), "it was read with the same login");
}
