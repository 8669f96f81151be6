//! AWS as moto simulates it: an implementation of the interfaces that is independent of our own. `.ci/interop clouds` installs
//! moto's server and runs this test. MOTO_SERVER names the program. moto does not throttle, paginate or omit anything; the tests
//! with the simulated clouds cover that.

mod moto;

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_sdk_acm::config::SharedCredentialsProvider;
use aws_sdk_acm::primitives::Blob;
use cloud_apis::auth::http::HttpClient;
use cloud_apis::sources::aws::{AwsAccount, AwsOptions, AwsSource};
use clouds::{Chain, CloudSource, Event, Machine, PoolSettings, Pools, start};
use moto::Moto;
use tokio_util::sync::CancellationToken;
use x509::Fingerprint;

/// moto's only account.
const ACCOUNT: &str = "123456789012";

fn config(moto: &Moto, http: &HttpClient, region: &str) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http.clone())
        .endpoint_url(&moto.endpoint)
        .region(Region::new(region.to_owned()))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::from_keys("test", "test", None)))
        .build()
}

/// Creates a self-signed certificate and its key with OpenSSL, in PEM.
fn certificate(name: &str) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let done = Command::new("openssl")
        .current_dir(folder.path())
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj"])
        .args([&format!("/CN={name}"), "-addext", &format!("subjectAltName=DNS:{name}")])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .output()
        .expect("openssl: apt-get install -y openssl");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).expect("a file of openssl's");
    (read("cert.pem"), read("key.pem"))
}

fn leaf(pem: &str) -> Fingerprint {
    let (_, der) = x509::pem::certificates(pem.as_bytes()).next().expect("a certificate");
    Fingerprint::of(&der)
}

/// Imports certificates into two regions and IAM. The listing finds them with an assumed role.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_in_moto_are_listed() {
    let moto = Moto::start().await;
    let http = HttpClient::new(&[]).expect("a client");
    let mut wanted = HashMap::new();
    for region in ["eu-west-1", "us-east-1"] {
        let (pem, key) = certificate(&format!("{region}.example"));
        let acm = aws_sdk_acm::Client::new(&config(&moto, &http, region));
        let import = acm
            .import_certificate()
            .certificate(Blob::new(pem.as_bytes()))
            .private_key(Blob::new(key.as_bytes()));
        let imported = import.send().await.expect("moto imports");
        wanted.insert(imported.certificate_arn().expect("an ARN").to_owned(), leaf(&pem));
    }
    let (pem, key) = certificate("iam.example");
    let iam = aws_sdk_iam::Client::new(&config(&moto, &http, "us-east-1"));
    let upload = iam
        .upload_server_certificate()
        .server_certificate_name("site")
        .certificate_body(&pem)
        .private_key(key);
    let uploaded = upload.send().await.expect("moto uploads");
    let metadata = uploaded.server_certificate_metadata().expect("metadata");
    wanted.insert(metadata.arn().to_owned(), leaf(&pem));

    let pools =
        Pools::new(PoolSettings::default(), Machine { descriptors: 1_024, database: None }).expect("pools");
    let account = AwsAccount {
        account: ACCOUNT.to_owned(),
        role: Some(format!("arn:aws:iam::{ACCOUNT}:role/scan")),
        external_id: None,
        regions: vec!["eu-west-1".to_owned(), "us-east-1".to_owned()],
    };
    let options = AwsOptions {
        endpoint: Some(moto.endpoint.clone()),
        credentials: Some(("test".to_owned(), "test".to_owned())),
    };
    let source = AwsSource::new(account, &options, http, pools).await.expect("a source");
    let sources: Vec<Arc<dyn CloudSource>> = vec![Arc::new(source)];
    let mut events = start(sources, HashMap::new(), Duration::from_secs(60), CancellationToken::new());
    let mut found = HashMap::new();
    while let Some(event) = events.recv().await {
        match event {
            Event::Certificates { certificates, .. } => {
                for certificate in certificates {
                    let Chain::Read(chain) = certificate.chain else { panic!("not read: {certificate:?}") };
                    found.insert(certificate.resource.name.to_string(), Fingerprint::of(&chain[0]));
                }
            }
            Event::Ended(listed) => assert!(listed.failed.is_empty(), "{:?}", listed.failed),
        }
    }
    assert_eq!(found, wanted);
}
