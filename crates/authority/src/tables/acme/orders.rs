//! Storage of ACME orders.

use std::collections::HashMap;

use coded::coded;
use futures_util::FutureExt;
use uuid::Uuid;

use super::authorizations::{AcmeAuthorization, ids};
use super::handle::Acme;
use super::lines::{from_lines, lines};
use super::position::{position, position_of};
use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, limit_of, page};

coded! {
    /// Stored status of an order. Three states are not stored but derived when the order is read: ready, expired, and invalid
    /// because of an authorization.
    pub enum AcmeOrderStatus: "ACME order status" {
        /// The order is not finalized.
        Pending = 0 => "pending",
        /// The order is finalized, and its certificate is being issued.
        Processing = 1 => "processing",
        /// The certificate is issued.
        Valid = 2 => "valid",
        /// The order was rejected permanently.
        Invalid = 3 => "invalid",
    }
}

/// An ACME order, with its names, authorizations and result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcmeOrder {
    /// Identifier of the order, a UUIDv7.
    pub id: Uuid,
    /// Account that placed the order.
    pub account: Uuid,
    /// Profile with which the certificate is issued.
    pub profile: String,
    /// Stored status. The states ready, expired, and invalid because of an authorization are derived when the order is read.
    pub status: AcmeOrderStatus,
    /// Identifiers of the order, such as `dns:*.a.example` or `ip:10.0.0.1`.
    pub names: Vec<String>,
    /// Authorizations: one for each name, in the same order.
    pub authorizations: Vec<Uuid>,
    /// Requested notBefore in microseconds.
    pub not_before_us: Option<i64>,
    /// Requested notAfter in microseconds.
    pub not_after_us: Option<i64>,
    /// Creation time in microseconds.
    pub created_at_us: i64,
    /// Time in microseconds by which the order must be finalized.
    pub expires_at_us: i64,
    /// The certificate that the order replaces (RFC 9773 section 5).
    pub replaces: Option<String>,
    /// The CSR in DER, after the finalization.
    pub csr: Option<Vec<u8>>,
    /// Id of the issued certificate.
    pub certificate: Option<Uuid>,
    /// Reason why the order is invalid, JSON.
    pub error: Option<String>,
    /// Expiry of the claim by the node that issues, in microseconds.
    pub claimed_until_us: Option<i64>,
}

/// A finalized order whose certificate is to be issued.
#[derive(Clone, Debug)]
pub struct AcmeFinalizedOrder {
    /// Identifier of the finalized order.
    pub id: Uuid,
    /// The CSR in DER.
    pub csr: Vec<u8>,
    /// Expiry of this node's claim in microseconds.
    pub claimed_until_us: i64,
}

/// The result of the issuance for an order: a certificate or an error.
#[derive(Clone, Debug)]
pub struct AcmeIssuanceResult {
    /// Identifier of the order for which the issuance ran.
    pub id: Uuid,
    /// Identifier of the issued certificate, or the error as JSON.
    pub outcome: Result<Uuid, String>,
}

macro_rules! columns {
    () => {
        "SELECT id, account, profile, status, names, authorizations, not_before, not_after, created_at, expires_at, \
         replaces, csr, certificate, error, claimed_until FROM acme_orders"
    };
}

pub(super) const ORDER: &str = concat!("-- acme_order\n", columns!(), " WHERE id = ?1");

pub(super) const ORDERS_BY_ID: BulkStatement = db::bulk! {
    concat!("-- acme_orders_these\n", columns!(), " WHERE id {among ?1 uuid}")
};

macro_rules! with_statuses {
    ($text:expr) => {
        db::with_codes!([AcmeOrderStatus::{Pending, Processing, Valid, Invalid}] $text)
    };
}

/// Selects the orders of an account, newest first, without rejected ones.
pub(super) const ORDERS_OF: &str = with_statuses!(concat!(
    "-- acme_orders_of\n",
    columns!(),
    " WHERE account = ?1 AND id < ?2 AND status < {AcmeOrderStatus::Invalid} ORDER BY id DESC LIMIT ?3"
));

/// Selects all orders, newest first.
pub(super) const ORDERS: &str =
    concat!("-- acme_orders\n", columns!(), " WHERE id < ?1 ORDER BY id DESC LIMIT ?2");

/// Selects a processing or valid order that replaces a certificate.
pub(super) const REPLACEMENT: &str = with_statuses!(
    "-- acme_replacement
SELECT id FROM acme_orders WHERE replaces = ?1 AND replaces IS NOT NULL
  AND status IN ({AcmeOrderStatus::Processing}, {AcmeOrderStatus::Valid}) LIMIT 1"
);

pub(super) const INSERT: BulkStatement = db::bulk! {
    (id uuid, account uuid, profile text, names text, authorizations bytea, not_before bigint, not_after bigint,
     created_at bigint, expires_at bigint, replaces text)
    with_statuses!("-- acme_order_insert
INSERT INTO acme_orders (id, account, profile, status, names, authorizations, not_before, not_after, created_at,
                         expires_at, replaces)
VALUES (:id, :account, :profile, {AcmeOrderStatus::Pending}, :names, :authorizations, :not_before, :not_after,
  :created_at, :expires_at, :replaces) ON CONFLICT (id) DO NOTHING")
};

pub(super) const BEGIN: BulkStatement = db::bulk! { (id uuid, csr bytea, claimed_until bigint)
    with_statuses!("-- acme_issuance_begin
UPDATE acme_orders SET status = {AcmeOrderStatus::Processing}, csr = :csr, claimed_until = :claimed_until
WHERE id = :id AND status = {AcmeOrderStatus::Pending} RETURNING id")
};

/// Stores the results of processing orders. If two nodes issued the same certificate, only the first one stores its result.
pub(super) const END: BulkStatement = db::bulk! { (id uuid, status bigint, certificate uuid, error text)
    with_statuses!("-- acme_issuance_end
UPDATE acme_orders SET status = :status, certificate = :certificate, error = :error, claimed_until = NULL
WHERE id = :id AND status = {AcmeOrderStatus::Processing} RETURNING id")
};

/// Releases claims that no other node has taken over. The expiry of a claim identifies it.
pub(super) const RELEASE: BulkStatement = db::bulk! { (id uuid, claimed bigint, now bigint)
    "-- acme_issuances_release
UPDATE acme_orders SET claimed_until = :now WHERE id = :id AND claimed_until = :claimed"
};

pub(super) const CLAIM: BulkStatement = db::bulk! {
    "-- acme_issuances_claim
UPDATE acme_orders SET claimed_until = ?2 WHERE id IN
    (SELECT id FROM acme_orders WHERE claimed_until IS NOT NULL AND claimed_until <= ?1
     ORDER BY claimed_until LIMIT ?3{| FOR UPDATE SKIP LOCKED})
RETURNING id"
};

pub(super) const TIDY: BulkStatement = db::bulk! {
    "-- acme_orders_tidy
DELETE FROM acme_orders WHERE id IN
    (SELECT id FROM acme_orders WHERE id < ?1 ORDER BY id LIMIT ?2{| FOR UPDATE SKIP LOCKED})"
};

/// Inserts pending orders.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn insert_acme_orders(tx: &mut Tx, new: &[AcmeOrder]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(new.iter().map(|one| one.id).collect()),
        Column::Uuid(new.iter().map(|one| one.account).collect()),
        Column::Text(new.iter().map(|one| one.profile.clone()).collect()),
        Column::Text(new.iter().map(|one| lines(&one.names)).collect()),
        Column::Blob(new.iter().map(|one| id_bytes(&one.authorizations)).collect()),
        Column::MaybeInt(new.iter().map(|one| one.not_before_us).collect()),
        Column::MaybeInt(new.iter().map(|one| one.not_after_us).collect()),
        Column::Int(new.iter().map(|one| one.created_at_us).collect()),
        Column::Int(new.iter().map(|one| one.expires_at_us).collect()),
        Column::MaybeText(new.iter().map(|one| one.replaces.clone()).collect()),
    ];
    tx.bulk(&INSERT, columns).await.map(drop)
}

/// Stores CSRs of finalized orders. Returns the orders that were pending.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn begin_acme_issuances(
    tx: &mut Tx,
    orders: &[AcmeFinalizedOrder],
) -> Result<Vec<Uuid>, StoreError> {
    let columns = vec![
        Column::Uuid(orders.iter().map(|one| one.id).collect()),
        Column::Blob(orders.iter().map(|one| one.csr.clone()).collect()),
        Column::Int(orders.iter().map(|one| one.claimed_until_us).collect()),
    ];
    ids(tx.bulk(&BEGIN, columns).await?)
}

/// Stores results of issuances. Returns the orders that were still processing.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn end_acme_issuances(tx: &mut Tx, ended: &[AcmeIssuanceResult]) -> Result<Vec<Uuid>, StoreError> {
    let status = |one: &AcmeIssuanceResult| match one.outcome {
        Ok(_) => AcmeOrderStatus::Valid.code(),
        Err(_) => AcmeOrderStatus::Invalid.code(),
    };
    let columns = vec![
        Column::Uuid(ended.iter().map(|one| one.id).collect()),
        Column::Int(ended.iter().map(status).collect()),
        Column::MaybeUuid(ended.iter().map(|one| one.outcome.as_ref().ok().copied()).collect()),
        Column::MaybeText(ended.iter().map(|one| one.outcome.as_ref().err().cloned()).collect()),
    ];
    ids(tx.bulk(&END, columns).await?)
}

impl Acme<'_> {
    /// Returns the order with this identifier; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn order(self, id: Uuid) -> Result<Option<AcmeOrder>, StoreError> {
        self.0.row(ORDER, vec![id.into()]).await?.map(order).transpose()
    }

    /// Returns these orders in two statements, each with its authorizations if it is not yet finalized. Deleted orders are omitted.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn orders_with_authorizations(
        self,
        ids: &[Uuid],
    ) -> Result<HashMap<Uuid, (AcmeOrder, Vec<AcmeAuthorization>)>, StoreError> {
        let rows = self.0.among(&ORDERS_BY_ID, ids.iter().map(|id| id.simple())).await?;
        let orders = rows.into_iter().map(order).collect::<Result<Vec<_>, _>>()?;
        let mut authorizations = self.authorizations_of(&orders).await?;
        let with = |order: AcmeOrder| {
            let of = authorizations.remove(&order.id).unwrap_or_default();
            (order.id, (order, of))
        };
        Ok(orders.into_iter().map(with).collect())
    }

    /// Returns the authorizations of these orders, keyed by the identifier of the order. Runs a single statement. Finalized orders
    /// are omitted.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn authorizations_of(
        self,
        orders: &[AcmeOrder],
    ) -> Result<HashMap<Uuid, Vec<AcmeAuthorization>>, StoreError> {
        let pending = || orders.iter().filter(|order| order.status == AcmeOrderStatus::Pending);
        let wanted: Vec<Uuid> = pending().flat_map(|order| order.authorizations.iter().copied()).collect();
        let known = self.authorizations(&wanted).await?;
        let known: HashMap<Uuid, AcmeAuthorization> = known.into_iter().map(|one| (one.id, one)).collect();
        let of = |order: &AcmeOrder| {
            let known = order.authorizations.iter().filter_map(|id| known.get(id).cloned());
            (order.id, known.collect())
        };
        Ok(pending().map(of).collect())
    }

    /// Returns a page of the orders of an account, newest first, without rejected ones.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or an error of the database.
    pub async fn orders_of(
        self,
        account: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AcmeOrder>, StoreError> {
        let position = position(after, "acme-orders-of")?;
        let (limit, row_limit) = limit_of(limit);
        let parameters = vec![account.into(), position, row_limit.into()];
        page(self.0.rows(Cost::Walk, ORDERS_OF, parameters).await?, limit, "acme-orders-of", keyed)
    }

    /// Returns a page of all orders, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or an error of the database.
    pub async fn orders(self, after: Option<&Cursor>, limit: usize) -> Result<Page<AcmeOrder>, StoreError> {
        let position = position(after, "acme-orders")?;
        let (limit, row_limit) = limit_of(limit);
        page(
            self.0.rows(Cost::Walk, ORDERS, vec![position, row_limit.into()]).await?,
            limit,
            "acme-orders",
            keyed,
        )
    }

    /// Returns the processing or valid order that replaces a certificate.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn replacement(self, certificate: &str) -> Result<Option<Uuid>, StoreError> {
        self.0.row(REPLACEMENT, vec![certificate.into()]).await?.map(|mut row| row.uuid()).transpose()
    }

    /// Claims issuances whose previous claim has expired by the time `lapsed_by_us`. Returns the identifiers of their orders.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn claim_issuances(
        self,
        lapsed_by_us: i64,
        until_us: i64,
        limit: usize,
    ) -> Result<Vec<Uuid>, StoreError> {
        self.claim("claim_acme_issuances", &CLAIM, lapsed_by_us, until_us, limit).await
    }

    /// Deletes orders whose identifier is less than `before`. Returns their number.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn delete_orders_before(self, before: Uuid, limit: usize) -> Result<u64, StoreError> {
        self.tidy("tidy_acme_orders", &TIDY, before, limit).await
    }

    /// Releases claims of validations and issuances, so that other nodes can take them over immediately. Each claim is given as the
    /// identifier and the expiry in microseconds. Claims that another node has taken over are not changed.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn release_claims(
        self,
        validations: Vec<(Uuid, i64)>,
        issuances: Vec<(Uuid, i64)>,
        now_us: i64,
    ) -> Result<(), StoreError> {
        self.0
            .write("release_acme_claims", move |tx| {
                async move {
                    for (statement, claims) in
                        [(&super::authorizations::RELEASE, validations), (&RELEASE, issuances)]
                    {
                        let now = vec![now_us; claims.len()];
                        let (ids, ends) = claims.into_iter().unzip();
                        tx.bulk(statement, vec![Column::Uuid(ids), Column::Int(ends), Column::Int(now)])
                            .await?;
                    }
                    Ok(())
                }
                .boxed()
            })
            .await
    }

    pub(super) async fn claim(
        self,
        name: &'static str,
        statement: &'static BulkStatement,
        lapsed_by_us: i64,
        until_us: i64,
        limit: usize,
    ) -> Result<Vec<Uuid>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.0
            .write(name, move |tx| {
                async move {
                    ids(tx
                        .rows(tx.text_of(statement), vec![lapsed_by_us.into(), until_us.into(), limit.into()])
                        .await?)
                }
                .boxed()
            })
            .await
    }

    pub(super) async fn tidy(
        self,
        name: &'static str,
        statement: &'static BulkStatement,
        before: Uuid,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.0
            .write(name, move |tx| {
                async move { tx.execute(tx.text_of(statement), vec![before.into(), limit.into()]).await }
                    .boxed()
            })
            .await
    }
}

fn keyed(row: Row) -> Result<(AcmeOrder, Vec<Value>), StoreError> {
    let order = order(row)?;
    let position = position_of(order.id);
    Ok((order, position))
}

fn order(mut row: Row) -> Result<AcmeOrder, StoreError> {
    Ok(AcmeOrder {
        id: row.uuid()?,
        account: row.uuid()?,
        profile: row.text()?,
        status: row.coded("acme_orders.status")?,
        names: from_lines(&row.text()?),
        authorizations: ids_from_bytes(&row.blob()?)?,
        not_before_us: row.maybe_int()?,
        not_after_us: row.maybe_int()?,
        created_at_us: row.int()?,
        expires_at_us: row.int()?,
        replaces: row.maybe_text()?,
        csr: row.maybe_blob()?,
        certificate: row.maybe_uuid()?,
        error: row.maybe_text()?,
        claimed_until_us: row.maybe_int()?,
    })
}

fn id_bytes(ids: &[Uuid]) -> Vec<u8> {
    ids.iter().flat_map(|id| *id.as_bytes()).collect()
}

fn ids_from_bytes(id_bytes: &[u8]) -> Result<Vec<Uuid>, StoreError> {
    let ids = id_bytes.chunks(16).map(Uuid::from_slice).collect::<Result<_, _>>();
    ids.map_err(|_| StoreError::Corrupt("the authorization ids of an order are malformed".to_owned()))
}
