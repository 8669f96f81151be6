//! The cache of an agent in a file, so that an agent that starts while the store is unavailable can respond.
//!
//! The file is encrypted (AES-256-GCM) with a key derived from the agent's token. A copy of the file alone is useless, and the
//! owner of the token can query the store anyway. The file contains names and values.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::credhub::CredentialView;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use keys::{Secret, SecretJson};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::AgentError;
use crate::cache::SavedEntry;
use crate::{Client, Credential, Name};

/// Prefix of the file, which is also authenticated by the encryption.
const MAGIC: &[u8] = b"bulla-agent-cache-1\n";
/// Label for the derivation of the key.
const LABEL: &[&[u8]] = &[b"bulla credential agent: cache on disk"];
/// Bytes of a nonce.
const NONCE: usize = 12;
/// Interval of checks for changes of the cache. A cleared cache is written at the next check.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between two writes of a cache that changes constantly.
const WRITE_EVERY: Duration = Duration::from_secs(10);

/// An encrypted file that stores the cache of an agent.
pub(super) struct DiskCache {
    path: PathBuf,
    key: Arc<LessSafeKey>,
}

/// The content of the file, before encryption.
#[derive(Deserialize, Serialize)]
struct Document<C> {
    /// Time of the write, in seconds since 1970.
    saved_at: u64,
    entries: Vec<DocumentEntry<C>>,
}

#[derive(Deserialize, Serialize)]
struct DocumentEntry<C> {
    name: String,
    /// Seconds at `saved_at` since the entry was last known to be current.
    age: u64,
    /// The credential; `None` if it does not exist.
    credential: Option<C>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl DiskCache {
    /// Opens the cache in this file, which may be missing.
    pub(super) fn open(path: PathBuf, token: &Secret) -> Result<Self, AgentError> {
        let unusable = |_| AgentError::Tls("cannot derive a key from the token".to_owned());
        let pseudo_random = hkdf::Salt::new(hkdf::HKDF_SHA256, MAGIC).extract(token.expose().as_bytes());
        let key = pseudo_random.expand(LABEL, &AES_256_GCM).map(UnboundKey::from).map_err(unusable)?;
        Ok(Self { path, key: Arc::new(LessSafeKey::new(key)) })
    }

    /// Loads the file into the cache of a client. A file that cannot be decrypted is ignored, because it belongs to another token.
    pub(super) fn load(&self, client: &Client) -> Result<(), AgentError> {
        client.cache().begin_saving();
        let sealed = match std::fs::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|source| AgentError::Io { path: self.path.clone(), source })?,
        };
        let Some(document) = unseal(&self.key, sealed) else {
            tracing::warn!(file = %self.path.display(), "cannot decrypt the cache with this token: the agent starts without it");
            return Ok(());
        };
        let passed = now().saturating_sub(document.saved_at);
        for entry in document.entries {
            let age = Duration::from_secs(entry.age.saturating_add(passed));
            let answer =
                entry.credential.map(|credential| Credential::of(credential).map(Arc::new)).transpose();
            if let (Ok(name), Ok(answer)) = (Name::parse(&entry.name), answer)
                && age <= client.limits().lifetime
            {
                client.cache().restore(SavedEntry { name, answer, age });
            }
        }
        Ok(())
    }

    /// Writes the cache to disk after changes, at most once every [`WRITE_EVERY`], and on shutdown. An emptied cache is written at
    /// the next check.
    pub(super) async fn keep(self, client: Client, stop: CancellationToken) {
        let (mut written, mut at) = (client.cache().revision(), None);
        while stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await.is_some() {
            let revision = client.cache().revision();
            let is_due = at.is_none_or(|at: tokio::time::Instant| at.elapsed() >= WRITE_EVERY);
            if revision != written && (is_due || client.cache().entries_to_save().is_empty()) {
                self.write(&client).await;
                (written, at) = (revision, Some(tokio::time::Instant::now()));
            }
        }
        self.write(&client).await;
    }

    async fn write(&self, client: &Client) {
        let (path, key, client) = (self.path.clone(), Arc::clone(&self.key), client.clone());
        let write = move || seal(&key, &client).and_then(|sealed| put(&path, &sealed));
        let written = tokio::task::spawn_blocking(write).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, file = %self.path.display(), "cannot write the cache");
        }
    }
}

fn seal(key: &LessSafeKey, client: &Client) -> std::io::Result<Vec<u8>> {
    let mut entries = Vec::new();
    let all = client.cache().entries_to_save();
    for saved in &all {
        let credential = saved.answer.as_ref().map(|credential| credential.view());
        let (name, age) = (saved.name.as_str().to_owned(), saved.age.as_secs());
        entries.push(DocumentEntry { name, age, credential });
    }
    let text = Zeroizing::new(serde_json::to_vec(&Document { saved_at: now(), entries })?);
    let failed = |_| std::io::Error::other("cannot encrypt the cache");
    let mut nonce = [0; NONCE];
    aws_lc_rs::rand::fill(&mut nonce).map_err(failed)?;
    let mut inside = Zeroizing::new(Vec::with_capacity(text.len() + AES_256_GCM.tag_len()));
    inside.extend_from_slice(&text);
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(MAGIC), &mut *inside)
        .map_err(failed)?;
    Ok([MAGIC, &nonce[..], &inside[..]].concat())
}

fn unseal(key: &LessSafeKey, sealed: Vec<u8>) -> Option<Document<CredentialView<SecretJson>>> {
    let rest = sealed.strip_prefix(MAGIC)?;
    let (nonce, inside) = rest.split_at_checked(NONCE)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut inside = Zeroizing::new(inside.to_vec());
    let text = key.open_in_place(nonce, Aad::from(MAGIC), &mut inside).ok()?;
    serde_json::from_slice(text).ok()
}

/// Writes a file atomically, readable by its owner only.
fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn saved_json_values_keep_their_text() {
        const EXACT: &str = r#"{"z":12345678901234567890123,  "a":1.10}"#;
        let folder = tempfile::tempdir().unwrap();
        let client = || Client::builder("unix:/nowhere").bearer("t").build().unwrap();
        let disk = || DiskCache::open(folder.path().join("cache"), &Secret::new("t")).unwrap();
        let (before, after) = (client(), client());
        disk().load(&before).unwrap();
        let text = format!(
            r#"{{"name":"/a","type":"json","id":"{}","metadata":null,"version_created_at":"x","value":{EXACT}}}"#,
            uuid::Uuid::nil()
        );
        let answer = Some(Arc::new(Credential::of(serde_json::from_str(&text).unwrap()).unwrap()));
        let saved = SavedEntry { name: Name::parse("/a").unwrap(), answer, age: Duration::ZERO };
        before.cache().restore(saved);
        disk().write(&before).await;
        disk().load(&after).unwrap();
        let restored = after.cache().entries_to_save().remove(0).answer.unwrap();
        assert_eq!(restored.value().expose(), EXACT);
    }
}
