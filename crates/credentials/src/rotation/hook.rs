//! Rotation hooks: services that must agree before a value becomes current, or are notified afterwards.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use keys::Secret;
use keys::keyring::Context;
use parking_lot::Mutex;
use serde_json::json;
use uuid::Uuid;

use super::error::RotateError;
use super::pace::{PAGES, backoff_us};
use super::plan::ROTATOR;
use super::report::RotationReport;
use super::sender::{HOOK_LIMIT, Hook};
use crate::tables;
use crate::tables::{
    HOOKS_MAX, HookCall, HookOutcome, HookRow, Requester, SEALED_HOOKS, delete_hook, put_hook,
    record_hook_outcomes, rotation_policy_with_hook,
};
use crate::writing::Draft;
use crate::{CredentialError, Credentials};

/// Minimum duration of a failed call after which its hook counts as timed out. Such a hook gets no further call in the same round,
/// because it would delay the other hooks.
const SLOW: Duration = Duration::from_secs(5);
/// Lifetime of the single-use token with which a hook reads the new value, µs. The token is deleted earlier, when the hook responds
/// or times out.
const CANDIDATE_US: i64 = 300_000_000;
/// Maximum concurrent hook calls per process.
const HOOK_AT_ONCE: usize = 8;
/// Minimum bytes of a secret: a key of less than 128 bits can be guessed.
const SECRET_MIN: usize = 16;
/// Maximum characters of a secret, a URL, and a set of roots.
const TEXT_MAX: usize = 65_536;
/// Maximum delay before a failed notification is retried, µs: an hour.
const RETRY_MAX_US: i64 = 3_600_000_000;
/// Maximum hook calls in one page.
const CALLS: usize = 64;
/// Time limit of the hook calls in a round. After this time no further page of calls starts, so that slow hooks do not delay the
/// next round.
const CALLS_WITHIN: Duration = HOOK_LIMIT;

/// A hook without its secret, for display.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookInfo {
    /// Unique name of the hook.
    pub name: String,
    /// URL that receives the notifications.
    pub url: String,
    /// See [`Hook::before`].
    pub before: bool,
    /// See [`Hook::after`].
    pub after: bool,
    /// Time of the last change, µs since 1970-01-01 UTC.
    pub set_at_us: i64,
    /// Actor that made the last change.
    pub set_by: String,
}

/// Names of hooks that timed out in this round.
#[derive(Clone, Default)]
pub(super) struct TimedOutHooks(Arc<Mutex<HashSet<String>>>);

/// Hooks by name with their revision and decrypted secret. A hook whose secret cannot be decrypted has no entry.
#[derive(Default)]
pub(super) struct Hooks {
    by_name: HashMap<String, Option<(Uuid, Hook)>>,
    pub(super) timed_out: TimedOutHooks,
}

impl Hooks {
    pub(super) fn none(timed_out: &TimedOutHooks) -> Self {
        Self { by_name: HashMap::new(), timed_out: timed_out.clone() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the hook that must agree to a value, if the policy names one. Called before the value is generated.
    pub(super) fn approval_hook(&self, name: Option<&String>) -> Result<Option<&(Uuid, Hook)>, RotateError> {
        let Some(name) = name else { return Ok(None) };
        let Some(Some(found)) = self.by_name.get(name) else {
            return Err(RotateError::Hook(format!(
                "the hook {name:?} does not exist, or its secret cannot be decrypted"
            )));
        };
        if !found.1.before {
            return Ok(None);
        }
        self.check_not_timed_out(name).map_err(RotateError::Hook)?;
        Ok(Some(found))
    }

    /// Returns an error if the hook has timed out in this round.
    fn check_not_timed_out(&self, name: &str) -> Result<(), String> {
        match self.timed_out.0.lock().contains(name) {
            true => Err(format!("{name}: the hook timed out earlier in this rotation round")),
            false => Ok(()),
        }
    }
}

impl Hook {
    fn check(&self) -> Result<(), CredentialError> {
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(letters) {
            return Err(CredentialError::bad(
                "A hook's name can have letters, digits, hyphens and underscores, and at most 64 characters.",
            ));
        }
        let https = self.url.starts_with("https://") || self.url.starts_with("http://");
        if !https || self.url.len() > TEXT_MAX {
            return Err(CredentialError::bad("A hook's url must begin with https:// or http://."));
        }
        let secret = self.secret.expose().len();
        if !(SECRET_MIN..=TEXT_MAX).contains(&secret) {
            return Err(CredentialError::bad(format!(
                "A hook's secret must have at least {SECRET_MIN} bytes."
            )));
        }
        if self.roots.as_ref().is_some_and(|roots| roots.len() > TEXT_MAX) {
            return Err(CredentialError::bad(
                "A hook's roots are too long: give only the root that signed the hook's certificate.",
            ));
        }
        if !self.before && !self.after {
            return Err(CredentialError::bad("A hook must be called before a rotation, after it, or both."));
        }
        Ok(())
    }
}

fn context(id: &Uuid) -> Context<'_> {
    Context { table: SEALED_HOOKS.table, row: id.as_bytes(), column: SEALED_HOOKS.column }
}

fn require_full_access(requester: &Requester) -> Result<(), CredentialError> {
    if requester.full_access { Ok(()) } else { Err(CredentialError::Forbidden) }
}

impl Credentials {
    /// Creates a hook, or replaces the hook of that name. The caller needs full access, because the server posts to the URL.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for an invalid hook, or when there are 1,000; [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn set_hook(&self, requester: &Requester, hook: Hook) -> Result<HookInfo, CredentialError> {
        require_full_access(requester)?;
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
            set_by: requester.actor.clone(),
        };
        let hook_info = hook_info(&row);
        let details = json!({ "url": row.url, "before": row.before, "after": row.after });
        let mut event = self.event(requester, "credential.hook", "", details);
        event.resource = format!("credential_hook/{}", row.name);
        let put = self.store().write("credential_hook_put", move |tx| {
            async move {
                let put = put_hook(tx, &row).await?;
                if put {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(put)
            }
            .boxed()
        });
        if put.await? {
            return Ok(hook_info);
        }
        Err(CredentialError::bad(format!(
            "The limit of {HOOKS_MAX} hooks is reached. Remove one first: `bulla credential rotation hook remove`."
        )))
    }

    /// Deletes a hook.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] while a policy names the hook; [`CredentialError::NotFound`]; [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn delete_hook(&self, requester: &Requester, name: &str) -> Result<(), CredentialError> {
        require_full_access(requester)?;
        let mut event = self.event(requester, "credential.hook_removed", "", json!({}));
        event.resource = format!("credential_hook/{name}");
        let name = name.to_owned();
        let deleted = self.store().write("credential_hook_delete", move |tx| {
            async move {
                if let Some(path) = rotation_policy_with_hook(tx, &name).await? {
                    return Ok(Err(path));
                }
                let deleted = delete_hook(tx, &name).await?;
                if deleted {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(Ok(deleted))
            }
            .boxed()
        });
        match deleted.await? {
            Ok(true) => Ok(()),
            Ok(false) => Err(CredentialError::NotFound),
            Err(path) => Err(CredentialError::bad(format!(
                "The policy for {path} uses this hook. Remove the hook from the policy first."
            ))),
        }
    }

    /// Lists the hooks without their secrets, sorted by name.
    ///
    /// # Errors
    /// [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn hooks(&self, requester: &Requester) -> Result<Vec<HookInfo>, CredentialError> {
        require_full_access(requester)?;
        Ok(tables::Credentials::of(self.store()).hooks().await?.iter().map(hook_info).collect())
    }

    /// Returns all hooks with decrypted secrets. Logs a secret that cannot be decrypted.
    pub(super) async fn load_hooks(&self, timed_out: &TimedOutHooks) -> Result<Hooks, CredentialError> {
        let mut hooks = Hooks::none(timed_out);
        for row in tables::Credentials::of(self.store()).hooks().await? {
            let opened = self.keyring().open_sealed(&context(&row.id), &row.sealed);
            let secret = opened.ok().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
            let Some(secret) = secret else {
                tracing::error!(hook = row.name, "the secret of a hook cannot be decrypted; set it again");
                hooks.by_name.insert(row.name, None);
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
            hooks.by_name.insert(row.name, Some((row.id, hook)));
        }
        Ok(hooks)
    }

    /// Asks a hook whether a value may become current. The hook reads the value with a single-use token, which is deleted when the
    /// hook responds or times out.
    pub(super) async fn request_hook_approval(
        &self,
        hooks: &Hooks,
        (revision, hook): &(Uuid, Hook),
        draft: &Draft,
    ) -> Result<(), RotateError> {
        let what = (draft.name.as_str(), Uuid::nil());
        let until_us = self.now_us().saturating_add(CANDIDATE_US);
        let wrapped = self.wrap_value(ROTATOR, what, &draft.value, until_us).await?;
        let wrapped = wrapped.ok_or(RotateError::Full)?;
        let body = json!({
            "event": "credential.rotation_proposed",
            "name": draft.name.as_str(),
            "type": draft.value.kind().name(),
            "token": wrapped.token.expose(),
            "expires_at_us": wrapped.expires_at_us,
        });
        let answer = self.post(hooks, hook, *revision, &body).await;
        if let Err(error) = self.delete_wrapped(&wrapped).await {
            tracing::warn!(%error, "the token of a candidate value could not be deleted; it can be read until it expires");
        }
        answer.map_err(RotateError::Hook)
    }

    async fn post(
        &self,
        hooks: &Hooks,
        hook: &Hook,
        revision: Uuid,
        body: &serde_json::Value,
    ) -> Result<(), String> {
        let Some(sender) = self.hook_sender() else {
            return Err("this process does not call hooks".to_owned());
        };
        hooks.check_not_timed_out(&hook.name)?;
        let began = tokio::time::Instant::now();
        let sent = sender.post(hook, revision, body.to_string().into_bytes());
        let answer = match tokio::time::timeout(HOOK_LIMIT, sent).await {
            Ok(answer) => answer.map_err(|why| format!("{}: {why}", hook.name)),
            Err(_) => Err(format!("{}: no answer within {} s", hook.name, HOOK_LIMIT.as_secs())),
        };
        if answer.is_err() && began.elapsed() >= SLOW {
            hooks.timed_out.0.lock().insert(hook.name.clone());
        }
        answer
    }

    /// Sends pending notifications to hooks, page by page and each once. Failed notifications are retried later, and a hook that
    /// failed gets no further call in this round.
    pub(super) async fn call_hooks(
        &self,
        timed_out: &TimedOutHooks,
        report: &mut RotationReport,
    ) -> Result<(), CredentialError> {
        let (began, mut failed) = (tokio::time::Instant::now(), HashSet::new());
        for _ in 0..PAGES {
            if self.is_read_only() || began.elapsed() >= CALLS_WITHIN {
                return Ok(());
            }
            let mut due = tables::Credentials::of(self.store()).hook_calls_due(self.now_us(), CALLS).await?;
            due.retain(|call| !failed.contains(&call.hook));
            if due.is_empty() {
                return Ok(());
            }
            let outcomes = self.call_hooks_page(&due, timed_out).await?;
            for (call, outcome) in due.into_iter().zip(&outcomes) {
                match outcome.next_at_us {
                    None => report.told += 1,
                    Some(_) => {
                        report.undelivered += 1;
                        failed.insert(call.hook);
                    }
                }
            }
            let settle = self.store().write("credential_hook_calls", move |tx| {
                async move { record_hook_outcomes(tx, &outcomes).await }.boxed()
            });
            settle.await?;
        }
        Ok(())
    }

    /// Makes these calls, and returns their results in the same order.
    async fn call_hooks_page(
        &self,
        due: &[HookCall],
        timed_out: &TimedOutHooks,
    ) -> Result<Vec<HookOutcome>, CredentialError> {
        let hooks = self.load_hooks(timed_out).await?;
        let calls: Vec<_> = due.iter().map(|call| self.call(&hooks, call)).collect();
        Ok(futures_util::stream::iter(calls).buffered(HOOK_AT_ONCE).collect().await)
    }

    async fn call(&self, hooks: &Hooks, call: &HookCall) -> HookOutcome {
        let told = match hooks.by_name.get(&call.hook) {
            Some(Some((revision, hook))) => {
                let body = json!({
                    "event": "credential.rotated", "name": call.name, "type": call.kind, "version": call.version,
                    "at_us": call.at_us,
                });
                self.post(hooks, hook, *revision, &body).await
            }
            Some(None) => Err("the secret of the hook cannot be decrypted".to_owned()),
            // The hook was deleted after the call was queued, so that no notification is due.
            None => Ok(()),
        };
        if let Err(why) = &told {
            tracing::warn!(
                hook = call.hook,
                why,
                tries = call.tries + 1,
                "a hook could not be notified of a rotation"
            );
        }
        let retry_at_us = || self.now_us().saturating_add(backoff_us(call.tries).min(RETRY_MAX_US));
        HookOutcome { id: call.id, next_at_us: told.is_err().then(retry_at_us) }
    }
}

fn hook_info(row: &HookRow) -> HookInfo {
    HookInfo {
        name: row.name.clone(),
        url: row.url.clone(),
        before: row.before,
        after: row.after,
        set_at_us: row.set_at_us,
        set_by: row.set_by.clone(),
    }
}
