//! The default CA, which issues if a request names none.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, StoreError, Tx};
use uuid::Uuid;
use x509::UnixTime;

use super::Ca;
use super::error::{CaError, DefaultError};
use crate::Authority;
use crate::tables;

impl Authority {
    /// Returns the CA that issues if a request names none: see [`Self::issuing_ca`]. Returns `None` if no CA issues.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn default_ca(&self) -> Result<Option<Arc<Ca>>, CaError> {
        let now = UnixTime(self.clock().now_seconds());
        Ok(default_issuing_ca(&self.forest().await?.all, now, None))
    }

    /// Makes a CA (identifier or name) the default. While it issues, it issues for all requests that name no CA.
    ///
    /// # Errors
    /// [`DefaultError`]
    #[crate::boxed]
    pub async fn make_default(&self, ca: &str, actor: &str) -> Result<Arc<Ca>, DefaultError> {
        let found = self.ca(ca).await?;
        if found.credential.is_some() || !found.may_issue(UnixTime(self.clock().now_seconds())) {
            return Err(DefaultError::NotIssuing(found.name.clone()));
        }
        let event = self.event("ca.default", found.id, actor, json!({ "name": found.name }));
        let id = found.id;
        let made =
            self.store().write("ca_default", move |tx| make_default_and_audit(tx, id, event).boxed()).await?;
        self.invalidate_cas_cache();
        if !made {
            return Err(DefaultError::NotIssuing(found.name.clone()));
        }
        Ok(self.ca_by_id(id).await?)
    }
}

async fn make_default_and_audit(tx: &mut Tx, id: Uuid, event: AuditEvent) -> Result<bool, StoreError> {
    let made = tables::make_default_ca(tx, id, event.at_us).await?;
    if made {
        store::audit(tx, vec![event]).await?;
    }
    Ok(made)
}

/// Returns the default at `now` among CAs (oldest first), as if `without` were retired.
pub(super) fn default_issuing_ca(all: &[Arc<Ca>], now: UnixTime, without: Option<Uuid>) -> Option<Arc<Ca>> {
    let own: Vec<&Arc<Ca>> = all.iter().filter(|ca| ca.credential.is_none()).collect();
    let issues = |ca: &&Arc<Ca>| ca.may_issue(now) && Some(ca.id) != without;
    let active: Vec<&Arc<Ca>> = own.iter().copied().filter(issues).collect();
    let chosen = active.iter().copied().filter(|ca| ca.default_since_us.is_some());
    let without_children = |others: &[&Arc<Ca>]| {
        let parents: HashSet<Uuid> = others.iter().filter_map(|ca| ca.parent).collect();
        active.iter().copied().find(|ca| !parents.contains(&ca.id))
    };
    let default = chosen.max_by_key(|ca| ca.default_since_us);
    // A root whose intermediates are retired issues only if no other CA does.
    default.or_else(|| without_children(&own)).or_else(|| without_children(&active)).cloned()
}
