//! Permissions of the key service: every operation of its definition × no certificate, a client without a tenant, a tenant's client
//! with its own key and with another tenant's key. An operation without an entry fails the test.

use futures_util::{StreamExt, stream};
use keyless::native::{Client, signature};
use keyless::server::Options;
use keyless::tenant::TenantOptions;
use keys::{KeyType, PrivateKey};
use rustls::version::TLS13;
use tonic::{Code, Status};
use x509::GeneralName;

use crate::certificates::{CLIENT_AUTH, Identity};
use crate::native::{EC, patient, request};
use crate::peer::{TIMEOUT, World, key, ski};

/// The service's code is generated from this definition, so operations missing here are not dispatched.
const DEFINITION: &str = include_str!("../../proto/bulla/keys/v1/keys.proto");

fn operations() -> Vec<&'static str> {
    let names = DEFINITION.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
    names.filter_map(|rest| rest.split('(').next()).collect()
}

fn tenant(name: &str, key: &PrivateKey) -> TenantOptions {
    TenantOptions {
        clients: vec![format!("O={name}")],
        keys: vec![ski(key).to_string()],
        ..TenantOptions::new(name)
    }
}

fn member(world: &World, organization: &str) -> Identity {
    let names = [GeneralName::Dns("localhost".to_owned())];
    world.client_ca.leaf_of(&format!("CN=x,O={organization}"), &names, &[CLIENT_AUTH])
}

/// Calls one operation with a key. `sealed` was sealed by the tenant `a`.
async fn call(operation: &str, client: &Client, key: &PrivateKey, sealed: &[u8]) -> Result<(), Status> {
    let sign_request = || request(1, key, EC, &[1; 32]);
    match operation {
        "Sign" => client.sign(sign_request(), patient()).await.map(drop),
        "SignBatch" => client.sign_batch(vec![sign_request()], patient()).await?.remove(0).map(drop),
        "SignStream" => {
            let sign_request = stream::iter([sign_request()]);
            let mut replies = client.sign_stream(sign_request, patient()).await?;
            let reply = replies.next().await.ok_or_else(|| Status::aborted("no reply"))??;
            signature(reply).map(drop)
        }
        "ListKeys" => {
            let listed = client.list_keys(Default::default(), patient()).await?;
            let own = ski(key).0.to_vec();
            let found = listed.keys.iter().any(|listed| listed.ski == own);
            if found { Ok(()) } else { Err(Status::not_found("not listed")) }
        }
        "Seal" => client.seal(vec![1], patient()).await.map(drop),
        "Unseal" => client.unseal(sealed.to_vec(), patient()).await.map(drop),
        "Ping" => client.ping(patient()).await,
        other => panic!("no row for {other}: say who may call it"),
    }
}

/// Returns whether an operation is allowed with the client's own key, and with another tenant's key.
fn wanted(operation: &str) -> (bool, bool) {
    match operation {
        "Sign" | "SignBatch" | "SignStream" | "ListKeys" => (true, false),
        // Sealed data belongs to its tenant. Sealing needs no key.
        "Unseal" => (true, false),
        "Seal" | "Ping" => (true, true),
        other => panic!("no row for {other}: say who may call it"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_checks_client_and_key_permissions() {
    let own = key(KeyType::P256);
    let other = PrivateKey::generate(KeyType::P256).unwrap();
    let tenants = vec![tenant("a", own), tenant("b", &other)];
    let more = vec![std::sync::Arc::new(other.clone()) as keys::KeyRef];
    let world = World::with(Options { tenants, deadline: TIMEOUT, ..Options::default() }, more).await;
    let client = |organization: &str| world.native_with(Some(&member(&world, organization)), &TLS13);
    let (a, b, stranger) = (client("a"), client("b"), client("c"));
    let nobody = world.native_with(None, &TLS13);
    let sealed = a.seal(vec![1], patient()).await.unwrap();
    assert!(operations().len() >= 7, "{:?}", operations());
    for operation in operations() {
        let (with_own, with_other) = wanted(operation);
        assert_eq!(call(operation, &a, own, &sealed).await.is_ok(), with_own, "{operation}: its own");
        // Data sealed by `a` belongs to another tenant from the view of `b`.
        let (caller, key) = if operation == "Unseal" { (&b, &other) } else { (&a, &other) };
        let answered = call(operation, caller, key, &sealed).await;
        assert_eq!(answered.is_ok(), with_other, "{operation}: another's: {answered:?}");
        let without = call(operation, &nobody, own, &sealed).await;
        assert!(without.is_err(), "{operation}: without a certificate");
        let strange = call(operation, &stranger, own, &sealed).await;
        // Seal and ping need no key.
        if !matches!(operation, "Seal" | "Ping") {
            let code = strange.as_ref().err().map(Status::code);
            assert!(
                matches!(code, Some(Code::PermissionDenied | Code::NotFound | Code::InvalidArgument)),
                "{operation}: a client without a tenant: {strange:?}"
            );
        }
    }
    world.running.stop().await;
}
