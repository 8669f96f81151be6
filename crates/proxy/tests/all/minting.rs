//! Leaves for other servers: over HTTP, over secret discovery (SDS), and signed by an intermediate CA of the process.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::{TokioExecutor, TokioIo};
use keys::{KeyType, Keyring, PrivateKey, Signer};
use prost::Message;
use proxy::certificate_store::{SecondLevel, SecondLevelOptions};
use proxy::mint::{Authority, Intermediates, LeafKeyKind, LeafKeys, MintError, Minter, new_root};
use proxy::minting::sds::proto::secret_discovery_service_client::SecretDiscoveryServiceClient;
use proxy::minting::sds::proto::{
    Any, DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, Secret, Status,
};
use proxy::minting::sds::{TYPE_URL, proto};
use proxy::minting::{ConsumerAddress, Options, StartError};
use proxy::{Action, ProxyMetrics, Rules};
use store::{Store, StoreUrl};
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint, Uri};
use x509::{Certificate, GeneralName, HostOrIp};

use crate::world::{TIMEOUT, World, authority, now};

pub(crate) fn options() -> Options {
    let mut names = Rules::new(Action::Reject);
    names.add(&["*.example".to_owned()], Action::Intercept).unwrap();
    Options {
        listen: ConsumerAddress::Loopback(SocketAddr::from(([127, 0, 0, 1], 0))),
        revoked: None,
        names,
        connections_max: 64,
        streams_max: 2,
        names_per_stream_max: 3,
        key_life: Duration::from_secs(3_600),
        rsa_consumers: Vec::new(),
    }
}

async fn world() -> World {
    let (_, root) = authority();
    World::new(&root, |proxy| proxy.minting = Some(options())).await
}

async fn get(world: &World, query: &str) -> (StatusCode, String) {
    let http: Http<_, Full<Bytes>> = Http::builder(TokioExecutor::new()).build_http();
    let uri = format!("http://{}/certificate{query}", world.running.minting.unwrap());
    let answer = http.request(Request::get(uri).body(Full::default()).unwrap()).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Parses the leaf of a PEM text, and asserts that the private key matches.
fn leaf_of(pem: &str, key: &str) -> Certificate {
    let (_, der) = x509::pem::certificates(pem.as_bytes()).next().unwrap();
    let leaf = Certificate::parse(&der).unwrap();
    let key = PrivateKey::from_pem(key).unwrap();
    assert_eq!(*leaf.public_key.spki, *key.spki());
    leaf
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_and_key_are_issued_over_http() {
    let world = world().await;
    let requested = (0..32).map(|_| get(&world, "?server_name=a.example&signature_schemes=804%2C403"));
    let all: HashSet<(StatusCode, String)> =
        futures_util::future::join_all(requested).await.into_iter().collect();
    assert_eq!((all.len(), world.running.store().counts().minted), (1, 1), "one for all");
    let (status, pem) = all.into_iter().next().unwrap();
    assert_eq!(status, StatusCode::OK);
    assert_eq!(leaf_of(&pem, &pem).subject_alt_names, [GeneralName::Dns("a.example".into())]);
    // A name that is not allowed, a missing name, and a client that does not support ECDSA with P-256.
    for none in [
        "?server_name=a.other",
        "?server_name=..",
        "",
        "?server_name=",
        "?server_name=a.example&signature_schemes=804",
    ] {
        assert_eq!(get(&world, none).await, (StatusCode::NO_CONTENT, String::new()), "{none}");
    }
    assert_eq!(world.running.store().counts().minted, 1, "nothing is minted for those");
}

/// Repeats the request until a key is ready. The proxy generates no key during a request.
async fn get_soon(world: &World, query: &str) -> String {
    let retrying = async {
        loop {
            match get(world, query).await {
                (StatusCode::OK, pem) => return pem,
                (status, response) => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{response}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, retrying).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rsa_consumers_receive_leaves_with_stock_rsa_keys() {
    let (_, root) = authority();
    let minting = Options { rsa_consumers: vec!["local".to_owned()], ..options() };
    let world = World::new(&root, |proxy| proxy.minting = Some(minting)).await;
    let pem = get_soon(&world, "?server_name=a.example&signature_schemes=804%2C401").await;
    let rsa = leaf_of(&pem, &pem);
    assert_eq!(rsa.public_key.bits, 2_048);
    let pem = get_soon(&world, "?server_name=b.example").await;
    assert_eq!(leaf_of(&pem, &pem).public_key.spki, rsa.public_key.spki, "one key of a consumer");
    let (_, pem) = get(&world, "?server_name=a.example&signature_schemes=804%2C403").await;
    assert_eq!(leaf_of(&pem, &pem).public_key.bits, 256, "whose client verifies ECDSA");
    let requested = DiscoveryRequest {
        type_url: TYPE_URL.to_owned(),
        resource_names: vec!["a.example".to_owned()],
        ..DiscoveryRequest::default()
    };
    let response = discovery(&world).await.fetch_secrets(requested).await.unwrap().into_inner();
    assert_eq!(secret(&response.resources[0]).1.fingerprint, rsa.fingerprint);
    assert_eq!(world.running.store().counts().minted, 3);
}

/// Starts a proxy with the CA `of` that stores its leaves at `url`.
async fn world_at(url: &StoreUrl, ring: &Arc<Keyring>, of: (Authority, &[u8]), is_shared: bool) -> World {
    let store = Store::open(url).await.unwrap();
    // The timeout allows for a slow test machine.
    let level_options =
        SecondLevelOptions { is_shared, trip_timeout: TIMEOUT, ..SecondLevelOptions::default() };
    let options = proxy::Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        upstream_roots: vec![of.1.to_vec()],
        second_level: Some(SecondLevel::new(store, Arc::clone(ring), level_options)),
        minting: Some(options()),
        ..proxy::Options::default()
    };
    let running = proxy::start(options, of.0, ProxyMetrics::default()).await.unwrap();
    World { running, root: of.1.to_vec() }
}

#[tokio::test(flavor = "multi_thread")]
async fn local_consumer_leaves_are_stored_only_in_an_unshared_database() {
    let folder = tempfile::tempdir().unwrap();
    let url = StoreUrl::sqlite(folder.path().join("leaves.db"));
    let (ring, (authority, root)) = (Arc::new(Keyring::ephemeral()), authority());
    let mut all = Vec::new();
    for _ in 0..2 {
        let world = world_at(&url, &ring, (authority.clone(), &root), false).await;
        let (status, pem) = get(&world, "?server_name=a.example").await;
        leaf_of(&pem, &pem);
        assert_eq!(
            (status, world.running.store().counts().minted),
            (StatusCode::OK, u64::from(all.is_empty()))
        );
        all.push(pem);
        assert!(world.running.stop(TIMEOUT).await);
    }
    assert_eq!(all[0], all[1], "the same leaf and key after a restart");
    // A local consumer is local to one machine only. If other machines share the database, the leaves of local consumers are not
    // stored there.
    let world = world_at(&url, &ring, (authority, &root), true).await;
    let (_, pem) = get(&world, "?server_name=a.example").await;
    assert!(pem != all[0] && world.running.store().counts().minted == 1);
    get(&world, "?server_name=b.example").await;
    assert_eq!(
        proxy::tables::ProxyLeaves::of(&Store::open(&url).await.unwrap()).counts().await.unwrap(),
        1,
        "nor is it kept there"
    );
}

#[tokio::test]
async fn minting_over_plain_http_is_rejected_on_a_non_loopback_address() {
    let (authority, root) = authority();
    let minting = Options { listen: ConsumerAddress::Loopback("0.0.0.0:0".parse().unwrap()), ..options() };
    let options = proxy::Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        upstream_roots: vec![root],
        minting: Some(minting),
        ..proxy::Options::default()
    };
    let refused = proxy::start(options, authority, ProxyMetrics::default()).await.unwrap_err();
    assert!(matches!(refused, proxy::StartError::Minting(StartError::InTheClear(_))), "{refused}");
}

async fn discovery(world: &World) -> SecretDiscoveryServiceClient<Channel> {
    let address = world.running.minting.unwrap();
    let connect = move |_: Uri| async move {
        Ok::<_, std::io::Error>(TokioIo::new(tokio::net::TcpStream::connect(address).await?))
    };
    let endpoint = Endpoint::from_static("http://proxy.example");
    SecretDiscoveryServiceClient::new(
        endpoint.connect_with_connector(tower::service_fn(connect)).await.unwrap(),
    )
}

/// One delta stream.
struct Delta {
    request_sender: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: tonic::Streaming<DeltaDiscoveryResponse>,
}

impl Delta {
    async fn open(world: &World) -> Result<Self, tonic::Status> {
        let (request_sender, requested) = mpsc::channel(16);
        let requested = futures_util::stream::unfold(requested, async |mut requested| {
            Some((requested.recv().await?, requested))
        });
        let responses = discovery(world).await.delta_secrets(requested.boxed()).await?.into_inner();
        Ok(Self { request_sender, responses })
    }

    async fn discovery_request(&self, subscribe: &[&str], unsubscribe: &[&str], has: &[(&str, &str)]) {
        let all = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let versions: HashMap<_, _> =
            has.iter().map(|(name, version)| (name.to_string(), version.to_string())).collect();
        let request = DeltaDiscoveryRequest {
            type_url: TYPE_URL.to_owned(),
            resource_names_subscribe: all(subscribe),
            resource_names_unsubscribe: all(unsubscribe),
            initial_resource_versions: versions,
            ..DeltaDiscoveryRequest::default()
        };
        self.request_sender.send(request).await.unwrap();
    }

    async fn next(&mut self) -> Option<DeltaDiscoveryResponse> {
        tokio::time::timeout(TIMEOUT, self.responses.message()).await.unwrap().unwrap()
    }
}

fn secret(resource: &Any) -> (Secret, Certificate) {
    assert_eq!(resource.type_url, TYPE_URL);
    let secret = Secret::decode(resource.value.as_slice()).unwrap();
    let tls = secret.tls_certificate.clone().unwrap();
    let text = |source: Option<proto::DataSource>| String::from_utf8(source.unwrap().inline_bytes).unwrap();
    let leaf = leaf_of(&text(tls.certificate_chain), &text(tls.private_key));
    (secret, leaf)
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_sds_sends_updates_and_limits_names() {
    let world = world().await;
    let mut delta = Delta::open(&world).await.unwrap();
    delta.discovery_request(&["a.example", "a.other"], &[], &[]).await;
    let (mut resources, mut removed, mut nonces) = (Vec::new(), Vec::new(), HashSet::new());
    while resources.is_empty() || removed.is_empty() {
        let response = delta.next().await.unwrap();
        assert!(response.type_url == TYPE_URL && nonces.insert(response.nonce));
        resources.extend(response.resources);
        removed.extend(response.removed_resources);
    }
    assert_eq!(removed, ["a.other"]);
    let first = resources.remove(0);
    let (response, leaf) = secret(first.resource.as_ref().unwrap());
    assert_eq!((response.name.as_str(), first.name.as_str()), ("a.example", "a.example"));
    assert_eq!(leaf.subject_alt_names, [GeneralName::Dns("a.example".into())]);
    // A version that the client already has is not sent until the client requests it again. A rejected version is not sent again
    // immediately.
    delta
        .discovery_request(&["a.example", "b.example"], &["a.other"], &[("a.example", &first.version)])
        .await;
    let response = delta.next().await.unwrap();
    assert_eq!(response.resources[0].name, "b.example");
    let nack = DeltaDiscoveryRequest {
        response_nonce: response.nonce,
        error_detail: Some(Status { code: 3, message: "no".into() }),
        ..DeltaDiscoveryRequest::default()
    };
    delta.request_sender.send(nack).await.unwrap();
    delta.discovery_request(&["a.example"], &[], &[]).await;
    let response = delta.next().await.unwrap();
    assert_eq!(
        (response.resources[0].name.as_str(), &response.resources[0].version),
        ("a.example", &first.version)
    );
    // The fourth name exceeds the limit.
    delta.discovery_request(&["c.example", "d.example"], &[], &[]).await;
    let ended = loop {
        match tokio::time::timeout(TIMEOUT, delta.responses.message()).await.unwrap() {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    assert_eq!(ended.unwrap_err().code(), tonic::Code::ResourceExhausted);
    assert!(world.running.stop(TIMEOUT).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn sds_streams_are_limited_and_end_on_shutdown() {
    let world = world().await;
    let mut streams = vec![Delta::open(&world).await.unwrap(), Delta::open(&world).await.unwrap()];
    let refused = Delta::open(&world).await.err().unwrap();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    let stopping = tokio::spawn(world.running.stop(TIMEOUT));
    for delta in &mut streams {
        assert!(delta.next().await.is_none(), "it ends");
    }
    drop(streams);
    assert!(stopping.await.unwrap(), "nothing is cut off");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_the_world_sds_sends_the_requested_secrets() {
    let world = world().await;
    let (request_sender, requested) = mpsc::channel::<DiscoveryRequest>(16);
    let requested = futures_util::stream::unfold(requested, async |mut requested| {
        Some((requested.recv().await?, requested))
    });
    let mut client = discovery(&world).await;
    let mut responses = client.stream_secrets(requested.boxed()).await.unwrap().into_inner();
    let discovery_request = |names: &[&str], nonce: &str| DiscoveryRequest {
        type_url: TYPE_URL.to_owned(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        response_nonce: nonce.to_owned(),
        ..DiscoveryRequest::default()
    };
    request_sender.send(discovery_request(&["a.example", "a.other"], "")).await.unwrap();
    let first = responses.message().await.unwrap().unwrap();
    assert_eq!(secret(&first.resources[0]).0.name, "a.example");
    assert!(!first.nonce.is_empty() && !first.version_info.is_empty());
    // An acknowledgement, a request with a stale nonce, which the proxy ignores, and a request with another name.
    request_sender.send(discovery_request(&["a.example", "a.other"], &first.nonce)).await.unwrap();
    request_sender.send(discovery_request(&["b.example"], "stale")).await.unwrap();
    request_sender.send(discovery_request(&["c.example", "a.example"], &first.nonce)).await.unwrap();
    let second = responses.message().await.unwrap().unwrap();
    assert_eq!(secret(&second.resources[0]).0.name, "c.example");
    // A unary fetch returns the same secret.
    let fetched =
        client.fetch_secrets(discovery_request(&["a.example", "a.other"], "")).await.unwrap().into_inner();
    assert_eq!(fetched.resources, first.resources);
    let wrong = DiscoveryRequest { type_url: "another".into(), ..discovery_request(&["a.example"], "") };
    assert_eq!(client.fetch_secrets(wrong).await.unwrap_err().code(), tonic::Code::InvalidArgument);
}

/// Creates a root CA that allows subordinate CAs.
fn root() -> (Authority, Vec<u8>) {
    use x509::build::{self, Attribute, CertificateSpec, Extension};
    let key = PrivateKey::generate(KeyType::P384).unwrap();
    let name = build::distinguished_name(&[(Attribute::CommonName, "root".to_owned())]);
    let spec = CertificateSpec {
        serial: &x509::SerialNumber::from_random([1; 16]),
        signature: key.algorithm(),
        issuer: &name.der,
        subject: &name.der,
        not_before: now().plus(-60),
        not_after: now().plus(86_400),
        spki: key.spki(),
        extensions: &[
            Extension::basic_constraints(x509::BasicConstraints { ca: true, path_len: None }),
            Extension::key_usage(x509::KeyUsage(x509::KeyUsage::KEY_CERT_SIGN)),
            Extension::subject_key_id(&build::key_id(key.spki())),
        ],
    };
    let tbs = build::tbs_certificate(&spec);
    let der = build::signed(&tbs, &spec.signature, &key.sign_now(&tbs).unwrap());
    (Authority::new(std::slice::from_ref(&der), Arc::new(key), Vec::new()).unwrap(), der)
}

#[tokio::test]
async fn process_intermediate_ca_signs_leaves_that_verify() {
    let (above, root) = root();
    let intermediates = Intermediates::new(above, Duration::from_secs(3_600));
    let first = intermediates.make(now()).await.unwrap();
    let minter = Minter::new(first.clone(), Arc::new(LeafKeys::new().unwrap()), Duration::from_secs(86_400));
    let name = HostOrIp::parse("a.example").unwrap();
    let leaf = minter.mint(&name, LeafKeyKind::P256, now()).await.unwrap();
    let chain = &leaf.certified.cert;
    assert_eq!(chain.len(), 2, "the leaf and what stands between");
    let below = Certificate::parse(&chain[1]).unwrap();
    assert_eq!(below.basic_constraints.unwrap().path_len, Some(0));
    assert!(leaf.not_after <= below.not_after && below.not_after.since(now()) <= 3_600);
    // OpenSSL verifies the chain as clients do.
    let folder = tempfile::tempdir().unwrap();
    let put = |file: &str, der: &[u8]| {
        std::fs::write(folder.path().join(file), x509::pem::encode("CERTIFICATE", der)).unwrap();
    };
    put("root.pem", &root);
    put("between.pem", &chain[1]);
    put("leaf.pem", &chain[0]);
    let verified = std::process::Command::new("openssl")
        .current_dir(folder.path())
        .args(["verify", "-x509_strict", "-CAfile", "root.pem", "-untrusted", "between.pem", "leaf.pem"])
        .output()
        .unwrap_or_else(|error| panic!("apt-get install -y openssl ({error})"));
    assert!(verified.status.success(), "{verified:?}");
    // A new intermediate replaces the old one in all clones of the minter.
    minter.clone().change_authority(intermediates.make(now()).await.unwrap());
    assert_ne!(minter.authority().fingerprint(), first.fingerprint());
}

#[tokio::test]
async fn ca_that_forbids_subordinate_cas_issues_no_intermediate() {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let der = new_root(&key, now()).unwrap();
    let above = Authority::new(&[der], Arc::new(key), Vec::new()).unwrap();
    let refused = Intermediates::new(above, Duration::from_secs(3_600)).make(now()).await.unwrap_err();
    assert_eq!(refused, MintError::NoneBelow);
}
