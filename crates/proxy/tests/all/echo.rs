//! WebSockets of a test upstream.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::world::AnyBody;

pub(crate) const TEXT: u8 = 1;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const FINAL: u8 = 0x80;
pub(crate) const MASKED: u8 = 0x80;
pub(crate) const MASK: [u8; 4] = [7, 11, 13, 17];

/// Responds to requests below `/ws`: echoes frames in upper case until the stream ends. `/ws-silent` sends nothing and never ends.
pub(crate) fn upgraded(request: Request<Incoming>) -> Response<AnyBody> {
    if request.extensions().get::<Protocol>().is_some_and(|protocol| protocol.as_str() == "websocket") {
        return by_connect(request);
    }
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let is_websocket_request = header("upgrade").as_deref() == Some("websocket")
        && header("sec-websocket-version").as_deref() == Some("13")
        && request.method() == "GET";
    let Some(key) = header("sec-websocket-key").filter(|_| is_websocket_request) else {
        return Response::new(Full::new(Bytes::from_static(b"no WebSocket")).boxed_unsync());
    };
    let is_silent = request.uri().path() == "/ws-silent";
    let key = if request.uri().path() == "/ws-deaf" { String::new() } else { key };
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()));
    tokio::spawn(echo(request, is_silent));
    Response::builder()
        .status(101)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", accept)
        .header("sec-websocket-protocol", "chat")
        .body(Full::<Bytes>::default().boxed_unsync())
        .unwrap()
}

/// The same over HTTP/2 (RFC 8441 section 5). `/ws-no` returns 403.
fn by_connect(request: Request<Incoming>) -> Response<AnyBody> {
    let has = |name: &str| request.headers().contains_key(name);
    let is_websocket_request = request.method() == Method::CONNECT
        && request.uri().scheme_str() == Some("https")
        && has("sec-websocket-version")
        && !["host", "connection", "upgrade", "sec-websocket-key"].iter().any(|name| has(name));
    let status = match request.uri().path() {
        _ if !is_websocket_request => 400,
        "/ws-no" => 403,
        _ => 200,
    };
    if status == 200 {
        let is_silent = request.uri().path() == "/ws-silent";
        tokio::spawn(echo(request, is_silent));
    }
    Response::builder()
        .status(status)
        .header("sec-websocket-protocol", "chat")
        .body(Full::<Bytes>::default().boxed_unsync())
        .unwrap()
}

async fn echo(mut request: Request<Incoming>, is_silent: bool) {
    let Ok(stream) = hyper::upgrade::on(&mut request).await else { return };
    let mut stream = TokioIo::new(stream);
    if is_silent {
        return std::future::pending().await;
    }
    while let Some((kind, payload)) = read_frame(&mut stream).await {
        let response = payload.to_ascii_uppercase();
        let _ = write_frame(&mut stream, kind, &response, None).await;
        if kind == CLOSE {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

/// Writes a frame of less than 126 bytes (RFC 6455 section 5.2).
pub(crate) async fn write_frame(
    stream: &mut (impl AsyncWrite + Unpin),
    kind: u8,
    payload: &[u8],
    mask: Option<[u8; 4]>,
) -> std::io::Result<()> {
    let mut frame = vec![FINAL | kind, payload.len() as u8 | if mask.is_some() { MASKED } else { 0 }];
    frame.extend(mask.iter().flatten());
    let mask = mask.unwrap_or_default();
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// Reads one frame and unmasks it. Returns `None` at the end of the stream.
pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await.ok()? & 0xf;
    let length = stream.read_u8().await.ok()?;
    let mut mask = [0; 4];
    if length & MASKED != 0 {
        stream.read_exact(&mut mask).await.ok()?;
    }
    let mut payload = vec![0; (length & 0x7f).into()];
    stream.read_exact(&mut payload).await.ok()?;
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Some((kind, payload))
}
