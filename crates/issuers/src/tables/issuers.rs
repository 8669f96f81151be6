//! Tables of configured issuers: settings, health, accounts, pending orders and challenges.

use futures_util::FutureExt;
use uuid::Uuid;

use crate::breaker::Breaker;
use crate::config::IssuerKind;
use db::{
    BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page, with_limit,
};
use store::{SealedColumn, sealed_column};

store::handle! {
    /// Configured external issuers with their health, orders and challenges.
    ExternalIssuers
}

/// A configured issuer as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfiguredIssuer {
    /// Id of the issuer, UUIDv7.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Type of the issuer, such as `acme`.
    pub kind: IssuerKind,
    /// Configuration without secrets, JSON.
    pub config: String,
    /// Sealed secrets of the configuration.
    pub secrets: Option<Vec<u8>>,
    /// Whether orders may be sent to the issuer.
    pub enabled: bool,
    /// Revision, incremented with every change of the settings.
    pub revision: i64,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Time of the last change of the settings, µs.
    pub updated_at_us: i64,
    /// Account with an ACME server.
    pub account: Option<IssuerAccount>,
    /// State of the circuit breaker, last success and last error.
    pub health: IssuerHealth,
}

/// An account with an ACME server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IssuerAccount {
    /// Id of the account's key in table `keys`.
    pub key: Uuid,
    /// URL of the account, once it is created.
    pub url: Option<String>,
    /// Directory of the account. Another directory needs another account.
    pub directory: String,
}

/// Health of an issuer, as last stored by a server that used it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IssuerHealth {
    /// State of the circuit breaker.
    pub breaker: Breaker,
    /// Time of the last success, µs.
    pub last_success_at_us: Option<i64>,
    /// Time of the last error, µs.
    pub last_error_at_us: Option<i64>,
    /// Stable name of the last error's kind.
    pub last_error_code: Option<String>,
    /// Text of the last error.
    pub last_error: Option<String>,
}

/// Name, type, configuration and secrets of an issuer to insert or change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IssuerSettings {
    /// Unique name.
    pub name: String,
    /// Type of the issuer, such as `acme`.
    pub kind: IssuerKind,
    /// Configuration without secrets, JSON.
    pub config: String,
    /// Sealed secrets of the configuration.
    pub secrets: Option<Vec<u8>>,
    /// Whether orders may be sent to the issuer.
    pub enabled: bool,
}

/// The stored state of an order at an issuer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IssuerOrder {
    /// SHA-256 of the order's SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// URL of the order at the issuer.
    pub url: Option<String>,
    /// The issued chain: concatenated DER certificates.
    pub chain: Option<Vec<u8>>,
    /// Time at which this state was stored, µs since 1970-01-01 UTC.
    pub created_at_us: i64,
}

macro_rules! issuer_select {
    ($name:literal, $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT i.uuid, i.name, i.kind, i.config, i.secrets, i.enabled, i.revision, i.created_at, \
             i.updated_at, i.account_key, i.account_url, i.account_directory, h.breaker, h.last_success_at, \
             h.last_error_at, h.last_error_code, h.last_error \
             FROM configured_issuers i LEFT JOIN issuer_health h ON h.issuer = i.uuid ",
            $rest
        )
    };
}

const ISSUER: &str = issuer_select!("configured_issuer", "WHERE i.uuid = ?1");
const ISSUER_NAMED: &str = issuer_select!("configured_issuer_named", "WHERE i.name = ?1");
const ISSUERS: &str = issuer_select!("configured_issuers", "WHERE i.name > ?1 ORDER BY i.name LIMIT ?2");

const INSERT: &str = "-- configured_issuer_insert
INSERT INTO configured_issuers (uuid, name, kind, config, secrets, enabled, revision, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?7) ON CONFLICT DO NOTHING";

const UPDATE: &str = "-- configured_issuer_update
UPDATE configured_issuers SET name = ?3, kind = ?4, config = ?5, secrets = ?6, enabled = ?7, revision = revision + 1,
updated_at = ?8 WHERE uuid = ?1 AND revision = ?2";

const NAME_TAKEN: &str = "-- configured_issuer_name_taken
SELECT 1 FROM configured_issuers WHERE name = ?1 AND uuid <> ?2";

const DELETE: &str = "-- configured_issuer_delete
DELETE FROM configured_issuers WHERE uuid = ?1";

const HEALTH_DELETE: &str = "-- issuer_health_delete
DELETE FROM issuer_health WHERE issuer = ?1";

const ORDERS_DELETE: &str = "-- issuer_orders_delete
DELETE FROM issuer_orders WHERE issuer = ?1";

const ACCOUNT: &str = "-- configured_issuer_account
UPDATE configured_issuers SET account_key = ?2, account_url = ?3, account_directory = ?4 WHERE uuid = ?1";

const HEALTH: &str = "-- issuer_health
INSERT INTO issuer_health (issuer, breaker, last_success_at, last_error_at, last_error_code, last_error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (issuer) DO UPDATE SET breaker = excluded.breaker,
last_success_at = COALESCE(excluded.last_success_at, issuer_health.last_success_at),
last_error_at = COALESCE(excluded.last_error_at, issuer_health.last_error_at),
last_error_code = COALESCE(excluded.last_error_code, issuer_health.last_error_code),
last_error = COALESCE(excluded.last_error, issuer_health.last_error)";

const ORDER: &str = "-- issuer_order
SELECT spki_sha256, url, chain, created_at FROM issuer_orders WHERE issuer = ?1 AND order_key = ?2";

const ORDER_PUT: &str = "-- issuer_order_put
INSERT INTO issuer_orders (issuer, order_key, spki_sha256, url, chain, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (issuer, order_key) DO UPDATE SET spki_sha256 = excluded.spki_sha256, url = excluded.url,
chain = excluded.chain, created_at = excluded.created_at";

const ORDER_DELETE: &str = "-- issuer_order_delete
DELETE FROM issuer_orders WHERE issuer = ?1 AND order_key = ?2";

const ORDERS_EXPIRE: &str = "-- issuer_orders_expire
DELETE FROM issuer_orders WHERE created_at < ?1";

const CHALLENGE_PUT: BulkStatement = db::bulk! { (token text, answer text, expires_at bigint)
    "-- issuer_challenge_put
INSERT INTO issuer_challenges (token, answer, expires_at) VALUES (:token, :answer, :expires_at) ON CONFLICT (token)
  DO UPDATE SET
answer = excluded.answer, expires_at = excluded.expires_at"
};

const CHALLENGE_DELETE: BulkStatement = db::bulk! { (token text)
    "-- issuer_challenge_delete
DELETE FROM issuer_challenges WHERE token = {any token}"
};

const CHALLENGE: &str = "-- issuer_challenge
SELECT answer FROM issuer_challenges WHERE token = ?1 AND expires_at > ?2";

const CHALLENGES_EXPIRE: &str = "-- issuer_challenges_expire
DELETE FROM issuer_challenges WHERE expires_at <= ?1";

pub(crate) const ALL: &[&str] = &[
    ISSUER,
    ISSUER_NAMED,
    ISSUERS,
    INSERT,
    UPDATE,
    NAME_TAKEN,
    DELETE,
    HEALTH_DELETE,
    ORDERS_DELETE,
    ACCOUNT,
    HEALTH,
    ORDER,
    ORDER_PUT,
    ORDER_DELETE,
    ORDERS_EXPIRE,
    CHALLENGE,
    CHALLENGES_EXPIRE,
    SEALED_ISSUERS.page,
    SEALED_ISSUERS.count,
    SEALED_ISSUERS.heads,
];

pub(crate) const BULKS: &[&BulkStatement] = &[&CHALLENGE_PUT, &CHALLENGE_DELETE, &SEALED_ISSUERS.replace];

/// The sealed secrets of issuers' configurations, for the rotation of the master key.
pub const SEALED_ISSUERS: SealedColumn = sealed_column!("configured_issuers", "uuid" Uuid "uuid", "secrets");

/// Result of inserting or changing the settings of an issuer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IssuerChange {
    /// The change was stored.
    Done,
    /// Another issuer has this name.
    NameTaken,
    /// The issuer does not exist, or its revision has changed.
    Stale,
}

/// Inserts an issuer. Returns [`IssuerChange::NameTaken`] when the name exists.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_configured_issuer(
    tx: &mut Tx,
    id: Uuid,
    settings: &IssuerSettings,
    now_us: i64,
) -> Result<IssuerChange, StoreError> {
    let mut parameters: Vec<Value> = vec![id.into()];
    parameters.extend(settings_values(settings));
    parameters.push(now_us.into());
    let inserted = tx.execute(INSERT, parameters).await?;
    Ok(if inserted == 1 { IssuerChange::Done } else { IssuerChange::NameTaken })
}

/// Changes an issuer's settings if it still has `revision`.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn update_configured_issuer(
    tx: &mut Tx,
    id: Uuid,
    revision: i64,
    settings: &IssuerSettings,
    now_us: i64,
) -> Result<IssuerChange, StoreError> {
    if tx.row(NAME_TAKEN, vec![settings.name.as_str().into(), id.into()]).await?.is_some() {
        return Ok(IssuerChange::NameTaken);
    }
    let mut parameters: Vec<Value> = vec![id.into(), revision.into()];
    parameters.extend(settings_values(settings));
    parameters.push(now_us.into());
    let updated = tx.execute(UPDATE, parameters).await?;
    Ok(if updated == 1 { IssuerChange::Done } else { IssuerChange::Stale })
}

/// Deletes an issuer with its health and orders. Returns false when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_configured_issuer(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    let deleted = tx.execute(DELETE, vec![id.into()]).await?;
    tx.execute(HEALTH_DELETE, vec![id.into()]).await?;
    tx.execute(ORDERS_DELETE, vec![id.into()]).await?;
    Ok(deleted == 1)
}

/// Stores an issuer's account with an ACME server.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn set_issuer_account(tx: &mut Tx, id: Uuid, account: &IssuerAccount) -> Result<(), StoreError> {
    let parameters =
        vec![id.into(), account.key.into(), account.url.clone().into(), account.directory.as_str().into()];
    tx.execute(ACCOUNT, parameters).await.map(drop)
}

impl ExternalIssuers<'_> {
    /// Returns the configured issuer with this id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, id: Uuid) -> Result<Option<ConfiguredIssuer>, StoreError> {
        self.0.row(ISSUER, vec![id.into()]).await?.map(issuer_row).transpose()
    }

    /// Returns a configured issuer by its name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn named(self, name: &str) -> Result<Option<ConfiguredIssuer>, StoreError> {
        self.0.row(ISSUER_NAMED, vec![name.into()]).await?.map(issuer_row).transpose()
    }

    /// Lists configured issuers, sorted by name.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn page(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ConfiguredIssuer>, StoreError> {
        let key = key_or(after, "configured-issuers", &[Value::Text(String::new())])?;
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, ISSUERS, with_limit(key, fetch_limit)).await?;
        page(rows, limit, "configured-issuers", |row| {
            let issuer = issuer_row(row)?;
            let key = vec![issuer.name.as_str().into()];
            Ok((issuer, key))
        })
    }

    /// Same as [`set_issuer_account`], in its own transaction.
    ///
    /// # Errors
    /// Database errors.
    pub async fn set_account(self, id: Uuid, account: IssuerAccount) -> Result<(), StoreError> {
        self.0
            .write("set_issuer_account", move |tx| {
                async move { set_issuer_account(tx, id, &account).await }.boxed()
            })
            .await
    }

    /// Updates the health of an issuer. `None` leaves a column unchanged.
    ///
    /// # Errors
    /// Database errors.
    pub async fn set_health(self, id: Uuid, health: IssuerHealth) -> Result<(), StoreError> {
        let parameters = vec![
            id.into(),
            breaker_json(health.breaker)?.into(),
            health.last_success_at_us.into(),
            health.last_error_at_us.into(),
            health.last_error_code.into(),
            health.last_error.into(),
        ];
        self.change("set_issuer_health", HEALTH, parameters).await
    }

    /// Returns the stored state of the order with this key at an issuer.
    ///
    /// # Errors
    /// Database errors.
    pub async fn order(self, issuer: Uuid, key: &str) -> Result<Option<IssuerOrder>, StoreError> {
        self.0
            .row(ORDER, vec![issuer.into(), key.into()])
            .await?
            .map(|mut row| {
                Ok(IssuerOrder {
                    spki_sha256: row.hash()?,
                    url: row.maybe_text()?,
                    chain: row.maybe_blob()?,
                    created_at_us: row.int()?,
                })
            })
            .transpose()
    }

    /// Stores the state of an order and replaces the previous one.
    ///
    /// # Errors
    /// Database errors.
    pub async fn put_order(self, issuer: Uuid, key: &str, order: IssuerOrder) -> Result<(), StoreError> {
        let parameters = vec![
            issuer.into(),
            key.into(),
            Value::Blob(order.spki_sha256.to_vec()),
            order.url.into(),
            order.chain.into(),
            order.created_at_us.into(),
        ];
        self.change("put_issuer_order", ORDER_PUT, parameters).await
    }

    /// Deletes the stored state of the order with this key. Does nothing when there is none.
    ///
    /// # Errors
    /// Database errors.
    pub async fn delete_order(self, issuer: Uuid, key: &str) -> Result<(), StoreError> {
        self.change("delete_issuer_order", ORDER_DELETE, vec![issuer.into(), key.into()]).await
    }

    /// Deletes orders created before `before_us` and challenges that expired by `now_us`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn expire_orders(self, before_us: i64, now_us: i64) -> Result<(), StoreError> {
        self.0
            .write("expire_issuer_orders", move |tx| {
                async move {
                    tx.execute(ORDERS_EXPIRE, vec![before_us.into()]).await?;
                    tx.execute(CHALLENGES_EXPIRE, vec![now_us.into()]).await.map(drop)
                }
                .boxed()
            })
            .await
    }

    /// Stores answers to http-01 validations until `expires_at_us`, as pairs of token and answer.
    ///
    /// # Errors
    /// Database errors.
    pub async fn put_challenges(
        self,
        answers: Vec<(String, String)>,
        expires_at_us: i64,
    ) -> Result<(), StoreError> {
        self.0
            .write("put_issuer_challenges", move |tx| {
                async move {
                    let ends = vec![expires_at_us; answers.len()];
                    let (tokens, answers) = answers.into_iter().unzip();
                    let columns = vec![Column::Text(tokens), Column::Text(answers), Column::Int(ends)];
                    tx.bulk(&CHALLENGE_PUT, columns).await.map(drop)
                }
                .boxed()
            })
            .await
    }

    /// Deletes the answers of these tokens.
    ///
    /// # Errors
    /// Database errors.
    pub async fn delete_challenges(self, tokens: Vec<String>) -> Result<(), StoreError> {
        self.0
            .write("delete_issuer_challenges", move |tx| {
                async move { tx.bulk(&CHALLENGE_DELETE, vec![Column::Text(tokens)]).await.map(drop) }.boxed()
            })
            .await
    }

    /// Returns the answer to the http-01 validation of `token`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn challenge(self, token: &str, now_us: i64) -> Result<Option<String>, StoreError> {
        self.0.row(CHALLENGE, vec![token.into(), now_us.into()]).await?.map(|mut row| row.text()).transpose()
    }

    async fn change(
        self,
        name: &'static str,
        statement: &'static str,
        parameters: Vec<Value>,
    ) -> Result<(), StoreError> {
        self.0
            .write(name, move |tx| async move { tx.execute(statement, parameters).await.map(drop) }.boxed())
            .await
    }
}

fn settings_values(settings: &IssuerSettings) -> [Value; 5] {
    [
        settings.name.as_str().into(),
        settings.kind.name().into(),
        settings.config.as_str().into(),
        settings.secrets.clone().into(),
        settings.enabled.into(),
    ]
}

/// Serializes a circuit breaker's state as JSON for the database.
fn breaker_json(breaker: Breaker) -> Result<String, StoreError> {
    serde_json::to_string(&breaker).map_err(|error| unreadable_breaker(&error))
}

fn parse_breaker(json: &str) -> Result<Breaker, StoreError> {
    serde_json::from_str(json).map_err(|error| unreadable_breaker(&error))
}

fn unreadable_breaker(error: &serde_json::Error) -> StoreError {
    StoreError::Corrupt(format!("issuer_health.breaker: {error}"))
}

fn issuer_row(mut row: Row) -> Result<ConfiguredIssuer, StoreError> {
    let mut issuer = ConfiguredIssuer {
        id: row.uuid()?,
        name: row.text()?,
        kind: row.named("configured_issuers.kind")?,
        config: row.text()?,
        secrets: row.maybe_blob()?,
        enabled: row.flag()?,
        revision: row.int()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
        account: None,
        health: IssuerHealth::default(),
    };
    let (key, url, directory) = (row.maybe_uuid()?, row.maybe_text()?, row.maybe_text()?);
    issuer.account = key.zip(directory).map(|(key, directory)| IssuerAccount { key, url, directory });
    issuer.health = IssuerHealth {
        breaker: row.maybe_text()?.map_or(Ok(Breaker::default()), |json| parse_breaker(&json))?,
        last_success_at_us: row.maybe_int()?,
        last_error_at_us: row.maybe_int()?,
        last_error_code: row.maybe_text()?,
        last_error: row.maybe_text()?,
    };
    Ok(issuer)
}
