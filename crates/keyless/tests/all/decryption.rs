//! RSA without padding: by keys elsewhere, for whom the operator lets have it.

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
use crate::peer::{PATIENCE, Reply, World, key, ski};

/// Bytes of a number of RSA-2048.
const OCTETS: usize = 256;

/// A key of a security module, which here gives back what it is given, reversed.
#[derive(Debug, Default)]
struct Module {
    asked: AtomicUsize,
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
        self.asked.fetch_add(1, Relaxed);
        let clear: Vec<u8> = c.iter().rev().copied().collect();
        Box::pin(std::future::ready(Ok(clear.into())))
    }
}

/// Its public half, which nobody else has.
fn own() -> &'static PrivateKey {
    static OWN: OnceLock<PrivateKey> = OnceLock::new();
    OWN.get_or_init(|| PrivateKey::generate(KeyType::Rsa2048).unwrap())
}

async fn world(rsa_decrypt: bool, tenants: Vec<TenantOptions>) -> (World, Arc<Module>) {
    let module = Arc::new(Module::default());
    let options = Options { rsa_decrypt, tenants, deadline: PATIENCE, ..Options::default() };
    (World::with(options, vec![Arc::clone(&module) as KeyRef]).await, module)
}

/// What a client of this organisation is answered.
async fn decrypt(world: &World, organisation: &str, of: &dyn Signer, c: &[u8]) -> Reply {
    let names = [GeneralName::Dns("localhost".to_owned())];
    let identity = world.client_ca.leaf_of(&format!("CN=x,O={organisation}"), &names, &[CLIENT_AUTH]);
    let mut peer = world.connect_with(Some(&identity), &TLS13).await.unwrap();
    peer.sign(0x01, ski(of), c).await
}

fn number(octets: usize) -> Vec<u8> {
    (0..octets).map(|at| at as u8).collect()
}

const REFUSED: Option<u8> = Some(ErrorCode::Cryptography as u8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_decrypted_unless_the_operator_says_so() {
    let may = |name: &str| TenantOptions {
        clients: vec![format!("O={name}")],
        rsa_decrypt: true,
        ..TenantOptions::new(name)
    };
    let may_not = |name: &str| TenantOptions { rsa_decrypt: false, ..may(name) };
    let c = number(OCTETS);
    // The service's setting; tenants; who asks; whether it is done.
    for (rsa_decrypt, tenants, organisation, done) in [
        (false, vec![], "a", false),
        (true, vec![], "a", true),
        (false, vec![may("a")], "a", false),
        (true, vec![may("a")], "a", true),
        (true, vec![may_not("a")], "a", false),
        (true, vec![may("a"), may_not("b")], "b", false),
        // Anyone who is nobody's, where there are others.
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
        assert_eq!(module.asked.load(Relaxed), usize::from(done), "{what}");
        world.running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_whole_number_goes_to_a_key_of_a_module() {
    let (world, module) = world(true, Vec::new()).await;
    for octets in [0, 1, OCTETS - 1, OCTETS + 1, 2 * OCTETS] {
        let reply = decrypt(&world, "a", &*module, &number(octets)).await;
        assert_eq!(reply.error(), REFUSED, "{octets}");
    }
    assert_eq!(module.asked.load(Relaxed), 0);
    // Keys of this process: none decrypts.
    for (kind, octets) in [(KeyType::Rsa2048, OCTETS), (KeyType::P256, 32), (KeyType::Ed25519, 32)] {
        let reply = decrypt(&world, "a", key(kind), &number(octets)).await;
        assert_eq!(reply.error(), REFUSED, "{kind}");
    }
    world.running.stop().await;
}
