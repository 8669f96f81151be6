//! The configured issuers: stored in the database, built on first use, and rebuilt when their settings change.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shared::Shared;
use store::{AuditEvent, Cursor, Page, StoreError, Tx, audit};
use uuid::Uuid;

use crate::breaker::Breaker;
use crate::check::Check;
use crate::config::{IssuerConfig, IssuerKind};
use crate::context::IssuerContext;
use crate::counts::{Counts, Tally};
use crate::error::IssuerError;
use crate::factory::{build, check};
use crate::governed::{LimitedIssuer, LimitedIssuerParts};
use crate::issuer::{Issuer, IssuerIdentity};
use crate::memory::LIFE_US;
use crate::secrets::{MissingSecrets, Secrets};
use crate::tables;
use crate::tables::{
    ConfiguredIssuer, IssuerChange, IssuerSettings, delete_configured_issuer, insert_configured_issuer,
    update_configured_issuer,
};

/// Name of the internal CA when no issuer with this name is configured.
pub const INTERNAL: &str = "internal";
/// Maximum characters of a name.
const NAME_MAX: usize = 100;
/// Maximum number of cached issuers. Others are built again on each use.
const BUILT_MAX: usize = 1_000;
/// Number of issuers per page in [`Issuers::upkeep`].
const UPKEEP_PAGE: usize = 1_000;

/// All issuers. Cheap to clone. Clones share the built issuers.
#[derive(Clone)]
pub struct Issuers(Shared<Registry>);

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

/// An issuer without its secrets.
#[derive(Clone, Debug)]
pub struct IssuerView {
    /// The stored row. `secrets` is always `None`.
    pub row: ConfiguredIssuer,
    /// Configuration without secrets.
    pub config: Value,
    /// JSON pointers of the secrets that are set.
    pub secrets_set: Vec<String>,
    /// Reason why the issuer cannot be used with its configuration. `None` if it can be used.
    pub problem: Option<IssuerError>,
}

/// Reason why the settings of an issuer were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// The name is invalid.
    #[error(
        "an issuer's name must have 1 to {NAME_MAX} letters a-z, digits, '-', '_' and '.', and must not be \"{INTERNAL}\""
    )]
    BadName,
    /// The configuration is invalid.
    #[error("invalid issuer configuration: {0}")]
    BadConfig(String),
    /// The change would send a stored secret to another destination.
    #[error(transparent)]
    MissingSecrets(#[from] MissingSecrets),
    /// Another issuer has this name.
    #[error("another issuer has the same name")]
    NameTaken,
    /// Another request changed the issuer. Read it again.
    #[error("another request changed the issuer: read it again")]
    Stale,
    /// The issuer does not exist.
    #[error("unknown issuer")]
    Unknown,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Settings of an issuer to create or change, with secrets in the configuration.
#[derive(Clone, Debug)]
pub struct NewIssuer {
    /// Unique name.
    pub name: String,
    /// The configuration, as [`IssuerConfig`] parses it.
    pub config: Value,
    /// Whether orders may be sent to the issuer.
    pub enabled: bool,
}

impl Issuers {
    /// Creates the registry of the issuers in the database.
    #[must_use]
    pub fn new(context: IssuerContext) -> Self {
        context.keystore.register_sealed_column(&tables::SEALED_ISSUERS);
        Self(Shared::new(Registry {
            context,
            counts: Arc::default(),
            built: Mutex::default(),
            given: Mutex::default(),
        }))
    }

    /// Registers an issuer under a name. The registered issuer takes precedence over a configured issuer with this name, and has
    /// neither limits nor checks.
    pub fn put(&self, name: &str, issuer: Arc<dyn Issuer>) {
        self.0.given.lock().insert(name.to_owned(), issuer);
    }

    /// Returns the responders for http-01 and tls-alpn-01 validations.
    #[must_use]
    pub fn responders(&self) -> &crate::responder::Responders {
        &self.0.context.responders
    }

    /// Returns the statistics of every issuer used since startup.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, Tally)> {
        self.0.counts.snapshot()
    }

    /// Returns the issuer with this name, ready for orders. [`INTERNAL`] is the internal CA unless configured otherwise.
    ///
    /// # Errors
    /// [`IssuerError::Misconfigured`] when it does not exist, is disabled or has invalid settings; [`IssuerError::Storage`].
    #[crate::boxed]
    pub async fn get(&self, name: &str) -> Result<Arc<dyn Issuer>, IssuerError> {
        if let Some(given) = self.0.given.lock().get(name) {
            return Ok(Arc::clone(given));
        }
        match tables::ExternalIssuers::of(&self.0.context.store).named(name).await? {
            Some(row) if row.enabled => self.of(&row),
            Some(_) => Err(IssuerError::misconfigured(format!("the issuer {name:?} is disabled"))),
            None if name == INTERNAL => self.own(),
            None => Err(IssuerError::misconfigured(format!("unknown issuer {name:?}"))),
        }
    }

    /// Tests the issuer with this id, even if disabled. `None` when it does not exist.
    ///
    /// # Errors
    /// Same as [`Issuer::test`].
    #[crate::boxed]
    pub async fn test(&self, id: Uuid) -> Result<Option<String>, IssuerError> {
        let Some(row) = tables::ExternalIssuers::of(&self.0.context.store).get(id).await? else {
            return Ok(None);
        };
        self.of(&row)?.test().await.map(Some)
    }

    /// Renews logins, and deletes expired orders and challenges. Call it about once a minute on every server, because each server
    /// has its own logins.
    ///
    /// # Errors
    /// [`IssuerError::Storage`]. Errors of an issuer are logged and do not affect the others.
    #[crate::boxed]
    pub async fn upkeep(&self) -> Result<(), IssuerError> {
        let now = self.0.context.clock.now_us();
        tables::ExternalIssuers::of(&self.0.context.store)
            .expire_orders(now.saturating_sub(LIFE_US), now)
            .await?;
        let page = tables::ExternalIssuers::of(&self.0.context.store).page(None, UPKEEP_PAGE).await?;
        let enabled = page.rows.iter().filter(|row| row.enabled);
        let each = enabled.map(|row| async move {
            let result = async { self.of(row)?.upkeep().await }.await;
            if let Err(error) = result {
                tracing::warn!(issuer = %row.name, %error, "the maintenance of an issuer failed");
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

    /// Returns the cached issuer, or builds it.
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
        // Start with the stored circuit breaker state: a restart must not forget that the issuer fails.
        let fresh = self.build_governed(&identity, &config, row.health.breaker)?;
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

    fn build_governed(
        &self,
        identity: &IssuerIdentity,
        config: &IssuerConfig,
        breaker: Breaker,
    ) -> Result<Arc<dyn Issuer>, IssuerError> {
        let context = &self.0.context;
        Ok(Arc::new(LimitedIssuer::new(LimitedIssuerParts {
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
        self.open_secrets(row)?.put(&mut config);
        serde_json::from_value(config).map_err(|error| IssuerError::misconfigured(error.to_string()))
    }

    fn open_secrets(&self, row: &ConfiguredIssuer) -> Result<Secrets, IssuerError> {
        let Some(sealed) = &row.secrets else { return Ok(Secrets::default()) };
        let opened = self.0.context.keystore.keyring().open_sealed(&context_of(&row.id), sealed);
        let opened = opened.map_err(|error| {
            IssuerError::misconfigured(format!("the issuer's secrets do not open: {error}"))
        })?;
        Ok(Secrets::from_bytes(&opened)?)
    }

    /// Lists issuers, sorted by name.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn page(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<IssuerView>, StoreError> {
        let page = tables::ExternalIssuers::of(&self.0.context.store).page(after, limit).await?;
        Ok(Page { rows: page.rows.into_iter().map(|row| self.view(row)).collect(), next: page.next })
    }

    /// Returns the issuer with this id, without secrets.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn find(&self, id: Uuid) -> Result<Option<IssuerView>, StoreError> {
        Ok(tables::ExternalIssuers::of(&self.0.context.store).get(id).await?.map(|row| self.view(row)))
    }

    /// Returns the issuer with this name, without secrets.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn find_named(&self, name: &str) -> Result<Option<IssuerView>, StoreError> {
        Ok(tables::ExternalIssuers::of(&self.0.context.store).named(name).await?.map(|row| self.view(row)))
    }

    fn view(&self, mut row: ConfiguredIssuer) -> IssuerView {
        let problem = self.config_of(&row).and_then(|config| check(&config, &self.0.context.host)).err();
        let secrets = self.open_secrets(&row).unwrap_or_default();
        let config = serde_json::from_str(&row.config).unwrap_or_default();
        row.secrets = None;
        let secrets_set = secrets.pointers().map(str::to_owned).collect();
        IssuerView { row, config, secrets_set, problem }
    }

    /// Creates an issuer and its audit row.
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
                audit_if_done(tx, change == IssuerChange::Done, event).await?;
                Ok(change)
            }
            .boxed()
        });
        self.changed(work.await?, id).await
    }

    /// Changes an issuer that still has `revision`, and writes an audit row. Omitted secrets are kept if their destination does not
    /// change.
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
                audit_if_done(tx, change == IssuerChange::Done, event).await?;
                Ok(change)
            }
            .boxed()
        });
        self.changed(work.await?, id).await
    }

    /// Validates an update like [`Issuers::update`], without changing anything. Returns the displayed configuration, and the JSON
    /// pointers of secrets in the request.
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

    /// Deletes an issuer with its orders and health, and writes an audit row. Returns false when it does not exist.
    ///
    /// # Errors
    /// Database errors.
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
                audit_if_done(tx, deleted, event).await?;
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

    /// Separates the secrets, and builds the issuer once to validate its settings.
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
            secrets =
                secrets.merge_over(self.open_secrets(row).unwrap_or_default(), &removed, &stored, &public)?;
        }
        let mut whole = public.clone();
        secrets.put(&mut whole);
        let bad = |error: String| ManageError::BadConfig(error);
        let config: IssuerConfig = serde_json::from_value(whole).map_err(|error| bad(error.to_string()))?;
        let identity = IssuerIdentity { id, name: name.clone() };
        self.build_governed(&identity, &config, Breaker::default())
            .map_err(|error| bad(error.to_string()))?;
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

/// Writes the audit row in the transaction of the change, if the change was done.
async fn audit_if_done(tx: &mut Tx, done: bool, event: AuditEvent) -> Result<(), StoreError> {
    if done { audit(tx, vec![event]).await } else { Ok(()) }
}

fn context_of(id: &Uuid) -> keys::Context<'_> {
    keys::Context { table: "configured_issuers", row: id.as_bytes(), column: "secrets" }
}
