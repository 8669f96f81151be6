//! Tests of identities, sessions, roles and stored responses.

use futures_util::FutureExt;
use store::{
    AccessChange, CeremonyPurpose, IdempotencyState, Identity, IdentityKind, IdentitySettings, KeyCeremony,
    NewIdentity, NewPassword, RoleChange, SecurityKey, SecurityKeyUse, Session, SignInMethod, Store,
    StoredResponse,
};
use uuid::Uuid;

use testbed::tables::{DAY, NOW, World};

fn settings(name: &str) -> IdentitySettings {
    IdentitySettings {
        name: name.to_owned(),
        email: None,
        grants: r#"[{"role":"viewer","scope":"any"}]"#.to_owned(),
        enabled: true,
        expires_at_us: Some(NOW + DAY),
    }
}

async fn insert(store: &Store, kind: IdentityKind, name: &str, key: u8) -> (Uuid, AccessChange) {
    let new = NewIdentity {
        id: Uuid::now_v7(),
        kind,
        key_hash: [key; 32],
        label: "bulla_ab".to_owned(),
        settings: settings(name),
        created_at_us: NOW,
        created_by: "system:test".to_owned(),
    };
    let id = new.id;
    let change =
        store.write("test", move |tx| async move { store::insert_identity(tx, &new).await }.boxed()).await;
    (id, change.unwrap())
}

async fn update(store: &Store, of: &Identity, revision: i64, settings: IdentitySettings) -> AccessChange {
    let (id, kind) = (of.id, of.kind);
    store
        .write("test", move |tx| {
            async move { store::update_identity(tx, id, kind, revision, &settings).await }.boxed()
        })
        .await
        .unwrap()
}

pub(crate) async fn identities_are_found_by_key_and_updates_require_the_revision(world: World) {
    let store = &world.store;
    assert!(!store::Access::of(store).has_identities(IdentityKind::Token).await.unwrap());
    let (ci, change) = insert(store, IdentityKind::Token, "ci", 1).await;
    assert_eq!(change, AccessChange::Done);
    assert_eq!(insert(store, IdentityKind::Token, "ci", 2).await.1, AccessChange::Taken, "the name");
    assert_eq!(insert(store, IdentityKind::Token, "cd", 1).await.1, AccessChange::Taken, "the key");
    assert_eq!(insert(store, IdentityKind::User, "ci", 3).await.1, AccessChange::Done, "another kind");
    assert!(store::Access::of(store).has_identities(IdentityKind::Token).await.unwrap());

    let found = store::Access::of(store).identities_by_keys(&[[9; 32], [1; 32]]).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].id, found[0].settings_of(), found[0].revision), (ci, settings("ci"), 1));
    assert!(store::Access::of(store).identities_by_keys(&[]).await.unwrap().is_empty());
    assert!(store::Access::of(store).identity(IdentityKind::User, ci).await.unwrap().is_none());

    let renamed = IdentitySettings { name: "ci-2".to_owned(), enabled: false, ..settings("ci") };
    assert_eq!(update(store, &found[0], 7, renamed.clone()).await, AccessChange::Stale);
    assert_eq!(update(store, &found[0], 1, renamed.clone()).await, AccessChange::Done);
    let now = store::Access::of(store).identity(IdentityKind::Token, ci).await.unwrap().unwrap();
    assert_eq!((now.settings_of(), now.revision), (renamed.clone(), 2));
    insert(store, IdentityKind::Token, "other", 4).await;
    let taken = IdentitySettings { name: "other".to_owned(), ..renamed };
    assert_eq!(update(store, &now, 2, taken).await, AccessChange::Taken);

    store::Access::of(store).identities_used(vec![(ci, NOW + 5), (Uuid::now_v7(), NOW)]).await.unwrap();
    store::Access::of(store).identities_used(vec![(ci, NOW + 3)]).await.unwrap();
    let used = store::Access::of(store).identity(IdentityKind::Token, ci).await.unwrap().unwrap();
    assert_eq!(used.last_used_at_us, Some(NOW + 5), "never backwards");

    let first = store::Access::of(store).identities(IdentityKind::Token, None, 1).await.unwrap();
    assert_eq!(first.rows[0].name, "ci-2");
    let second =
        store::Access::of(store).identities(IdentityKind::Token, first.next.as_ref(), 1).await.unwrap();
    assert_eq!((second.rows[0].name.as_str(), second.next), ("other", None));
    assert!(store::Access::of(store).identities(IdentityKind::User, first.next.as_ref(), 1).await.is_err());
}

trait SettingsOf {
    fn settings_of(&self) -> IdentitySettings;
}

impl SettingsOf for Identity {
    fn settings_of(&self) -> IdentitySettings {
        IdentitySettings {
            name: self.name.clone(),
            email: self.email.clone(),
            grants: self.grants.clone(),
            enabled: self.enabled,
            expires_at_us: self.expires_at_us,
        }
    }
}

pub(crate) async fn sessions_end_with_their_identity_and_on_expiry(world: World) {
    let store = &world.store;
    let (alice, _) = insert(store, IdentityKind::User, "alice", 1).await;
    for (hash, seen) in [(11, NOW), (12, NOW - 10), (13, NOW)] {
        let session = Session {
            token_hash: [hash; 32],
            identity: alice,
            grants: "[]".to_owned(),
            address: "127.0.0.1".to_owned(),
            created_at_us: NOW - i64::from(hash),
            last_seen_at_us: seen,
            expires_at_us: NOW + i64::from(hash),
            method: Some(SignInMethod::Link),
            proved_at_us: Some(NOW),
            chain: None,
        };
        store
            .write("test", move |tx| async move { store::insert_session(tx, &session).await }.boxed())
            .await
            .unwrap();
    }
    let (session, person) = store::Access::of(store).session([11; 32]).await.unwrap().unwrap();
    assert_eq!((session.identity, person.name.as_str()), (alice, "alice"));
    store::Access::of(store).sessions_seen(vec![([11; 32], NOW + 1), ([99; 32], NOW)]).await.unwrap();
    assert_eq!(store::Access::of(store).session([11; 32]).await.unwrap().unwrap().0.last_seen_at_us, NOW + 1);
    assert_eq!(store::Access::of(store).sessions_of(alice).await.unwrap().len(), 3);

    // Session 12 is idle, session 11 has expired.
    assert_eq!(store::Access::of(store).expire_sessions(NOW + 11, NOW - 5).await.unwrap(), 2);
    assert_eq!(store::Access::of(store).sessions_of(alice).await.unwrap()[0].token_hash, [13; 32]);

    let deletion =
        store.write("test", move |tx| async move { store::delete_identity(tx, alice, 1).await }.boxed());
    assert_eq!(deletion.await.unwrap(), AccessChange::Done);
    assert!(store::Access::of(store).session([13; 32]).await.unwrap().is_none());
}

pub(crate) async fn roles_are_created_updated_and_deleted(world: World) {
    let store = &world.store;
    let put = |revision, permissions: &str| {
        let role = RoleChange {
            name: "deployer".to_owned(),
            description: String::new(),
            permissions: permissions.to_owned(),
            revision,
            at_us: NOW,
        };
        store.write("test", move |tx| async move { store::put_role(tx, &role).await }.boxed())
    };
    assert_eq!(put(None, "[]").await.unwrap(), AccessChange::Done);
    assert_eq!(put(None, "[]").await.unwrap(), AccessChange::Taken);
    assert_eq!(put(Some(1), r#"["job.read"]"#).await.unwrap(), AccessChange::Done);
    assert_eq!(put(Some(1), "[]").await.unwrap(), AccessChange::Stale);
    let roles = store::Access::of(store).roles().await.unwrap();
    assert_eq!((roles[0].permissions.as_str(), roles[0].revision), (r#"["job.read"]"#, 2));
    let delete =
        store.write("test", |tx| async move { store::delete_role(tx, "deployer", 2).await }.boxed()).await;
    assert_eq!(delete.unwrap(), AccessChange::Done);
    assert!(store::Access::of(store).roles().await.unwrap().is_empty());
}

pub(crate) async fn repeated_idempotent_request_returns_the_stored_response(world: World) {
    let store = &world.store;
    let (key, body) = ([1; 32], [2; 32]);
    let begin = |body, now| store::Access::of(store).begin_idempotent(key, body, now, now + DAY, now - 60);
    assert_eq!(begin(body, NOW).await.unwrap(), IdempotencyState::First);
    assert_eq!(begin(body, NOW + 1).await.unwrap(), IdempotencyState::UnderWay);
    assert_eq!(begin([3; 32], NOW + 1).await.unwrap(), IdempotencyState::Different);
    // The first server stopped: a repeated request takes over, and the late result of the first server is ignored.
    assert_eq!(begin(body, NOW + 60).await.unwrap(), IdempotencyState::First);
    let answer = StoredResponse { status: 201, headers: "{}".to_owned(), body: Some(b"made".to_vec()) };
    let late = StoredResponse { status: 500, ..answer.clone() };
    store::Access::of(store).finish_idempotent(key, NOW, late).await.unwrap();
    assert_eq!(begin(body, NOW + 61).await.unwrap(), IdempotencyState::UnderWay);
    store::Access::of(store).finish_idempotent(key, NOW + 60, answer.clone()).await.unwrap();
    assert_eq!(begin(body, NOW + 1_000).await.unwrap(), IdempotencyState::Repeat(answer));
    assert_eq!(begin([3; 32], NOW + 1_000).await.unwrap(), IdempotencyState::Different);
    // After its lifetime the key can be used again.
    assert_eq!(begin([3; 32], NOW + 60 + DAY).await.unwrap(), IdempotencyState::First);
    store::Access::of(store).abandon_idempotent(key, NOW + 60 + DAY).await.unwrap();
    assert_eq!(begin(body, NOW + 61 + DAY).await.unwrap(), IdempotencyState::First);
    assert_eq!(store::Access::of(store).expire_idempotent(NOW + 3 * DAY).await.unwrap(), 1);
}

pub(crate) async fn a_ceremony_is_taken_once_and_a_counter_does_not_go_back(world: World) {
    let store = &world.store;
    let (ann, _) = insert(store, IdentityKind::User, "ann", 1).await;
    let (bob, _) = insert(store, IdentityKind::User, "bob", 2).await;
    let key = |identity, number| SecurityKey {
        id: Uuid::now_v7(),
        identity,
        name: "blue".to_owned(),
        credential_id: vec![number; 16],
        public_key: vec![1, 2, 3],
        rp_id: "bulla.example".to_owned(),
        sign_count: u32::MAX - 1,
        user_verified: true,
        backup_eligible: false,
        backed_up: false,
        aaguid: Uuid::nil(),
        transports: "[]".to_owned(),
        created_at_us: NOW,
        last_used_at_us: None,
    };
    let add = |new: SecurityKey| {
        store.write("test", move |tx| async move { store::insert_security_key(tx, &new).await }.boxed())
    };
    let first = key(ann, 1);
    assert_eq!(add(first.clone()).await.unwrap(), AccessChange::Done);
    assert_eq!(add(key(bob, 1)).await.unwrap(), AccessChange::Taken, "a credential has one user");
    let (found, user) = store::Access::of(store).security_key(vec![1; 16]).await.unwrap().unwrap();
    assert_eq!((&found, user.name.as_str()), (&first, "ann"));
    let used = |before: SecurityKey| {
        store.write("test", move |tx| {
            let used = SecurityKeyUse { sign_count: u32::MAX, backed_up: true, at_us: NOW + 1 };
            async move { store::security_key_used(tx, &before, used).await }.boxed()
        })
    };
    assert!(used(first.clone()).await.unwrap());
    assert!(!used(first.clone()).await.unwrap(), "the counter has changed meanwhile");
    let keys = store::Access::of(store).security_keys(ann).await.unwrap();
    assert_eq!(
        (keys[0].sign_count, keys[0].backed_up, keys[0].last_used_at_us),
        (u32::MAX, true, Some(NOW + 1))
    );

    let ceremony = |identity, number: u8, at| KeyCeremony {
        secret_hash: [number; 32],
        identity,
        purpose: CeremonyPurpose::Approve,
        challenge: [9; 32],
        rp_id: "bulla.example".to_owned(),
        origin: "https://bulla.example".to_owned(),
        session: Some([8; 32]),
        after_password: true,
        name: None,
        subject: Some(bob),
        plan_sha256: Some([7; 32]),
        nonce: Some([6; 32]),
        created_at_us: at,
        expires_at_us: at + 10,
    };
    let begin = |new: KeyCeremony| {
        store.write("test", move |tx| async move { store::insert_key_ceremony(tx, &new).await }.boxed())
    };
    let take = |number: u8| {
        store.write("test", move |tx| async move { store::take_key_ceremony(tx, [number; 32]).await }.boxed())
    };
    // The ninth ceremony of a user ends the user's first one, but no ceremony of another user or purpose, and none without the password.
    begin(ceremony(bob, 100, NOW - 100)).await.unwrap();
    let confirm = KeyCeremony { purpose: CeremonyPurpose::Confirm, ..ceremony(ann, 50, NOW - 50) };
    let alone = KeyCeremony { after_password: false, ..ceremony(ann, 51, NOW - 50) };
    for other in [&confirm, &alone] {
        begin(other.clone()).await.unwrap();
    }
    for number in 1..=9 {
        begin(ceremony(ann, number, NOW + i64::from(number))).await.unwrap();
    }
    assert_eq!(take(1).await.unwrap(), None);
    assert_eq!(take(2).await.unwrap(), Some(ceremony(ann, 2, NOW + 2)));
    assert_eq!(take(2).await.unwrap(), None, "it is used once");
    assert_eq!((take(50).await.unwrap(), take(51).await.unwrap()), (Some(confirm), Some(alone)));
    assert_eq!(store::Access::of(store).expire_key_ceremonies(NOW - 90).await.unwrap(), 1);
    assert_eq!(take(100).await.unwrap(), None);

    // Signing out and a new password end what has begun.
    let end = store.write("test", move |tx| async move { store::sign_out(tx, ann).await }.boxed());
    end.await.unwrap();
    assert_eq!(take(4).await.unwrap(), None);
    begin(ceremony(ann, 4, NOW)).await.unwrap();
    let password = NewPassword {
        identity: ann,
        hash: "hash".to_owned(),
        set_at_us: NOW,
        set_by: "user:ann".to_owned(),
        keep: Some([8; 32]),
    };
    let put = store.write("test", move |tx| async move { store::put_password(tx, &password).await }.boxed());
    put.await.unwrap();
    assert_eq!(take(4).await.unwrap(), None);
    begin(ceremony(ann, 3, NOW)).await.unwrap();

    let deletion =
        store.write("test", move |tx| async move { store::delete_identity(tx, ann, 1).await }.boxed());
    assert_eq!(deletion.await.unwrap(), AccessChange::Done);
    assert!(store::Access::of(store).security_key(vec![1; 16]).await.unwrap().is_none());
    assert_eq!(take(3).await.unwrap(), None);
}
