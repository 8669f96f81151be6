//! Raw RSA decryption with keys outside the process, for clients that the operator permits.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use keyless::server::Options;
use keyless::tenant::TenantOptions;
use keyless::wire::{ErrorCode, opcode};
use keys::{Deadline, KeyRef, KeyType, PrivateKey, SignError, Signer};
use rustls::version::TLS13;
use x509::GeneralName;
use zeroize::Zeroizing;

use crate::certificates::CLIENT_AUTH;
use crate::peer::{Reply, TIMEOUT, World, key, ski};

/// Length of an RSA-2048 number in bytes.
const BYTES: usize = 256;

/// A simulated hardware security module key, which returns its input reversed.
#[derive(Debug, Default)]
struct Module {
    calls: AtomicUsize,
}

impl Signer for Module {
    fn key_type(&self) -> KeyType {
        KeyType::Rsa2048
    }

    fn spki(&self) -> &[u8] {
        own().spki()
    }

    fn sign<'a>(&'a self, _: &'a [u8], _: Deadline) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        unreachable!("nothing is signed here")
    }

    fn decrypt_raw<'a>(
        &'a self,
        c: &'a [u8],
        _: Deadline,
    ) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, SignError>> {
        self.calls.fetch_add(1, Relaxed);
        let clear: Vec<u8> = c.iter().rev().copied().collect();
        Box::pin(std::future::ready(Ok(clear.into())))
    }
}

/// Returns the key pair behind the module key. No other key shares its public half.
fn own() -> &'static PrivateKey {
    static OWN: OnceLock<PrivateKey> = OnceLock::new();
    OWN.get_or_init(|| PrivateKey::generate(KeyType::Rsa2048).unwrap())
}

async fn world(rsa_decrypt: bool, tenants: Vec<TenantOptions>) -> (World, Arc<Module>) {
    let module = Arc::new(Module::default());
    let options = Options { rsa_decrypt, tenants, deadline: TIMEOUT, ..Options::default() };
    (World::with(options, vec![Arc::clone(&module) as KeyRef]).await, module)
}

/// Sends a decryption request as a client of this organisation and returns the reply.
async fn decrypt(world: &World, organisation: &str, of: &dyn Signer, c: &[u8]) -> Reply {
    let names = [GeneralName::Dns("localhost".to_owned())];
    let identity = world.client_ca.leaf_of(&format!("CN=x,O={organisation}"), &names, &[CLIENT_AUTH]);
    let mut peer = world.connect_with(Some(&identity), &TLS13).await.unwrap();
    peer.sign(0x01, ski(of), c).await
}

fn number(length: usize) -> Vec<u8> {
    (0..length).map(|at| at as u8).collect()
}

const REFUSED: Option<u8> = Some(ErrorCode::Cryptography as u8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decryption_requires_permission_from_the_operator() {
    let may = |name: &str| TenantOptions {
        clients: vec![format!("O={name}")],
        rsa_decrypt: true,
        ..TenantOptions::new(name)
    };
    let may_not = |name: &str| TenantOptions { rsa_decrypt: false, ..may(name) };
    let c = number(BYTES);
    // The service's setting, its tenants, the client's organisation, and whether decryption is allowed.
    for (rsa_decrypt, tenants, organisation, done) in [
        (false, vec![], "a", false),
        (true, vec![], "a", true),
        (false, vec![may("a")], "a", false),
        (true, vec![may("a")], "a", true),
        (true, vec![may_not("a")], "a", false),
        (true, vec![may("a"), may_not("b")], "b", false),
        // A client that belongs to no tenant, on a service that has tenants.
        (true, vec![may("a")], "c", false),
    ] {
        let (world, module) = world(rsa_decrypt, tenants.clone()).await;
        let reply = decrypt(&world, organisation, &*module, &c).await;
        let what = format!("{rsa_decrypt} {organisation} {tenants:?}");
        if done {
            let clear: Vec<u8> = c.iter().rev().copied().collect();
            assert_eq!((reply.opcode, reply.payload), (opcode::SUCCESS, clear), "{what}");
        } else {
            assert_eq!(reply.error(), REFUSED, "{what}");
        }
        assert_eq!(module.calls.load(Relaxed), usize::from(done), "{what}");
        world.running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn module_key_decrypts_only_full_length_input() {
    let (world, module) = world(true, Vec::new()).await;
    for length in [0, 1, BYTES - 1, BYTES + 1, 2 * BYTES] {
        let reply = decrypt(&world, "a", &*module, &number(length)).await;
        assert_eq!(reply.error(), REFUSED, "{length}");
    }
    assert_eq!(module.calls.load(Relaxed), 0);
    // Keys held in this process never decrypt.
    for (kind, length) in [(KeyType::Rsa2048, BYTES), (KeyType::P256, 32), (KeyType::Ed25519, 32)] {
        let reply = decrypt(&world, "a", key(kind), &number(length)).await;
        assert_eq!(reply.error(), REFUSED, "{kind}");
    }
    world.running.stop().await;
}
