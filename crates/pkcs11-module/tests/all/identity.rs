//! The module's client certificate for the key service.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cryptoki::mechanism::Mechanism;
use keyless::server::TlsOptions;
use keys::{KeyType, PrivateKey, Signer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use x509::build::{CertificateSpec, Extension, signed, tbs_certificate};
use x509::{BasicConstraints, DistinguishedName, GeneralName, SerialNumber, UnixTime};

use crate::world::{World, in_a_process, initialised, private_key, session, until};

const DIGEST: [u8; 32] = [7; 32];
/// The module checks its files every 5 s.
const LOOKED_AT: Duration = Duration::from_secs(6);

struct Authority {
    key: PrivateKey,
    name: DistinguishedName,
    der: Vec<u8>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let name = DistinguishedName::from_text(&format!("CN={name}")).unwrap();
        let extensions = [Extension::basic_constraints(BasicConstraints { ca: true, path_len: None })];
        let der = certificate((&key, &name), (&key, &name), &extensions);
        Self { key, name, der }
    }

    /// Issues a leaf for `localhost`, and returns it with its key.
    fn leaf(&self) -> (Vec<u8>, PrivateKey) {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let name = DistinguishedName::from_text("CN=localhost").unwrap();
        let names = [Extension::subject_alt_names(&[GeneralName::Dns("localhost".to_owned())])];
        (certificate((&self.key, &self.name), (&key, &name), &names), key)
    }

    /// Installs a new leaf as the module's certificate. Writes the key first.
    fn put(&self, folder: &Path) {
        let (der, key) = self.leaf();
        for (name, text) in
            [("own.key", key.to_pkcs8_pem().to_string()), ("own.pem", x509::pem::encode("CERTIFICATE", &der))]
        {
            std::fs::write(folder.join("new"), text).unwrap();
            std::fs::rename(folder.join("new"), folder.join(name)).unwrap();
        }
    }
}

fn certificate(
    (issuer, issuer_name): (&PrivateKey, &DistinguishedName),
    (of, name): (&PrivateKey, &DistinguishedName),
    extensions: &[Extension],
) -> Vec<u8> {
    let tbs = tbs_certificate(&CertificateSpec {
        serial: &SerialNumber::from_random([9; 16]),
        signature: issuer.algorithm(),
        issuer: &issuer_name.der,
        subject: &name.der,
        not_before: UnixTime(1_700_000_000),
        not_after: UnixTime(2_500_000_000),
        spki: of.spki(),
        extensions,
    });
    signed(&tbs, &issuer.algorithm(), &issuer.sign_now(&tbs).unwrap())
}

/// Returns the TLS settings of the service: its certificate, and the CA that it trusts for clients.
fn tls(servers: &Authority, clients: &Authority) -> TlsOptions {
    let (der, key) = servers.leaf();
    let pkcs8 = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec()));
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&pkcs8).unwrap();
    let certificate = Arc::new(CertifiedKey::new(vec![CertificateDer::from(der)], key));
    TlsOptions { certificate, client_roots: vec![clients.der.clone()], client_crls: Vec::new() }
}

#[test]
fn client_certificate_is_replaced_at_runtime() {
    in_a_process("identity::client_certificate_is_replaced_at_runtime_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn client_certificate_is_replaced_at_runtime_() {
    let servers = Authority::new("servers");
    let [before, after] = ["before", "after"].map(Authority::new);
    let mut world = World::over_tls(tls(&servers, &before));
    std::fs::write(world.folder().join("ca.pem"), x509::pem::encode("CERTIFICATE", &servers.der)).unwrap();
    before.put(world.folder());
    let module = initialised();
    let session = session(&module);
    let key = private_key(&session, "p256");
    let signs = || session.sign(&Mechanism::Ecdsa, key, &DIGEST).is_ok();
    assert!(signs());
    // A key without its certificate is not used. The module keeps the old pair, also for new connections, until the other half
    // arrives.
    let stray = PrivateKey::generate(KeyType::P256).unwrap();
    std::fs::write(world.folder().join("own.key"), &*stray.to_pkcs8_pem()).unwrap();
    std::thread::sleep(LOOKED_AT);
    world.begin_anew(tls(&servers, &before));
    until("the former certificate is presented anew", signs);
    // Clients of the old CA are disconnected and rejected.
    world.change_tls(&tls(&servers, &after));
    until("the former certificate is refused", || !signs());
    after.put(world.folder());
    until("the new one is presented", signs);
}
