//! Tests of pending enrolments, and of the keys that SCEP clients encrypt to.

use authority::tables::{
    EnrolmentDecision, EnrolmentPlan, EnrolmentState, NewEnrolment, RecipientRow, Source, decide_enrolment,
    insert_enrolment, put_recipient,
};
use futures_util::FutureExt;
use store::Store;
use uuid::Uuid;

use testbed::tables::World;

fn enrolment(number: u8, at_us: i64) -> NewEnrolment {
    NewEnrolment {
        id: Uuid::now_v7(),
        key_sha256: [number; 32],
        protocol: Source::Est,
        profile: "web".to_owned(),
        requester: "est:alice".to_owned(),
        request: vec![number; 100],
        summary: format!("CN={number}"),
        requested_at_us: at_us,
        expires_at_us: at_us + 1_000,
        plan: EnrolmentPlan { text: "{}".to_owned(), sha256: [number; 32], needed: 1 },
    }
}

async fn insert(store: &Store, new: NewEnrolment, open_max: u32) -> bool {
    store.write("insert", move |tx| insert_enrolment(tx, new, open_max).boxed()).await.unwrap()
}

async fn decide(store: &Store, id: Uuid, approved: bool, at_us: i64) -> bool {
    let (by, note) = ("user:bob".to_owned(), "fine".to_owned());
    let decision = EnrolmentDecision { id, approved, by, at_us, note, until_us: at_us + 5_000 };
    store.write("decide", move |tx| decide_enrolment(tx, decision).boxed()).await.unwrap()
}

pub(crate) async fn enrollment_waits_expires_and_is_decided_once(world: World) {
    let store = &world.store;
    let new = enrolment(1, 100);
    assert!(insert(store, new.clone(), 10).await);
    assert!(!insert(store, enrolment(1, 101), 10).await, "it waits already");
    let found = authority::tables::Enrolments::of(store).by_key(&[1; 32], 200).await.unwrap().unwrap();
    assert_eq!((found.id, found.state, found.request.clone()), (new.id, EnrolmentState::Open, new.request));
    assert_eq!(authority::tables::Enrolments::of(store).get(new.id, 200).await.unwrap(), Some(found));
    assert_eq!(
        authority::tables::Enrolments::of(store).by_key(&[1; 32], 1_100).await.unwrap(),
        None,
        "it lapsed"
    );

    assert!(decide(store, new.id, true, 500).await);
    assert!(!decide(store, new.id, false, 501).await, "it is decided");
    let decided = authority::tables::Enrolments::of(store).get(new.id, 5_000).await.unwrap().unwrap();
    assert_eq!(decided.state, EnrolmentState::Approved);
    assert_eq!((decided.decided_by.as_deref(), decided.decided_at_us), (Some("user:bob"), Some(500)));
    assert_eq!(decided.expires_at_us, 5_500);

    // After it expires, the same request can be made again.
    assert!(insert(store, enrolment(1, 6_000), 10).await);
    let anew = authority::tables::Enrolments::of(store).by_key(&[1; 32], 6_001).await.unwrap().unwrap();
    assert_eq!((anew.state, anew.decided_by), (EnrolmentState::Open, None));
    assert_eq!(authority::tables::Enrolments::of(store).trim(7_000).await.unwrap(), 1);
}

pub(crate) async fn unknown_enrollment_protocol_is_an_error(world: World) {
    let store = &world.store;
    assert!(insert(store, enrolment(1, 0), 5).await);
    let change = store.write("change", |tx| {
        async move { tx.execute("UPDATE enrolments SET protocol = 'cmp'", Vec::new()).await }.boxed()
    });
    assert_eq!(change.await.unwrap(), 1);
    let error = authority::tables::Enrolments::of(store).by_key(&[1; 32], 5).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the database contains a row that this Bulla cannot read: enrolments.protocol: unknown source \"cmp\""
    );
}

pub(crate) async fn open_enrollments_are_limited_and_listed_oldest_first(world: World) {
    let store = &world.store;
    for number in 1..=5 {
        assert!(insert(store, enrolment(number, i64::from(number)), 5).await);
    }
    assert!(!insert(store, enrolment(6, 6), 5).await, "five wait");
    let first =
        authority::tables::Enrolments::of(store).page(EnrolmentState::Open, 10, None, 3).await.unwrap();
    let keys: Vec<_> = first.rows.iter().map(|row| row.key_sha256[0]).collect();
    assert_eq!(keys, [1, 2, 3]);
    assert!(decide(store, first.rows[0].id, false, 10).await);
    assert!(insert(store, enrolment(6, 11), 5).await, "one is decided");
    let rest = authority::tables::Enrolments::of(store)
        .page(EnrolmentState::Open, 12, first.next.as_ref(), 10)
        .await
        .unwrap();
    assert_eq!(rest.rows.iter().map(|row| row.key_sha256[0]).collect::<Vec<_>>(), [4, 5, 6]);
    assert!(rest.next.is_none());
    let rejected =
        authority::tables::Enrolments::of(store).page(EnrolmentState::Rejected, 12, None, 10).await.unwrap();
    assert_eq!(rejected.rows[0].note.as_deref(), Some("fine"));
}

pub(crate) async fn recipient_row_is_created_by_one_node_and_replaced_conditionally(world: World) {
    let store = &world.store;
    let ca = Uuid::now_v7();
    let row = |certificate: &[u8]| RecipientRow {
        ca,
        key: Uuid::now_v7(),
        certificate: certificate.to_vec(),
        not_after_us: 1,
    };
    let put = |row: RecipientRow, replaces: Option<Vec<u8>>| async move {
        store
            .write("put", move |tx| {
                async move { put_recipient(tx, &row, 5, replaces.as_deref()).await }.boxed()
            })
            .await
            .unwrap()
    };
    assert_eq!(authority::tables::Enrolments::of(store).recipient(ca).await.unwrap(), None);
    let first = row(b"first");
    assert!(put(first.clone(), None).await);
    assert!(!put(row(b"second"), None).await, "the other node was before");
    assert_eq!(authority::tables::Enrolments::of(store).recipient(ca).await.unwrap(), Some(first));
    assert!(!put(row(b"third"), Some(b"second".to_vec())).await);
    assert!(put(row(b"third"), Some(b"first".to_vec())).await);
    assert_eq!(
        authority::tables::Enrolments::of(store).recipient(ca).await.unwrap().unwrap().certificate,
        b"third"
    );
}
