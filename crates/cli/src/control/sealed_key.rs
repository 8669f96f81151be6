//! Private keys that are sealed to policies: sealed here, where the key is.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use keys::sealed::{KemPublic, SealContext, seal_key};
use keys::{PrivateKey, Signer as _};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::consent::confirm;
use super::input;
use super::key_policy::path;
use crate::api::{Client, Columns, Listing, Output, show_one};
use crate::exit::{Exit, Outcome, Problem};

const SEALED_KEYS: &str = "/api/v1/sealed-keys";

/// What to seal, to which policy.
#[derive(Args, Debug)]
pub struct SealArgs {
    /// The policy
    #[arg(long, value_name = "NAME")]
    policy: String,
    /// The private key, PEM or DER, not encrypted; it does not leave this machine as it is
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// What to call it; the file's name without its end when absent
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    show: Output,
}

impl SealArgs {
    pub(super) async fn run(&self, client: &Client) -> Outcome<()> {
        let key = read(&self.key)?;
        let policy = client.get(&path(&self.policy), &[]).await?;
        let body = sealed(&key, &policy, &self.name())?;
        show_one(&client.send(Method::POST, SEALED_KEYS, Some(&body)).await?, &self.show)
    }

    fn name(&self) -> String {
        let stem = || self.key.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        self.name.clone().or_else(stem).unwrap_or_default()
    }
}

pub(super) async fn list(client: &Client, listing: &Listing) -> Outcome<()> {
    const COLUMNS: Columns = &[
        ("Name", "/name"),
        ("Kind", "/kind"),
        ("Policy", "/policy_name"),
        ("Generation", "/generation"),
        ("Sealed", "/updated_at"),
        ("By", "/created_by"),
        ("SPKI SHA-256", "/spki_sha256"),
    ];
    listing.print(client, SEALED_KEYS, &[], COLUMNS).await
}

pub(super) async fn withdraw(client: &Client, key: &str, yes: bool) -> Outcome<()> {
    let path = format!("{SEALED_KEYS}/{}", input::segment(key));
    let found = client.get(&path, &[]).await?;
    let name = found["name"].as_str().unwrap_or_default();
    confirm(
        &format!("Withdraw the key {name:?}? Nodes sign with it no more, and it cannot be had back."),
        yes,
    )?;
    client.send(Method::DELETE, &path, None).await.map(drop)
}

fn read(file: &Path) -> Outcome<PrivateKey> {
    PrivateKey::from_file(file).map_err(|error| {
        Problem::usage(format_args!("{}: {error}", file.display()))
            .hint("give a private key in PEM or DER; `openssl pkey -in ENCRYPTED -out PLAIN` takes a passphrase away")
    })
}

/// The key, sealed to the newest pair of a policy, as the server takes it.
fn sealed(key: &PrivateKey, policy: &Value, name: &str) -> Outcome<Value> {
    let strange =
        || Problem::new(Exit::Machine, "the server's answer is not a policy").hint("is it of this version?");
    let newest = policy["generations"].as_array().and_then(|all| all.last()).ok_or_else(strange)?;
    let id: Uuid = policy["id"].as_str().and_then(|id| id.parse().ok()).ok_or_else(strange)?;
    let generation = newest["generation"].as_u64().and_then(|number| u32::try_from(number).ok());
    let generation = generation.ok_or_else(strange)?;
    let to =
        newest["public_key"].as_str().and_then(|text| KemPublic::from_text(text).ok()).ok_or_else(strange)?;
    let spki_sha256 = *key.spki_hash().as_bytes();
    let context = SealContext { policy: id.into_bytes(), generation, spki_sha256 };
    let sealed = seal_key(&to, key, &context).map_err(|error| Problem::new(Exit::Machine, error))?;
    Ok(json!({
        "name": name,
        "spki": STANDARD.encode(key.spki()),
        "policy": id,
        "generation": generation,
        "sealed": STANDARD.encode(sealed),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keys::KeyType;
    use keys::sealed::PolicyKey;

    #[test]
    fn a_key_is_sealed_to_the_newest_pair_and_nothing_else_is_said_of_it() {
        let (key, pair) = (PrivateKey::generate(KeyType::P256).unwrap(), PolicyKey::generate().unwrap());
        let former = PolicyKey::generate().unwrap();
        let id = Uuid::now_v7();
        let policy = json!({ "id": id, "generations": [
            { "generation": 1, "public_key": former.public().to_text() },
            { "generation": 2, "public_key": pair.public().to_text() },
        ] });
        let body = sealed(&key, &policy, "www").unwrap();
        assert_eq!((&body["name"], &body["generation"]), (&json!("www"), &json!(2)));
        let blob = STANDARD.decode(body["sealed"].as_str().unwrap()).unwrap();
        let context =
            SealContext { policy: id.into_bytes(), generation: 2, spki_sha256: *key.spki_hash().as_bytes() };
        assert_eq!(pair.open_key(&blob, &context).unwrap().spki(), key.spki());
        assert_eq!(body.as_object().unwrap().len(), 5);
        for strange in [json!({}), json!({ "id": id, "generations": [] })] {
            assert!(sealed(&key, &strange, "www").is_err());
        }
    }
}
