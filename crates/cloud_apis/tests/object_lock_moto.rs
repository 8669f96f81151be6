//! S3 Object Lock as moto simulates it.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod moto;

use std::process::Command;
use std::time::{Duration, SystemTime};

use cloud_apis::auth::aws::AwsOptions;
use cloud_apis::auth::http::HttpClient;
use cloud_apis::object_lock::{LockMode, LockedBucket};
use moto::Moto;

/// The region in which a bucket needs no location constraint.
const SIGNED: &str = "Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request";
const KEY: &str = "heads/00000000000000000001-ab.json";

/// Sends a request to moto with curl. Returns the status, and the head and body of the response.
fn curl(moto: &Moto, method: &str, path: &str, headers: &[&str]) -> (u16, String) {
    let mut command = Command::new("curl");
    command.args(["-s", "-i", "-X", method, "-H", SIGNED, "-w", "\n%{http_code}"]);
    headers.iter().for_each(|header| drop(command.args(["-H", header])));
    let out = command.arg(format!("{}/{path}", moto.endpoint)).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let (text, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), text.to_owned())
}

async fn bucket(moto: &Moto, name: &str) -> LockedBucket {
    let options = AwsOptions {
        endpoint: Some(moto.endpoint.clone()),
        credentials: Some(("test".to_owned(), "test".to_owned())),
    };
    LockedBucket::new(name, "us-east-1", &options, HttpClient::new(&[]).unwrap()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_object_cannot_be_deleted_and_a_bucket_without_locks_is_an_error() {
    let moto = Moto::start().await;
    let made = curl(&moto, "PUT", "heads", &["x-amz-bucket-object-lock-enabled: true", "Content-Length: 0"]);
    assert_eq!(made.0, 200, "{}", made.1);
    let until = SystemTime::now() + Duration::from_secs(86_400);
    let head = b"{\"sequence\":1}".to_vec();
    bucket(&moto, "heads").await.put(KEY, head.clone(), LockMode::Compliance, until).await.unwrap();

    let (status, text) = curl(&moto, "GET", &format!("heads/{KEY}"), &[]);
    assert!(status == 200 && text.ends_with("{\"sequence\":1}"), "{text}");
    let version = text.lines().find_map(|line| {
        line.to_ascii_lowercase().strip_prefix("x-amz-version-id:").map(|id| id.trim().to_owned())
    });
    let path = format!("heads/{KEY}?versionId={}", version.unwrap());
    let (status, text) = curl(&moto, "DELETE", &path, &[]);
    assert!(status == 403 && text.contains("AccessDenied"), "{status} {text}");

    // A bucket without object lock, and no bucket.
    assert_eq!(curl(&moto, "PUT", "plain", &["Content-Length: 0"]).0, 200);
    bucket(&moto, "plain").await.put(KEY, head.clone(), LockMode::Compliance, until).await.unwrap_err();
    let none = bucket(&moto, "none").await.put(KEY, head, LockMode::Governance, until).await.unwrap_err();
    assert_eq!(none.code, "NoSuchBucket");
}
