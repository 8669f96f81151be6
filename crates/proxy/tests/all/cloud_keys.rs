//! Keys of clouds: requests that the proxy signs for AWS, and tokens of service accounts of Google Cloud.

use std::os::unix::fs::PermissionsExt;

use keys::{KeyType, PrivateKey};
use proxy::requests::{Form, InjectText, RequestRules, RuleText};
use serde_json::json;
use tempfile::TempDir;

use crate::requests::list;
use crate::world::{Client, Upstream, World, exchange};

const CANARY: &str = "canary-of-a-cloud";

/// A proxy whose rules inject the key in a file, and the port of its upstream.
async fn world(file: &str, inject: InjectText) -> (World, u16, TempDir) {
    let (upstream, folder) = (Upstream::for_all().await, TempDir::new().unwrap());
    let (port, path) = (upstream.address.port(), folder.path().join("key.json"));
    std::fs::write(&path, file).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let inject = InjectText { file: Some(path), port: vec![port], ..inject };
    let rule = RuleText { host: list(&["localhost"]), inject: Some(inject), ..RuleText::default() };
    let rules = RequestRules::compile(&[rule]).unwrap();
    let world = World::new(&upstream.root, |options| options.requests.rules = rules).await;
    (world, port, folder)
}

async fn response(world: &World, port: u16, request: &str) -> String {
    let (client, target) = (Client::of(&world.root, "http/1.1"), format!("localhost:{port}"));
    let mut stream = world.tls(&client, &target, "localhost").await.unwrap();
    exchange(&mut stream, &request.replace("HOST", &target)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_signed_with_a_key_that_clients_never_see() {
    let key = json!({ "AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": CANARY, "SessionToken": "session-of-the-key" });
    let (service, region) = (Some("s3".to_owned()), Some("eu-central-1".to_owned()));
    let inject = InjectText { form: Form::SigV4, service, region, ..InjectText::default() };
    let (world, port, _folder) = world(&key.to_string(), inject).await;
    let mine = "authorization: AWS4-HMAC-SHA256 mine\r\nx-amz-security-token: mine\r\nx-amz-acl: private\r\n";
    let got = response(
        &world,
        port,
        &format!("GET /b/k?versionId=1 HTTP/1.1\r\nHost: HOST\r\n{mine}Range: bytes=0-1\r\n\r\n"),
    )
    .await;
    assert!(got.contains("authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{got}");
    let names =
        "SignedHeaders=host;x-amz-acl;x-amz-content-sha256;x-amz-date;x-amz-security-token, Signature=";
    assert!(got.contains("/eu-central-1/s3/aws4_request, ") && got.contains(names), "{got}");
    assert!(
        got.contains("x-amz-security-token: session-of-the-key\n") && got.contains("range: bytes=0-1\n"),
        "{got}"
    );
    assert!(!got.contains("mine") && !got.contains(CANARY), "{got}");
    // The digest of a body without one is computed.
    let put =
        response(&world, port, "PUT /b/k HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\n\r\nbody").await;
    let digest = "x-amz-content-sha256: 230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5\n";
    assert!(put.contains(digest) && put.contains("body of 4"), "{put}");
    let unsigned =
        "X-Amz-Content-Sha256: UNSIGNED-PAYLOAD\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
    let put = response(&world, port, &format!("PUT /b/k HTTP/1.1\r\nHost: HOST\r\n{unsigned}")).await;
    assert!(put.contains("x-amz-content-sha256: UNSIGNED-PAYLOAD\n") && put.contains("body of 4"), "{put}");
    // What cannot be signed is not sent.
    for (more, why) in [
        ("Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "Content-Length"),
        (
            "X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\nContent-Length: 4\r\n\r\nbody",
            "chunks",
        ),
    ] {
        let refused = response(&world, port, &format!("PUT /b/k HTTP/1.1\r\nHost: HOST\r\n{more}")).await;
        assert!(refused.starts_with("HTTP/1.1 400") && refused.contains(why), "{refused}");
    }
    // A URL with a signature of its own is sent without the key.
    let presigned = response(&world, port, "GET /b/k?X-Amz-Signature=0 HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
    assert!(presigned.contains("GET /b/k?X-Amz-Signature=0 ") && !presigned.contains("AKID"), "{presigned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_a_service_account_is_injected_and_not_its_key() {
    let pem = PrivateKey::generate(KeyType::Rsa2048).unwrap().to_pkcs8_pem();
    let file = json!({
        "type": "service_account", "client_email": "bot@project.iam.gserviceaccount.com", "private_key_id": "key-1",
        "private_key": *pem,
    });
    let inject = InjectText { form: Form::Google, allow_echo: true, ..InjectText::default() };
    let (world, port, _folder) = world(&file.to_string(), inject).await;
    let request = "GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer mine\r\n\r\n";
    let (first, second) = (response(&world, port, request).await, response(&world, port, request).await);
    let token = |response: &str| {
        let line = response.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap();
        line.to_owned()
    };
    assert_eq!(token(&first).split('.').count(), 3, "{first}");
    assert_eq!(token(&first), token(&second), "one token for all requests");
    assert!(!first.contains("mine") && !first.contains("PRIVATE KEY"), "{first}");
}

#[test]
fn cloud_settings_that_do_not_fit_are_refused() {
    let of = |inject: InjectText| {
        let inject = InjectText { file: Some("/key".into()), ..inject };
        let rule = RuleText { host: list(&["a.example"]), inject: Some(inject), ..RuleText::default() };
        RequestRules::compile(&[rule]).unwrap_err().to_string()
    };
    let (service, region) = (Some("s3".to_owned()), Some("eu-central-1".to_owned()));
    let sigv4 = || InjectText { form: Form::SigV4, ..InjectText::default() };
    for (inject, why) in [
        (sigv4(), "from hosts of AWS"),
        (InjectText { service: service.clone(), ..sigv4() }, "must be set together"),
        (InjectText { service, region, ..InjectText::default() }, "only with as = \"sigv4\""),
        (InjectText { scope: Some("s".into()), ..sigv4() }, "only with as = \"google\""),
        (InjectText { header: Some("x".into()), ..sigv4() }, "only with as = \"header\""),
    ] {
        let refused = of(inject);
        assert!(refused.contains(why), "{refused}");
    }
    let lease = |inject: InjectText| {
        let lease = Some("/team/db/read-only".to_owned());
        let rule = RuleText {
            host: list(&["a.example"]),
            inject: Some(InjectText { lease, ..inject }),
            ..RuleText::default()
        };
        RequestRules::compile(&[rule]).map(drop).map_err(|error| error.to_string())
    };
    let granted = || InjectText { identities: list(&["ci"]), form: Form::Basic, ..InjectText::default() };
    assert_eq!(lease(granted()), Ok(()));
    for (inject, why) in [
        (InjectText { identities: Vec::new(), ..granted() }, "a lease needs `identities`"),
        (InjectText { user: Some("me".into()), ..granted() }, "its own user"),
        (InjectText { field: Some("password".into()), ..granted() }, "both fields"),
        (
            InjectText { form: Form::Bearer, field: Some("x".into()), ..granted() },
            "`username` and `password`",
        ),
        (InjectText { form: Form::Google, ..granted() }, "no cloud access key"),
        (InjectText { file: Some("/key".into()), ..granted() }, "more than one of"),
    ] {
        let refused = lease(inject).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}
