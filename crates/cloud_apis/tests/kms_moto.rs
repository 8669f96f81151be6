//! KMS as moto simulates it.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod moto;

use std::process::Command;

use cloud_apis::auth::aws::AwsOptions;
use cloud_apis::auth::http::HttpClient;
use cloud_apis::key_services::{KmsError, KmsKey};
use moto::Moto;

const MEDIA_TYPE: &str = "Content-Type: application/x-amz-json-1.1";
const SIGNED: &str = "Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/eu-west-1/kms/aws4_request";

/// Creates a key and returns its ID.
fn new_key(moto: &Moto) -> String {
    let what = ["-s", &moto.endpoint, "-d", "{}", "-H", MEDIA_TYPE, "-H", SIGNED];
    let made = Command::new("curl").args(what).args(["-H", "X-Amz-Target: TrentService.CreateKey"]).output();
    let made: serde_json::Value = serde_json::from_slice(&made.unwrap().stdout).unwrap();
    made["KeyMetadata"]["KeyId"].as_str().unwrap().to_owned()
}

fn code(error: &KmsError) -> &str {
    match error {
        KmsError::Call(answer) => &answer.code,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kms_key_decrypts_only_ciphertext_of_the_same_purpose() {
    let moto = Moto::start().await;
    let options = AwsOptions {
        endpoint: Some(moto.endpoint.clone()),
        credentials: Some(("test".to_owned(), "test".to_owned())),
    };
    let http = HttpClient::new(&[]).unwrap();
    let key = async |id: &str, purpose| KmsKey::new(id, "eu-west-1", purpose, &options, http.clone()).await;
    let id = new_key(&moto);
    let ours = key(&id, "a purpose").await;
    let encrypted = ours.encrypt(&[7; 32]).await.unwrap();
    assert!(!encrypted.windows(32).any(|window| window == [7; 32]));
    assert_eq!(*ours.decrypt(&encrypted).await.unwrap(), vec![7; 32]);
    let other = key(&id, "another purpose").await.decrypt(&encrypted).await.unwrap_err();
    assert_eq!(code(&other), "InvalidCiphertextException");
    let none = key("none", "a purpose").await.encrypt(&[7; 32]).await.unwrap_err();
    assert_eq!(code(&none), "NotFoundException");
}
