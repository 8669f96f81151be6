//! Ways in which a server can echo an injected credential to the client. The proxy masks all of them.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_ENCODING, HeaderName, HeaderValue, LOCATION, RANGE, SET_COOKIE};
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use proxy::requests::{InjectText, RequestRules, RuleText};
use tokio::io::AsyncReadExt;

use crate::echo::{MASK, TEXT, read_frame, write_frame};
use crate::requests::{CANARY, Store, list};
use crate::world::{Answers, AnyBody, Client, Speaks, TIMEOUT, Upstream, World, get, http2};

/// Ways to echo, each with a text that the body or the headers must contain.
const VARIANTS: [(&str, &str); 26] = [
    ("header", "x-echo: Bearer [redacted]"),
    ("header-name", ""),
    ("cookie", "set-cookie: token=[redacted]; Path=/"),
    ("redirect", "location: https://b.example/?token=[redacted]"),
    ("redirect-escaped", "location: https://b.example/?token=[redacted]"),
    ("body", "it is ********************."),
    // In pieces: after a pause between them, up to three characters are shown.
    ("chunks", "*****************."),
    ("twice", "******************** ********************"),
    ("at-the-end", "it is ********************"),
    ("events", "data: ********************\n\n"),
    ("json", "{\"token\":\"********************\"}"),
    ("json-escaped", "{\"token\":\""),
    ("json-in-json", "{\"log\":\""),
    ("html", "<p>"),
    ("error", "401: ********************"),
    ("form", "token=********************&b"),
    ("url-twice", "token="),
    ("upper-case", "it is ********************"),
    ("base64", "basic "),
    ("base64-lines", "basic "),
    ("base64-url", "jwt "),
    ("hex", "it is ****************************************."),
    ("utf16", ""),
    ("gzip", "*****************."),
    ("deflate", "it is ********************."),
    ("range", "it is ********************."),
];

fn compressed(coding: &str, text: &str) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
            gzip.write_all(text.as_bytes()).unwrap();
            gzip.finish().unwrap()
        }
        _ => {
            let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
            zlib.write_all(text.as_bytes()).unwrap();
            zlib.finish().unwrap()
        }
    }
}

/// Returns a body in pieces of `size` bytes, with trailers.
fn in_pieces(body: Vec<u8>, size: usize, trailers: HeaderMap) -> AnyBody {
    let pieces: Vec<_> = body.chunks(size).map(|chunk| Frame::data(Bytes::copy_from_slice(chunk))).collect();
    let all = pieces.into_iter().chain((!trailers.is_empty()).then(|| Frame::trailers(trailers)));
    StreamBody::new(stream::iter(all.map(Ok).collect::<Vec<_>>())).boxed_unsync()
}

/// Returns a response that echoes the credential in the way that the path names.
fn echoed(request: Request<Incoming>) -> Response<AnyBody> {
    let variant = request.uri().path().trim_start_matches("/echo/");
    let authorization = request.headers()["authorization"].to_str().unwrap().to_owned();
    let token = authorization.strip_prefix("Bearer ").unwrap().to_owned();
    let escaped: String = token.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    let twice: String = token.bytes().map(|byte| format!("%25{byte:02x}")).collect();
    let plain = format!("it is {token}.");
    let mut response = Response::new(());
    let headers = response.headers_mut();
    let mut trailers = HeaderMap::new();
    let mut header = |name: HeaderName, value: String| {
        headers.insert(name, HeaderValue::try_from(value).unwrap());
    };
    let name = |text: &str| text.parse::<HeaderName>().unwrap();
    let body = match variant {
        "header" => {
            header(name("x-echo"), authorization);
            Vec::new()
        }
        "header-name" => {
            header(name(&token), "1".to_owned());
            Vec::new()
        }
        "cookie" => {
            header(SET_COOKIE, format!("token={token}; Path=/"));
            Vec::new()
        }
        "redirect" => {
            header(LOCATION, format!("https://b.example/?token={token}"));
            Vec::new()
        }
        "redirect-escaped" => {
            header(LOCATION, format!("https://b.example/?token={}", twice.replace("%25", "%")));
            Vec::new()
        }
        "trailers" => {
            trailers.insert("x-echo", HeaderValue::try_from(token).unwrap());
            b"see below".to_vec()
        }
        "twice" => format!("{token} {token}").into_bytes(),
        "at-the-end" => format!("it is {token}").into_bytes(),
        "events" => format!("data: {token}\n\n").into_bytes(),
        "json" => format!("{{\"token\":\"{token}\"}}").into_bytes(),
        "json-escaped" => format!("{{\"token\":\"{escaped}\"}}").into_bytes(),
        "json-in-json" => format!("{{\"log\":\"{}\"}}", escaped.replace('\\', "\\\\")).into_bytes(),
        "html" => {
            let references: String = token.bytes().map(|byte| format!("&#x{byte:x};")).collect();
            format!("<p>{references}</p>").into_bytes()
        }
        "error" => {
            *response.status_mut() = StatusCode::UNAUTHORIZED;
            format!("401: {token} is not valid").into_bytes()
        }
        "form" => format!("token={token}&b=1").into_bytes(),
        "url-twice" => format!("token={twice}&b=1").into_bytes(),
        "upper-case" => format!("it is {}", token.to_uppercase()).into_bytes(),
        "base64" => format!("basic {}", STANDARD.encode(format!("user:{token}"))).into_bytes(),
        "base64-lines" => {
            let coded = STANDARD.encode(format!("user:{token} and more"));
            let lines: Vec<_> = coded.as_bytes().chunks(16).map(String::from_utf8_lossy).collect();
            format!("basic {}", lines.join("\r\n")).into_bytes()
        }
        "base64-url" => format!("jwt {}", URL_SAFE_NO_PAD.encode(format!("?>{token}?>"))).into_bytes(),
        "hex" => format!("it is {}.", data_encoding::HEXLOWER.encode(token.as_bytes())).into_bytes(),
        "utf16" => token.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        "gzip" | "deflate" => {
            header(CONTENT_ENCODING, variant.to_owned());
            compressed(variant, &plain)
        }
        "empty-gzip" | "empty-deflate" | "empty-br" => {
            header(CONTENT_ENCODING, variant.trim_start_matches("empty-").to_owned());
            Vec::new()
        }
        "pause" => b"which name? c".to_vec(),
        "br" => {
            header(CONTENT_ENCODING, variant.to_owned());
            plain.into_bytes()
        }
        "range" if request.headers().contains_key(RANGE) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            plain.into_bytes().split_off(12)
        }
        "encodings" => format!("{:?}", request.headers().get("accept-encoding")).into_bytes(),
        _ => plain.into_bytes(),
    };
    let body = match variant {
        // Without a length: only its end shows that an empty body is empty.
        "chunks" | "gzip" | "trailers" | "empty-gzip" | "empty-deflate" | "empty-br" => {
            in_pieces(body, 3, trailers)
        }
        "pause" => {
            let first = stream::iter([Ok(Frame::data(Bytes::from(body)))]);
            StreamBody::new(first.chain(stream::pending())).boxed_unsync()
        }
        _ => Full::from(body).boxed_unsync(),
    };
    response.map(|()| body)
}

/// Returns the behavior of a server that echoes the credential.
fn speaks() -> Speaks {
    let answers: Answers = |request| Box::pin(async move { echoed(request) });
    Speaks { answers: Some(answers), ..Speaks::default() }
}

/// Starts a proxy that injects the credential into requests to `upstream`.
async fn world(upstream: &Upstream, allow_echo: bool) -> World {
    let credential = Some("/team/api".to_owned());
    let port = vec![upstream.address.port()];
    let inject = InjectText { credential, port, allow_echo, ..InjectText::default() };
    let rule = RuleText { host: list(&["localhost"]), inject: Some(inject), ..RuleText::default() };
    let rules = RequestRules::compile(&[rule]).unwrap();
    World::new(&upstream.root, |options| {
        options.requests.rules = rules;
        options.requests.secrets = Some(Store::with(CANARY));
    })
    .await
}

/// Returns the status, and the header, body and trailers that the client receives.
async fn seen(world: &World, upstream: &Upstream, alpn: &str, variant: &str) -> (StatusCode, String) {
    let target = format!("localhost:{}", upstream.address.port());
    let stream = world.tls(&Client::of(&world.root, alpn), &target, "localhost").await.unwrap();
    let mut request = get(&format!("https://{target}/echo/{variant}"));
    request.headers_mut().insert("accept-encoding", HeaderValue::from_static("br;q=1.0, gzip;q=0.5, zstd"));
    request.headers_mut().insert(RANGE, HeaderValue::from_static("bytes=12-"));
    let response = if alpn == "h2" {
        let (mut sender, _) = http2(stream).await;
        sender.send_request(request).await.unwrap()
    } else {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        *request.uri_mut() = format!("/echo/{variant}").parse().unwrap();
        request.headers_mut().insert("host", HeaderValue::try_from(target).unwrap());
        sender.send_request(request).await.unwrap()
    };
    let status = response.status();
    let mut reply = String::new();
    let mut headers = |headers: &HeaderMap| {
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())))
            .collect::<String>()
    };
    reply.push_str(&headers(response.headers()));
    let body = response.into_body().collect().await.unwrap();
    reply.push_str(&body.trailers().map(&mut headers).unwrap_or_default());
    reply.push_str(&String::from_utf8_lossy(&body.to_bytes()));
    (status, reply)
}

#[tokio::test(flavor = "multi_thread")]
async fn injected_credential_is_never_echoed_to_the_client() {
    let upstream = Upstream::start_with(speaks()).await;
    let world = world(&upstream, false).await;
    for alpn in ["http/1.1", "h2"] {
        for (variant, wanted) in VARIANTS {
            let (status, reply) = seen(&world, &upstream, alpn, variant).await;
            let what = format!("{alpn} {variant}: {status} {reply}");
            assert!(status != StatusCode::BAD_GATEWAY && reply.contains(wanted), "{what}");
            assert!(!reply.to_lowercase().contains("4711") && !reply.contains("content-encoding"), "{what}");
            // No Base64 encoding of the middle of the value remains.
            let middle = "4711-inj";
            for offset in 0..3 {
                let coded = STANDARD.encode(format!("{}{middle}", "x".repeat(offset)));
                let inner = &coded[if offset == 0 { 0 } else { 4 }..8];
                assert!(!reply.replace("\r\n", "").contains(inner), "{inner} in {what}");
            }
            for part in ["34373131", "\\u0034\\u0037", "%2534%2537", "&#x34;&#x37;", "4\x007\0"] {
                assert!(!reply.contains(part), "{part} in {what}");
            }
        }
        let (_, reply) = seen(&world, &upstream, alpn, "encodings").await;
        assert!(reply.contains("Some(\"gzip;q=0.5\")"), "{reply}");
        let (status, reply) = seen(&world, &upstream, alpn, "br").await;
        assert!(status == StatusCode::BAD_GATEWAY && reply.contains("allow_echo"), "{status} {reply}");
    }
    let (_, reply) = seen(&world, &upstream, "h2", "trailers").await;
    assert!(reply.contains("x-echo: [redacted]") && reply.contains("see below"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_body_passes_whatever_its_coding() {
    let upstream = Upstream::start_with(speaks()).await;
    let world = world(&upstream, false).await;
    for alpn in ["http/1.1", "h2"] {
        for variant in ["empty-gzip", "empty-deflate", "empty-br"] {
            let (status, reply) = seen(&world, &upstream, alpn, variant).await;
            assert_eq!(status, StatusCode::OK, "{alpn} {variant}: {reply}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn allow_echo_passes_bodies_unchanged_and_redacts_headers() {
    let upstream = Upstream::start_with(speaks()).await;
    let world = world(&upstream, true).await;
    let (status, reply) = seen(&world, &upstream, "h2", "range").await;
    assert!(status == StatusCode::PARTIAL_CONTENT && reply.ends_with("4711-injected."), "{reply}");
    let (_, reply) = seen(&world, &upstream, "http/1.1", "header").await;
    assert!(reply.contains("[redacted]"), "headers never have it: {reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_reaches_the_client_although_its_end_may_begin_the_value() {
    let upstream = Upstream::start_with(speaks()).await;
    let world = world(&upstream, false).await;
    let target = format!("localhost:{}", upstream.address.port());
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (mut sender, _) = http2(stream).await;
    let response = sender.send_request(get(&format!("https://{target}/echo/pause"))).await.unwrap();
    let (mut body, mut reply) = (response.into_body(), Vec::new());
    while reply != b"which name? c" {
        let frame = tokio::time::timeout(TIMEOUT, body.frame()).await.expect("all of the question");
        reply.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn injected_credential_is_masked_in_websocket_frames() {
    // The server echoes frames in upper case.
    let upstream = Upstream::start_with(Speaks { alpn: &["http/1.1"], ..speaks() }).await;
    let world = world(&upstream, false).await;
    let target = format!("localhost:{}", upstream.address.port());
    let mut stream = world.tls(&Client::of(&world.root, "http/1.1"), &target, "localhost").await.unwrap();
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {target}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    testbed::write_and_flush(&mut stream, request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    for (sent, wanted) in [("hello", "HELLO".to_owned()), (CANARY, "*".repeat(CANARY.len()))] {
        write_frame(&mut stream, TEXT, sent.as_bytes(), Some(MASK)).await.unwrap();
        let (_, payload) = read_frame(&mut stream).await.unwrap();
        assert_eq!(String::from_utf8(payload).unwrap(), wanted);
    }
}
