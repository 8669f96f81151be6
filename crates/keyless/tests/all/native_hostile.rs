//! Abuse of the native protocol by a malicious peer.

use std::sync::atomic::Ordering;

use futures_util::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use keyless::native::Client;
use keyless::server::Options;
use keys::KeyType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tonic::Code;

use crate::native::{EC, patient, request};
use crate::peer::{Gated, TIMEOUT, World, key, until};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Returns a frame of HTTP/2 (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns the start of a call: POST, http, a path (HPACK, RFC 7541 appendix A).
fn headers(stream: u32) -> Vec<u8> {
    let path = b"/bulla.keys.v1.KeyService/Sign";
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path);
    block.extend([0x01, 0x01, b'k']);
    frame(1, 0x4, stream, &block)
}

/// Returns whether the service closes the connection after receiving these bytes.
async fn is_ended_by(world: &World, bytes: &[u8]) -> bool {
    let mut stream = UnixStream::connect(world.native_path()).await.unwrap();
    let sent = stream.write_all(bytes).await;
    let reading = async {
        let mut sink = [0; 4096];
        while stream.read(&mut sink).await.is_ok_and(|count| count > 0) {}
    };
    sent.is_err() || tokio::time::timeout(TIMEOUT, reading).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_or_abusive_http2_closes_only_its_own_connection() {
    let world = World::new().await;
    let honest = Client::socket(world.native_path());
    let settings = frame(4, 0, 0, &[]);
    let begun = [PREFACE, &settings].concat();
    let resets: Vec<u8> = (0..2_000)
        .flat_map(|call| {
            let stream = 2 * call + 1;
            [headers(stream), frame(3, 0, stream, &8_u32.to_be_bytes())].concat()
        })
        .collect();
    // A header bomb: endless header fields.
    let mut endless = [begun.clone(), frame(1, 0, 1, &[0x83, 0x86, 0x04, 0x01, b'/'])].concat();
    for _ in 0..64 {
        let field = [&[0x00, 0x01, b'x', 0x7f, 0x81, 0x7d][..], &[b'a'; 16_128]].concat();
        endless.extend(frame(9, 0, 1, &field));
    }
    for (bytes, what) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "HTTP/1.1"),
        (vec![0xff; 100_000], "noise"),
        ([&begun[..], &frame(0, 0, 0, &[0; 10])].concat(), "data without a stream"),
        ([&begun[..], &resets].concat(), "a rapid reset"),
        (endless, "endless header fields"),
    ] {
        assert!(is_ended_by(&world, &bytes).await, "{what}");
        let made = honest.sign(request(0, key(KeyType::P256), EC, &[1; 32]), patient()).await;
        assert!(made.is_ok(), "after {what}");
    }
    until(|| world.figure("bulla_keyless_connections") == 1.0).await;
    world.running.stop().await;
}

/// Frames that are cheap to send and require a reply each. The sender never reads the replies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frame_flood_does_not_block_other_clients() {
    let world = World::new().await;
    let honest = Client::socket(world.native_path());
    for (kind, payload) in [(4, &[0, 4, 0, 1, 0, 0][..]), (6, &[7; 8])] {
        let mut stream = UnixStream::connect(world.native_path()).await.unwrap();
        stream.write_all(&[PREFACE, &frame(4, 0, 0, &[])].concat()).await.unwrap();
        let flood = frame(kind, 0, 0, payload).repeat(10_000);
        // Until the service stops reading or closes the connection.
        let pushing = async { while stream.write_all(&flood).await.is_ok() {} };
        let honest_calls = async {
            for _ in 0..20 {
                honest.sign(request(0, key(KeyType::P256), EC, &[1; 32]), patient()).await.unwrap();
            }
        };
        tokio::select! {
            () = async { pushing.await; std::future::pending().await } => {}
            () = honest_calls => {}
        }
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_message_is_rejected() {
    let world = World::new().await;
    let client = Client::socket(world.native_path());
    let long = request(0, key(KeyType::Ed25519), keys::Scheme::Ed25519, &vec![0; 2 << 20]);
    let status = client.sign(long, patient()).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connection_is_closed_after_the_idle_timeout() {
    let options = Options { idle: std::time::Duration::from_millis(200), ..Options::default() };
    let world = World::with(options, Vec::new()).await;
    assert!(is_ended_by(&world, PREFACE).await);
    assert!(is_ended_by(&world, b"").await);
    let ended = "bulla_keyless_connection_ends_total{kind=\"idle\"}";
    until(|| world.figures().contains(ended) && world.figure(ended) >= 1.0).await;
    world.running.stop().await;
}

/// Messages that stay incomplete: their memory is limited per connection, and their lifetime by a timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_for_incomplete_messages_is_bounded() {
    let options = Options { idle: std::time::Duration::from_secs(6), ..Options::default() };
    let world = World::with(options, Vec::new()).await;
    let stream = TokioIo::new(UnixStream::connect(world.native_path()).await.unwrap());
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    // Each call announces 1 MiB, sends most of it, and stops.
    let half = [&[0][..], &(1_u32 << 20).to_be_bytes(), &[0; 900_000]].concat();
    let call = |path: &'static str| {
        let mut sender = sender.clone();
        let chunk = Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(half.clone())));
        let body = StreamBody::new(stream::iter([chunk]).chain(stream::pending()));
        let request = http::Request::post(format!("http://k/bulla.keys.v1.KeyService/{path}"))
            .header("content-type", "application/grpc");
        let request = request.body(body).unwrap();
        async move {
            let answer = sender.send_request(request).await.unwrap();
            answer.headers()["grpc-status"].to_str().unwrap().parse::<i32>().unwrap()
        }
    };
    let calls = futures_util::future::join_all((0..7).map(|_| call("Sign")));
    let ended = tokio::time::timeout(TIMEOUT, calls).await.unwrap();
    let count = |code: Code| ended.iter().filter(|status| **status == code as i32).count();
    assert!(count(Code::ResourceExhausted) >= 1, "{ended:?}");
    assert_eq!(count(Code::ResourceExhausted) + count(Code::DeadlineExceeded), 7, "{ended:?}");
    // The memory is released: another message fits.
    let retried = tokio::time::timeout(TIMEOUT, call("SignBatch")).await.unwrap();
    assert_eq!(retried, Code::DeadlineExceeded as i32);
    world.running.stop().await;
}

/// While replies are not read, the connection's streams accept no more requests, and continue once the replies are read. Each
/// stream has its requests in flight before the first reply is ready, because it would block itself earlier otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_replies_are_bounded_by_backpressure() {
    const STREAMS: usize = 80;
    const REQUESTS: usize = 2_000;
    // 61,000 waiting replies, and about 800 in transit on each stream.
    const TAKEN_MAX: usize = 130_000;
    let options = Options { deadline: TIMEOUT, ..Options::default() };
    let world = World::with(options, Vec::new()).await;
    let client = world.native();
    let (mut streams, mut taken) = (Vec::new(), 0);
    for number in 0..STREAMS {
        let (slow, open) = Gated::new(KeyType::P256);
        world.keys.put(&format!("slow-{number}"), vec![slow.clone()]);
        let requests = stream::iter(vec![request(0, &*slow, EC, &[1; 32]); REQUESTS]);
        streams.push(client.sign_stream(requests, patient()).await.unwrap());
        let requested = || slow.requested.load(Ordering::Relaxed);
        let (mut before, mut unchanged_polls) = (0, 0);
        while requested() < REQUESTS && unchanged_polls < 10 {
            unchanged_polls = if requested() == before { unchanged_polls + 1 } else { 0 };
            before = requested();
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let so_far = requested();
        open.send_replace(true);
        until(|| slow.signed.load(Ordering::Relaxed) >= so_far).await;
        taken += so_far;
    }
    assert!((STREAMS..TAKEN_MAX).contains(&taken), "{taken} of {}", STREAMS * REQUESTS);
    let read = streams.into_iter().map(|replies| replies.count());
    let counts = tokio::time::timeout(TIMEOUT * 2, futures_util::future::join_all(read)).await.unwrap();
    assert_eq!(counts, [REQUESTS; STREAMS]);
    world.running.stop().await;
}
