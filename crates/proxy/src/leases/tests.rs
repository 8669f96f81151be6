//! Leases with a simulated store and clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures_util::future::join_all;
use http_relay::client::Ended;
use jiff::Timestamp;
use keys::Secret;
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::*;

const LIFE_S: i64 = 100;
const LIFE_MAX_S: i64 = 250;
const ROLE: &str = "/team/db/read-only";

/// A store that keeps its leases with creation and expiry, in seconds since its start.
#[derive(Debug)]
struct Store {
    began: Instant,
    live: Mutex<BTreeMap<Uuid, (i64, i64)>>,
    created: AtomicUsize,
    life_s: AtomicI64,
    is_unavailable: AtomicBool,
    denies: AtomicBool,
    refuses_renewals: AtomicBool,
}

impl Store {
    fn now_s(&self) -> i64 {
        self.began.elapsed().as_secs() as i64
    }

    fn check_available(&self) -> Result<(), LeaseError> {
        if self.denies.load(SeqCst) {
            return Err(LeaseError::Denied("the token was removed".to_owned()));
        }
        if self.is_unavailable.load(SeqCst) {
            Err(LeaseError::StoreUnavailable("it is a test".to_owned()))
        } else {
            Ok(())
        }
    }

    fn ids(&self) -> Vec<Uuid> {
        self.live.lock().keys().copied().collect()
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

impl LeaseIssuer for Store {
    fn create<'a>(&'a self, role: &'a str) -> Issuing<'a, NewLease> {
        Box::pin(async move {
            // The delay lets concurrent callers overlap.
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.check_available()?;
            assert_eq!(role, ROLE);
            let number = self.created.fetch_add(1, SeqCst) + 1;
            let (id, now_s) = (Uuid::from_u128(number as u128), self.now_s());
            let end_s = now_s + self.life_s.load(SeqCst);
            self.live.lock().insert(id, (now_s, end_s));
            let (username, password) = (Secret::new(format!("user-{number}")), Secret::new("canary"));
            Ok(NewLease { id, username, password, created_at: at(now_s), expires_at: at(end_s) })
        })
    }

    fn renew(&self, lease: Uuid) -> Issuing<'_, Timestamp> {
        Box::pin(async move {
            self.check_available()?;
            let (mut live, now_s) = (self.live.lock(), self.now_s());
            let refused = || LeaseError::Refused("no such lease".to_owned());
            let found =
                live.get_mut(&lease).filter(|found| found.1 > now_s && !self.refuses_renewals.load(SeqCst));
            let (created_s, end_s) = found.ok_or_else(refused)?;
            *end_s = (now_s + LIFE_S).min(*created_s + LIFE_MAX_S);
            Ok(at(*end_s))
        })
    }

    fn revoke(&self, lease: Uuid) -> Issuing<'_, ()> {
        Box::pin(async move {
            self.check_available()?;
            self.live
                .lock()
                .remove(&lease)
                .map(drop)
                .ok_or_else(|| LeaseError::Refused("no such lease".to_owned()))
        })
    }
}

fn store() -> (Arc<Store>, IdentityLeases) {
    let store = Arc::new(Store {
        began: Instant::now(),
        live: Mutex::default(),
        created: AtomicUsize::new(0),
        life_s: AtomicI64::new(LIFE_S),
        is_unavailable: AtomicBool::new(false),
        denies: AtomicBool::new(false),
        refuses_renewals: AtomicBool::new(false),
    });
    let issuer: Arc<dyn LeaseIssuer> = Arc::<Store>::clone(&store);
    (store, IdentityLeases::new(issuer))
}

async fn user(leases: &IdentityLeases, identity: &str) -> Result<String, LeaseError> {
    let (leased, _) = leases.fetch(&identity.into(), ROLE, None).await?;
    Ok(leased.username.expose().to_owned())
}

/// Advances the time by `seconds`, with one round each second. With `identity`, also sends one request each second. Returns the
/// user names of its leases.
async fn pass(leases: &IdentityLeases, seconds: u64, identity: Option<&str>) -> Vec<String> {
    let mut users = Vec::new();
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        leases.round(&|_: &str, _: &str| true).await;
        if let Some(identity) = identity {
            users.push(user(leases, identity).await.unwrap());
        }
    }
    users.dedup();
    users
}

#[tokio::test(start_paused = true)]
async fn each_identity_has_one_lease_for_all_its_requests() {
    let (store, leases) = store();
    let requests = (0..100).map(|number| user(&leases, if number % 2 == 0 { "a" } else { "b" }));
    let mut users: Vec<String> = join_all(requests).await.into_iter().map(Result::unwrap).collect();
    assert!(users.iter().step_by(2).all(|one| *one == users[0]) && users[0] != users[1]);
    users.sort();
    users.dedup();
    assert_eq!((users, store.created.load(SeqCst)), (vec!["user-1".to_owned(), "user-2".to_owned()], 2));
    assert!(!format!("{leases:?}").contains("canary"));
}

#[tokio::test(start_paused = true)]
async fn lease_is_renewed_while_it_is_used_and_replaced_at_its_maximum() {
    let (store, leases) = store();
    assert_eq!(pass(&leases, 200, Some("a")).await, ["user-1"], "renewed");
    // The old lease stays until it expires: requests in progress may use it.
    assert_eq!(pass(&leases, 45, Some("a")).await, ["user-1", "user-2"], "replaced");
    assert_eq!(store.ids().len(), 2);
    // Without requests, the lease is renewed once more, for the last request, and then no longer.
    pass(&leases, 80, None).await;
    let before = store.live.lock()[&Uuid::from_u128(2)].1;
    pass(&leases, 110, None).await;
    assert_eq!(store.live.lock()[&Uuid::from_u128(2)].1, before);
    assert_eq!(user(&leases, "a").await.unwrap(), "user-3");
}

#[tokio::test(start_paused = true)]
async fn refused_renewal_gets_a_new_lease_and_a_silent_store_none() {
    let (store, leases) = store();
    assert_eq!(pass(&leases, 60, Some("a")).await, ["user-1"]);
    store.refuses_renewals.store(true, SeqCst);
    assert_eq!(pass(&leases, 10, Some("a")).await, ["user-1", "user-2"]);
    assert_eq!(store.ids(), [Uuid::from_u128(2)], "the refused one is revoked");
    store.refuses_renewals.store(false, SeqCst);
    store.is_unavailable.store(true, SeqCst);
    assert_eq!(pass(&leases, 80, Some("a")).await, ["user-2"], "it lives");
    store.is_unavailable.store(false, SeqCst);
    assert_eq!(pass(&leases, 20, Some("a")).await, ["user-2"], "renewed at last");
}

#[tokio::test(start_paused = true)]
async fn stopped_identity_loses_its_lease_and_others_keep_theirs() {
    let (store, leases) = store();
    let (token, other) = (Ended::default(), Ended::default());
    let fetch = async |identity: &str, ended: &Ended| {
        leases.fetch(&identity.into(), ROLE, Some(ended)).await.map(drop)
    };
    fetch("a", &token).await.unwrap();
    fetch("b", &other).await.unwrap();
    leases.round(&|_: &str, _: &str| true).await;
    assert_eq!(store.ids().len(), 2);
    // The token of identity `a` is removed. While the store does not answer, the revocation waits.
    token.end();
    store.is_unavailable.store(true, SeqCst);
    leases.round(&|_: &str, _: &str| true).await;
    assert!(fetch("a", &token).await.is_err(), "a request in progress gets none either");
    store.is_unavailable.store(false, SeqCst);
    pass(&leases, 3, Some("b")).await;
    assert_eq!(store.ids(), [Uuid::from_u128(2)]);
    // The policy no longer grants the role to identity `b`.
    leases.round(&|identity: &str, role: &str| (identity, role) != ("b", ROLE)).await;
    assert!(store.ids().is_empty());
    // An identity with a second token keeps its lease.
    let (one, two) = (Ended::default(), Ended::default());
    fetch("c", &one).await.unwrap();
    fetch("c", &two).await.unwrap();
    one.end();
    leases.round(&|_: &str, _: &str| true).await;
    assert_eq!(store.ids().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lease_that_the_store_denies_to_revoke_is_tried_again_until_it_expires() {
    let (store, leases) = store();
    user(&leases, "a").await.unwrap();
    user(&leases, "b").await.unwrap();
    store.denies.store(true, SeqCst);
    let round = async |identity: &'static str| {
        leases.round(&move |one: &str, _: &str| one != identity && one != "a").await
    };
    round("a").await;
    assert_eq!(store.ids().len(), 2);
    // The token gets its permission back.
    store.denies.store(false, SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    round("a").await;
    assert_eq!(store.ids(), [Uuid::from_u128(2)]);
    // Without the permission, the proxy stops retrying when the lease has expired.
    store.denies.store(true, SeqCst);
    round("b").await;
    tokio::time::sleep(Duration::from_secs(LIFE_S as u64)).await;
    round("b").await;
    store.denies.store(false, SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    round("b").await;
    assert_eq!(store.ids(), [Uuid::from_u128(2)], "it is not tried after its end");
}

#[tokio::test(start_paused = true)]
async fn closing_revokes_all_also_those_that_are_being_created() {
    let (store, leases) = store();
    user(&leases, "a").await.unwrap();
    let (making, stopping) = (user(&leases, "b"), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        leases.close(Duration::from_secs(5)).await;
    });
    let (made, ()) = tokio::join!(making, stopping);
    assert!(made.is_err() && user(&leases, "a").await.is_err());
    assert_eq!((store.created.load(SeqCst), store.ids()), (2, vec![]));
}

#[tokio::test(start_paused = true)]
async fn rejected_lease_is_replaced_only_if_it_has_ended() {
    let (store, leases) = store();
    let doubt = async || leases.fetch(&"a".into(), ROLE, None).await.unwrap().1.doubt();
    doubt().await;
    assert_eq!(user(&leases, "a").await.unwrap(), "user-1", "it exists");
    store.live.lock().clear();
    doubt().await;
    assert_eq!(user(&leases, "a").await.unwrap(), "user-1", "checked a moment ago");
    tokio::time::sleep(Duration::from_secs(10)).await;
    doubt().await;
    assert_eq!(user(&leases, "a").await.unwrap(), "user-2");
}

#[tokio::test(start_paused = true)]
async fn number_of_leases_is_bounded_and_failures_are_shared() {
    let (store, leases) = store();
    for number in 0..LEASES_MAX {
        user(&leases, &number.to_string()).await.unwrap();
    }
    let refused = user(&leases, "one more").await.unwrap_err();
    assert!(refused.to_string().contains("500 leases"), "{refused}");
    leases.round(&|identity: &str, _: &str| identity != "7").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    user(&leases, "one more").await.unwrap();
    assert_eq!(store.ids().len(), LEASES_MAX);
}
