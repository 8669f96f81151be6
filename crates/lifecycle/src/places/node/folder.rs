//! What a node keeps: who it is, the key to which others seal, and where its control plane is.

use std::path::Path;

use keys::sealed::NodeKey;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::NodeError;
use crate::deploy::{StateError, read_json, write_json, write_private};
use crate::joining::host::{HostError, IdentityFolder};

/// Who the node is and where its control plane is.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Settings {
    pub(super) node: Uuid,
    pub(super) name: String,
    pub(super) site: String,
    pub(super) server: String,
    /// SHA-256 of the certificate the server is trusted by, where there is no file of them.
    pub(super) pin: Option<String>,
    /// SubjectPublicKeyInfo of the key that signs statements, DER in base64.
    pub(super) statement_key: String,
}

/// The node's folder; only its owner may enter it.
pub(super) struct Folder {
    own: IdentityFolder,
}

impl Folder {
    pub(super) fn new(root: &Path) -> Result<Self, StateError> {
        Ok(Self { own: IdentityFolder::new(root)? })
    }

    /// Who the node is.
    pub(super) fn own(&self) -> &IdentityFolder {
        &self.own
    }

    pub(super) fn settings(&self) -> Result<Option<Settings>, StateError> {
        read_json(&self.own.path("node.json"))
    }

    pub(super) fn write_settings(&self, settings: &Settings) -> Result<(), StateError> {
        write_json(&self.own.path("node.json"), settings)
    }

    pub(super) fn kem(&self) -> Result<Option<NodeKey>, NodeError> {
        let path = self.own.path("kem.key");
        match std::fs::read(&path).map(Zeroizing::new) {
            Ok(octets) => Ok(Some(NodeKey::from_octets(&octets)?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(HostError::Identity(format!("{}: {error}", path.display())).into()),
        }
    }

    /// The key, made and kept if there is none yet.
    pub(super) fn made_kem(&self) -> Result<NodeKey, NodeError> {
        if let Some(key) = self.kem()? {
            return Ok(key);
        }
        let made = NodeKey::generate()?;
        write_private(&self.own.path("kem.key"), &*made.to_octets())?;
        Ok(made)
    }
}
