//! Tests of issued and revoked certificates: sets, keys that are used once, and filters.

use std::sync::Arc;

use authority::tables::{
    IdempotencyHashes, Insertion, IssuedFilter, NewIssued, RevocationFields, RevocationTarget, Source,
    UsedIdempotencyKey,
};
use store::{NewCertificate, Store};
use uuid::Uuid;
use x509::crl::Reason;

use testbed::tables::{DAY, NOW, World};

const CA: Uuid = Uuid::from_u128(1);

fn row(number: u32) -> NewIssued {
    let mut hash = [0; 32];
    hash[..4].copy_from_slice(&number.to_be_bytes());
    let certificate = NewCertificate {
        sha256: hash,
        der: Arc::from(&number.to_be_bytes()[..]),
        subject: format!("CN=n{number}.example"),
        issuer: "CN=CA".to_owned(),
        serial: format!("{number:x}"),
        not_before_us: NOW,
        not_after_us: NOW + DAY,
        key_algorithm: "EC P-256".to_owned(),
        key_bits: 256,
        spki_sha256: hash,
        names: vec![format!("n{number}.example"), format!("alt{number}.example")],
    };
    NewIssued {
        id: Uuid::from_u128(u128::from(number) + 100),
        certificate: Arc::new(certificate),
        ca: CA,
        serial: number.to_be_bytes().to_vec(),
        profile: format!("p{}", number % 2),
        source: Source::Api,
        requester: "user:a".to_owned(),
        issued_at_us: NOW + i64::from(number),
        shard: number % 3,
        idempotency: None,
    }
}

fn keyed(number: u32, key: u8, request: u8) -> NewIssued {
    NewIssued {
        idempotency: Some(IdempotencyHashes { key_sha256: [key; 32], request_sha256: [request; 32] }),
        ..row(number)
    }
}

async fn insert(store: &Store, rows: Vec<NewIssued>) -> Vec<Insertion> {
    let insert = store
        .write("test", move |tx| Box::pin(async move { authority::tables::insert_issued(tx, &rows).await }));
    insert.await.unwrap()
}

async fn revoke(store: &Store, target: RevocationTarget, reason: Reason) -> (i64, u64) {
    let mark = RevocationFields {
        action: Uuid::new_v4(),
        reason,
        revoked_at_us: NOW,
        invalidity_at_us: None,
        now_us: NOW,
        actor: "user:a".to_owned(),
    };
    let revoke = store.write("test", move |tx| {
        Box::pin(async move { authority::tables::revoke(tx, &target, &mark).await })
    });
    let (matched, changed) = revoke.await.unwrap();
    (matched.all, changed)
}

pub(crate) async fn bulk_statement_count_is_independent_of_the_number_of_rows(world: World) {
    let store = &world.store;
    insert(store, vec![row(0)]).await;
    let count = |rows: std::ops::Range<u32>| {
        let rows: Vec<NewIssued> = rows.map(|number| keyed(number, (number % 251) as u8, 1)).collect();
        async move {
            let before = store.statements_sent();
            insert(store, rows).await;
            store.statements_sent() - before
        }
    };
    let (few, many) = (count(1..3).await, count(300..550).await);
    assert!(many <= few + 1 && many <= 10, "{few} for 2, {many} for 250");
    let before = store.statements_sent();
    let filter = IssuedFilter { ca: Some(CA), ..IssuedFilter::default() };
    let (matched, changed) = revoke(store, RevocationTarget::Filter(filter), Reason::Superseded).await;
    assert_eq!((matched as u64, changed), (matched as u64, matched as u64));
    assert!(matched > 200 && store.statements_sent() - before <= 4);
    assert_eq!(
        authority::tables::Revocations::of(store).crl_entries(CA, 0, 0).await.unwrap().len() as i64,
        matched
    );
    let sharded = authority::tables::Revocations::of(store).crl_entries(CA, 1, 0).await.unwrap().len()
        + authority::tables::Revocations::of(store).crl_entries(CA, 2, 0).await.unwrap().len();
    assert!(sharded > 0 && (sharded as i64) < matched, "shards tell of their own");
}

pub(crate) async fn idempotency_key_is_used_once_within_and_across_batches(world: World) {
    let store = &world.store;
    let used = |id: u128, request: u8| {
        Insertion::Repeated(UsedIdempotencyKey {
            id: Uuid::from_u128(id + 100),
            request_sha256: [request; 32],
        })
    };
    let insertions = insert(store, vec![keyed(1, 1, 1), keyed(2, 1, 1), keyed(3, 2, 1), row(4)]).await;
    assert_eq!(insertions, [Insertion::New, used(1, 1), Insertion::New, Insertion::New]);
    let insertions = insert(store, vec![keyed(5, 2, 9), keyed(6, 3, 1)]).await;
    assert_eq!(insertions, [used(3, 1), Insertion::New]);
    let known = authority::tables::Issued::of(store).key(&[1; 32]).await.unwrap().unwrap();
    assert_eq!(known.id, Uuid::from_u128(101));
    assert!(
        authority::tables::Issued::of(store).by_id(Uuid::from_u128(102)).await.unwrap().is_none(),
        "a repeat stores nothing"
    );
    assert!(
        store::Inventory::of(store)
            .certificate_by_sha256(&row(2).certificate.sha256)
            .await
            .unwrap()
            .is_none()
    );
    let (_, seen) =
        authority::tables::Issued::of(store).blocked_and_used_keys(&[], &[[1; 32], [9; 32]]).await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(authority::tables::Issued::of(store).delete_idempotency_keys(NOW + 2).await.unwrap(), 1);
    assert!(authority::tables::Issued::of(store).key(&[1; 32]).await.unwrap().is_none());
    assert_eq!(store::Inventory::of(store).summary(NOW, DAY).await.unwrap().certificates, 4);
}

pub(crate) async fn blocked_keys_are_rejected_individually_in_a_batch(world: World) {
    let store = &world.store;
    let bad = row(1).certificate.spki_sha256;
    let block = store.write("test", move |tx| {
        Box::pin(async move { authority::tables::block_spki(tx, bad, NOW, "user:a").await })
    });
    assert!(block.await.unwrap());
    let block = store.write("test", move |tx| {
        Box::pin(async move { authority::tables::block_spki(tx, bad, NOW, "user:a").await })
    });
    assert!(!block.await.unwrap(), "it was blocked before");
    assert_eq!(insert(store, vec![row(1), row(2)]).await, [Insertion::Blocked, Insertion::New]);
    let (blocked, _) =
        authority::tables::Issued::of(store).blocked_and_used_keys(&[bad, [7; 32]], &[]).await.unwrap();
    assert_eq!(blocked.into_iter().collect::<Vec<_>>(), [bad]);
    assert!(authority::tables::Revocations::of(store).is_spki_blocked(&bad).await.unwrap());
}

pub(crate) async fn issued_filters_return_only_matching_certificates(world: World) {
    let store = &world.store;
    insert(store, (0..20).map(row).collect()).await;
    let find = |filter: IssuedFilter| async move {
        let page = authority::tables::Issued::of(store).page(&filter, None, 100).await.unwrap();
        page.rows
            .into_iter()
            .map(|row| u32::from_be_bytes(row.serial.try_into().unwrap()))
            .collect::<Vec<_>>()
    };
    let one = |change: &dyn Fn(&mut IssuedFilter)| {
        let mut filter = IssuedFilter::default();
        change(&mut filter);
        filter
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(find(one(&|f| f.profile = text("p1"))).await.len(), 10);
    assert_eq!(find(one(&|f| f.name_suffix = text("n7.example"))).await, [7]);
    assert_eq!(find(one(&|f| f.name_suffix = text("example"))).await.len(), 20);
    assert_eq!(find(one(&|f| f.name_suffix = text("xample"))).await.len(), 0, "labels are whole");
    assert_eq!(find(one(&|f| f.requester = text("user:b"))).await.len(), 0);
    let span = one(&|f| (f.issued_from_us, f.issued_before_us) = (Some(NOW + 3), Some(NOW + 5)));
    assert_eq!(find(span).await, [4, 3], "newest first");
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = authority::tables::Issued::of(store)
            .page(&IssuedFilter::default(), after.as_ref(), 7)
            .await
            .unwrap();
        all.extend(page.rows.into_iter().map(|row| row.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(all.len(), 20);
    assert!(all.windows(2).all(|pair| pair[0] > pair[1]), "each once, in order");
}

pub(crate) async fn revocation_reason_changes_follow_rfc_5280(world: World) {
    let store = &world.store;
    insert(store, vec![row(1)]).await;
    let id = Uuid::from_u128(101);
    let state = || async {
        authority::tables::Issued::of(store)
            .status(CA, &row(1).serial)
            .await
            .unwrap()
            .unwrap()
            .map(|facts| facts.reason)
    };
    use Reason::{CertificateHold, CessationOfOperation, KeyCompromise, RemoveFromCrl, Superseded};
    let table: [(Reason, u64, Option<Reason>); 9] = [
        (RemoveFromCrl, 0, None),
        (CertificateHold, 1, Some(CertificateHold)),
        (CertificateHold, 0, Some(CertificateHold)),
        (RemoveFromCrl, 1, Some(RemoveFromCrl)),
        (Superseded, 1, Some(Superseded)),
        (CertificateHold, 0, Some(Superseded)),
        (CessationOfOperation, 0, Some(Superseded)),
        (KeyCompromise, 1, Some(KeyCompromise)),
        (RemoveFromCrl, 0, Some(KeyCompromise)),
    ];
    for (reason, changed, now) in table {
        assert_eq!(revoke(store, RevocationTarget::Id(id), reason).await, (1, changed), "{reason}");
        assert_eq!(state().await, now, "{reason}");
    }
    assert_eq!(authority::tables::Issued::of(store).status(CA, &[9]).await.unwrap(), None, "never issued");
    assert_eq!(revoke(store, RevocationTarget::Id(Uuid::nil()), Superseded).await, (0, 0));
}
