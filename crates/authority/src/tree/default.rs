//! The default CA, which issues certificates for requests that name no CA.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, StoreError, Tx};
use uuid::Uuid;
use x509::{Certificate, UnixTime};

use super::error::{CaError, DefaultError};
use super::specification::credential_path;
use super::{Ca, CaState};
use crate::Authority;
use crate::tables;

impl Authority {
    /// Returns the CA that issues certificates for requests that name no CA: see [`Self::issuing_ca`]. Returns `None` if no CA
    /// issues.
    ///
    /// # Errors
    /// [`CaError::Store`].
    #[crate::boxed]
    pub async fn default_ca(&self) -> Result<Option<Arc<Ca>>, CaError> {
        let now = UnixTime(self.clock().now_seconds());
        Ok(default_issuing_ca(&self.forest().await?.all, now, None))
    }

    /// Makes a CA (identifier or name) the default: requests that name no CA use it.
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

/// The properties of a CA of this server that decide whether it is the default.
struct Candidate {
    id: Uuid,
    parent: Option<Uuid>,
    default_since_us: Option<i64>,
    /// Whether the CA can issue now.
    issues: bool,
}

/// Returns the default CA. `own` are the CAs of this server, oldest first.
fn default_of(own: &[Candidate]) -> Option<Uuid> {
    let active: Vec<&Candidate> = own.iter().filter(|ca| ca.issues).collect();
    let all: Vec<&Candidate> = own.iter().collect();
    let chosen = active.iter().copied().filter(|ca| ca.default_since_us.is_some());
    let without_children = |others: &[&Candidate]| {
        let parents: HashSet<Uuid> = others.iter().filter_map(|ca| ca.parent).collect();
        active.iter().copied().find(|ca| !parents.contains(&ca.id))
    };
    let default = chosen.max_by_key(|ca| ca.default_since_us);
    // A root whose intermediates are retired issues only if no other CA does.
    default.or_else(|| without_children(&all)).or_else(|| without_children(&active)).map(|ca| ca.id)
}

/// A snapshot of the CAs within a transaction, from which the issuing CA is chosen.
#[derive(Debug, Default)]
pub struct CaChoice {
    cas: Vec<(Uuid, String)>,
    default: Option<Uuid>,
}

impl CaChoice {
    /// Reads the CAs in a transaction. Selects the default at `now_us`, as [`Authority::issuing_ca`] does.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn read(tx: &mut Tx, now_us: i64) -> Result<Self, StoreError> {
        let now = UnixTime(now_us.div_euclid(1_000_000));
        let (mut cas, mut own) = (Vec::new(), Vec::new());
        for row in tables::ca_choices(tx).await? {
            // A CA that cannot be read never issues.
            let (Ok(state), Ok(certificate)) = (row.state.parse::<CaState>(), Certificate::parse(&row.der))
            else {
                continue;
            };
            if credential_path(&row.specification).is_none() {
                let valid = certificate.not_before <= now && now <= certificate.not_after;
                let issues = state == CaState::Active && valid;
                let default_since_us = row.default_since_us;
                own.push(Candidate { id: row.id, parent: row.parent_id, default_since_us, issues });
            }
            cas.push((row.id, row.name));
        }
        Ok(Self { default: default_of(&own), cas })
    }

    /// Returns the name and the identifier of the CA that issues: the named one (identifier or name), otherwise the default.
    #[must_use]
    pub fn issuing(&self, named: Option<&str>) -> Option<String> {
        let id = match named {
            Some(named) => {
                let by_id = named.parse().ok().filter(|id| self.cas.iter().any(|(known, _)| known == id));
                by_id.or_else(|| self.cas.iter().find(|(_, name)| name == named).map(|(id, _)| *id))
            }
            None => self.default,
        };
        let (id, name) = self.cas.iter().find(|(known, _)| Some(*known) == id)?;
        Some(planned_name(name, *id))
    }

    /// Returns the name and identifier of the CA that issues under a profile. `body` is the stored text of the profile.
    #[must_use]
    pub fn of_profile(&self, body: &str) -> Option<String> {
        let profile: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        self.issuing(profile["ca"].as_str())
    }
}

/// Formats the name and identifier of a CA for issuance plans.
pub(crate) fn planned_name(name: &str, id: Uuid) -> String {
    format!("{name} {id}")
}

/// Returns the default at `now` among CAs (oldest first), as if `without` were retired.
pub(super) fn default_issuing_ca(all: &[Arc<Ca>], now: UnixTime, without: Option<Uuid>) -> Option<Arc<Ca>> {
    let own = all.iter().filter(|ca| ca.credential.is_none());
    let candidates = own.map(|ca| Candidate {
        id: ca.id,
        parent: ca.parent,
        default_since_us: ca.default_since_us,
        issues: ca.may_issue(now) && Some(ca.id) != without,
    });
    let default = default_of(&candidates.collect::<Vec<_>>())?;
    all.iter().find(|ca| ca.id == default).cloned()
}
