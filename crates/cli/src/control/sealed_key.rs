//! Private keys sealed to policies. They are sealed on the machine that has the key.

use std::path::{Path, PathBuf};

use api::key_policies::DetailView;
use api::sealed_keys::{KeyBody, KeyView};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use keys::sealed::{KemPublic, SealContext, seal_key};
use keys::{PrivateKey, Signer as _};
use reqwest::Method;

use super::consent::{Consent, confirm};
use super::key_policy::path;
use super::{Run, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, show_one};
use crate::exit::{Exit, Outcome, Problem};

const SEALED_KEYS: &str = "/api/v1/sealed-keys";

/// The key to seal, and the policy.
#[derive(Args, Debug)]
pub struct SealArgs {
    /// Name or id of the policy
    #[arg(long, value_name = "NAME")]
    policy: String,
    /// The private key, PEM or DER, not encrypted; it leaves this machine only in sealed form
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Name of the key [default: the file's name without extension]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    show: Output,
}

impl Run for SealArgs {
    async fn run(&self, client: &Client) -> Outcome<()> {
        let key = read(&self.key)?;
        let policy = client.fetch(&path(&self.policy), &()).await?;
        let body = sealed(&key, &policy, &self.name())?;
        show_one(&client.submit(Method::POST, SEALED_KEYS, &body).await?, &self.show)
    }
}

impl SealArgs {
    fn name(&self) -> String {
        let stem = || self.key.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        self.name.clone().or_else(stem).unwrap_or_default()
    }
}

pub(super) async fn list(client: &Client, listing: &Listing) -> Outcome<()> {
    const COLUMNS: Columns = columns!(
        KeyView:
        ("Name", name),
        ("Kind", kind),
        ("Policy", policy_name),
        ("Generation", generation),
        ("Sealed", updated_at),
        ("By", created_by),
        ("SPKI SHA-256", spki_sha256),
    );
    listing.print(client, SEALED_KEYS, &(), COLUMNS).await
}

pub(super) async fn withdraw(client: &Client, key: &str, consent: Consent) -> Outcome<()> {
    let path = format!("{SEALED_KEYS}/{}", input::segment(key));
    let KeyView { name, .. } = client.fetch(&path, &()).await?;
    if !consent.is_given() {
        confirm(&format!(
            "Withdraw the key {name:?}? Nodes stop signing with it, and it cannot be restored."
        ))?;
    }
    client.send(Method::DELETE, &path, None).await.map(drop)
}

fn read(file: &Path) -> Outcome<PrivateKey> {
    PrivateKey::from_file(file).map_err(|error| {
        Problem::usage(format_args!("{}: {error}", file.display())).hint(
            "give a private key in PEM or DER; `openssl pkey -in ENCRYPTED -out PLAIN` removes a passphrase",
        )
    })
}

/// Seals the key to the newest key pair of a policy. Returns the request for the server.
fn sealed(key: &PrivateKey, policy: &DetailView, name: &str) -> Outcome<KeyBody> {
    let strange = || {
        Problem::new(Exit::Machine, "the server's response is not a policy")
            .hint("check that the server has the same version")
    };
    let newest = policy.generations.last().ok_or_else(strange)?;
    let (id, generation) = (policy.policy.id, newest.generation);
    let to = KemPublic::from_text(&newest.public_key).map_err(|_| strange())?;
    let spki_sha256 = *key.spki_hash().as_bytes();
    let context = SealContext { policy: id.into_bytes(), generation, spki_sha256 };
    let sealed = seal_key(&to, key, &context).map_err(|error| Problem::new(Exit::Machine, error))?;
    Ok(KeyBody {
        name: name.to_owned(),
        spki: STANDARD.encode(key.spki()),
        policy: id.to_string(),
        generation,
        sealed: STANDARD.encode(sealed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use keys::KeyType;
    use keys::sealed::PolicyKey;
    use serde_json::json;
    use uuid::Uuid;

    #[test]
    fn key_is_sealed_to_the_newest_policy_key() {
        let (key, pair) = (PrivateKey::generate(KeyType::P256).unwrap(), PolicyKey::generate().unwrap());
        let former = PolicyKey::generate().unwrap();
        let id = Uuid::now_v7();
        let pairs = [(1, former.public().to_text()), (2, pair.public().to_text())];
        let mut policy = policy_with(id, pairs);
        let body = sealed(&key, &policy, "www").unwrap();
        assert_eq!((body.name.as_str(), body.generation), ("www", 2));
        let blob = STANDARD.decode(body.sealed).unwrap();
        let context =
            SealContext { policy: id.into_bytes(), generation: 2, spki_sha256: *key.spki_hash().as_bytes() };
        assert_eq!(pair.open_key(&blob, &context).unwrap().spki(), key.spki());
        policy.generations.clear();
        assert!(sealed(&key, &policy, "www").is_err());
    }

    fn policy_with(id: Uuid, pairs: [(u32, String); 2]) -> DetailView {
        let generations = pairs.map(|(generation, public_key)| {
            json!({ "generation": generation, "public_key": public_key, "wrapped": 0, "keys": 0, "lagging": [],
                "created_at": "2026-11-01T00:00:00Z" })
        });
        let policy = json!({ "id": id, "name": "eu", "formula": "region: EU", "generation": 2, "created_by": "user:a",
            "created_at": "2026-11-01T00:00:00Z", "updated_at": "2026-11-01T00:00:00Z", "nodes": 3,
            "generations": generations, "of a later version": true });
        serde_json::from_value(policy).unwrap()
    }
}
