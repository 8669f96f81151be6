//! An authority of the test's own, a folder of the agent's, and files to deploy to.

use std::path::{Path, PathBuf};

use agent::deploy::{Deployer, Target};
use enrollment::Material;
use keys::{KeyType, PrivateKey, Signer as _};
use uuid::Uuid;
use x509::GeneralName;
use x509::build::Extension;

/// Issues what the tests deploy.
pub(crate) struct Issuer(testbed::Issuer);

impl std::ops::Deref for Issuer {
    type Target = testbed::Issuer;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Issuer {
    pub(crate) fn new() -> Self {
        Self(testbed::Issuer::new())
    }

    /// A new leaf with a new key.
    pub(crate) fn material(&self, name: &str) -> Material {
        self.material_with(name, KeyType::P256)
    }

    pub(crate) fn material_with(&self, name: &str, kind: KeyType) -> Material {
        let key = PrivateKey::generate(kind).unwrap();
        let names = Extension::subject_alt_names(&[GeneralName::parse(name).unwrap()]);
        let chain = self.chain(name, key.spki(), &[names]);
        Material::new(chain, key).unwrap()
    }
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
