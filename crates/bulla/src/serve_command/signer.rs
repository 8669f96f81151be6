//! `bulla serve --roles signer`: the only process that has the CA keys.

use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use authority::keystore::KeyStore;
use authority::signer_checks::{CheckedCaKeys, SIGNER_PROVIDER, SignerRules};
use authority::{Authority, AuthorityOptions};
use cli::exit::{Exit, Outcome, Problem, chain};
use futures_util::FutureExt;
use keys::Keyring;
use lifecycle::RunApprovals;
use outbound::resolve::Resolver;
use serde_json::json;
use signer::{SealedKeys, SignerOptions, SignerServer, uid_of};
use store::{AuditEvent, Clock, Store};
use tokio_util::sync::CancellationToken;

use super::addresses::Addresses;
use super::control_plane::authority_options;
use crate::config::{Settings, SignerSettings};
use crate::data_folder;
use crate::master_keys;
use discover::database;

/// Name of the folder of the newest CRLs.
const CRLS: &str = "crls";
/// The actor in the audit log when CA keys are moved.
const ACTOR: &str = "system:signer";

/// The work of a signer process: serve signing requests, or move the CA keys once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SignerTask {
    /// Serves signing requests, until it is stopped.
    Serve,
    /// Moves the server's CA keys to the signer, once.
    MoveKeys,
}

/// Runs the task of the signer. [`SignerTask::Serve`] runs until `stop` is cancelled.
pub(super) async fn run(
    settings: &Settings,
    store: &Store,
    task: SignerTask,
    stop: CancellationToken,
) -> Outcome<Exit> {
    let clock = Clock::system();
    let resolver = Resolver::system()
        .map_err(|error| Problem::new(Exit::Machine, chain(&error)).hint("check /etc/resolv.conf"))?;
    let own = master_keys::signer_keystore(settings, store, &clock, &resolver).await?;
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    keystore.add_provider(Arc::new(SealedKeys::new(own.ring())));
    master_keys::add_pkcs11_module(settings, &keystore).await?;
    let addresses = Addresses::of(&settings.server, &settings.credentials.url)?;
    let options: AuthorityOptions = authority_options(&settings.authority, &addresses)?;
    let authority = Authority::open(store.clone(), keystore, clock.clone(), options)
        .map_err(|error| Problem::usage(chain(&error)).hint("correct server.public_url"))?;
    if task == SignerTask::MoveKeys {
        return move_keys(&authority, &own, store, &clock).await;
    }
    let rules = SignerRules { profiles: settings.signer.pinned()?, crl_folder: Some(crl_folder()?) };
    let consents = Arc::new(RunApprovals::new(store.clone()));
    let checked = Arc::new(CheckedCaKeys::new(authority, rules, consents));
    let server = SignerServer::start(socket(&settings.signer)?, checked, stop.clone()).await;
    let server = server.map_err(|error| {
        Problem::new(Exit::Machine, chain(&error))
            .hint("correct the folder of signer.socket, or signer.access")
    })?;
    eprintln!("the signer listens on {}", settings.signer.socket.display());
    stop.cancelled().await;
    if !server.stop().await {
        eprintln!("some signing requests had not finished and were aborted");
    }
    Ok(Exit::Ok)
}

/// Returns the folder of the newest CRLs, in the signer's data folder.
fn crl_folder() -> Outcome<PathBuf> {
    let folder = data_folder::folder()?.join(CRLS);
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700).create(&folder).map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot create {}: {error}", folder.display()))
            .hint("set BULLA_DATA to a folder that the signer may write to")
    })?;
    Ok(folder)
}

fn socket(settings: &SignerSettings) -> Outcome<SignerOptions> {
    let own = rustix::process::geteuid().as_raw();
    let users = match settings.users.as_slice() {
        [] => BTreeSet::from([own]),
        users => users.iter().map(|user| uid_of(user)).collect::<Result<_, _>>().map_err(|error| {
            Problem::usage(format_args!("signer.users: {error}")).hint("name the users that servers run as")
        })?,
    };
    Ok(SignerOptions { path: settings.socket.clone(), users, access: settings.access()? })
}

/// Re-encrypts the CA keys from the server's master key to the signer's. `own` must have both master keys.
async fn move_keys(authority: &Authority, own: &KeyStore, store: &Store, clock: &Clock) -> Outcome<Exit> {
    let failed = |error: &dyn std::error::Error| {
        Problem::new(Exit::Inventory, format_args!("CA keys were not moved: {}", chain(error)))
            .hint("add the server's master key to authority.old_master_keys for this one start")
    };
    let cas = authority.cas().await.map_err(|error| failed(&error))?;
    let pending = authority.pending_cas().await.map_err(|error| failed(&error))?;
    let keys = cas.iter().map(|ca| (ca.key_id, ca.name.clone()));
    let keys: Vec<_> = keys.chain(pending.iter().map(|ca| (ca.key_id, ca.name.clone()))).collect();
    let sealed = SealedKeys::new(own.ring());
    for (id, name) in keys {
        let row = store::Keys::of(store).get(id).await.map_err(|error| database::problem(&error))?;
        if row.is_none_or(|row| row.sealed.is_none()) {
            continue;
        }
        let key = own.private_key(id).await.map_err(|error| failed(&error))?;
        let locator = sealed.seal(&key).locator;
        let event = AuditEvent {
            at_us: clock.now_us(),
            actor: ACTOR.to_owned(),
            action: "key.move",
            resource: format!("key/{id}"),
            details: json!({ "provider": SIGNER_PROVIDER, "ca": name }),
        };
        let moved = store.write("key_move", move |tx| {
            async move {
                store::move_key(tx, id, SIGNER_PROVIDER, &locator).await?;
                store::audit(tx, vec![event]).await
            }
            .boxed()
        });
        moved.await.map_err(|error| database::problem(&error))?;
        eprintln!("the key of the CA {name} was moved to the signer");
    }
    Ok(Exit::Ok)
}
