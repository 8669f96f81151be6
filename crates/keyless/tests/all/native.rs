//! The native protocol: signatures, errors, deadlines, cancellation, traces.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use keyless::native::proto::{ListKeysRequest, SignRequest, sign_request::Key as Name};
use keyless::native::{CallOptions, Client, TraceParent, proto_scheme, signature};
use keyless::server::{BATCH_MAX, Options};
use keyless::wire::MessageItems;
use keys::{Hash, KeyRef, KeyType, Scheme, Signer};
use rustls::version::{TLS12, TLS13};
use tokio::sync::mpsc;
use tonic::Code;
use x509::SpkiHash;

use crate::certificates::{CLIENT_AUTH, SERVER_AUTH};
use crate::peer::{Gated, TIMEOUT, World, key, keys, openssl_verifies, ski, until};

/// Returns a deadline that expires only on a fault.
pub(crate) fn patient() -> CallOptions {
    CallOptions::within(TIMEOUT)
}

pub(crate) fn request(id: u64, key: &dyn Signer, scheme: Scheme, input: &[u8]) -> SignRequest {
    SignRequest {
        id,
        key: Some(Name::Ski(ski(key).0.to_vec())),
        scheme: proto_scheme(scheme).into(),
        input: input.to_vec(),
        ..SignRequest::default()
    }
}

pub(crate) const EC: Scheme = Scheme::Ecdsa(Hash::Sha256);

fn schemes() -> Vec<Scheme> {
    let mut all = vec![Scheme::Ed25519];
    for hash in Hash::ALL {
        all.extend([Scheme::RsaPkcs1(hash), Scheme::Ecdsa(hash)]);
    }
    all.extend([Hash::Sha256, Hash::Sha384, Hash::Sha512].map(Scheme::RsaPss));
    all
}

fn octets(scheme: Scheme) -> usize {
    match scheme {
        Scheme::RsaPkcs1(hash) | Scheme::RsaPss(hash) | Scheme::Ecdsa(hash) => hash.octets(),
        Scheme::Ed25519 => 100,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scheme_and_key_type_verifies_with_openssl() {
    let world = World::new().await;
    let client = world.native();
    let mut verified = 0;
    for key in keys() {
        let requests: Vec<SignRequest> =
            schemes().iter().map(|scheme| request(7, key, *scheme, &vec![9; octets(*scheme)])).collect();
        let replies = client.sign_batch(requests, patient()).await.unwrap();
        assert_eq!(replies.len(), schemes().len());
        for (scheme, reply) in schemes().into_iter().zip(replies) {
            let input = vec![9; octets(scheme)];
            let kind = key.key_type();
            let code = reply.as_ref().err().map(tonic::Status::code);
            if scheme.check(kind, input.len()).is_err() {
                assert_eq!(code, Some(Code::InvalidArgument), "{kind} {scheme:?}");
                continue;
            }
            match reply {
                Ok(signature) => {
                    assert!(openssl_verifies(key.spki(), scheme, &input, &signature), "{kind} {scheme:?}");
                    verified += 1;
                }
                // AWS-LC does not sign with these schemes and RSA.
                Err(status) => {
                    let weak = Hash::Md5Sha1.octets().min(input.len()) == input.len();
                    assert!(weak && kind.rsa_bits().is_some(), "{kind} {scheme:?}: {status}");
                    assert_eq!(status.code(), Code::Internal, "{kind} {scheme:?}: {status}");
                }
            }
        }
    }
    assert_eq!(verified, 3 * 6 + 3 * 6 + 1);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_is_found_by_ski_or_spki_hash_over_tls_and_socket() {
    let world = World::new().await;
    let p256 = key(KeyType::P256);
    let by_hash = SignRequest {
        key: Some(Name::SpkiSha256(SpkiHash::of(p256.spki()).as_bytes().to_vec())),
        ..request(0, p256, EC, &[1; 32])
    };
    let tls12 = world.native_with(Some(&world.client_ca.leaf(&[CLIENT_AUTH])), &TLS12);
    for client in [world.native(), tls12, Client::socket(world.native_path())] {
        for request in [request(0, p256, EC, &[1; 32]), by_hash.clone()] {
            let signature = client.sign(request, patient()).await.unwrap();
            assert!(openssl_verifies(p256.spki(), EC, &[1; 32], &signature));
        }
    }
    // Identities that the other protocol rejects are rejected by this one as well.
    for identity in
        [None, Some(world.client_ca.leaf(&[SERVER_AUTH])), Some(world.server_ca.leaf(&[CLIENT_AUTH]))]
    {
        let client = world.native_with(identity.as_ref(), &TLS13);
        let status = client.sign(request(0, p256, EC, &[1; 32]), patient()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("cannot be reached"), "{status}");
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_requests_are_rejected_before_the_key_is_used() {
    let (elsewhere, open) = Gated::new(KeyType::P256);
    open.send_replace(true);
    let world = World::with(Options::default(), vec![elsewhere.clone() as KeyRef]).await;
    let client = world.native();
    let good = request(0, &*elsewhere, EC, &[1; 32]);
    let with = |change: fn(&mut SignRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    for (request, code, says) in [
        (with(|r| r.input.truncate(31)), Code::InvalidArgument, "31 bytes to sign, 32 expected"),
        (with(|r| r.input.push(0)), Code::InvalidArgument, "33 bytes"),
        (with(|r| r.input = vec![0; 65_533]), Code::InvalidArgument, "at most 65532"),
        (with(|r| r.scheme = 0), Code::InvalidArgument, "unknown signature scheme"),
        (with(|r| r.scheme = 99), Code::InvalidArgument, "unknown signature scheme"),
        (with(|r| r.scheme = 1), Code::InvalidArgument, "p256"),
        (with(|r| r.scheme = 10), Code::InvalidArgument, "p256"),
        (with(|r| r.key = None), Code::InvalidArgument, "no key is specified: give its SKI (20 bytes)"),
        (
            with(|r| r.key = Some(Name::Ski(vec![1; 19]))),
            Code::InvalidArgument,
            "no key is specified: give its SKI (20 bytes)",
        ),
        (
            with(|r| r.key = Some(Name::SpkiSha256(vec![1; 20]))),
            Code::InvalidArgument,
            "no key is specified: give its SKI (20 bytes)",
        ),
        (
            with(|r| r.key = Some(Name::Ski(vec![1; 20]))),
            Code::NotFound,
            "unknown key, or the client is not allowed to",
        ),
        (
            with(|r| r.key = Some(Name::SpkiSha256(vec![1; 32]))),
            Code::NotFound,
            "unknown key, or the client is not allowed to",
        ),
    ] {
        let status = client.sign(request.clone(), patient()).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(says), "{status}");
        // The same request as one of a batch.
        let mut both = client.sign_batch(vec![request, good.clone()], patient()).await.unwrap();
        assert!(both.pop().unwrap().is_ok());
        assert_eq!(both.pop().unwrap().unwrap_err().code(), code);
        assert_eq!(elsewhere.requested.swap(0, Ordering::Relaxed), 1, "{says}: for the good one alone");
    }
    let many = vec![good.clone(); BATCH_MAX + 1];
    assert_eq!(client.sign_batch(many, patient()).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(client.sign_batch(Vec::new(), patient()).await.unwrap().len(), 0);
    assert_eq!(elsewhere.requested.load(Ordering::Relaxed), 0);
    let counted = "bulla_keyless_errors_total{opcode=\"ecdsa-sha256\",error=\"invalid-argument\"}";
    assert!(world.figure(counted) >= 6.0);
    world.running.stop().await;
}

/// Returns a stream of requests and its sender.
fn channel() -> (mpsc::UnboundedSender<SignRequest>, impl futures_util::Stream<Item = SignRequest>) {
    let (send, mut receive) = mpsc::unbounded_channel();
    (send, stream::poll_fn(move |context| receive.poll_recv(context)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_replies_arrive_out_of_order_with_matching_ids() {
    let (slow, open) = Gated::new(KeyType::P256);
    let world = World::with(Options { deadline: TIMEOUT, ..Options::default() }, vec![slow.clone()]).await;
    let (send, requests) = channel();
    let mut replies = world.native().sign_stream(requests, patient()).await.unwrap();
    let fast = key(KeyType::Ed25519);
    send.send(request(1, &*slow, EC, &[1; 32])).unwrap();
    for id in 2..500 {
        send.send(request(id, fast, Scheme::Ed25519, &[id as u8; 40])).unwrap();
    }
    send.send(request(500, fast, EC, &[1; 32])).unwrap();
    let mut seen = Vec::new();
    while seen.len() < 499 {
        let reply = replies.next().await.unwrap().unwrap();
        seen.push(reply.id);
        match reply.id {
            500 => assert_eq!(signature(reply).unwrap_err().code(), Code::InvalidArgument),
            id => {
                let made = signature(reply).unwrap();
                // Ed25519 is deterministic: each reply has the signature over its own input.
                assert_eq!(made, fast.sign_digest_now(Scheme::Ed25519, &[id as u8; 40]).unwrap());
            }
        }
    }
    assert!(!seen.contains(&1), "the slow one waits for nobody and nobody for it");
    open.send_replace(true);
    assert_eq!(replies.next().await.unwrap().unwrap().id, 1);
    // The deadline of one item.
    open.send_replace(false);
    send.send(SignRequest { timeout_ms: 50, ..request(2, &*slow, EC, &[1; 32]) }).unwrap();
    let reply = replies.next().await.unwrap().unwrap();
    assert_eq!((reply.id, signature(reply).unwrap_err().code()), (2, Code::DeadlineExceeded));
    drop(send);
    assert!(replies.next().await.is_none(), "all is answered");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_past_their_deadline_are_not_signed() {
    let (slow, open) = Gated::new(KeyType::P256);
    let world = World::with(Options { deadline: TIMEOUT, ..Options::default() }, vec![slow.clone()]).await;
    let client = world.native();
    let requested = request(0, &*slow, EC, &[1; 32]);
    let short = || CallOptions::within(Duration::from_millis(100));
    let status = client.sign(requested.clone(), short()).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    // The error names the party whose deadline expired. Without a deadline of the client, it is the service's.
    let (send, requests) = channel();
    let mut replies = client.sign_stream(requests, patient()).await.unwrap();
    send.send(SignRequest { timeout_ms: 100, ..requested.clone() }).unwrap();
    let late = signature(replies.next().await.unwrap().unwrap()).unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert!(late.message().contains("in the key service"), "{late}");
    until(|| world.figure("bulla_keyless_requests_in_flight{opcode=\"ecdsa-sha256\"}") == 0.0).await;
    open.send_replace(true);
    assert!(client.sign(requested, patient()).await.is_ok());
    assert_eq!(slow.signed.load(Ordering::Relaxed), 1, "the last one alone");
    // A deadline that has already passed.
    let past = CallOptions::until(std::time::Instant::now());
    assert!(client.sign(request(0, key(KeyType::P256), EC, &[1; 32]), past).await.is_err());
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_requests_are_not_signed() {
    const MANY: usize = 1_000;
    let (slow, open) = Gated::new(KeyType::P256);
    let options = Options { deadline: TIMEOUT, processors: 1, ..Options::default() };
    let world = World::with(options, vec![slow.clone() as KeyRef]).await;
    let client = world.native();
    let under_way = "bulla_keyless_requests_in_flight{opcode=\"ecdsa-sha256\"}";
    // Each request is a separate call, with a remote key.
    let calls: Vec<_> = (0..MANY)
        .map(|id| {
            let (client, requested) = (client.clone(), request(id as u64, &*slow, EC, &[1; 32]));
            tokio::spawn(async move { client.sign(requested, patient()).await })
        })
        .collect();
    until(|| world.figure(under_way) == MANY as f64).await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    until(|| world.figure(under_way) == 0.0).await;
    open.send_replace(true);
    assert!(client.sign(request(0, &*slow, EC, &[1; 32]), patient()).await.is_ok());
    assert_eq!(slow.signed.load(Ordering::Relaxed), 1);

    // As many requests as one stream may queue in the stage. 500 of them take a second. If a stall of this machine lets the stage
    // end first, another stream is cancelled.
    let taken = || world.figure("bulla_keyless_tenant_requests_total{tenant=\"default\"}");
    let waiting = "bulla_keyless_stage_waiting{cost=\"heavy\"}";
    let jobs = |outcome| {
        world.figure(&format!("bulla_keyless_stage_jobs_total{{cost=\"heavy\",outcome=\"{outcome}\"}}"))
    };
    let (began, mut sent) = (std::time::Instant::now(), 0.0);
    while jobs("unwanted") == 0.0 {
        assert!(began.elapsed() < TIMEOUT, "{}", world.figures());
        let (send, requests) = channel();
        let mut replies = client.sign_stream(requests, patient()).await.unwrap();
        let before = taken();
        for id in 0..500 {
            let scheme = Scheme::RsaPss(Hash::Sha256);
            send.send(request(id, key(KeyType::Rsa4096), scheme, &[1; 32])).unwrap();
        }
        sent += 500.0;
        until(|| taken() == before + 500.0).await;
        replies.next().await.unwrap().unwrap();
        drop((replies, send));
        until(|| world.figure(waiting) == 0.0 && jobs("done") + jobs("unwanted") == sent).await;
    }
    until(|| world.figure("bulla_keyless_tenant_requests_in_flight{tenant=\"default\"}") == 0.0).await;
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_listed_in_pages() {
    let world = World::new().await;
    let client = world.native();
    let (mut found, mut page_token) = (Vec::new(), Vec::new());
    loop {
        let page = ListKeysRequest { page_size: 3, page_token };
        let reply = client.list_keys(page, patient()).await.unwrap();
        assert!(reply.keys.len() <= 3);
        found.extend(reply.keys);
        page_token = reply.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let mut wanted: Vec<_> = keys().iter().map(|key| (ski(key).0.to_vec(), key.key_type().name())).collect();
    wanted.sort();
    let listed: Vec<_> = found.iter().map(|key| (key.ski.clone(), key.kind.as_str())).collect();
    assert_eq!(listed, wanted);
    assert!(found.iter().all(|key| key.spki_sha256 == SpkiHash::of(&key.public_key).as_bytes()));
    let odd = ListKeysRequest { page_size: 3, page_token: vec![1] };
    assert_eq!(client.list_keys(odd, patient()).await.unwrap_err().code(), Code::InvalidArgument);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticket_sealed_by_one_protocol_opens_with_the_other() {
    let world = World::new().await;
    let client = world.native();
    let sealed = client.seal(b"session".to_vec(), patient()).await.unwrap();
    assert_eq!(client.unseal(sealed.clone(), patient()).await.unwrap(), b"session");
    let mut peer = world.connect().await;
    let items = MessageItems { opcode: 0x22, payload: &sealed, ..MessageItems::default() };
    assert_eq!(peer.call(&items).await.payload, b"session");
    let mut other = sealed.clone();
    *other.last_mut().unwrap() ^= 1;
    assert_eq!(client.unseal(other, patient()).await.unwrap_err().code(), Code::InvalidArgument);
    let retired = [&[0; 8][..], &sealed[8..]].concat();
    assert_eq!(client.unseal(retired, patient()).await.unwrap_err().code(), Code::FailedPrecondition);
    let longest = client.seal(vec![7; 65_496], patient()).await.unwrap();
    assert_eq!(client.unseal(longest, patient()).await.unwrap(), vec![7; 65_496]);
    let long = client.seal(vec![0; 65_497], patient()).await.unwrap_err();
    assert_eq!(long.code(), Code::InvalidArgument, "{long}");
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_answers_requests_in_flight_and_ends_streams() {
    let (slow, open) = Gated::new(KeyType::P256);
    let world = World::with(Options { deadline: TIMEOUT, ..Options::default() }, vec![slow.clone()]).await;
    let client = world.native();
    let (send, requests) = channel();
    let mut replies = client.sign_stream(requests, patient()).await.unwrap();
    send.send(request(1, &*slow, EC, &[1; 32])).unwrap();
    let requested = tokio::spawn({
        let (client, request) = (client.clone(), request(2, &*slow, EC, &[1; 32]));
        async move { client.sign(request, patient()).await }
    });
    until(|| world.figure("bulla_keyless_requests_in_flight{opcode=\"ecdsa-sha256\"}") == 2.0).await;
    let (path, World { running, folder, .. }) = (world.native_path(), world);
    let stopping = tokio::spawn(running.stop());
    open.send_replace(true);
    assert!(requested.await.unwrap().is_ok());
    assert_eq!(replies.next().await.unwrap().unwrap().id, 1);
    assert!(replies.next().await.is_none(), "nothing more is taken");
    assert!(tokio::time::timeout(TIMEOUT, stopping).await.unwrap().unwrap(), "nothing was cut off");
    assert!(!path.exists());
    drop((folder, send));
}

/// The captured log.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures all log output of this thread from now on. Spans are logged at their end.
    pub(crate) fn of_this_thread() -> (Self, tracing::subscriber::DefaultGuard) {
        // With a single subscriber, tracing caches each call site's interest from the thread that reaches it first. That thread may
        // belong to another test without a subscriber. With two subscribers, each is consulted.
        static OTHER: OnceLock<tracing::Dispatch> = OnceLock::new();
        OTHER.get_or_init(|| tracing::Dispatch::new(tracing_subscriber::registry()));
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_span_events(tracing_subscriber::fmt::format::FmtSpan::CLOSE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(octets)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs on one thread, so that one subscriber captures everything.
#[tokio::test]
async fn trace_context_of_the_client_is_logged_in_every_stage() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let (log, _default) = Log::of_this_thread();
    let world = World::new().await;
    let trace = TraceParent::parse(&format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let terms = CallOptions { trace, ..patient() };
    let client = Client::socket(world.native_path());
    client.sign(request(1, key(KeyType::P256), EC, &[1; 32]), terms).await.unwrap();
    // An item of a stream has its own trace context.
    let own = format!("00-{}-00f067aa0ba902b7-01", "a".repeat(32));
    let item = SignRequest { traceparent: own, ..request(2, key(KeyType::P256), EC, &[1; 32]) };
    let mut replies = client.sign_stream(stream::iter([item]), terms).await.unwrap();
    assert!(replies.next().await.unwrap().is_ok());
    world.running.stop().await;
    let text = log.text();
    let ski = ski(key(KeyType::P256)).to_string();
    for trace in [TRACE, &"a".repeat(32)] {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(trace)).collect();
        for stage in ["stage=\"queue\"", "stage=\"sign\"", "a request finished"] {
            let line = lines.iter().find(|line| line.contains(stage));
            let line = line.unwrap_or_else(|| panic!("no {stage} of {trace} in {text}"));
            for part in ["tenant=\"default\"", "opcode=\"ecdsa-sha256\"", &ski, "00f067aa0ba902b7"] {
                assert!(line.contains(part), "{part} is missing in {line}");
            }
        }
    }
}
