//! The end of an authority, in two steps.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, StoreError, Tx};
use uuid::Uuid;

use super::error::RetireError;
use super::{Ca, CaState};
use crate::Authority;
use crate::tables;

/// What a call of [`Authority::retire`] did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retirement {
    /// It issues no more; CRLs and OCSP responses go on.
    Begun,
    /// It signs nothing any more.
    Done,
}

/// Living certificates counted before one gives up: more are not told apart.
const LIVING_MAX: i64 = 1_000_000;

impl Authority {
    /// Retires an authority (id or name) one step further: an active one issues no more, and a retiring one signs
    /// nothing any more. The second step needs every certificate that it issued to be expired or revoked.
    ///
    /// # Errors
    /// [`RetireError`]
    #[crate::boxed]
    pub async fn retire(&self, ca: &str, actor: &str) -> Result<Retirement, RetireError> {
        self.step_down(ca, false, actor).await
    }

    /// As [`Self::retire`], also while certificates that it issued are valid. Clients can check these for revocation only
    /// until the last CRL expires.
    ///
    /// # Errors
    /// [`RetireError`]
    #[crate::boxed]
    pub async fn force_retire(&self, ca: &str, actor: &str) -> Result<Retirement, RetireError> {
        self.step_down(ca, true, actor).await
    }

    async fn step_down(&self, ca: &str, force: bool, actor: &str) -> Result<Retirement, RetireError> {
        let ca = self.ca(ca).await?;
        let done = match ca.state {
            CaState::Active => self.begin_retiring(&ca, actor).await?,
            CaState::Retiring => self.finish_retiring(&ca, force, actor).await?,
            CaState::Retired => return Err(RetireError::Retired(ca.name.clone())),
        };
        self.forget_cas();
        Ok(done)
    }

    async fn begin_retiring(&self, ca: &Arc<Ca>, actor: &str) -> Result<Retirement, RetireError> {
        let event = self.event("ca.retiring", ca.id, actor, json!({ "name": ca.name }));
        let id = ca.id;
        let moved = self.store().write("ca_retiring", move |tx| first_step(tx, id, event).boxed()).await?;
        if moved { Ok(Retirement::Begun) } else { Err(RetireError::Changed(ca.name.clone())) }
    }

    /// What lives is counted before the transaction: a retiring authority issues no more, so it only gets less.
    async fn finish_retiring(
        &self,
        ca: &Arc<Ca>,
        force: bool,
        actor: &str,
    ) -> Result<Retirement, RetireError> {
        let id = ca.id;
        if !force {
            let certificates =
                tables::Cas::of(self.store()).living_issued(id, self.clock().now_us(), LIVING_MAX).await?;
            if certificates > 0 {
                return Err(RetireError::StillNeeded { name: ca.name.clone(), certificates });
            }
        }
        let event = self.event("ca.retired", id, actor, json!({ "name": ca.name, "forced": force }));
        let moved = self.store().write("ca_retired", move |tx| second_step(tx, id, event).boxed()).await?;
        if moved { Ok(Retirement::Done) } else { Err(RetireError::Changed(ca.name.clone())) }
    }
}

async fn first_step(tx: &mut Tx, id: Uuid, event: AuditEvent) -> Result<bool, StoreError> {
    let moved = tables::begin_retiring_ca(tx, id, event.at_us).await?;
    if moved {
        store::audit(tx, vec![event]).await?;
    }
    Ok(moved)
}

async fn second_step(tx: &mut Tx, id: Uuid, event: AuditEvent) -> Result<bool, StoreError> {
    let moved = tables::finish_retiring_ca(tx, id, event.at_us).await?;
    if moved {
        store::audit(tx, vec![event]).await?;
    }
    Ok(moved)
}
