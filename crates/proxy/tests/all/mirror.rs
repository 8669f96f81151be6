//! Leaves that mirror the server's own certificate.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use http_relay::upstream::UpstreamPolicy;
use hyper::Request;
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use keys::{KeyType, Keyring, PrivateKey, Signer};
use proxy::certificate_store::{OutagePolicy, SecondLevel, SecondLevelOptions};
use proxy::mint::{LeafKeyKind, LeafKeys, MintError, Minter, MirrorTemplate, MirrorTemplateError, new_root};
use proxy::{Action, Options, ProxyMetrics, Rules};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use store::{Store, StoreUrl};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::client::TlsStream;
use x509::build::{self, CertificateSpec, Extension};
use x509::{Certificate, DistinguishedName, GeneralName, HostOrIp, KeyUsage, SerialNumber, UnixTime};

use crate::permission::{Behaviour, Judge};
use crate::world::{Client, TIMEOUT, World, authority, echo_service, exchange, leaf, now};

const DAY: i64 = 86_400;
/// Both HTTP versions.
const BOTH: [&str; 2] = ["h2", "http/1.1"];

/// A server and its certificate.
struct Server {
    address: SocketAddr,
    root: Vec<u8>,
    certificate: Certificate,
    connections: Arc<AtomicUsize>,
}

/// Contents of a server certificate.
struct Shown<'a> {
    subject: &'a str,
    names: Vec<GeneralName>,
    first: UnixTime,
    last: UnixTime,
}

fn shown(names: &[&str]) -> Shown<'static> {
    let names = names.iter().map(|name| GeneralName::parse(name).unwrap()).collect();
    Shown {
        subject: "CN=The Shop, O=Acme\\, Inc, C=DE",
        names,
        first: now().plus(-60),
        last: now().plus(90 * DAY),
    }
}

impl Server {
    async fn start(shown: Shown<'_>) -> Self {
        Self::speaking(shown, &BOTH).await
    }

    async fn speaking(shown: Shown<'_>, protocols: &[&str]) -> Self {
        let (root_key, key) =
            (PrivateKey::generate(KeyType::P256).unwrap(), PrivateKey::generate(KeyType::P256).unwrap());
        let root = new_root(&root_key, now()).unwrap();
        let subject = DistinguishedName::from_text(shown.subject).unwrap();
        let spec = CertificateSpec {
            serial: &SerialNumber::from_random([7; 16]),
            signature: root_key.algorithm(),
            issuer: &Certificate::parse(&root).unwrap().subject.der,
            subject: &subject.der,
            not_before: shown.first,
            not_after: shown.last,
            spki: key.spki(),
            extensions: &[
                Extension::subject_alt_names(&shown.names).critical(subject.is_empty()),
                Extension::key_usage(KeyUsage(KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_AGREEMENT)),
            ],
        };
        let tbs = build::tbs_certificate(&spec);
        let der = build::signed(&tbs, &spec.signature, &root_key.sign_now(&tbs).unwrap());
        let certificate = Certificate::parse(&der).unwrap();
        let pkcs8 = key.to_pkcs8_der();
        let signing =
            any_supported_type(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.as_slice()))).unwrap();
        let certified = CertifiedKey::new(vec![CertificateDer::from(der)], signing);
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = protocols.iter().map(|one| one.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let accepting = acceptor.accept(stream);
                tokio::spawn(async move {
                    let Ok(stream) = accepting.await else { return };
                    let http = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = http.serve_connection(TokioIo::new(stream), service_fn(echo_service)).await;
                });
            }
        });
        Self { address, root, certificate, connections }
    }

    fn made(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn target(&self) -> String {
        self.address.to_string()
    }

    async fn proxy(&self) -> World {
        self.proxy_with(|_| {}).await
    }

    async fn proxy_with(&self, change: impl FnOnce(&mut Options)) -> World {
        World::new(&self.root, |options| {
            options.rules = Rules::new(Action::Mirror);
            change(options);
        })
        .await
    }
}

async fn get(stream: &mut TlsStream<TcpStream>, host: &str) -> String {
    exchange(stream, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await
}

fn is_usual(leaf: &Certificate, name: &str) {
    assert_eq!(leaf.subject_alt_names, [GeneralName::parse(name).unwrap()]);
    assert_eq!(leaf.subject.text, format!("CN={name}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrored_leaf_copies_subject_names_and_validity() {
    let names = ["shop.example", "*.shop.example", "10.1.2.3", "2001:db8::1", "me@shop.example", "127.0.0.1"];
    let server = Server::start(Shown { last: now().plus(2 * DAY), ..shown(&names) }).await;
    let world = server.proxy().await;
    let client = Client::fresh(&world.root);
    let mut stream = world.tls(&client, &server.target(), "shop.example").await.unwrap();
    let (own, theirs) = (leaf(&stream), &server.certificate);
    assert_eq!(own.subject, theirs.subject);
    assert_eq!(own.subject.organization.as_deref(), Some("Acme, Inc"));
    let of_hosts = names.iter().filter(|name| !name.contains('@'));
    let of_hosts: Vec<GeneralName> = of_hosts.map(|name| GeneralName::parse(name).unwrap()).collect();
    assert_eq!(own.subject_alt_names, of_hosts);
    // An ordinary leaf would start an hour ago and expire in a week.
    assert_eq!((own.not_before, own.not_after), (theirs.not_before, theirs.not_after));
    assert_eq!(own.key_usage, Some(KeyUsage(KeyUsage::DIGITAL_SIGNATURE)), "ours");
    assert!(
        own.serial != theirs.serial && own.public_key != theirs.public_key && own.issuer != theirs.issuer
    );
    assert!(own.faults.is_empty(), "{:?}", own.faults);
    let response = get(&mut stream, "shop.example").await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(server.made(), 1, "the connection that it was seen on serves the request");
    // A client that connects by address gets the same server certificate, and so the same leaf.
    let by_address = world.tls(&client, &server.target(), "127.0.0.1").await.unwrap();
    assert_eq!(leaf(&by_address).der, own.der);
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrored_leaf_validity_is_limited_to_the_leaf_validity() {
    let year =
        Shown { first: now().plus(-300 * DAY), last: now().plus(300 * DAY), ..shown(&["shop.example"]) };
    let server = Server::start(year).await;
    let week = Duration::from_secs(7 * DAY as u64);
    let world = server.proxy_with(|options| options.leaf_validity = week).await;
    let stream = world.tls(&Client::fresh(&world.root), &server.target(), "shop.example").await.unwrap();
    let own = leaf(&stream);
    let left = own.not_after.since(now());
    assert!((6 * DAY..=7 * DAY).contains(&left), "{left} s");
    assert!(own.not_after.since(own.not_before) <= 7 * DAY + 3_600, "{own:?}");
    assert_eq!(own.subject, server.certificate.subject);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_one_certificate_share_a_leaf_and_count_as_one_new_name() {
    let server = Server::start(shown(&["*.shop.example"])).await;
    let world =
        server.proxy_with(|options| (options.new_names_burst, options.new_names_per_minute) = (1, 1)).await;
    let client = Client::fresh(&world.root);
    let mut seen = HashSet::new();
    for name in ["a.shop.example", "b.shop.example", "c.shop.example"] {
        let mut stream = world.tls(&client, &server.target(), name).await.unwrap();
        seen.insert(leaf(&stream).der.to_vec());
        let response = get(&mut stream, name).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    assert_eq!((seen.len(), world.running.store().counts().minted), (1, 1));
    assert_eq!(world.running.store().counts().refused, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_certificate_probes_for_new_names_are_limited() {
    // The limits allow one new name and ten probes, and as many again each minute.
    const NAMES: usize = 200;
    let server = Server::start(shown(&["*.shop.example"])).await;
    let world =
        server.proxy_with(|options| (options.new_names_burst, options.new_names_per_minute) = (1, 1)).await;
    let client = Client::fresh(&world.root);
    let mut shown = 0;
    while world.tls(&client, &server.target(), &format!("host{shown}.shop.example")).await.is_ok() {
        shown += 1;
        assert!(shown < NAMES, "a client may have any number of servers looked at");
    }
    assert!(
        shown >= 10 && (10..=shown).contains(&server.made()),
        "{shown} shown, {} looked at",
        server.made()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_handshakes_share_one_probe_and_one_leaf() {
    const CLIENTS: usize = 32;
    let server = Server::start(shown(&["shop.example"])).await;
    let world = server.proxy().await;
    let client = Client::fresh(&world.root);
    let target = server.target();
    let all = (0..CLIENTS).map(|_| world.tls(&client, &target, "shop.example"));
    let streams = futures_util::future::join_all(all).await;
    let mut streams: Vec<_> = streams.into_iter().map(Result::unwrap).collect();
    let serials: HashSet<_> = streams.iter().map(|stream| leaf(stream).serial.content().to_vec()).collect();
    assert_eq!((serials.len(), server.made()), (1, 1));
    for stream in &mut streams {
        let response = get(stream, "shop.example").await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    let counts = world.running.store().counts();
    assert_eq!((counts.minted, counts.failed, counts.refused), (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_failure_returns_an_error_page_under_an_ordinary_leaf() {
    // A port that is bound and has no listener.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let silent_address = silent.local_addr().unwrap().to_string();
    let server = Server::start(shown(&["shop.example"])).await;
    let over = Shown { first: now().plus(-9 * DAY), last: now().plus(-DAY), ..shown(&["shop.example"]) };
    let over = Server::start(over).await;
    let cases = [
        (&server, "shop.example", silent_address, "connection_refused"),
        (&over, "shop.example", over.target(), "tls_certificate_error"),
        // Signed by another root.
        (&over, "shop.example", server.target(), "tls_certificate_error"),
        (&server, "other.example", server.target(), "tls_certificate_error"),
    ];
    for (believed, name, target, error) in cases {
        let world = believed.proxy().await;
        let mut stream = world.tls(&Client::fresh(&world.root), &target, name).await.unwrap();
        is_usual(&leaf(&stream), name);
        let response = get(&mut stream, name).await;
        assert!(
            response.starts_with("HTTP/1.1 502") && response.contains(&format!("error={error}")),
            "{response}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unverified_or_oversized_certificate_is_not_mirrored() {
    let server = Server::start(shown(&["shop.example", "bank.example"])).await;
    let unverified = server
        .proxy_with(|options| {
            let anybody = UpstreamPolicy { verify: false, ..UpstreamPolicy::default() };
            options.upstreams.add(&["shop.example".to_owned()], anybody).unwrap();
        })
        .await;
    let many: Vec<String> = (0..1_000).map(|number| format!("host{number}.shop.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).chain(["shop.example"]).collect();
    let crowded = Server::start(shown(&many)).await;
    for (world, target) in [(unverified, server.target()), (crowded.proxy().await, crowded.target())] {
        let mut stream = world.tls(&Client::fresh(&world.root), &target, "shop.example").await.unwrap();
        is_usual(&leaf(&stream), "shop.example");
        let response = get(&mut stream, "shop.example").await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
}

/// Returns a client that offers several ALPN protocols.
fn offering(root: &[u8], protocols: &[&str]) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(root.to_vec())).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|one| one.as_bytes().to_vec()).collect();
    Client(Arc::new(config).into())
}

#[tokio::test(flavor = "multi_thread")]
async fn negotiated_alpn_matches_the_server_protocol() {
    let old = Server::speaking(shown(&["shop.example"]), &["http/1.1"]).await;
    let world = old.proxy().await;
    let client = offering(&world.root, &BOTH);
    let mut stream = world.tls(&client, &old.target(), "shop.example").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let response = get(&mut stream, "shop.example").await;
    assert!(response.contains("HTTP/1.1\n"), "{response}");
    assert_eq!(old.made(), 1);
    // A client that supports only HTTP/2 is accepted.
    let stream = world.tls(&offering(&world.root, &["h2"]), &old.target(), "shop.example").await.unwrap();
    assert!(by_http2(stream).await.contains("/two HTTP/1.1\n"));

    let new = Server::start(shown(&["shop.example"])).await;
    let world = new.proxy().await;
    let client = offering(&world.root, &BOTH);
    let stream = world.tls(&client, &new.target(), "shop.example").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert!(by_http2(stream).await.contains("/two HTTP/2.0\n"));
    assert_eq!(new.made(), 1);
}

async fn by_http2(stream: TlsStream<TcpStream>) -> String {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("https://shop.example/two").body(Full::<Bytes>::default()).unwrap();
    let body = sender.send_request(request).await.unwrap().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn other_san_names_are_forwarded_unless_their_policy_differs() {
    let names = ["a.shop.example", "b.shop.example", "unseen.example", "bad.example", "own.example"];
    let server = Server::start(shown(&names)).await;
    let world = server
        .proxy_with(|options| {
            options.rules.add(&["unseen.example".to_owned()], Action::Tunnel).unwrap();
            options.rules.add(&["bad.example".to_owned()], Action::Reject).unwrap();
            options.upstreams.add(&["own.example".to_owned()], UpstreamPolicy::default()).unwrap();
        })
        .await;
    let mut stream =
        world.tls(&Client::fresh(&world.root), &server.target(), "a.shop.example").await.unwrap();
    let cases = [
        ("a.shop", 200),
        ("b.shop", 200),
        ("unseen", 421),
        ("bad", 403),
        ("own", 421),
        // The certificate does not contain this name.
        ("c.shop", 421),
        ("a.shop", 200),
    ];
    for (name, status) in cases {
        let response = get(&mut stream, &format!("{name}.example")).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{name}: {response}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_san_names_require_permission() {
    let server = Server::start(shown(&["a.shop.example", "b.shop.example", "c.shop.example"])).await;
    let judge = Judge::start_with(Behaviour::NoTo("domain=b.shop.example&")).await;
    let world = server.proxy_with(|options| options.permission = Some(judge.options())).await;
    let mut stream =
        world.tls(&Client::fresh(&world.root), &server.target(), "a.shop.example").await.unwrap();
    for (name, status) in [("a", 200), ("b", 421), ("c", 200), ("b", 421), ("a", 200)] {
        let response = get(&mut stream, &format!("{name}.shop.example")).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{name}: {response}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrored_leaf_is_reused_after_restart() {
    let server = Server::start(shown(&["*.shop.example"])).await;
    let folder = tempfile::tempdir().unwrap();
    let url = StoreUrl::sqlite(folder.path().join("leaves.db"));
    let (ring, (authority, root)) = (Arc::new(Keyring::ephemeral()), authority());
    let mut seen = HashSet::new();
    for (name, minted) in [("a.shop.example", 1), ("b.shop.example", 0)] {
        let level = SecondLevelOptions {
            when_away: OutagePolicy::Refuse,
            trip_timeout: TIMEOUT,
            lease: 2 * TIMEOUT,
            leaves_max: 1_000,
            is_shared: false,
        };
        let store = Store::open(&url).await.unwrap();
        let options = Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            upstream_roots: vec![server.root.clone()],
            rules: Rules::new(Action::Mirror),
            second_level: Some(SecondLevel::new(store, Arc::clone(&ring), level)),
            ..Options::default()
        };
        let running = proxy::start(options, authority.clone(), ProxyMetrics::default()).await.unwrap();
        let world = World { running, root: root.clone() };
        let stream = world.tls(&Client::fresh(&root), &server.target(), name).await.unwrap();
        assert_eq!(leaf(&stream).subject, server.certificate.subject);
        seen.insert(leaf(&stream).der.to_vec());
        drop(stream);
        let counts = world.running.store().counts();
        assert_eq!((counts.minted, counts.second.found), (minted, 1 - minted));
        assert!(world.running.stop(TIMEOUT).await);
    }
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn certificate_that_expires_or_has_other_names_is_not_mirrored() {
    let server =
        Server::start(Shown { last: now().plus(3_600), ..shown(&["shop.example", "*.b.example"]) }).await;
    let der = &server.certificate.der;
    let of = |name: &str, at: UnixTime| MirrorTemplate::of(der, &HostOrIp::parse(name).unwrap(), at);
    let template = of("x.b.example", now()).unwrap();
    assert_eq!(template, of("shop.example", now()).unwrap(), "the same for all its hosts");
    assert_eq!(template.first_name().to_string(), "shop.example");
    assert_eq!(of("b.example", now()), Err(MirrorTemplateError::OtherName));
    assert_eq!(of("10.0.0.1", now()), Err(MirrorTemplateError::OtherName));
    assert_eq!(of("shop.example", now().plus(3_590)), Err(MirrorTemplateError::Ends));
    assert_eq!(of("shop.example", now().plus(-DAY)), Err(MirrorTemplateError::Ends));
    let not_read = MirrorTemplate::of(b"no", &HostOrIp::parse("shop.example").unwrap(), now());
    assert!(matches!(not_read, Err(MirrorTemplateError::Unreadable(_))));
    let minter =
        Minter::new(authority().0, Arc::new(LeafKeys::new().unwrap()), Duration::from_secs(DAY as u64));
    let late = minter.mint_mirrored(&template, LeafKeyKind::P256, now().plus(3_590)).await;
    assert_eq!(late.unwrap_err(), MintError::MirroredEnds);
    let in_time = minter.mint_mirrored(&template, LeafKeyKind::P256, now()).await.unwrap();
    assert_eq!(in_time.not_after, server.certificate.not_after);
}
