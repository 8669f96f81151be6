//! KMS as moto simulates it.

#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use scan::clouds::aws::{AwsOptions, KmsError, KmsKey};
use scan::clouds::http::HttpClient;

/// Moto is a program in Python.
const START_MAX: Duration = Duration::from_secs(60);
const MEDIA_TYPE: &str = "Content-Type: application/x-amz-json-1.1";
const SIGNED: &str = "Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/eu-west-1/kms/aws4_request";

/// A running moto, ended when dropped.
struct Moto {
    child: Child,
    endpoint: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Moto {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let program = std::env::var("MOTO_SERVER").unwrap_or_else(|_| "moto_server".to_owned());
        let child = Command::new(&program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}; run `.ci/interop clouds`"));
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < START_MAX, "moto does not listen");
            std::thread::sleep(Duration::from_millis(100));
        }
        Self { child, endpoint: format!("http://127.0.0.1:{port}") }
    }

    /// The id of a new key.
    fn key(&self) -> String {
        let what = ["-s", &self.endpoint, "-d", "{}", "-H", MEDIA_TYPE, "-H", SIGNED];
        let made =
            Command::new("curl").args(what).args(["-H", "X-Amz-Target: TrentService.CreateKey"]).output();
        let made: serde_json::Value = serde_json::from_slice(&made.unwrap().stdout).unwrap();
        made["KeyMetadata"]["KeyId"].as_str().unwrap().to_owned()
    }
}

fn code(error: &KmsError) -> &str {
    match error {
        KmsError::Refused { code, .. } => code,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_gives_back_what_it_encrypted_for_its_purpose() {
    let moto = Moto::start();
    let options = AwsOptions {
        endpoint: Some(moto.endpoint.clone()),
        credentials: Some(("test".to_owned(), "test".to_owned())),
    };
    let http = HttpClient::new(&[]).unwrap();
    let key = async |id: &str, purpose| KmsKey::new(id, "eu-west-1", purpose, &options, http.clone()).await;
    let id = moto.key();
    let ours = key(&id, "a purpose").await;
    let encrypted = ours.encrypt(&[7; 32]).await.unwrap();
    assert!(!encrypted.windows(32).any(|window| window == [7; 32]));
    assert_eq!(*ours.decrypt(&encrypted).await.unwrap(), vec![7; 32]);
    let other = key(&id, "another purpose").await.decrypt(&encrypted).await.unwrap_err();
    assert_eq!(code(&other), "InvalidCiphertextException");
    let none = key("none", "a purpose").await.encrypt(&[7; 32]).await.unwrap_err();
    assert_eq!(code(&none), "NotFoundException");
}
