//! Tests of master key encryption with OpenBao's transit engine.

use issuers::custody::{Transit, TransitConfig};
use keys::{KeyringError, Secret, UnwrappedKey};
use outbound::resolve::Resolver;

use crate::openbao::OpenBao;

/// The permissions of the server's token, and no others.
const POLICY: &str = r#"path "keys/encrypt/bulla" { capabilities = ["update"] }
path "keys/decrypt/bulla" { capabilities = ["update"] }"#;

fn transit(bao: &OpenBao, key: &str, token: &str) -> Transit {
    let config = TransitConfig {
        url: bao.url.clone(),
        mount: "keys".to_owned(),
        key: key.to_owned(),
        namespace: None,
        token: Secret::new(token),
        roots: None,
    };
    Transit::new(config, &Resolver::system().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transit_engine_unwraps_the_master_key_only_when_permitted() {
    let bao = OpenBao::start();
    bao.run(&["secrets", "enable", "-path", "keys", "transit"]);
    for key in ["bulla", "other"] {
        bao.run(&["write", "-force", &format!("keys/keys/{key}")]);
    }
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.hcl");
    std::fs::write(&policy, POLICY).unwrap();
    bao.run(&["policy", "write", "master", policy.to_str().unwrap()]);
    let token = bao.run(&["token", "create", "-policy", "master"]);
    let token = token["auth"]["client_token"].as_str().unwrap().to_owned();
    let path = folder.path().join("wrapped");
    let ours = transit(&bao, "bulla", &token);
    UnwrappedKey::load(&path, &ours, keys::MissingFileAction::Create).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("wrapped_by = vault"), "{text}");
    UnwrappedKey::load(&path, &ours, keys::MissingFileAction::Refuse).await.unwrap();
    // After a rotation in the engine, old ciphertexts can still be decrypted.
    bao.run(&["write", "-force", "keys/keys/bulla/rotate"]);
    UnwrappedKey::load(&path, &ours, keys::MissingFileAction::Refuse).await.unwrap();
    for (refused, message) in [
        (transit(&bao, "other", "root"), "400"),
        (transit(&bao, "other", &token), "403"),
        (transit(&bao, "bulla", "wrong"), "403"),
    ] {
        let error = UnwrappedKey::load(&path, &refused, keys::MissingFileAction::Refuse).await.unwrap_err();
        assert!(
            matches!(&error, KeyringError::Wrapper { why, .. } if why.contains(message)),
            "{message}: {error}"
        );
    }
    assert!(!format!("{ours:?}").contains(&token));
}
