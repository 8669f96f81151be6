//! WebSockets that are asked for by HTTP/2 (RFC 8441), of an upstream that has them by HTTP/1.1.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::world::{AnyBody, Client, Http2, PATIENCE, Upstream, World, answer, get, http2};

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
const MASK: [u8; 4] = [7, 11, 13, 17];

/// What an upstream answers below `/ws`: it says frames again in capitals, to the end.
pub(crate) fn upgraded(mut request: Request<Incoming>) -> Response<AnyBody> {
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let is_asked = header("upgrade").as_deref() == Some("websocket")
        && header("sec-websocket-version").as_deref() == Some("13")
        && request.method() == "GET";
    let Some(key) = header("sec-websocket-key").filter(|_| is_asked) else {
        return Response::new(Full::new(Bytes::from_static(b"no WebSocket")).boxed_unsync());
    };
    let key = if request.uri().path() == "/ws-deaf" { String::new() } else { key };
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()));
    tokio::spawn(async move {
        let Ok(stream) = hyper::upgrade::on(&mut request).await else { return };
        let mut stream = TokioIo::new(stream);
        while let Some((kind, payload)) = read_frame(&mut stream).await {
            let said = payload.to_ascii_uppercase();
            let _ = write_frame(&mut stream, kind, &said, None).await;
            if kind == CLOSE {
                let _ = stream.shutdown().await;
                return;
            }
        }
    });
    Response::builder()
        .status(101)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", accept)
        .header("sec-websocket-protocol", "chat")
        .body(Full::<Bytes>::default().boxed_unsync())
        .unwrap()
}

/// A frame of less than 126 octets (RFC 6455 section 5.2).
async fn write_frame(
    stream: &mut (impl AsyncWrite + Unpin),
    kind: u8,
    payload: &[u8],
    mask: Option<[u8; 4]>,
) -> std::io::Result<()> {
    let mut frame = vec![FINAL | kind, payload.len() as u8 | if mask.is_some() { MASKED } else { 0 }];
    frame.extend(mask.iter().flatten());
    let mask = mask.unwrap_or_default();
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(octet, mask)| octet ^ mask));
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// One, unmasked; none at the end.
async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await.ok()? & 0xf;
    let length = stream.read_u8().await.ok()?;
    let mut mask = [0; 4];
    if length & MASKED != 0 {
        stream.read_exact(&mut mask).await.ok()?;
    }
    let mut payload = vec![0; (length & 0x7f).into()];
    stream.read_exact(&mut payload).await.ok()?;
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(octet, mask)| *octet ^= mask);
    Some((kind, payload))
}

fn asking(url: &str, protocol: &'static str) -> Request<AnyBody> {
    Request::connect(url)
        .extension(Protocol::from_static(protocol))
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat")
        .body(Full::<Bytes>::default().boxed_unsync())
        .unwrap()
}

async fn asked(sender: &Http2, request: Request<AnyBody>) -> Response<Incoming> {
    let mut sender = sender.clone();
    tokio::time::timeout(PATIENCE, sender.send_request(request)).await.expect("an answer").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_go_to_and_fro_beside_other_requests_of_the_connection() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    let url = |path: &str| format!("https://{target}{path}");
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, _connection) = http2(stream).await;
    // The proxy's settings have come with it.
    let (status, said) = answer(&sender, get(&url("/"))).await;
    assert!(status == 200 && said.contains("HTTP/2"), "{said}");
    let response = asked(&sender, asking(&url("/ws"), "websocket")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
    assert!(!response.headers().contains_key("sec-websocket-accept"), "{:?}", response.headers());
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    for word in ["one", "two", "three"] {
        write_frame(&mut stream, TEXT, word.as_bytes(), Some(MASK)).await.unwrap();
        let frame = tokio::time::timeout(PATIENCE, read_frame(&mut stream)).await.expect("a frame");
        assert_eq!(frame, Some((TEXT, word.to_uppercase().into_bytes())));
        assert_eq!(answer(&sender, get(&url("/beside"))).await.0, 200, "others are not kept waiting");
    }
    write_frame(&mut stream, CLOSE, &[], Some(MASK)).await.unwrap();
    let frame = tokio::time::timeout(PATIENCE, read_frame(&mut stream)).await.expect("a frame");
    assert_eq!(frame, Some((CLOSE, Vec::new())));
    let end = tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("an end");
    assert!(end.is_err(), "the server has ended it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_websocket_is_not_said_to_be_one() {
    let upstream = Upstream::start("localhost").await;
    let world = World::new(&upstream.root, |_| {}).await;
    let target = format!("localhost:{}", upstream.address.port());
    let stream = world.tls(&Client::of(&world.root, "h2"), &target, "localhost").await.unwrap();
    let (sender, _connection) = http2(stream).await;
    assert_eq!(answer(&sender, get(&format!("https://{target}/"))).await.0, 200);
    for (path, protocol, status) in [
        ("/", "websocket", 502),        // answered 200, by which a client would take it for one
        ("/ws-deaf", "websocket", 502), // the wrong key's digest
        ("/ws", "connect-udp", 405),
    ] {
        let (told, said) = answer(&sender, asking(&format!("https://{target}{path}"), protocol)).await;
        assert_eq!(told, status, "{path} {protocol}: {said}");
    }
}
