//! Fills a database with a number of managed certificates, for benchmarks.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use issuers::{DeliveredChain, Issuer, IssuerError, IssuerKind, Order, Window};
use lifecycle::tables::jobs::{NewJob, insert_jobs};
use lifecycle::tables::managed::{
    GroupChanges, ManagedRow, ManagedTotal, NewManaged, NewManagedVersion, adjust_managed_groups,
    adjust_managed_totals, insert_managed, insert_versions, managed_by_ids, update_managed,
};
use lifecycle::{AuthorityError, DataError, InternalAuthority, IssuerSource, ProfileFacts};
use store::states::{Consent, JobKind, KeyHolder, ManagedState};
use store::{Store, StoreError, Tx};
use uuid::Uuid;
use x509::crl::Reason;
use x509::{Certificate, Fingerprint};

pub(crate) const DAY: i64 = 86_400_000_000;
/// Time of issue of the certificates, µs since 1970.
pub(crate) const NOW: i64 = 1_795_219_200_000_000;
/// Rows inserted per transaction while the database is filled.
const FILL: usize = 10_000;

/// An authority that has every profile, and whose issuers issue nothing.
pub(crate) struct NullIssuerSource;

impl IssuerSource for NullIssuerSource {
    fn issuer<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Issuer>, IssuerError>> {
        async move {
            let _ = name;
            Ok(Arc::new(Own) as Arc<dyn Issuer>)
        }
        .boxed()
    }

    fn concurrency<'a>(&'a self, _: &'a str) -> BoxFuture<'a, usize> {
        async { 0 }.boxed()
    }
}

/// An issuer with the name of the internal CA that issues nothing.
#[derive(Debug)]
struct Own;

impl Issuer for Own {
    fn kind(&self) -> IssuerKind {
        IssuerKind::Internal
    }

    fn issue<'a>(&'a self, _: &'a Order) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        async { Err(IssuerError::Unsupported { what: "issue in a bench" }) }.boxed()
    }

    fn revoke<'a>(&'a self, _: &'a Certificate, _: Reason) -> BoxFuture<'a, Result<(), IssuerError>> {
        async { Ok(()) }.boxed()
    }

    fn renewal_window<'a>(
        &'a self,
        _: &'a Certificate,
    ) -> BoxFuture<'a, Result<Option<Window>, IssuerError>> {
        async { Ok(None) }.boxed()
    }

    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>> {
        async { Ok(String::new()) }.boxed()
    }
}

impl InternalAuthority for NullIssuerSource {
    fn profile<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<ProfileFacts>, DataError>> {
        async { Ok(Some(ProfileFacts { requires_approval: false, renew_at: 2.0 / 3.0 })) }.boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificates: &'a [Fingerprint],
        _: Reason,
        _: &'a str,
    ) -> BoxFuture<'a, Result<usize, AuthorityError>> {
        async move { Ok(certificates.len()) }.boxed()
    }
}

fn row(number: usize) -> ManagedRow {
    let name = format!("host{number:07}.e{}.example.org", number % 50);
    let mut fingerprint = [0; 32];
    fingerprint[..8].copy_from_slice(&(number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    ManagedRow {
        id: 0,
        uuid: Uuid::now_v7(),
        names: format!("[\"{name}\"]"),
        name,
        state: ManagedState::Active,
        revision: 1,
        profile: format!("profile{}", number % 10),
        issuer: "internal".to_owned(),
        owner: Some(format!("owner{}", number % 500)),
        team: Some(format!("team{}", number % 50)),
        environment: Some(["prod", "stage", "test", "dev"][number % 4].to_owned()),
        policy: None,
        key_location: KeyHolder::Server,
        agent: None,
        key_type: "p256".to_owned(),
        tags: format!("{{\"cost\":\"{}\"}}", number % 1_000),
        targets: "[]".to_owned(),
        options: "{}".to_owned(),
        version: None,
        fingerprint: Some(fingerprint),
        not_before_us: NOW,
        not_after_us: NOW + 90 * DAY + (number as i64 % 90) * DAY + number as i64,
        served: None,
        undeployed_since_us: None,
        undeployed_late_at_us: None,
        revoked: false,
        failures: 0,
        last_error: None,
        created_at_us: NOW,
        updated_at_us: NOW,
    }
}

/// Inserts active certificates. Each has a planned run that is due within a year.
pub(crate) async fn fill(store: &Store, from: usize, to: usize) {
    let mut at = from;
    while at < to {
        let end = (at + FILL).min(to);
        let new: Vec<NewManaged> = (at..end)
            .map(|number| {
                let row = row(number);
                let names = vec![row.name.clone()];
                NewManaged { row, names, tags: vec![("cost".to_owned(), format!("{}", number % 1_000))] }
            })
            .collect();
        let filled = store.write("fill", move |tx| {
            async move {
                let given = insert_managed(tx, &new).await?;
                let jobs: Vec<NewJob> = given
                    .iter()
                    .map(|(id, _)| NewJob {
                        certificate: *id,
                        kind: JobKind::Renewal,
                        approval: Consent::NotNeeded,
                        issuer: "internal".to_owned(),
                        agent: None,
                        version: None,
                        reason: "planned".to_owned(),
                        requested_by: "system:renewal".to_owned(),
                        next_attempt_at_us: NOW + 60 * DAY + (id % 1_000) * DAY / 1_000,
                        deadline_at_us: NOW + 99 * DAY,
                        detail: None,
                        created_at_us: NOW,
                    })
                    .collect();
                insert_jobs(tx, &jobs).await?;
                if at == 0 {
                    add_versions(tx, &given).await?;
                }
                let mut totals = std::collections::BTreeMap::new();
                let mut groups = GroupChanges::default();
                for one in &new {
                    groups.count(&one.row, 1);
                    *totals.entry(ManagedTotal::State(one.row.state)).or_default() += 1;
                    if let Some(day) = ManagedTotal::expiry(one.row.not_after_us) {
                        *totals.entry(day).or_default() += 1;
                    }
                }
                adjust_managed_groups(tx, &groups).await?;
                adjust_managed_totals(tx, &totals).await
            }
            .boxed()
        });
        filled.await.unwrap();
        at = end;
    }
    lifecycle::tables::Managed::of(store).analyze().await.unwrap();
}

/// Number of certificates, from the first one, that have a version that can be revoked.
pub(crate) const REVOCABLE: usize = 1_000;

async fn add_versions(tx: &mut Tx, given: &[(i64, Uuid)]) -> Result<(), StoreError> {
    let ids: Vec<i64> = given.iter().map(|(id, _)| *id).take(REVOCABLE).collect();
    let mut rows = managed_by_ids(tx, ids).await?;
    let versions: Vec<NewManagedVersion> = rows
        .iter()
        .map(|row| NewManagedVersion {
            certificate: row.id,
            job: None,
            fingerprint: row.fingerprint.unwrap_or_default(),
            serial: "01".to_owned(),
            spki_sha256: [0; 32],
            not_before_us: row.not_before_us,
            not_after_us: row.not_after_us,
            issuer: "internal".to_owned(),
            profile: Some(row.profile.clone()),
            policy: row.policy.clone(),
            key: None,
            chain: vec![0x30, 0],
            issued_at_us: NOW,
        })
        .collect();
    let given: std::collections::HashMap<i64, i64> =
        insert_versions(tx, &versions).await?.into_iter().map(|(version, of)| (of, version)).collect();
    for row in &mut rows {
        row.version = given.get(&row.id).copied();
    }
    update_managed(tx, &rows).await.map(drop)
}
