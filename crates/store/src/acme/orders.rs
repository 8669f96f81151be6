//! Orders.

use std::collections::HashMap;

use futures_util::FutureExt;
use uuid::Uuid;

use super::authorizations::{AcmeAuthorization, ids};
use super::handle::Acme;
use super::lines::{from_lines, lines};
use super::place::{place, placed};
use db::{Bulk, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, limit_of, page};

/// Where an order stands, as stored. That it is ready, has failed with an authorization, or has expired is for the
/// reader to tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AcmeOrderStatus {
    /// Not finalized.
    Pending,
    /// Finalized; the certificate is being issued.
    Processing,
    /// The certificate is there.
    Valid,
    /// Refused for ever.
    Invalid,
}

impl AcmeOrderStatus {
    fn code(self) -> i64 {
        match self {
            Self::Pending => 0,
            Self::Processing => 1,
            Self::Valid => 2,
            Self::Invalid => 3,
        }
    }

    fn from_code(code: i64) -> Result<Self, StoreError> {
        Ok(match code {
            0 => Self::Pending,
            1 => Self::Processing,
            2 => Self::Valid,
            3 => Self::Invalid,
            other => return Err(StoreError::Corrupt(format!("an ACME order of status {other}"))),
        })
    }
}

/// An order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcmeOrder {
    /// Its identity, a UUIDv7.
    pub id: Uuid,
    /// Whose.
    pub account: Uuid,
    /// By which profile the certificate is made.
    pub profile: String,
    /// Where it stands.
    pub status: AcmeOrderStatus,
    /// What for: `dns:*.a.example`, `ip:10.0.0.1`.
    pub names: Vec<String>,
    /// One for each name, in the same order.
    pub authorizations: Vec<Uuid>,
    /// The notBefore asked for, µs.
    pub not_before_us: Option<i64>,
    /// The notAfter asked for, µs.
    pub not_after_us: Option<i64>,
    /// When it was made, µs.
    pub created_at_us: i64,
    /// By when it must be finalized, µs.
    pub expires_at_us: i64,
    /// The certificate it replaces (RFC 9773 section 5).
    pub replaces: Option<String>,
    /// The certificate request, DER, once finalized.
    pub csr: Option<Vec<u8>>,
    /// What was issued.
    pub certificate: Option<Uuid>,
    /// Why it is invalid, JSON.
    pub error: Option<String>,
    /// Until when somebody is issuing it, µs.
    pub claimed_until_us: Option<i64>,
}

/// An order to be issued.
#[derive(Clone, Debug)]
pub struct AcmeFinalized {
    /// The order.
    pub id: Uuid,
    /// The certificate request, DER.
    pub csr: Vec<u8>,
    /// Until when this node issues it, µs.
    pub claimed_until_us: i64,
}

/// How issuing went.
#[derive(Clone, Debug)]
pub struct AcmeIssued {
    /// The order.
    pub id: Uuid,
    /// What was issued, or why nothing can be, JSON.
    pub outcome: Result<Uuid, String>,
}

macro_rules! columns {
    () => {
        "SELECT id, account, profile, status, names, authorizations, not_before, not_after, created_at, expires_at, \
         replaces, csr, certificate, error, claimed_until FROM acme_orders"
    };
}

pub(super) const ORDER: &str = concat!("-- acme_order\n", columns!(), " WHERE id = ?1");

pub(super) const THESE: Bulk = Bulk {
    sqlite: concat!(
        "-- acme_orders_these\n",
        columns!(),
        " WHERE id IN (SELECT unhex(value) FROM json_each(?1))"
    ),
    postgres: concat!(
        "-- acme_orders_these\n",
        columns!(),
        " WHERE id = ANY(ARRAY(SELECT h::uuid FROM json_array_elements_text(?1::text::json) AS h))"
    ),
};

/// An account's, newest first, without those refused.
pub(super) const ORDERS_OF: &str = concat!(
    "-- acme_orders_of\n",
    columns!(),
    " WHERE account = ?1 AND id < ?2 AND status < 3 ORDER BY id DESC LIMIT ?3"
);

/// Everybody's, newest first.
pub(super) const ORDERS: &str =
    concat!("-- acme_orders\n", columns!(), " WHERE id < ?1 ORDER BY id DESC LIMIT ?2");

/// An order that has replaced a certificate, or is about to.
pub(super) const REPLACEMENT: &str = "-- acme_replacement
SELECT id FROM acme_orders WHERE replaces = ?1 AND replaces IS NOT NULL AND status IN (1, 2) LIMIT 1";

pub(super) const INSERT: Bulk = Bulk {
    sqlite: "-- acme_order_insert
INSERT INTO acme_orders (id, account, profile, status, names, authorizations, not_before, not_after, created_at,
                         expires_at, replaces)
VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (id) DO NOTHING",
    postgres: "-- acme_order_insert
INSERT INTO acme_orders (id, account, profile, names, authorizations, not_before, not_after, created_at,
                         expires_at, replaces, status)
SELECT n.*, 0 FROM UNNEST(?1::uuid[], ?2::uuid[], ?3::text[], ?4::text[], ?5::bytea[], ?6::bigint[], ?7::bigint[],
                          ?8::bigint[], ?9::bigint[], ?10::text[]) AS n
ON CONFLICT (id) DO NOTHING",
};

pub(super) const BEGIN: Bulk = Bulk {
    sqlite: "-- acme_issuance_begin
UPDATE acme_orders SET status = 1, csr = ?2, claimed_until = ?3 WHERE id = ?1 AND status = 0 RETURNING id",
    postgres: "-- acme_issuance_begin
UPDATE acme_orders o SET status = 1, csr = n.csr, claimed_until = n.claimed_until
FROM UNNEST(?1::uuid[], ?2::bytea[], ?3::bigint[]) AS n (id, csr, claimed_until)
WHERE o.id = n.id AND o.status = 0 RETURNING o.id",
};

/// Also from processing only: of two nodes that issued, both with the same certificate, one is first.
pub(super) const END: Bulk = Bulk {
    sqlite: "-- acme_issuance_end
UPDATE acme_orders SET status = ?2, certificate = ?3, error = ?4, claimed_until = NULL
WHERE id = ?1 AND status = 1 RETURNING id",
    postgres: "-- acme_issuance_end
UPDATE acme_orders o SET status = n.status, certificate = n.certificate, error = n.error, claimed_until = NULL
FROM UNNEST(?1::uuid[], ?2::bigint[], ?3::uuid[], ?4::text[]) AS n (id, status, certificate, error)
WHERE o.id = n.id AND o.status = 1 RETURNING o.id",
};

/// Only what nobody else has taken over since: a claim is known by its end.
pub(super) const RELEASE: Bulk = Bulk {
    sqlite: "-- acme_issuances_release
UPDATE acme_orders SET claimed_until = ?3 WHERE id = ?1 AND claimed_until = ?2",
    postgres: "-- acme_issuances_release
UPDATE acme_orders o SET claimed_until = n.now
FROM UNNEST(?1::uuid[], ?2::bigint[], ?3::bigint[]) AS n (id, claimed, now)
WHERE o.id = n.id AND o.claimed_until = n.claimed",
};

pub(super) const CLAIM_SQLITE: &str = "-- acme_issuances_claim
UPDATE acme_orders SET claimed_until = ?2 WHERE id IN
    (SELECT id FROM acme_orders WHERE claimed_until IS NOT NULL AND claimed_until <= ?1
     ORDER BY claimed_until LIMIT ?3)
RETURNING id";

pub(super) const CLAIM_POSTGRES: &str = "-- acme_issuances_claim
UPDATE acme_orders SET claimed_until = ?2 WHERE id IN
    (SELECT id FROM acme_orders WHERE claimed_until IS NOT NULL AND claimed_until <= ?1
     ORDER BY claimed_until LIMIT ?3 FOR UPDATE SKIP LOCKED)
RETURNING id";

pub(super) const TIDY_SQLITE: &str = "-- acme_orders_tidy
DELETE FROM acme_orders WHERE id IN (SELECT id FROM acme_orders WHERE id < ?1 ORDER BY id LIMIT ?2)";

pub(super) const TIDY_POSTGRES: &str = "-- acme_orders_tidy
DELETE FROM acme_orders WHERE id IN
    (SELECT id FROM acme_orders WHERE id < ?1 ORDER BY id LIMIT ?2 FOR UPDATE SKIP LOCKED)";

/// Adds pending orders.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn insert_acme_orders(tx: &mut Tx, new: &[AcmeOrder]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(new.iter().map(|one| one.id).collect()),
        Column::Uuid(new.iter().map(|one| one.account).collect()),
        Column::Text(new.iter().map(|one| one.profile.clone()).collect()),
        Column::Text(new.iter().map(|one| lines(&one.names)).collect()),
        Column::Blob(new.iter().map(|one| octets(&one.authorizations)).collect()),
        Column::MaybeInt(new.iter().map(|one| one.not_before_us).collect()),
        Column::MaybeInt(new.iter().map(|one| one.not_after_us).collect()),
        Column::Int(new.iter().map(|one| one.created_at_us).collect()),
        Column::Int(new.iter().map(|one| one.expires_at_us).collect()),
        Column::MaybeText(new.iter().map(|one| one.replaces.clone()).collect()),
    ];
    tx.bulk(&INSERT, columns).await.map(drop)
}

/// Fixes what is to be issued; gives back those orders that were pending.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn begin_acme_issuances(tx: &mut Tx, orders: &[AcmeFinalized]) -> Result<Vec<Uuid>, StoreError> {
    let columns = vec![
        Column::Uuid(orders.iter().map(|one| one.id).collect()),
        Column::Blob(orders.iter().map(|one| one.csr.clone()).collect()),
        Column::Int(orders.iter().map(|one| one.claimed_until_us).collect()),
    ];
    ids(tx.bulk(&BEGIN, columns).await?)
}

/// Notes how issuing went; gives back those orders that were processing still.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn end_acme_issuances(tx: &mut Tx, ended: &[AcmeIssued]) -> Result<Vec<Uuid>, StoreError> {
    let status = |one: &AcmeIssued| match one.outcome {
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
    /// An order.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn order(self, id: Uuid) -> Result<Option<AcmeOrder>, StoreError> {
        self.0.row(ORDER, vec![id.into()]).await?.map(order).transpose()
    }

    /// These orders, each with its authorizations where it is not finalized yet; those that are gone are left out. Two
    /// statements, however many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn orders_with_authorizations(
        self,
        ids: &[Uuid],
    ) -> Result<HashMap<Uuid, (AcmeOrder, Vec<AcmeAuthorization>)>, StoreError> {
        let rows = self.0.among(&THESE, ids.iter().map(|id| id.simple())).await?;
        let orders = rows.into_iter().map(order).collect::<Result<Vec<_>, _>>()?;
        let pending = |order: &&AcmeOrder| order.status == AcmeOrderStatus::Pending;
        let wanted: Vec<Uuid> =
            orders.iter().filter(pending).flat_map(|order| order.authorizations.iter().copied()).collect();
        let known = self.authorizations(&wanted).await?;
        let known: HashMap<Uuid, AcmeAuthorization> = known.into_iter().map(|one| (one.id, one)).collect();
        let of = |order: &AcmeOrder| match order.status {
            AcmeOrderStatus::Pending => {
                order.authorizations.iter().filter_map(|id| known.get(id).cloned()).collect()
            }
            _ => Vec::new(),
        };
        Ok(orders.into_iter().map(|order| (order.id, (order.clone(), of(&order)))).collect())
    }

    /// An account's orders, newest first, without those refused.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn orders_of(
        self,
        account: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AcmeOrder>, StoreError> {
        let place = place(after, "acme-orders-of")?;
        let (limit, asked) = limit_of(limit);
        let parameters = vec![account.into(), place, asked.into()];
        page(self.0.rows(Cost::Walk, ORDERS_OF, parameters).await?, limit, "acme-orders-of", keyed)
    }

    /// Everybody's orders, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn orders(self, after: Option<&Cursor>, limit: usize) -> Result<Page<AcmeOrder>, StoreError> {
        let place = place(after, "acme-orders")?;
        let (limit, asked) = limit_of(limit);
        page(self.0.rows(Cost::Walk, ORDERS, vec![place, asked.into()]).await?, limit, "acme-orders", keyed)
    }

    /// An order that has replaced a certificate or is about to.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn replacement(self, certificate: &str) -> Result<Option<Uuid>, StoreError> {
        self.0.row(REPLACEMENT, vec![certificate.into()]).await?.map(|mut row| row.uuid()).transpose()
    }

    /// Takes over issuances that nobody works on any more.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn claim_issuances(
        self,
        lapsed_by_us: i64,
        until_us: i64,
        limit: usize,
    ) -> Result<Vec<Uuid>, StoreError> {
        self.claim("claim_acme_issuances", (CLAIM_SQLITE, CLAIM_POSTGRES), lapsed_by_us, until_us, limit)
            .await
    }

    /// Deletes orders whose id is below `before`; says how many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn tidy_orders(self, before: Uuid, limit: usize) -> Result<u64, StoreError> {
        self.tidy("tidy_acme_orders", (TIDY_SQLITE, TIDY_POSTGRES), before, limit).await
    }

    /// Gives back what was claimed, so that whoever looks next takes it over at once: of validations and of issuances
    /// the id and the end of the claim, µs. What another has taken over since stays with it.
    ///
    /// # Errors
    /// Those of the database.
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
        (sqlite, postgres): (&'static str, &'static str),
        lapsed_by_us: i64,
        until_us: i64,
        limit: usize,
    ) -> Result<Vec<Uuid>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.0
            .write(name, move |tx| {
                async move {
                    let statement = if tx.is_postgres() { postgres } else { sqlite };
                    ids(tx.rows(statement, vec![lapsed_by_us.into(), until_us.into(), limit.into()]).await?)
                }
                .boxed()
            })
            .await
    }

    pub(super) async fn tidy(
        self,
        name: &'static str,
        (sqlite, postgres): (&'static str, &'static str),
        before: Uuid,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.0
            .write(name, move |tx| {
                async move {
                    let statement = if tx.is_postgres() { postgres } else { sqlite };
                    tx.execute(statement, vec![before.into(), limit.into()]).await
                }
                .boxed()
            })
            .await
    }
}

fn keyed(row: Row) -> Result<(AcmeOrder, Vec<Value>), StoreError> {
    let order = order(row)?;
    let place = placed(order.id);
    Ok((order, place))
}

fn order(mut row: Row) -> Result<AcmeOrder, StoreError> {
    Ok(AcmeOrder {
        id: row.uuid()?,
        account: row.uuid()?,
        profile: row.text()?,
        status: AcmeOrderStatus::from_code(row.int()?)?,
        names: from_lines(&row.text()?),
        authorizations: from_octets(&row.blob()?)?,
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

fn octets(ids: &[Uuid]) -> Vec<u8> {
    ids.iter().flat_map(|id| *id.as_bytes()).collect()
}

fn from_octets(octets: &[u8]) -> Result<Vec<Uuid>, StoreError> {
    let ids = octets.chunks(16).map(Uuid::from_slice).collect::<Result<_, _>>();
    ids.map_err(|_| StoreError::Corrupt("authorizations of an order that are no whole ids".to_owned()))
}
