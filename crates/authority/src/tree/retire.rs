//! Retirement of a CA in two steps.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, StoreError, Tx};
use uuid::Uuid;
use x509::UnixTime;

use super::default::default_issuing_ca;
use super::error::RetireError;
use super::{Ca, CaState};
use crate::Authority;
use crate::tables;

/// The step of a CA's retirement that a call completed: see [`Authority::retire`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retirement {
    /// The CA issues no more certificates, but still signs CRLs and OCSP responses.
    Begun,
    /// The CA no longer signs anything.
    Done,
}

/// Limit for the count of valid certificates. Larger numbers are not distinguished.
const VALID_COUNT_MAX: i64 = 1_000_000;
/// Maximum number of profiles that an error lists.
const NAMED_MAX: usize = 5;
/// Number of profiles to read at a time.
const PROFILES_PAGE: usize = 100;

impl Authority {
    /// Retires a CA (identifier or name) one step further: an active CA then issues no more certificates, and a retiring CA no
    /// longer signs anything. The first step requires another CA that issues, and that no profile names this CA. The second step
    /// requires that all issued certificates have expired; certificates of retired CAs do not count.
    ///
    /// # Errors
    /// [`RetireError`]
    #[crate::boxed]
    pub async fn retire(&self, ca: &str, actor: &str) -> Result<Retirement, RetireError> {
        self.advance_retirement(ca, false, actor).await
    }

    /// Retires a CA one step further like [`Self::retire`], but does not check the conditions. Profiles that name this CA issue
    /// no more certificates. Clients can check the revocation of still valid certificates only until the last CRL expires.
    ///
    /// # Errors
    /// [`RetireError`]
    #[crate::boxed]
    pub async fn force_retire(&self, ca: &str, actor: &str) -> Result<Retirement, RetireError> {
        self.advance_retirement(ca, true, actor).await
    }

    async fn advance_retirement(
        &self,
        ca: &str,
        force: bool,
        actor: &str,
    ) -> Result<Retirement, RetireError> {
        let ca = self.ca(ca).await?;
        let done = match ca.state {
            CaState::Active => {
                if !force {
                    self.check_retirable(&ca).await?;
                }
                self.begin_retiring(&ca, actor).await?
            }
            CaState::Retiring => self.finish_retiring(&ca, force, actor).await?,
            CaState::Retired => return Err(RetireError::Retired(ca.name.clone())),
        };
        self.invalidate_cas_cache();
        Ok(done)
    }

    /// Checks that all profiles and requests can still issue certificates without `ca`.
    async fn check_retirable(&self, ca: &Arc<Ca>) -> Result<(), RetireError> {
        if ca.credential.is_some() {
            return Ok(());
        }
        let profiles = self.profiles_naming_ca(ca).await?;
        if !profiles.is_empty() {
            let name = ca.name.clone();
            return Err(RetireError::Named { name, profiles: profiles.join(", ") });
        }
        let now = UnixTime(self.clock().now_seconds());
        let forest = self.forest().await?;
        let issues = default_issuing_ca(&forest.all, now, None).is_some();
        let next = default_issuing_ca(&forest.all, now, Some(ca.id));
        let replaced = next.is_some_and(|next| Some(next.id) != ca.parent);
        if issues && !replaced { Err(RetireError::Last(ca.name.clone())) } else { Ok(()) }
    }

    /// Returns the names of the profiles that name a CA, at most [`NAMED_MAX`].
    async fn profiles_naming_ca(&self, ca: &Ca) -> Result<Vec<String>, RetireError> {
        let id = ca.id.to_string();
        let (mut named, mut after) = (Vec::new(), None);
        loop {
            let page = self.profiles(after.as_ref(), PROFILES_PAGE).await?;
            let profiles = page.rows.into_iter().map(|record| record.profile);
            let by =
                profiles.filter(|profile| profile.ca.as_deref().is_some_and(|by| by == ca.name || by == id));
            named.extend(by.map(|profile| profile.name.clone()).take(NAMED_MAX - named.len()));
            after = page.next;
            if after.is_none() || named.len() == NAMED_MAX {
                return Ok(named);
            }
        }
    }

    async fn begin_retiring(&self, ca: &Arc<Ca>, actor: &str) -> Result<Retirement, RetireError> {
        let event = self.event("ca.retiring", ca.id, actor, json!({ "name": ca.name }));
        let id = ca.id;
        let moved = self
            .store()
            .write("ca_retiring", move |tx| begin_retiring_and_audit(tx, id, event).boxed())
            .await?;
        if moved { Ok(Retirement::Begun) } else { Err(RetireError::Changed(ca.name.clone())) }
    }

    /// Completes the retirement. Valid certificates are counted before the transaction: a retiring CA issues no more certificates,
    /// so their number can only decrease.
    async fn finish_retiring(
        &self,
        ca: &Arc<Ca>,
        force: bool,
        actor: &str,
    ) -> Result<Retirement, RetireError> {
        let id = ca.id;
        if !force {
            let certificates = tables::CaCache::of(self.store())
                .count_valid_certificates(id, self.clock().now_us(), VALID_COUNT_MAX)
                .await?;
            if certificates > 0 {
                return Err(RetireError::StillNeeded { name: ca.name.clone(), certificates });
            }
        }
        let event = self.event("ca.retired", id, actor, json!({ "name": ca.name, "forced": force }));
        let moved = self
            .store()
            .write("ca_retired", move |tx| finish_retiring_and_audit(tx, id, event).boxed())
            .await?;
        if moved { Ok(Retirement::Done) } else { Err(RetireError::Changed(ca.name.clone())) }
    }
}

async fn begin_retiring_and_audit(tx: &mut Tx, id: Uuid, event: AuditEvent) -> Result<bool, StoreError> {
    let moved = tables::begin_retiring_ca(tx, id, event.at_us).await?;
    if moved {
        store::audit(tx, vec![event]).await?;
    }
    Ok(moved)
}

async fn finish_retiring_and_audit(tx: &mut Tx, id: Uuid, event: AuditEvent) -> Result<bool, StoreError> {
    let moved = tables::finish_retiring_ca(tx, id, event.at_us).await?;
    if moved {
        store::audit(tx, vec![event]).await?;
    }
    Ok(moved)
}
