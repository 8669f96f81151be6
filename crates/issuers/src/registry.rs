//! The configured issuers: kept in the database, built when first used, built again when their settings change.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{AuditEvent, Cursor, Page, StoreError, Tx, audit};
use uuid::Uuid;

use crate::breaker::Breaker;
use crate::check::Check;
use crate::config::{IssuerConfig, IssuerKind};
use crate::context::IssuerContext;
use crate::counts::{Counts, Tally};
use crate::error::IssuerError;
use crate::factory::{build, check};
use crate::governed::{Governed, GovernedParts};
use crate::issuer::{Issuer, IssuerIdentity};
use crate::memory::LIFE_US;
use crate::secrets::{Rebound, Secrets};
use crate::tables;
use crate::tables::{
    ConfiguredIssuer, IssuerChange, IssuerSettings, delete_configured_issuer, insert_configured_issuer,
    update_configured_issuer,
};

/// The name that stands for our own CA when no issuer of that name is configured.
pub const INTERNAL: &str = "internal";
/// Letters of a name.
const NAME_MAX: usize = 100;
/// Issuers kept built; more are built again when used.
const BUILT_MAX: usize = 1_000;
/// Issuers looked after at once in [`Issuers::upkeep`].
const UPKEEP_PAGE: usize = 1_000;

/// All issuers. Cheap to clone; the clones share what is built.
#[derive(Clone)]
pub struct Issuers(Arc<Registry>);

struct Registry {
    context: IssuerContext,
    counts: Arc<Counts>,
    built: Mutex<HashMap<Uuid, BuiltIssuer>>,
    given: Mutex<HashMap<String, Arc<dyn Issuer>>>,
}

struct BuiltIssuer {
    revision: i64,
    issuer: Arc<dyn Issuer>,
}

/// An issuer as it may be shown.
#[derive(Clone, Debug)]
pub struct IssuerView {
    /// Everything about it; `secrets` is always `None`.
    pub row: ConfiguredIssuer,
    /// Its configuration without secrets.
    pub config: Value,
    /// Which secrets are set, as JSON pointers.
    pub secrets_set: Vec<String>,
    /// Why it cannot be used as it is configured, if so.
    pub problem: Option<IssuerError>,
}

/// Why an issuer's settings were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// The name is no name.
    #[error(
        "an issuer's name has 1 to {NAME_MAX} letters a-z, digits, '-', '_' and '.', and is not \"{INTERNAL}\""
    )]
    BadName,
    /// The configuration does not hold together.
    #[error("the configuration does not work: {0}")]
    BadConfig(String),
    /// A stored secret would go elsewhere.
    #[error(transparent)]
    Rebound(#[from] Rebound),
    /// Another one has that name.
    #[error("another issuer has that name")]
    NameTaken,
    /// Another request changed it: read it again.
    #[error("another request changed the issuer: read it again")]
    Stale,
    /// There is none.
    #[error("no such issuer")]
    Unknown,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Settings as an operator gives them: the configuration with its secrets within.
#[derive(Clone, Debug)]
pub struct NewIssuer {
    /// Unique.
    pub name: String,
    /// The configuration, as [`IssuerConfig`] parses it.
    pub config: Value,
    /// Whether orders may go to it.
    pub enabled: bool,
}

impl Issuers {
    /// The issuers of this database.
    #[must_use]
    pub fn new(context: IssuerContext) -> Self {
        context.keystore.also_sealed(&tables::SEALED_ISSUERS);
        Self(Arc::new(Registry {
            context,
            counts: Arc::default(),
            built: Mutex::default(),
            given: Mutex::default(),
        }))
    }

    /// Puts an issuer under a name, before what is configured. It is taken as it is, without limits and checks.
    pub fn put(&self, name: &str, issuer: Arc<dyn Issuer>) {
        self.0.given.lock().insert(name.to_owned(), issuer);
    }

    /// What answers http-01 and tls-alpn-01 validations.
    #[must_use]
    pub fn responders(&self) -> &crate::responder::Responders {
        &self.0.context.responders
    }

    /// Figures of every issuer asked since the start.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, Tally)> {
        self.0.counts.snapshot()
    }

    /// The issuer of this name, ready for orders. [`INTERNAL`] is our own CA unless configured otherwise.
    ///
    /// # Errors
    /// [`IssuerError::Misconfigured`] when there is none, it is disabled or its settings do not work;
    /// [`IssuerError::Storage`].
    #[crate::boxed]
    pub async fn get(&self, name: &str) -> Result<Arc<dyn Issuer>, IssuerError> {
        if let Some(given) = self.0.given.lock().get(name) {
            return Ok(Arc::clone(given));
        }
        match tables::ExternalIssuers::of(&self.0.context.store).named(name).await? {
            Some(row) if row.enabled => self.of(&row),
            Some(_) => Err(IssuerError::misconfigured(format!("the issuer {name:?} is disabled"))),
            None if name == INTERNAL => self.own(),
            None => Err(IssuerError::misconfigured(format!("there is no issuer {name:?}"))),
        }
    }

    /// Tests the issuer with this id, enabled or not.
    ///
    /// # Errors
    /// As [`Issuer::test`]; `None` when there is none.
    #[crate::boxed]
    pub async fn test(&self, id: Uuid) -> Result<Option<String>, IssuerError> {
        let Some(row) = tables::ExternalIssuers::of(&self.0.context.store).get(id).await? else {
            return Ok(None);
        };
        self.of(&row)?.test().await.map(Some)
    }

    /// Keeps logins alive, and forgets orders and challenges long over. To be called every minute or so, by every
    /// server: logins are each server's own.
    ///
    /// # Errors
    /// [`IssuerError::Storage`]; what goes wrong with one issuer is told in the log and keeps no other waiting.
    #[crate::boxed]
    pub async fn upkeep(&self) -> Result<(), IssuerError> {
        let now = self.0.context.clock.now_us();
        tables::ExternalIssuers::of(&self.0.context.store)
            .expire_orders(now.saturating_sub(LIFE_US), now)
            .await?;
        let page = tables::ExternalIssuers::of(&self.0.context.store).page(None, UPKEEP_PAGE).await?;
        let enabled = page.rows.iter().filter(|row| row.enabled);
        let each = enabled.map(|row| async move {
            let kept = async { self.of(row)?.upkeep().await }.await;
            if let Err(error) = kept {
                tracing::warn!(issuer = %row.name, %error, "the issuer's upkeep failed");
            }
        });
        futures_util::future::join_all(each).await;
        Ok(())
    }

    fn own(&self) -> Result<Arc<dyn Issuer>, IssuerError> {
        let row = ConfiguredIssuer {
            id: Uuid::nil(),
            name: INTERNAL.to_owned(),
            kind: IssuerKind::Internal,
            config: r#"{"type":"internal"}"#.to_owned(),
            secrets: None,
            enabled: true,
            revision: 0,
            created_at_us: 0,
            updated_at_us: 0,
            account: None,
            health: tables::IssuerHealth::default(),
        };
        self.of(&row)
    }

    /// From memory, or built.
    fn of(&self, row: &ConfiguredIssuer) -> Result<Arc<dyn Issuer>, IssuerError> {
        let known = |built: &HashMap<Uuid, BuiltIssuer>| {
            built
                .get(&row.id)
                .filter(|known| known.revision == row.revision)
                .map(|known| Arc::clone(&known.issuer))
        };
        if let Some(issuer) = known(&self.0.built.lock()) {
            return Ok(issuer);
        }
        let config = self.config_of(row)?;
        let identity = IssuerIdentity { id: row.id, name: row.name.clone() };
        // What the server that asked it last found out: a restart must not forget that it is ill.
        let fresh = self.govern(&identity, &config, row.health.breaker)?;
        let mut built = self.0.built.lock();
        if let Some(issuer) = known(&built) {
            return Ok(issuer);
        }
        if built.len() >= BUILT_MAX {
            built.clear();
        }
        built.insert(row.id, BuiltIssuer { revision: row.revision, issuer: Arc::clone(&fresh) });
        Ok(fresh)
    }

    fn govern(
        &self,
        identity: &IssuerIdentity,
        config: &IssuerConfig,
        breaker: Breaker,
    ) -> Result<Arc<dyn Issuer>, IssuerError> {
        let context = &self.0.context;
        Ok(Arc::new(Governed::new(GovernedParts {
            identity: identity.clone(),
            inner: build(identity, config, context)?,
            limits: config.limits().clone(),
            check: Check::new(config.verify())?,
            breaker,
            store: context.store.clone(),
            clock: context.clock.clone(),
            counts: Arc::clone(&self.0.counts),
        })))
    }

    fn config_of(&self, row: &ConfiguredIssuer) -> Result<IssuerConfig, IssuerError> {
        let mut config: Value = serde_json::from_str(&row.config)
            .map_err(|error| IssuerError::misconfigured(format!("the stored configuration: {error}")))?;
        self.secrets_of(row)?.put(&mut config);
        serde_json::from_value(config).map_err(|error| IssuerError::misconfigured(error.to_string()))
    }

    fn secrets_of(&self, row: &ConfiguredIssuer) -> Result<Secrets, IssuerError> {
        let Some(sealed) = &row.secrets else { return Ok(Secrets::default()) };
        let opened = self.0.context.keystore.keyring().open_sealed(&context_of(&row.id), sealed);
        let opened = opened.map_err(|error| {
            IssuerError::misconfigured(format!("the issuer's secrets do not open: {error}"))
        })?;
        Ok(Secrets::from_bytes(&opened)?)
    }

    /// Issuers by name.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn page(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<IssuerView>, StoreError> {
        let page = tables::ExternalIssuers::of(&self.0.context.store).page(after, limit).await?;
        Ok(Page { rows: page.rows.into_iter().map(|row| self.view(row)).collect(), next: page.next })
    }

    /// One issuer, as it may be shown.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn find(&self, id: Uuid) -> Result<Option<IssuerView>, StoreError> {
        Ok(tables::ExternalIssuers::of(&self.0.context.store).get(id).await?.map(|row| self.view(row)))
    }

    /// One issuer by its name, as it may be shown.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn find_named(&self, name: &str) -> Result<Option<IssuerView>, StoreError> {
        Ok(tables::ExternalIssuers::of(&self.0.context.store).named(name).await?.map(|row| self.view(row)))
    }

    fn view(&self, mut row: ConfiguredIssuer) -> IssuerView {
        let problem = self.config_of(&row).and_then(|config| check(&config, &self.0.context.host)).err();
        let secrets = self.secrets_of(&row).unwrap_or_default();
        let config = serde_json::from_str(&row.config).unwrap_or_default();
        row.secrets = None;
        let secrets_set = secrets.pointers().map(str::to_owned).collect();
        IssuerView { row, config, secrets_set, problem }
    }

    /// Adds an issuer, with its audit row.
    ///
    /// # Errors
    /// [`ManageError`].
    #[crate::boxed]
    pub async fn create(&self, new: NewIssuer, actor: &str) -> Result<IssuerView, ManageError> {
        let id = Uuid::now_v7();
        let settings = self.settings(id, new, None)?;
        let event = self.event(actor, "issuer.create", id, &settings);
        let now = self.0.context.clock.now_us();
        let work = self.0.context.store.write("issuer_create", move |tx| {
            async move {
                let change = insert_configured_issuer(tx, id, &settings, now).await?;
                tell(tx, change == IssuerChange::Done, event).await?;
                Ok(change)
            }
            .boxed()
        });
        self.changed(work.await?, id).await
    }

    /// Changes an issuer that still has `revision`, with its audit row. Secrets left out stay as they are, as long as they go
    /// where they went.
    ///
    /// # Errors
    /// [`ManageError`].
    #[crate::boxed]
    pub async fn update(
        &self,
        id: Uuid,
        revision: i64,
        new: NewIssuer,
        actor: &str,
    ) -> Result<IssuerView, ManageError> {
        let row =
            tables::ExternalIssuers::of(&self.0.context.store).get(id).await?.ok_or(ManageError::Unknown)?;
        let settings = self.settings(id, new, Some(&row))?;
        let event = self.event(actor, "issuer.update", id, &settings);
        let now = self.0.context.clock.now_us();
        let work = self.0.context.store.write("issuer_update", move |tx| {
            async move {
                let change = update_configured_issuer(tx, id, revision, &settings, now).await?;
                tell(tx, change == IssuerChange::Done, event).await?;
                Ok(change)
            }
            .boxed()
        });
        self.changed(work.await?, id).await
    }

    /// Checks an update as [`Issuers::update`] does and changes nothing. Returns the configuration as it would be shown, and which
    /// secrets are given again, by JSON pointer.
    ///
    /// # Errors
    /// [`ManageError`].
    #[crate::boxed]
    pub async fn preview(&self, id: Uuid, new: NewIssuer) -> Result<(Value, Vec<String>), ManageError> {
        let mut public = new.config.clone();
        let given = Secrets::take(&mut public).map_err(|error| ManageError::BadConfig(error.to_string()))?;
        let given = given.pointers().map(str::to_owned).collect();
        let row = tables::ExternalIssuers::of(&self.0.context.store).get(id).await?;
        let settings = self.settings(id, new, row.as_ref())?;
        let shown = serde_json::from_str(&settings.config).unwrap_or_default();
        Ok((shown, given))
    }

    /// Removes an issuer, its orders and health, with its audit row; false when there was none.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn delete(&self, id: Uuid, actor: &str) -> Result<bool, StoreError> {
        let event = AuditEvent {
            at_us: self.0.context.clock.now_us(),
            actor: actor.to_owned(),
            action: "issuer.delete",
            resource: format!("issuer/{id}"),
            details: json!({}),
        };
        let work = self.0.context.store.write("issuer_delete", move |tx| {
            async move {
                let deleted = delete_configured_issuer(tx, id).await?;
                tell(tx, deleted, event).await?;
                Ok(deleted)
            }
            .boxed()
        });
        let deleted = work.await?;
        self.0.built.lock().remove(&id);
        Ok(deleted)
    }

    async fn changed(&self, change: IssuerChange, id: Uuid) -> Result<IssuerView, ManageError> {
        match change {
            IssuerChange::Done => self.find(id).await?.ok_or(ManageError::Unknown),
            IssuerChange::NameTaken => Err(ManageError::NameTaken),
            IssuerChange::Stale => Err(ManageError::Stale),
        }
    }

    /// Takes the secrets out, and builds the issuer once to see that its settings hold together.
    fn settings(
        &self,
        id: Uuid,
        new: NewIssuer,
        before: Option<&ConfiguredIssuer>,
    ) -> Result<IssuerSettings, ManageError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
        let NewIssuer { name, config: mut public, enabled } = new;
        let own = name == INTERNAL && public["type"] != json!(INTERNAL);
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) || own {
            return Err(ManageError::BadName);
        }
        let removed = Secrets::removed(&public);
        let mut secrets =
            Secrets::take(&mut public).map_err(|error| ManageError::BadConfig(error.to_string()))?;
        if let Some(row) = before {
            let stored = serde_json::from_str(&row.config).unwrap_or_default();
            secrets = secrets.over(self.secrets_of(row).unwrap_or_default(), &removed, &stored, &public)?;
        }
        let mut whole = public.clone();
        secrets.put(&mut whole);
        let bad = |error: String| ManageError::BadConfig(error);
        let config: IssuerConfig = serde_json::from_value(whole).map_err(|error| bad(error.to_string()))?;
        let identity = IssuerIdentity { id, name: name.clone() };
        self.govern(&identity, &config, Breaker::default()).map_err(|error| bad(error.to_string()))?;
        let keyring = self.0.context.keystore.keyring();
        let sealed = (!secrets.is_empty()).then(|| keyring.seal(&context_of(&id), &secrets.to_bytes()));
        Ok(IssuerSettings { name, kind: config.kind(), config: public.to_string(), secrets: sealed, enabled })
    }

    fn event(&self, actor: &str, action: &'static str, id: Uuid, settings: &IssuerSettings) -> AuditEvent {
        AuditEvent {
            at_us: self.0.context.clock.now_us(),
            actor: actor.to_owned(),
            action,
            resource: format!("issuer/{id}"),
            details: json!({
                "name": settings.name,
                "enabled": settings.enabled,
                "config": serde_json::from_str::<Value>(&settings.config).unwrap_or_default(),
            }),
        }
    }
}

impl std::fmt::Debug for Issuers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuers").finish_non_exhaustive()
    }
}

/// An audit row for what was done, in its transaction.
async fn tell(tx: &mut Tx, done: bool, event: AuditEvent) -> Result<(), StoreError> {
    if done { audit(tx, vec![event]).await } else { Ok(()) }
}

fn context_of(id: &Uuid) -> keys::Context<'_> {
    keys::Context { table: "configured_issuers", row: id.as_bytes(), column: "secrets" }
}
