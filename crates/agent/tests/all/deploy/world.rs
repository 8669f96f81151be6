//! An authority of the test's own, a folder of the agent's, and files to deploy to.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use agent::deploy::{Deployer, Target};
use enrollment::Material;
use keys::{KeyType, PrivateKey, Signer as _};
use uuid::Uuid;
use x509::build::{Attribute, CertificateSpec, Extension, distinguished_name, signed, tbs_certificate};
use x509::{BasicConstraints, GeneralName, SerialNumber, UnixTime};

/// Seconds a leaf lives: real clients check it against the real time.
const LIFE: i64 = 90 * x509::DAY;

/// Issues what the tests deploy: a root, an intermediate, leaves.
pub(crate) struct Issuer {
    root: Vec<u8>,
    intermediate: Vec<u8>,
    key: PrivateKey,
}

impl Issuer {
    pub(crate) fn new() -> Self {
        let (root_key, key) = (made(KeyType::P256), made(KeyType::P256));
        let authority = BasicConstraints { ca: true, path_len: None };
        let extensions = [Extension::basic_constraints(authority)];
        let root = certificate("Root", root_key.spki(), "Root", &root_key, &extensions);
        let intermediate = certificate("Issuing", key.spki(), "Root", &root_key, &extensions);
        Self { root, intermediate, key }
    }

    /// A certificate with the names and key usage of the extensions, and what stands above it.
    pub(crate) fn chain(&self, subject: &str, spki: &[u8], extensions: &[Extension]) -> Vec<Vec<u8>> {
        vec![certificate(subject, spki, "Issuing", &self.key, extensions), self.intermediate.clone()]
    }

    pub(crate) fn root(&self) -> &[u8] {
        &self.root
    }

    pub(crate) fn root_pem(&self) -> String {
        x509::pem::encode("CERTIFICATE", &self.root)
    }

    /// A new leaf with a new key.
    pub(crate) fn material(&self, name: &str) -> Material {
        self.material_with(name, KeyType::P256)
    }

    pub(crate) fn material_with(&self, name: &str, kind: KeyType) -> Material {
        let key = made(kind);
        let chain = vec![self.leaf(name, &key), self.intermediate.clone()];
        Material::new(chain, key).unwrap()
    }

    pub(crate) fn leaf(&self, name: &str, key: &PrivateKey) -> Vec<u8> {
        let names = Extension::subject_alt_names(&[GeneralName::parse(name).unwrap()], false);
        certificate(name, key.spki(), "Issuing", &self.key, &[names])
    }
}

fn made(kind: KeyType) -> PrivateKey {
    PrivateKey::generate(kind).unwrap()
}

fn certificate(
    subject: &str,
    spki: &[u8],
    issuer: &str,
    by: &PrivateKey,
    extensions: &[Extension],
) -> Vec<u8> {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let now = store::Clock::system().now_seconds();
    let name = |text: &str| distinguished_name(&[(Attribute::CommonName, text.to_owned())]);
    let serial = SerialNumber::from_random([NEXT.fetch_add(1, Ordering::Relaxed); 16]);
    let spec = CertificateSpec {
        serial: &serial,
        signature: by.algorithm(),
        issuer: &name(issuer).der,
        subject: &name(subject).der,
        not_before: UnixTime(now - x509::DAY),
        not_after: UnixTime(now + LIFE),
        spki,
        extensions,
    };
    let tbs = tbs_certificate(&spec);
    signed(&tbs, &by.algorithm(), &by.sign_now(&tbs).unwrap())
}

/// A temporary host.
pub(crate) struct Host {
    pub(crate) issuer: Issuer,
    pub(crate) target: Uuid,
    folder: tempfile::TempDir,
}

impl Host {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        Self { issuer: Issuer::new(), target: Uuid::now_v7(), folder }
    }

    /// A file of the server's.
    pub(crate) fn etc(&self, name: &str) -> PathBuf {
        self.folder.path().join("etc").join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn deployer(&self) -> Deployer {
        Deployer::open(&self.state()).unwrap()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.etc(name)).unwrap()
    }

    /// What is in the server's folder, names only.
    pub(crate) fn listing(&self) -> Vec<String> {
        let folder = std::fs::read_dir(self.folder.path().join("etc")).unwrap();
        let mut names: Vec<_> =
            folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(crate) fn target(text: serde_json::Value) -> Target {
    let target: Target = serde_json::from_value(text).unwrap();
    target.check().unwrap();
    target
}
