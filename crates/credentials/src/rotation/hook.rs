//! Whom rotations are told to: an operator's service that is asked before a value becomes current, or told after.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use keys::Secret;
use keys::keyring::Context;
use serde_json::json;
use store::credentials::{
    CredentialAsker, HookCall, HookOutcome, HookRow, SEALED_HOOKS, delete_hook, put_hook,
    rotation_policy_that_tells, settle_hook_calls,
};
use uuid::Uuid;

use super::{HOOK_AT_ONCE, ROTATOR, RotationReport, backoff_us};
use crate::writing::Draft;
use crate::{CredentialError, Credentials};

/// Longest a hook may take to answer.
pub const HOOK_LIMIT: Duration = Duration::from_secs(15);
/// How long a hook may read the value it is asked about, s.
const CANDIDATE_S: u32 = 300;
/// Octets of the shortest secret: less than 128 bits can be guessed.
const SECRET_MIN: usize = 16;
/// Characters of the longest secret, URL, and set of roots.
const TEXT_MAX: usize = 65_536;
/// Longest wait until a hook is told again, µs: an hour.
const TOLD_AGAIN_MAX_US: i64 = 3_600_000_000;
/// Calls of one round.
const CALLS: usize = 64;

/// A hook as it is to be.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Its name: letters, digits, `-` and `_`, at most 64.
    pub name: String,
    /// Where it is posted to.
    pub url: String,
    /// What signs it: at least 16 octets.
    pub secret: Secret,
    /// Whether it is asked before a value becomes current; anything but 2xx keeps the old value.
    pub before: bool,
    /// Whether it is told after, again and again until it answers 2xx.
    pub after: bool,
    /// Certificates to trust there in place of the system's, PEM.
    pub roots: Option<String>,
}

/// A hook as it is shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ShownHook {
    /// Its name.
    pub name: String,
    /// Where.
    pub url: String,
    /// See [`Hook::before`].
    pub before: bool,
    /// See [`Hook::after`].
    pub after: bool,
    /// When it was set, µs.
    pub set_at_us: i64,
    /// By whom.
    pub set_by: String,
}

/// Posts to hooks. Given from outside: this crate opens no connection.
pub trait HookSender: Send + Sync {
    /// Posts a body that is signed under the hook's secret. `revision` names the hook as it is now, for a client that is
    /// kept. Answers once the other side has answered 2xx, within [`HOOK_LIMIT`].
    ///
    /// # Errors
    /// Why not, without secrets.
    fn post<'a>(&'a self, hook: &'a Hook, revision: Uuid, body: Vec<u8>)
    -> BoxFuture<'a, Result<(), String>>;
}

/// Hooks by name, opened.
pub(super) type Hooks = HashMap<String, (Uuid, Hook)>;

impl Hook {
    fn check(&self) -> Result<(), CredentialError> {
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(letters) {
            return Err(CredentialError::bad(
                "A hook's name has letters, digits, hyphens and underscores, at most 64.",
            ));
        }
        let https = self.url.starts_with("https://") || self.url.starts_with("http://");
        if !https || self.url.len() > TEXT_MAX {
            return Err(CredentialError::bad("A hook's url begins with https:// (or http://)."));
        }
        let secret = self.secret.expose().len();
        if !(SECRET_MIN..=TEXT_MAX).contains(&secret) {
            return Err(CredentialError::bad(format!("A hook's secret has at least {SECRET_MIN} octets.")));
        }
        if self.roots.as_ref().is_some_and(|roots| roots.len() > TEXT_MAX) {
            return Err(CredentialError::bad("A hook's roots are too long: give the one that signed."));
        }
        if !self.before && !self.after {
            return Err(CredentialError::bad("A hook is asked before, told after, or both."));
        }
        Ok(())
    }
}

fn context(id: &Uuid) -> Context<'_> {
    Context { table: SEALED_HOOKS.table, row: id.as_bytes(), column: SEALED_HOOKS.column }
}

fn only_all(asker: &CredentialAsker) -> Result<(), CredentialError> {
    if asker.everything { Ok(()) } else { Err(CredentialError::Forbidden) }
}

impl Credentials {
    /// Sets a hook, new or in place of the one of that name. For whoever may do everything: the server posts there.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] says what is wrong with it; [`CredentialError::Forbidden`].
    pub async fn set_hook(&self, asker: &CredentialAsker, hook: Hook) -> Result<ShownHook, CredentialError> {
        only_all(asker)?;
        hook.check()?;
        let id = Uuid::now_v7();
        let row = HookRow {
            id,
            sealed: self.keyring().seal(&context(&id), hook.secret.expose().as_bytes()),
            name: hook.name,
            url: hook.url,
            before: hook.before,
            after: hook.after,
            roots: hook.roots,
            set_at_us: self.now_us(),
            set_by: asker.actor.clone(),
        };
        let shown = shown(&row);
        let details = json!({ "url": row.url, "before": row.before, "after": row.after });
        let mut event = self.event(asker, "credential.hook", "", details);
        event.resource = format!("credential_hook/{}", row.name);
        let put = self.store().write("credential_hook_put", move |tx| {
            async move {
                put_hook(tx, &row).await?;
                store::audit(tx, vec![event]).await
            }
            .boxed()
        });
        put.await?;
        Ok(shown)
    }

    /// Removes a hook.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] while a policy names it; [`CredentialError::NotFound`]; [`CredentialError::Forbidden`].
    pub async fn delete_hook(&self, asker: &CredentialAsker, name: &str) -> Result<(), CredentialError> {
        only_all(asker)?;
        let mut event = self.event(asker, "credential.hook_removed", "", json!({}));
        event.resource = format!("credential_hook/{name}");
        let name = name.to_owned();
        let gone = self.store().write("credential_hook_delete", move |tx| {
            async move {
                if let Some(path) = rotation_policy_that_tells(tx, &name).await? {
                    return Ok(Err(path));
                }
                let gone = delete_hook(tx, &name).await?;
                if gone {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(Ok(gone))
            }
            .boxed()
        });
        match gone.await? {
            Ok(true) => Ok(()),
            Ok(false) => Err(CredentialError::NotFound),
            Err(path) => Err(CredentialError::bad(format!(
                "The policy for {path} names this hook. Set it without the hook first."
            ))),
        }
    }

    /// The hooks, by name; never their secrets.
    ///
    /// # Errors
    /// [`CredentialError::Forbidden`].
    pub async fn hooks(&self, asker: &CredentialAsker) -> Result<Vec<ShownHook>, CredentialError> {
        only_all(asker)?;
        Ok(self.store().credential_hooks().await?.iter().map(shown).collect())
    }

    /// All hooks, opened. One whose secret does not open is left out, and the log says so.
    pub(super) async fn opened_hooks(&self) -> Result<Hooks, CredentialError> {
        let mut hooks = Hooks::new();
        for row in self.store().credential_hooks().await? {
            let opened = self.keyring().open_sealed(&context(&row.id), &row.sealed);
            let secret = opened.ok().and_then(|octets| String::from_utf8(octets.to_vec()).ok());
            let Some(secret) = secret else {
                tracing::error!(hook = row.name, "the secret of a hook does not open; set it again");
                continue;
            };
            let hook = Hook {
                name: row.name.clone(),
                url: row.url,
                secret: Secret::new(secret),
                before: row.before,
                after: row.after,
                roots: row.roots,
            };
            hooks.insert(row.name, (row.id, hook));
        }
        Ok(hooks)
    }

    /// Asks a hook whether a value may become current: it reads the value by a token that is good once.
    pub(super) async fn ask_hook(
        &self,
        hooks: &Hooks,
        name: Option<&String>,
        draft: &Draft,
    ) -> Result<(), super::RotateError> {
        let Some(name) = name else { return Ok(()) };
        let Some((revision, hook)) = hooks.get(name) else {
            return Err(super::RotateError::Hook(format!(
                "there is no hook {name:?}, or its secret does not open"
            )));
        };
        if !hook.before {
            return Ok(());
        }
        let what = (draft.name.as_str(), Uuid::nil());
        let wrapped = self.wrap_value(ROTATOR, what, &draft.value, CANDIDATE_S).await?;
        let body = json!({
            "event": "credential.rotation_proposed",
            "name": draft.name.as_str(),
            "type": draft.value.kind().name(),
            "token": wrapped.token.expose(),
            "expires_at_us": wrapped.expires_at_us,
        });
        self.post(hook, *revision, &body).await.map_err(super::RotateError::Hook)
    }

    async fn post(&self, hook: &Hook, revision: Uuid, body: &serde_json::Value) -> Result<(), String> {
        let Some(sender) = self.hook_sender() else {
            return Err("this process posts to no hooks".to_owned());
        };
        let sent = sender.post(hook, revision, body.to_string().into_bytes());
        match tokio::time::timeout(HOOK_LIMIT, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(format!("{}: {why}", hook.name)),
            Err(_) => Err(format!("{}: no answer within {} s", hook.name, HOOK_LIMIT.as_secs())),
        }
    }

    /// Tells hooks what they have not acknowledged: each call once, those in vain again later.
    pub(super) async fn call_hooks(&self, report: &mut RotationReport) -> Result<(), CredentialError> {
        use futures_util::StreamExt;
        let due = self.store().hook_calls_due(self.now_us(), CALLS).await?;
        if due.is_empty() {
            return Ok(());
        }
        let hooks = self.opened_hooks().await?;
        let mut calls = Vec::with_capacity(due.len());
        for call in &due {
            calls.push(self.call(&hooks, call));
        }
        let outcomes: Vec<HookOutcome> =
            futures_util::stream::iter(calls).buffer_unordered(HOOK_AT_ONCE).collect().await;
        let acknowledged = outcomes.iter().filter(|outcome| outcome.next_at_us.is_none()).count();
        report.told += acknowledged as u64;
        report.untold += (outcomes.len() - acknowledged) as u64;
        let settle = self.store().write("credential_hook_calls", move |tx| {
            async move { settle_hook_calls(tx, &outcomes).await }.boxed()
        });
        Ok(settle.await?)
    }

    async fn call(&self, hooks: &Hooks, call: &HookCall) -> HookOutcome {
        let told = match hooks.get(&call.hook) {
            Some((revision, hook)) => {
                let body = json!({
                    "event": "credential.rotated", "name": call.name, "type": call.kind, "version": call.version,
                    "at_us": call.at_us,
                });
                self.post(hook, *revision, &body).await
            }
            None => Err("it does not open".to_owned()),
        };
        if let Err(why) = &told {
            tracing::warn!(
                hook = call.hook,
                why,
                tries = call.tries + 1,
                "a hook was not told of a rotation"
            );
        }
        let again = || self.now_us().saturating_add(backoff_us(call.tries).min(TOLD_AGAIN_MAX_US));
        HookOutcome { id: call.id, next_at_us: told.is_err().then(again) }
    }
}

fn shown(row: &HookRow) -> ShownHook {
    ShownHook {
        name: row.name.clone(),
        url: row.url.clone(),
        before: row.before,
        after: row.after,
        set_at_us: row.set_at_us,
        set_by: row.set_by.clone(),
    }
}
