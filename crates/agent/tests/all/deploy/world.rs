//! A CA of the test, a state directory of the agent, and files to deploy to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::deploy::{Deployer, Fault, PolicyFile, Recovery, Report, Target, missing_rules};
use enrollment::Material;
use keys::{KeyType, PrivateKey, Signer as _};
use uuid::Uuid;
use x509::GeneralName;
use x509::build::Extension;

/// Issues the certificates that the tests deploy.
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

    /// Issues a new leaf with a new key.
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

    /// Returns the path of a file in the server's directory.
    pub(crate) fn etc(&self, name: &str) -> PathBuf {
        self.folder.path().join("etc").join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn deployer(&self) -> HostDeployer {
        self.deployer_with(Fault::default())
    }

    pub(crate) fn deployer_with(&self, fault: Fault) -> HostDeployer {
        HostDeployer::open(self.root(), fault)
    }

    /// Returns the policy of the host's owner.
    pub(crate) fn policy(&self) -> PolicyFile {
        PolicyFile::new(&self.root().join(POLICY))
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.etc(name)).unwrap()
    }

    /// Returns the names of the files in the server's directory.
    pub(crate) fn listing(&self) -> Vec<String> {
        let folder = std::fs::read_dir(self.folder.path().join("etc")).unwrap();
        let mut names: Vec<_> =
            folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// The file name of the policy on a temporary host.
const POLICY: &str = "agent.toml";

/// A deployer on a host whose policy gets the rules that a job needs.
pub(crate) struct HostDeployer {
    deployer: Deployer,
    policy: PolicyFile,
}

impl HostDeployer {
    pub(crate) fn open(root: &Path, fault: Fault) -> Self {
        let policy = PolicyFile::new(&root.join(POLICY));
        let deployer = Deployer::open_with(&root.join("state"), policy.clone(), fault).unwrap();
        Self { deployer, policy }
    }

    pub(crate) async fn deploy(&self, id: Uuid, target: &Target, material: &Material) -> Report {
        // The owner and mode of a file are checked only once its path is allowed, so two rounds are needed.
        for _ in 0..2 {
            self.allow(target).await;
        }
        self.deployer.deploy(id, target, material).await
    }

    async fn allow(&self, target: &Target) {
        let policy = Arc::new(self.policy.load(self.deployer.folder()).unwrap());
        // If the check fails, the deployment reports the error.
        let Ok(missing) = missing_rules(&policy, target).await else { return };
        let before = std::fs::read_to_string(self.policy.path()).unwrap_or_default();
        let text = format!("{before}{}", policy.policy_lines_for(&missing));
        let new_file = self.policy.path().with_extension("new");
        std::fs::write(&new_file, text).unwrap();
        std::fs::rename(&new_file, self.policy.path()).unwrap();
    }

    pub(crate) async fn recover(&self) -> Result<Vec<Recovery>, enrollment::state_folder::StateError> {
        self.deployer.recover().await
    }
}

pub(crate) fn target(text: serde_json::Value) -> Target {
    let target: Target = serde_json::from_value(text).unwrap();
    target.check().unwrap();
    target
}
