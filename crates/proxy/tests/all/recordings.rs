//! Redaction in recorded bodies.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use proxy::requests::{RecordOptions, RequestRules, RuleText};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::requests::{CANARY, Store, inject, list, recorded};
use crate::world::{Upstream, World, head};

const MOST: usize = 64;

/// Returns the headers and the body pieces of the response for a path. The response echoes `secret`.
fn echo(path: &str, secret: &str) -> (&'static str, Vec<Vec<u8>>) {
    let whole = |text: String| vec![text.into_bytes()];
    let gzipped = |text: &str| {
        let mut into = GzEncoder::new(Vec::new(), Compression::best());
        into.write_all(text.as_bytes()).unwrap();
        into.finish().unwrap()
    };
    match path {
        "/split" => ("", format!("it is {secret}!").bytes().map(|byte| vec![byte]).collect()),
        "/json" => {
            let quoted = serde_json::to_string(&format!("\"{secret}\"")).unwrap();
            ("Content-Type: application/json\r\n", whole(format!("{{\"token\":12,\"a\":{quoted}}}")))
        }
        "/form" => {
            let escaped: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
            ("Content-Type: application/x-www-form-urlencoded\r\n", whole(format!("t={escaped}")))
        }
        "/coded" => ("", whole(STANDARD.encode(format!("is:{secret}")))),
        "/gzip" => (
            "Content-Encoding: gzip\r\n",
            gzipped(&format!("it is {secret}!")).chunks(5).map(<[u8]>::to_vec).collect(),
        ),
        "/br" => ("Content-Encoding: br\r\n", whole(format!("as if it were: {secret}"))),
        "/binary" => ("Content-Type: image/png\r\n", vec![vec![0, 0xff], secret.as_bytes().to_vec()]),
        _ => ("", whole(format!("{}{secret} and more", "x".repeat(MOST - 8)))),
    }
}

/// Starts a plain HTTP server that echoes the `Authorization` credential. Returns its port.
async fn upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let request_head = head(&mut stream).await;
                let header = |name: &str| {
                    let mut lines = request_head.lines();
                    lines.find_map(|line| line.to_ascii_lowercase().strip_prefix(name).map(str::to_owned))
                };
                // An unread body would reset the connection.
                let length = header("content-length: ").map_or(0, |length| length.parse().unwrap());
                let _ = stream.read_exact(&mut vec![0; length]).await;
                let secret = header("authorization: bearer ");
                let path = request_head.split(' ').nth(1).unwrap_or_default().to_owned();
                let (headers, pieces) = echo(&path, secret.as_deref().unwrap_or("nobody"));
                let cookie = header("cookie: a=").unwrap_or_default();
                let begin = format!(
                    "HTTP/1.1 200 OK\r\n{headers}Location: /to/{cookie}?again={cookie}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                );
                let _ = stream.write_all(begin.as_bytes()).await;
                for chunk in pieces {
                    let _ = stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await;
                    let _ = stream.write_all(&[&chunk[..], b"\r\n"].concat()).await;
                }
                let _ = stream.write_all(b"0\r\n\r\n").await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_redacted_in_recorded_bodies_in_any_encoding() {
    let folder = tempfile::tempdir().unwrap();
    let trusted = Upstream::start("localhost").await;
    let port = upstream().await;
    let mut injecting = inject("localhost", port);
    injecting.inject.as_mut().unwrap().insecure = true;
    let rules = [RuleText { record: true, ..RuleText::default() }, injecting];
    let world = World::new(&trusted.root, |options| {
        options.requests.rules = RequestRules::compile(&rules).unwrap();
        options.requests.secrets = Some(Store::with(CANARY));
        options.requests.record = Some(RecordOptions {
            folder: folder.path().to_owned(),
            body_bytes_max: MOST,
            bytes_max: 1 << 20,
            redact_headers: Vec::new(),
            redact_query: list(&["token"]),
        });
    })
    .await;
    let redacted = [
        ("/split", "it is [redacted]!"),
        ("/json", "{\"token\":\"[redacted]\",\"a\":\"\\\"[redacted]\\\"\"}"),
        ("/form", "t=[redacted]"),
        ("/gzip", "it is [redacted]!"),
        // The recorded part ends inside the credential.
        ("/cut", &format!("{}[redacted]", "x".repeat(MOST - 8))),
    ];
    let omitted = [("/br", "content coding"), ("/binary", "the body is not text, and a credential was")];
    let paths = redacted.iter().chain(&omitted).map(|(path, _)| *path).chain(["/coded"]);
    for path in paths.clone() {
        let mut stream = world.tcp().await;
        let body = format!("token=of-mine&again={CANARY}");
        let request = format!(
            "POST http://localhost:{port}{path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\
             Cookie: a=of-mine-too\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        assert!(response.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&response));
    }
    let (text, entries) = recorded(folder.path(), paths.count()).await;
    assert!(!text.contains(CANARY) && !text.contains("of-mine"), "{text}");
    let content = |wanted: &str| {
        let of = |entry: &&serde_json::Value| entry["request"]["url"].as_str().unwrap().ends_with(wanted);
        entries.iter().find(of).unwrap()["response"]["content"].clone()
    };
    for (path, wanted) in redacted {
        assert_eq!(content(path)["text"], wanted, "{path}: {}", content(path));
    }
    for (path, why) in omitted {
        let content = content(path);
        assert_eq!(content["text"], "", "{path}");
        assert!(content["comment"].as_str().unwrap().contains(why), "{content}");
    }
    // A harmless part of the Base64 text remains.
    let coded = content("/coded")["text"].as_str().unwrap().to_owned();
    assert!(coded.contains("[redacted]") && coded.len() < 24, "{coded}");
    for entry in &entries {
        assert_eq!(entry["request"]["postData"]["text"], "token=[redacted]&again=[redacted]");
        assert_eq!(entry["response"]["redirectURL"], "/to/[redacted]?again=[redacted]");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redacted_headers_and_query_values_are_redacted_in_bodies() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::for_all().await;
    let rules = [RuleText { record: true, ..RuleText::default() }];
    let world = World::new(&upstream.root, |options| {
        options.requests.rules = RequestRules::compile(&rules).unwrap();
        options.requests.record = Some(RecordOptions {
            folder: folder.path().to_owned(),
            body_bytes_max: 4_096,
            bytes_max: 1 << 20,
            redact_headers: list(&["X-Mine"]),
            redact_query: list(&["token"]),
        });
    })
    .await;
    let target = format!("127.0.0.1:{}", upstream.address.port());
    let client = crate::world::Client::of(&world.root, "http/1.1");
    let mut stream = world.tls(&client, &target, "b.example").await.unwrap();
    let request = "GET /x?token=hidden%2D1-long&b=seen HTTP/1.1\r\nHost: b.example\r\nAuthorization: Bearer hidden-2-long\r\n\
                   Cookie: a=hidden-3-long; b=hidden-4-long\r\nX-Mine: hidden-5-long\r\n\r\n";
    let response = crate::world::exchange(&mut stream, request).await;
    for number in 2..6 {
        assert!(
            response.contains(&format!("hidden-{number}-long")),
            "the server says all of it again: {response}"
        );
    }
    let (text, entries) = recorded(folder.path(), 1).await;
    assert!(!text.contains("hidden"), "{text}");
    let body = entries[0]["response"]["content"]["text"].as_str().unwrap();
    assert!(body.contains("b=seen") && body.matches("[redacted]").count() == 5, "{body}");
}
