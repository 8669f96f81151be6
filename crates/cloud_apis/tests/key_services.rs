//! Keys in cloud key services, which the fleet simulates.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::time::{Duration as AzureDuration, OffsetDateTime};
use cloud_apis::auth::aws::AwsOptions;
use cloud_apis::auth::http::HttpClient;
use cloud_apis::key_services::{
    AwsKms, AzureKey, AzureOptions, Calls, CloudKey, CloudKeyError, GcpKey, GcpOptions, open_azure, open_gcp,
};
use fleet::cloud::keys::KeyServices;
use fleet::cloud::{CloudBehavior, Fault};
use google_cloud_auth::credentials::{CacheableResource, Credentials, CredentialsProvider, EntityTag};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap, HeaderValue};
use keys::verify::verifies;
use keys::{Hash, KeyType, Scheme, SignError, Signer};

const KINDS: [(&str, KeyType); 5] = [
    ("rsa-2048", KeyType::Rsa2048),
    ("p-256", KeyType::P256),
    ("p-384", KeyType::P384),
    ("p-521", KeyType::P521),
    ("ed25519", KeyType::Ed25519),
];
const RSA: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
const SERVICES: [&str; 3] = ["aws", "azure", "gcp"];

/// A credential whose tokens the services accept.
struct Tokens {
    services: Arc<KeyServices>,
    giving: Arc<Giving>,
}

/// Settings and counters of the tokens.
#[derive(Default)]
struct Giving {
    given: AtomicUsize,
    /// Number of the first tokens that have already expired when they arrive.
    ended: AtomicUsize,
    /// Number of the next token requests that fail temporarily.
    blips: AtomicUsize,
    /// Time that each token request takes.
    takes: Mutex<Duration>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

impl Tokens {
    fn next(&self) -> String {
        self.giving.given.fetch_add(1, Relaxed);
        self.services.token()
    }
}

#[async_trait::async_trait]
impl TokenCredential for Tokens {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let less = |count: usize| count.checked_sub(1);
        let token = self.next();
        let takes = *self.giving.takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        if self.giving.blips.fetch_update(Relaxed, Relaxed, less).is_ok() {
            return Err(azure_core::Error::with_message(azure_core::error::ErrorKind::Io, "for a moment"));
        }
        let has_ended = self.giving.ended.fetch_update(Relaxed, Relaxed, less).is_ok();
        let life = AzureDuration::hours(if has_ended { 0 } else { 1 });
        Ok(AccessToken::new(token, OffsetDateTime::now_utc() + life))
    }
}

/// The Google credentials library caches tokens itself. Here each request gets its own token.
impl CredentialsProvider for Tokens {
    async fn headers(&self, _: Extensions) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        let value = HeaderValue::from_str(&format!("Bearer {}", self.next())).unwrap();
        let data = HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
        Ok(CacheableResource::New { entity_tag: EntityTag::new(), data })
    }

    async fn universe_domain(&self) -> Option<String> {
        None
    }
}

/// The simulated services, and the clients that open their keys.
struct World {
    services: Arc<KeyServices>,
    http: HttpClient,
    calls: Calls,
    giving: Arc<Giving>,
}

impl World {
    fn new() -> Self {
        Self::with(&CloudBehavior::default())
    }

    fn with(manners: &CloudBehavior) -> Self {
        let services = Arc::new(KeyServices::start(manners).unwrap());
        let http = HttpClient::new(&[]).unwrap();
        Self { services, http, calls: Calls::default(), giving: Arc::default() }
    }

    fn tokens(&self) -> Tokens {
        Tokens { services: Arc::clone(&self.services), giving: Arc::clone(&self.giving) }
    }

    async fn open(&self, service: &str, name: &str) -> Result<CloudKey, CloudKeyError> {
        self.open_version(service, name, 1).await
    }

    async fn open_version(&self, service: &str, name: &str, version: u32) -> Result<CloudKey, CloudKeyError> {
        let (http, calls) = (self.http.clone(), &self.calls);
        match service {
            "aws" => {
                let options = AwsOptions {
                    endpoint: Some(self.services.endpoint()),
                    credentials: Some(("id".to_owned(), "secret".to_owned())),
                };
                let key = if name == "forbidden" { name.to_owned() } else { format!("alias/{name}") };
                AwsKms::new("eu-west-1", &options, http).await?.open(&key, calls).await
            }
            "azure" => {
                let credential: Arc<dyn TokenCredential> = Arc::new(self.tokens());
                let resource = Some("https://vault.azure.net".to_owned());
                let options = AzureOptions { credential: Some(credential), resource };
                open_azure(AzureKey { key: self.services.azure(name) }, &options, http, calls).await
            }
            _ => {
                let credentials = Some(Credentials::from(self.tokens()));
                let options = GcpOptions { endpoint: Some(self.services.endpoint()), credentials };
                open_gcp(GcpKey { version: self.services.gcp(name, version) }, &options, http, calls).await
            }
        }
    }

    fn given(&self) -> usize {
        self.giving.given.load(Relaxed)
    }

    /// Returns the number of signing calls so far, over all services.
    fn signed(&self) -> u64 {
        let counts = self.services.counts();
        let signing = counts.iter().filter(|((operation, _), _)| *operation == "Sign");
        signing.map(|(_, counts)| counts.taken + counts.throttled).sum()
    }
}

/// Returns the key types of a service: Google has no P-521, Azure no Ed25519.
fn kinds_of(service: &str) -> impl Iterator<Item = (&'static str, KeyType)> {
    let lacks = match service {
        "gcp" => Some(KeyType::P521),
        "azure" => Some(KeyType::Ed25519),
        _ => None,
    };
    KINDS.into_iter().filter(move |(_, kind)| Some(*kind) != lacks)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn digest(hash: Hash) -> Vec<u8> {
    (0..hash.octets()).map(|at| 0xff - at as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_type_signs_with_every_scheme_in_every_service() {
    let world = World::new();
    for service in SERVICES {
        for (name, kind) in kinds_of(service) {
            let key = world.open(service, name).await.unwrap();
            let truth = world.services.keys().iter().find(|key| key.name == name).unwrap();
            assert_eq!((key.key_type(), key.spki()), (kind, &truth.spki[..]), "{service} {name}");
            let mut schemes: Vec<Scheme> = Hash::ALL.into_iter().map(Scheme::Ecdsa).collect();
            schemes.extend(RSA.into_iter().map(Scheme::RsaPkcs1));
            schemes.extend(RSA.into_iter().map(Scheme::RsaPss));
            schemes.push(Scheme::Ed25519);
            schemes.retain(|scheme| scheme.check(kind, digest_of(*scheme).len()).is_ok());
            if (service, kind) == ("gcp", KeyType::Rsa2048) {
                schemes = vec![Scheme::RsaPss(Hash::Sha256)];
            }
            assert!(!schemes.is_empty());
            for scheme in schemes {
                let input = digest_of(scheme);
                let signature = key.sign_digest(scheme, &input, soon()).await;
                let signature =
                    signature.unwrap_or_else(|error| panic!("{service} {name} {scheme:?}: {error}"));
                assert!(
                    verifies(&truth.spki, kind, scheme, &input, &signature),
                    "{service} {name} {scheme:?}"
                );
            }
        }
    }
    let (connections, requests) = world.services.traffic();
    assert!(
        requests > 50 && connections * 10 < requests,
        "connections are kept: {connections} of {requests}"
    );
}

fn digest_of(scheme: Scheme) -> Vec<u8> {
    match scheme {
        Scheme::RsaPkcs1(hash) | Scheme::RsaPss(hash) | Scheme::Ecdsa(hash) => digest(hash),
        Scheme::Ed25519 => b"what is signed, whole".to_vec(),
    }
}

/// A message that is too long is rejected locally with an error. The service receives no call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ed25519_messages_are_limited_to_the_size_the_service_accepts() {
    let world = World::new();
    for (service, octets, signs) in [("aws", 4_096, true), ("aws", 4_097, false), ("gcp", 65_505, true)] {
        let key = world.open(service, "ed25519").await.unwrap();
        let (before, message) = (world.signed(), vec![7; octets]);
        match (key.sign_digest(Scheme::Ed25519, &message, soon()).await, signs) {
            (Ok(signature), true) => {
                assert!(verifies(key.spki(), KeyType::Ed25519, Scheme::Ed25519, &message, &signature));
            }
            (Err(SignError::Failed(why)), false) => {
                assert!(why.contains("at most 4096 bytes"), "{why}");
                assert_eq!(world.signed(), before, "it was not asked");
            }
            (other, _) => panic!("{service} {octets}: {other:?}"),
        }
        let wrong = key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], soon()).await;
        assert!(matches!(wrong, Err(SignError::Failed(_))), "{wrong:?}");
    }
    let none = world.open("azure", "ed25519").await.unwrap_err();
    assert!(matches!(none, CloudKeyError::Unusable { .. }) && none.to_string().contains("Edwards"), "{none}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_key_version_signs_only_with_its_own_algorithm() {
    let world = World::new();
    for (version, own) in [(1, Scheme::RsaPss(Hash::Sha256)), (2, Scheme::RsaPkcs1(Hash::Sha512))] {
        let key = world.open_version("gcp", "rsa-2048", version).await.unwrap();
        for scheme in RSA.into_iter().flat_map(|hash| [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash)]) {
            let before = world.signed();
            let signed = key.sign_digest(scheme, &digest_of(scheme), soon()).await;
            match scheme == own {
                true => assert!(signed.is_ok(), "{signed:?}"),
                false => {
                    assert!(
                        matches!(&signed, Err(SignError::Failed(why)) if why.contains("only")),
                        "{signed:?}"
                    );
                    assert_eq!(world.signed(), before, "it was not asked");
                }
            }
        }
    }
}

/// One flipped bit is enough for the signature to be withheld.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_signature_from_a_service_is_not_returned() {
    let world = World::new();
    for service in SERVICES {
        for (name, kind) in kinds_of(service) {
            let key = world.open(service, name).await.unwrap();
            let scheme = match kind {
                KeyType::Rsa2048 => Scheme::RsaPss(Hash::Sha256),
                KeyType::Ed25519 => Scheme::Ed25519,
                _ => Scheme::Ecdsa(Hash::Sha256),
            };
            world.services.set_fault(Fault::WrongSignatures);
            let (before, input) = (world.signed(), digest_of(scheme));
            let signed = key.sign_digest(scheme, &input, soon()).await;
            assert!(
                matches!(&signed, Err(SignError::Failed(why)) if why.contains("the signature was rejected")),
                "{signed:?}"
            );
            assert_eq!(world.signed(), before + 1, "and it is not asked again: {service} {name}");
            world.services.set_fault(Fault::None);
            assert!(key.sign_digest(scheme, &input, soon()).await.is_ok());
        }
    }
    for (service, keys) in [("AWS KMS", 5), ("Azure Key Vault", 4), ("Google Cloud KMS", 4)] {
        assert_eq!(
            (world.calls.counted(service, "wrong"), world.calls.counted(service, "done")),
            (keys, keys)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_token_is_renewed_and_the_call_retried() {
    let world = World::new();
    for service in SERVICES {
        let key = world.open(service, "p-256").await.unwrap();
        let given = world.given();
        for _ in 0..3 {
            key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], soon()).await.unwrap();
        }
        if service == "azure" {
            assert_eq!(world.given(), given, "one token for all");
        }
        world.services.set_fault(Fault::ExpiredTokens(1));
        key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], soon()).await.unwrap();
        if service == "azure" {
            assert_eq!(world.given(), given + 1, "and then the next");
        }
    }
}

/// If credentials take longer than a call's timeout or fail temporarily, the request is only delayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_or_briefly_failing_credentials_do_not_fail_later_calls() {
    let world = World::new();
    // Two tokens: one for the public key request, one for the check that credentials exist.
    world.giving.ended.store(2, Relaxed);
    let key = world.open("azure", "p-256").await.unwrap();
    assert_eq!(world.given(), 2);
    // Longer than the call's timeout.
    *world.giving.takes.lock().unwrap() = Duration::from_millis(2_500);
    let soon = Instant::now() + Duration::from_millis(100);
    let signed = key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], soon).await;
    assert_eq!(signed, Err(SignError::Late));
    assert_eq!(world.calls.counted("Azure Key Vault", "late"), 1);
    key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], self::soon()).await.unwrap();
    assert_eq!(world.given(), 3, "what the first began was for the second");

    let world = World::new();
    world.giving.ended.store(2, Relaxed);
    let key = world.open("azure", "p-256").await.unwrap();
    world.giving.blips.store(2, Relaxed);
    key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], self::soon()).await.unwrap();
    assert_eq!((world.given(), world.signed()), (5, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_response_is_retried() {
    let world = World::new();
    for service in SERVICES {
        let key = world.open(service, "p-256").await.unwrap();
        world.services.set_fault(Fault::HalfPages(1));
        let before = world.signed();
        key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], soon()).await.unwrap();
        assert_eq!(world.signed(), before + 2, "{service}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_of_an_unavailable_service_are_limited_by_a_budget() {
    for fault in [Fault::Throttling, Fault::Down] {
        for service in SERVICES {
            let world = World::new();
            let key = world.open(service, "p-256").await.unwrap();
            world.services.set_fault(fault);
            let (_, before) = world.services.traffic();
            for _ in 0..20 {
                let signed = key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], soon()).await;
                assert!(matches!(signed, Err(SignError::Unavailable(_))), "{service} {fault:?}: {signed:?}");
            }
            let (_, after) = world.services.traffic();
            // Ten immediate retries, and a tenth of all further requests. Without a budget each request would make four attempts.
            assert!((30..=33).contains(&(after - before)), "{service} {fault:?}: {}", after - before);
            world.services.set_fault(Fault::None);
            assert!(key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], soon()).await.is_ok());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_service_times_out_at_the_deadline() {
    let world = World::new();
    for service in SERVICES {
        let key = world.open(service, "p-256").await.unwrap();
        world.services.set_fault(Fault::Hanging);
        let began = Instant::now();
        let deadline = began + Duration::from_millis(300);
        let signed = key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], deadline).await;
        assert_eq!(signed, Err(SignError::Late), "{service}");
        assert!(began.elapsed() >= Duration::from_millis(300));
        // More than the concurrency limit. Requests that never got a permit are counted as well.
        let deadline = Instant::now() + Duration::from_millis(300);
        let sign = || key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], deadline);
        let all = futures_util::future::join_all((0..40).map(|_| sign())).await;
        assert!(all.iter().all(|signed| *signed == Err(SignError::Late)));
        let name = match service {
            "aws" => "AWS KMS",
            "azure" => "Azure Key Vault",
            _ => "Google Cloud KMS",
        };
        assert_eq!(world.calls.counted(name, "late"), 41);
        world.services.set_fault(Fault::None);
        assert!(key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &[7; 32], soon()).await.is_ok());
    }
}

/// More concurrent requests than the limit. All are signed, over few connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_queue_for_few_connections() {
    let latency = Duration::from_millis(20)..=Duration::from_millis(20);
    let world = World::with(&CloudBehavior { latency, ..CloudBehavior::default() });
    let key = Arc::new(world.open("aws", "p-256").await.unwrap());
    let (before, _) = world.services.traffic();
    let tasks: Vec<_> = (0..300_u32)
        .map(|number| {
            let key = Arc::clone(&key);
            tokio::spawn(async move {
                let input = [&number.to_be_bytes()[..], &[7; 28]].concat();
                let signature = key.sign_digest(Scheme::Ecdsa(Hash::Sha256), &input, soon()).await.unwrap();
                assert!(verifies(key.spki(), KeyType::P256, Scheme::Ecdsa(Hash::Sha256), &input, &signature));
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (after, _) = world.services.traffic();
    // 32, and a few that were opened while another became free.
    assert!(after - before <= 100, "{} connections", after - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_open_errors_state_the_cause_and_a_hint() {
    let world = World::new();
    for (service, permission) in
        [("aws", "kms:Sign"), ("azure", "keys/sign"), ("gcp", "roles/cloudkms.signerVerifier")]
    {
        let denied = world.open(service, "forbidden").await.unwrap_err();
        assert!(matches!(&denied, CloudKeyError::Refused { answer, .. } if answer.denied), "{denied}");
        assert!(denied.hint().contains(permission), "{}", denied.hint());
        let none = world.open(service, "none").await.unwrap_err();
        assert!(matches!(&none, CloudKeyError::Refused { answer, .. } if !answer.denied), "{none}");
    }
    let options = AzureOptions::default();
    for key in ["https://evil.example/keys/a", "https://v.vault.azure.net/secrets/a", ""] {
        let key = AzureKey { key: key.to_owned() };
        let error = open_azure(key, &options, world.http.clone(), &world.calls).await.unwrap_err();
        assert!(matches!(error, CloudKeyError::Name { .. }), "{error}");
    }
    let nowhere = AwsOptions {
        endpoint: Some("http://127.0.0.1:1".to_owned()),
        credentials: Some(("id".to_owned(), "secret".to_owned())),
    };
    let kms = AwsKms::new("eu-west-1", &nowhere, world.http.clone()).await.unwrap();
    let error = kms.open("k", &world.calls).await.unwrap_err();
    assert!(
        matches!(&error, CloudKeyError::Refused { answer, .. } if answer.code == "unreachable"),
        "{error}"
    );
}
