//! Rotation by policy, and its hooks and notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use credentials::tables;
use credentials::tables::{HookCall, insert_hook_calls};
use credentials::{
    CaVersions, CertificateParameters, CertificateValue, ChangeStep, CredentialError, Credentials,
    GenerateRequest, Hook, HookSender, Kind, Mode, OVERLAP_S, Parameters, PermissionPath, PlannedRotation,
    RotationPolicy, RotationReport, Value, Version, VersionsChange,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use keys::Secret;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use store::OutboxPosition;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::fixture::{Fixture, admin, client, name};

const DAY: u64 = 86_400;
/// Much longer than needed, also on a machine under load.
const TIMEOUT: Duration = Duration::from_secs(60);

fn path(text: &str) -> PermissionPath {
    PermissionPath::parse(text).unwrap()
}

fn every(days: u32) -> RotationPolicy {
    RotationPolicy { every_s: Some(days * DAY as u32), ..RotationPolicy::default() }
}

async fn policy(fixture: &Fixture, at: &str, policy: RotationPolicy) {
    fixture.credentials.set_rotation_policy(&admin(), &path(at), policy).await.unwrap();
}

async fn generate(fixture: &Fixture, at: &str, kind: Kind, parameters: Json) -> Version {
    let parameters = Parameters::read(kind, Some(parameters), None).unwrap();
    let request =
        GenerateRequest { name: name(at), parameters, mode: Mode::Overwrite, metadata: None, ttl_s: None };
    fixture.credentials.generate(&admin(), request).await.unwrap()
}

async fn password(fixture: &Fixture, at: &str) -> Version {
    generate(fixture, at, Kind::Password, json!({})).await
}

async fn newest(fixture: &Fixture, at: &str) -> Version {
    fixture.credentials.versions(&admin(), &name(at), Some(1)).await.unwrap().remove(0)
}

async fn planned(fixture: &Fixture) -> Vec<PlannedRotation> {
    fixture.credentials.rotations(&admin(), &path("/*"), None, 100).await.unwrap().rows
}

/// Runs rotation rounds until `done` returns true. On PostgreSQL other open transactions can hide writes for a moment.
async fn rounds(credentials: &Credentials, done: impl AsyncFn() -> bool) -> RotationReport {
    let mut all = RotationReport::default();
    let began = Instant::now();
    while began.elapsed() < TIMEOUT {
        let round = credentials.rotation_round().await.unwrap();
        all.rotated += round.rotated;
        all.steps += round.steps;
        all.failed += round.failed;
        all.told += round.told;
        all.undelivered += round.undelivered;
        if done().await {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("what was waited for did not come: {all:?}");
}

/// Runs rotation rounds until the plan has these names, the next due one first.
async fn plans(fixture: &Fixture, names: &[&str]) -> RotationReport {
    rounds(&fixture.credentials, async || {
        let planned = planned(fixture).await;
        planned.iter().map(|one| one.name.as_str()).collect::<Vec<_>>() == names
    })
    .await
}

fn due_in_days(fixture: &Fixture, planned: &PlannedRotation) -> i64 {
    (planned.due_at_us - fixture.clock.now_us()) / (DAY as i64 * 1_000_000)
}

pub(crate) async fn rotation_is_skipped_while_read_only(fixture: Fixture) {
    let store = &fixture.credentials;
    let first = password(&fixture, "/r/a").await;
    policy(&fixture, "/r/*", every(1)).await;
    rounds(store, async || !planned(&fixture).await.is_empty()).await;
    fixture.advance(2 * DAY);
    store.set_read_only(true);
    assert_eq!(store.rotation_round().await.unwrap(), RotationReport::default());
    assert_eq!(newest(&fixture, "/r/a").await.id, first.id);
    store.set_read_only(false);
    rounds(store, async || newest(&fixture, "/r/a").await.id != first.id).await;
}

/// Returns a hook that makes the store read-only during its call while the flag is true.
async fn hook_that_stops(fixture: &Fixture) -> (Posts, Arc<AtomicBool>) {
    let stops = Arc::new(AtomicBool::new(true));
    let (store, says) = (fixture.credentials.clone(), Arc::clone(&stops));
    let answers: Answers = Box::new(move |_| {
        store.set_read_only(says.load(SeqCst));
        async { Ok(()) }.boxed()
    });
    (hook(fixture, (true, false), answers).await, stops)
}

/// Nine due passwords under a policy with the hook.
async fn nine_due(fixture: &Fixture) {
    policy(fixture, "/team/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(30) }).await;
    for number in 0..9 {
        password(fixture, &format!("/team/{number}")).await;
    }
    rounds(&fixture.credentials, async || planned(fixture).await.len() == 9).await;
    fixture.advance(31 * DAY);
}

pub(crate) async fn rotation_round_stops_when_set_read_only(fixture: Fixture) {
    let (posts, stops) = hook_that_stops(&fixture).await;
    nine_due(&fixture).await;
    let report = fixture.credentials.rotation_round().await.unwrap();
    assert_eq!((report.rotated, report.failed), (0, 0));
    assert!(posts.seen.lock().len() <= 4, "those that were asked side by side");
    assert!(planned(&fixture).await.iter().all(|one| one.failures == 0));
    stops.store(false, SeqCst);
    fixture.credentials.set_read_only(false);
    let report = fixture.credentials.rotation_round().await.unwrap();
    assert_eq!((report.rotated, report.failed), (9, 0));
}

pub(crate) async fn ca_rotation_pauses_while_read_only(fixture: Fixture) {
    let (_posts, stops) = hook_that_stops(&fixture).await;
    let old = certificate(&fixture, "/ca", |p| (p.is_ca, p.duration) = (true, 900)).await;
    certificate(&fixture, "/leaf", |p| (p.ca, p.duration) = (Some("/ca".to_owned()), 800)).await;
    policy(&fixture, "/ca", every(100)).await;
    policy(&fixture, "/leaf", RotationPolicy { hook: Some("ops".to_owned()), ..every(3_000) }).await;
    plans(&fixture, &["/ca", "/leaf"]).await;
    let step = async || planned(&fixture).await[0].step;
    fixture.advance(101 * DAY);
    rounds(&fixture.credentials, async || step().await == ChangeStep::Trusted).await;
    fixture.advance(8 * DAY);
    rounds(&fixture.credentials, async || fixture.credentials.is_read_only()).await;
    assert_eq!(step().await, ChangeStep::Signs);
    assert_eq!(trusted(&newest(&fixture, "/leaf").await)[0], pem(&old), "what would have followed has not");
    stops.store(false, SeqCst);
    fixture.credentials.set_read_only(false);
    rounds(&fixture.credentials, async || step().await == ChangeStep::Followed).await;
    let new = newest(&fixture, "/ca").await;
    assert_eq!(trusted(&newest(&fixture, "/leaf").await)[0], pem(&new));
    assert_eq!(planned(&fixture).await[0].failures, 0);
}

#[test]
fn change_step_codes_and_names_are_unchanged() {
    let steps = [(0, "none"), (1, "begun"), (2, "trusted"), (3, "signs"), (4, "followed")];
    assert_eq!(ChangeStep::ALL.map(|step| (step.code(), step.name())), steps);
}

pub(crate) async fn unknown_stored_values_are_errors(fixture: Fixture) {
    let calls = |kind: Kind| HookCall {
        id: 0,
        hook: "ops".to_owned(),
        name: "/a".to_owned(),
        kind,
        version: Uuid::nil(),
        at_us: 0,
        tries: 0,
    };
    let write = async |change: &'static str| {
        let work = fixture.store.write("test", move |tx| Box::pin(tx.execute(change, Vec::new())));
        assert_eq!(work.await.unwrap(), 1, "{change}");
    };
    policy(&fixture, "/team/*", every(30)).await;
    password(&fixture, "/team/a").await;
    plans(&fixture, &["/team/a"]).await;
    write("UPDATE credential_rotations SET step = 5").await;
    let rotations = tables::Credentials::of(&fixture.store).rotations_due(i64::MAX, 10).await;
    let error = rotations.unwrap_err().to_string();
    assert!(error.ends_with("credential_rotations.step: unknown code 5 of rotation step"), "{error}");
    let new = [calls(Kind::Password)];
    let work =
        fixture.store.write("test", move |tx| Box::pin(async move { insert_hook_calls(tx, &new).await }));
    work.await.unwrap();
    let due = async || tables::Credentials::of(&fixture.store).hook_calls_due(1, 10).await;
    assert_eq!(due().await.unwrap()[0].kind, Kind::Password);
    write("UPDATE credential_hook_calls SET kind = 'token'").await;
    let error = due().await.unwrap_err().to_string();
    assert!(error.ends_with("credential_hook_calls.kind: unknown credential type \"token\""), "{error}");
}

pub(crate) async fn credential_rotates_at_its_policy_age(fixture: Fixture) {
    policy(&fixture, "/team/*", every(30)).await;
    let first = password(&fixture, "/team/a").await;
    let other = password(&fixture, "/other/a").await;
    plans(&fixture, &["/team/a"]).await;
    assert_eq!(due_in_days(&fixture, &planned(&fixture).await[0]), 30);
    fixture.advance(29 * DAY);
    assert_eq!(fixture.credentials.rotation_round().await.unwrap().rotated, 0);
    fixture.advance(2 * DAY);
    let report =
        rounds(&fixture.credentials, async || due_in_days(&fixture, &planned(&fixture).await[0]) == 30).await;
    assert_eq!((report.rotated, report.failed), (1, 0));
    let second = newest(&fixture, "/team/a").await;
    assert_ne!(second.value, first.value);
    assert_eq!(second.parameters, first.parameters, "by the same parameters");
    assert_eq!(newest(&fixture, "/other/a").await.id, other.id);
    assert!(
        fixture
            .log()
            .await
            .iter()
            .any(|line| { line.starts_with("system:rotation credential.regenerate credential/team/a") })
    );
    // A manual regeneration also resets the due date.
    fixture.advance(10 * DAY);
    fixture.credentials.regenerate(&admin(), &name("/team/a"), None).await.unwrap();
    rounds(&fixture.credentials, async || due_in_days(&fixture, &planned(&fixture).await[0]) == 30).await;
}

pub(crate) async fn most_specific_rotation_policy_applies(fixture: Fixture) {
    for at in ["/team/a", "/team/deep/b", "/Team/deep/c", "/x"] {
        password(&fixture, at).await;
    }
    policy(&fixture, "/*", every(100)).await;
    policy(&fixture, "/team/*", every(50)).await;
    policy(&fixture, "/TEAM/deep/*", every(20)).await;
    policy(&fixture, "/team/deep/b", every(10)).await;
    let due = async || {
        let planned = planned(&fixture).await;
        planned.iter().map(|one| (one.name.clone(), due_in_days(&fixture, one))).collect::<Vec<_>>()
    };
    let of =
        |all: &[(&str, i64)]| all.iter().map(|(name, days)| ((*name).to_owned(), *days)).collect::<Vec<_>>();
    let all = of(&[("/team/deep/b", 10), ("/Team/deep/c", 20), ("/team/a", 50), ("/x", 100)]);
    rounds(&fixture.credentials, async || due().await == all).await;
    // Without its own policy a credential uses the policy of the parent path. Without any policy it leaves the plan.
    let remove = async |at: &str| fixture.credentials.remove_rotation_policy(&admin(), &path(at)).await;
    remove("/team/deep/b").await.unwrap();
    remove("/*").await.unwrap();
    assert!(matches!(remove("/*").await.unwrap_err(), CredentialError::NotFound));
    rounds(&fixture.credentials, async || due().await.len() == 3 && due().await[0].1 == 20).await;
    fixture.credentials.delete(&admin(), &name("/team/a")).await.unwrap();
    rounds(&fixture.credentials, async || due().await.len() == 2).await;
    // Setting a policy requires write permission on the path. Listings show only readable names.
    let a = client("a");
    let refused = fixture.credentials.set_rotation_policy(&a, &path("/team/*"), every(5)).await.unwrap_err();
    assert!(matches!(refused, CredentialError::Forbidden));
    assert!(fixture.credentials.rotations(&a, &path("/*"), None, 10).await.unwrap().rows.is_empty());
    assert!(fixture.credentials.rotation_policies(&a, None, 10).await.unwrap().rows.is_empty());
    let listed = fixture.credentials.rotation_policies(&admin(), None, 1).await.unwrap();
    assert_eq!((listed.rows.len(), listed.rows[0].path.as_str()), (1, "/team/*"));
    let next = fixture.credentials.rotation_policies(&admin(), listed.next.as_ref(), 1).await.unwrap();
    assert_eq!(next.rows[0].path, "/TEAM/deep/*");
    for bad in [
        RotationPolicy { every_s: Some(1), ..RotationPolicy::default() },
        RotationPolicy { before_expiry_percent: Some(91), ..RotationPolicy::default() },
        RotationPolicy { hook: Some("nobody".to_owned()), ..RotationPolicy::default() },
    ] {
        let refused = fixture.credentials.set_rotation_policy(&admin(), &path("/y"), bad.clone()).await;
        assert!(matches!(refused.unwrap_err(), CredentialError::Bad(_)), "{bad:?}");
    }
}

async fn events(fixture: &Fixture, kind: &str) -> Vec<Json> {
    let all = fixture.store.outbox_after(OutboxPosition::default(), 1_000).await.unwrap();
    all.iter()
        .filter(|event| event.kind == kind)
        .map(|event| serde_json::from_str(&event.body).unwrap())
        .collect()
}

pub(crate) async fn credential_set_by_hand_fails_rotation_and_is_reported_once(fixture: Fixture) {
    fixture.set("/team/hand", Kind::Password, json!("by hand")).await;
    fixture.set("/team/note", Kind::Value, json!("no secret of a type that is made")).await;
    policy(&fixture, "/team/*", every(1)).await;
    plans(&fixture, &["/team/hand"]).await;
    assert!(planned(&fixture).await[0].set_by_hand);
    for _ in 0..3 {
        fixture.advance(2 * DAY);
        let report = fixture.credentials.rotation_round().await.unwrap();
        assert_eq!((report.rotated, report.failed), (0, 1));
    }
    let row = planned(&fixture).await.remove(0);
    assert!(row.failures == 3 && row.error.unwrap().contains("set by hand"));
    rounds(&fixture.credentials, async || events(&fixture, "credential.rotation_failed").await.len() == 1)
        .await;
    assert_eq!(newest(&fixture, "/team/hand").await.value, Value::Password(Secret::new("by hand")));
    // A generated value has parameters again, so rotation recovers.
    password(&fixture, "/team/hand").await;
    rounds(&fixture.credentials, async || events(&fixture, "credential.rotation_recovered").await.len() == 1)
        .await;
    fixture.advance(2 * DAY);
    assert_eq!(
        rounds(&fixture.credentials, async || planned(&fixture).await[0].failures == 0).await.failed,
        0
    );
}

async fn certificate(fixture: &Fixture, at: &str, with: impl FnOnce(&mut CertificateParameters)) -> Version {
    let mut parameters = CertificateParameters {
        common_name: Some(at.trim_start_matches('/').replace('/', ".")),
        key_type: Some(keys::KeyType::P256),
        duration: 300,
        ..CertificateParameters::default()
    };
    with(&mut parameters);
    generate(fixture, at, Kind::Certificate, serde_json::to_value(&parameters).unwrap()).await
}

fn value(version: &Version) -> &CertificateValue {
    match &version.value {
        Value::Certificate(value) => value,
        other => panic!("{other:?}"),
    }
}

fn pem(version: &Version) -> String {
    value(version).certificate.clone().unwrap()
}

/// Returns the CA certificates that a leaf trusts, in order.
fn trusted(version: &Version) -> Vec<String> {
    let text = value(version).trusted(CaVersions::All).unwrap();
    text.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned).collect()
}

pub(crate) async fn certificates_rotate_before_expiry(fixture: Fixture) {
    certificate(&fixture, "/part", |p| (p.self_sign, p.duration) = (true, 300)).await;
    certificate(&fixture, "/time", |p| (p.self_sign, p.duration) = (true, 300)).await;
    password(&fixture, "/no-certificate").await;
    policy(&fixture, "/*", RotationPolicy::default()).await;
    policy(
        &fixture,
        "/time",
        RotationPolicy { before_expiry_s: Some(20 * DAY as u32), ..RotationPolicy::default() },
    )
    .await;
    plans(&fixture, &["/part", "/time"]).await;
    let days: Vec<i64> = planned(&fixture).await.iter().map(|one| due_in_days(&fixture, one)).collect();
    assert_eq!(days, [201, 280], "a third of three hundred days is left (33 %), or twenty");
    fixture.advance(202 * DAY);
    let report = plans(&fixture, &["/time", "/part"]).await;
    assert_eq!(report.rotated, 1);
    assert_eq!(due_in_days(&fixture, &planned(&fixture).await[0]), 78);
}

pub(crate) async fn renewal_time_longer_than_the_lifetime_is_half_the_lifetime(fixture: Fixture) {
    certificate(&fixture, "/short", |p| (p.self_sign, p.duration) = (true, 30)).await;
    let before = RotationPolicy { before_expiry_s: Some(90 * DAY as u32), ..RotationPolicy::default() };
    policy(&fixture, "/*", before).await;
    plans(&fixture, &["/short"]).await;
    assert_eq!(due_in_days(&fixture, &planned(&fixture).await[0]), 15);
    fixture.advance(16 * DAY);
    let report =
        rounds(&fixture.credentials, async || due_in_days(&fixture, &planned(&fixture).await[0]) == 15).await;
    assert_eq!(report.rotated, 1);
    for _ in 0..3 {
        assert_eq!(fixture.credentials.rotation_round().await.unwrap().rotated, 0, "once");
    }
}

pub(crate) async fn credential_recreated_as_another_type_is_not_planned(fixture: Fixture) {
    policy(&fixture, "/team/*", every(1)).await;
    password(&fixture, "/team/x").await;
    plans(&fixture, &["/team/x"]).await;
    // One round processes both changes.
    fixture.credentials.delete(&admin(), &name("/team/x")).await.unwrap();
    fixture.set("/team/x", Kind::Value, json!("no secret of a type that is made")).await;
    plans(&fixture, &[]).await;
}

pub(crate) async fn destroyed_credential_ends_its_rotation_failure(fixture: Fixture) {
    fixture.set("/team/hand", Kind::Password, json!("by hand")).await;
    policy(&fixture, "/team/*", every(1)).await;
    plans(&fixture, &["/team/hand"]).await;
    fixture.advance(2 * DAY);
    assert_eq!(fixture.credentials.rotation_round().await.unwrap().failed, 1);
    let store = &fixture.credentials;
    store.change_versions(&admin(), &name("/team/hand"), None, VersionsChange::Delete).await.unwrap();
    plans(&fixture, &[]).await;
    assert_eq!(events(&fixture, "credential.rotation_recovered").await.len(), 0, "it can be taken back");
    fixture.advance(8 * DAY);
    store.destroy_past(&CancellationToken::new()).await.unwrap();
    rounds(store, async || events(&fixture, "credential.rotation_recovered").await.len() == 1).await;
}

pub(crate) async fn ca_replaced_by_a_leaf_is_planned_as_a_leaf(fixture: Fixture) {
    certificate(&fixture, "/ca", |p| (p.is_ca, p.duration) = (true, 900)).await;
    policy(&fixture, "/ca", every(100)).await;
    plans(&fixture, &["/ca"]).await;
    fixture.advance(101 * DAY);
    rounds(&fixture.credentials, async || planned(&fixture).await[0].step == ChangeStep::Trusted).await;
    let other = certificate(&fixture, "/ca", |p| (p.self_sign, p.duration) = (true, 900)).await;
    fixture.advance(8 * DAY);
    rounds(&fixture.credentials, async || planned(&fixture).await[0].step == ChangeStep::None).await;
    assert_eq!(due_in_days(&fixture, &planned(&fixture).await[0]), 92);
    for _ in 0..3 {
        assert_eq!(fixture.credentials.rotation_round().await.unwrap().rotated, 0);
    }
    assert_eq!(newest(&fixture, "/ca").await.id, other.id);
}

pub(crate) async fn rotated_certificate_keeps_its_time_to_live(fixture: Fixture) {
    let ca = certificate(&fixture, "/ca", |p| (p.is_ca, p.duration) = (true, 900)).await;
    let parameters = json!({ "common_name": "leaf", "ca": "/ca", "key_type": "p256" });
    let leaf = GenerateRequest {
        name: name("/leaf"),
        parameters: Parameters::read(Kind::Certificate, Some(parameters), None).unwrap(),
        mode: Mode::Overwrite,
        metadata: None,
        ttl_s: Some(200 * DAY),
    };
    let leaf = fixture.credentials.generate(&admin(), leaf).await.unwrap();
    assert!(leaf.ends_at_us.is_some());
    policy(&fixture, "/ca", every(100)).await;
    plans(&fixture, &["/ca"]).await;
    fixture.advance(101 * DAY);
    rounds(&fixture.credentials, async || planned(&fixture).await[0].step == ChangeStep::Trusted).await;
    let told = newest(&fixture, "/leaf").await;
    assert_ne!(told.id, leaf.id, "it trusts both");
    assert_eq!(told.ends_at_us, leaf.ends_at_us);
    fixture.advance(8 * DAY);
    rounds(&fixture.credentials, async || planned(&fixture).await[0].step == ChangeStep::Followed).await;
    let (new, followed) = (newest(&fixture, "/ca").await, newest(&fixture, "/leaf").await);
    assert_ne!(pem(&new), pem(&ca));
    assert_eq!(trusted(&followed)[0], pem(&new), "the old one goes before the leaf ends");
    assert_eq!(followed.ends_at_us, leaf.ends_at_us);
    let regenerated = fixture.credentials.regenerate(&admin(), &name("/leaf"), None).await.unwrap();
    assert_eq!(regenerated.ends_at_us, leaf.ends_at_us);
}

/// Checks each state of a CA rotation as clients see it.
pub(crate) async fn ca_rotates_in_steps(fixture: Fixture) {
    let old = certificate(&fixture, "/ca", |p| (p.is_ca, p.duration) = (true, 900)).await;
    let leaf = certificate(&fixture, "/a/leaf", |p| (p.ca, p.duration) = (Some("/ca".to_owned()), 800)).await;
    certificate(&fixture, "/a/middle", |p| (p.is_ca, p.ca) = (true, Some("/ca".to_owned()))).await;
    certificate(&fixture, "/a/deep", |p| p.ca = Some("/a/middle".to_owned())).await;
    policy(&fixture, "/ca", every(100)).await;
    plans(&fixture, &["/ca"]).await;
    let step = async |wanted: ChangeStep| {
        rounds(&fixture.credentials, async || planned(&fixture).await[0].step == wanted).await
    };
    fixture.advance(101 * DAY);
    step(ChangeStep::Trusted).await;
    let new = newest(&fixture, "/ca").await;
    assert!(new.transitional && pem(&new) != pem(&old));
    assert_eq!(trusted(&newest(&fixture, "/a/leaf").await), [pem(&old), pem(&new)]);
    assert_eq!(pem(&newest(&fixture, "/a/leaf").await), pem(&leaf));
    // No step is taken while both CAs are being distributed.
    fixture.advance(6 * DAY);
    assert_eq!(fixture.credentials.rotation_round().await.unwrap().steps, 0);
    fixture.advance(2 * DAY);
    step(ChangeStep::Followed).await;
    let current = fixture.credentials.current(&admin(), &name("/ca")).await.unwrap();
    assert_eq!(current.iter().map(|one| one.id).collect::<Vec<_>>(), [new.id, old.id], "the new one signs");
    let followed = newest(&fixture, "/a/leaf").await;
    assert_ne!(pem(&followed), pem(&leaf));
    assert_eq!(trusted(&followed), [pem(&new), pem(&old)]);
    let (middle, deep) = (newest(&fixture, "/a/middle").await, newest(&fixture, "/a/deep").await);
    assert_eq!(trusted(&middle)[0], pem(&new));
    assert_eq!(trusted(&deep)[0], pem(&middle), "what hangs on what it signed, too");
    fixture.advance(8 * DAY);
    step(ChangeStep::None).await;
    let current = fixture.credentials.current(&admin(), &name("/ca")).await.unwrap();
    assert_eq!(current.iter().map(|one| one.id).collect::<Vec<_>>(), [new.id]);
    let last = newest(&fixture, "/a/leaf").await;
    assert_eq!((trusted(&last), pem(&last)), (vec![pem(&new)], pem(&followed)));
    // The next rotation is due 100 days after the new CA was created.
    assert_eq!(due_in_days(&fixture, &planned(&fixture).await[0]), 100 - 16);
    assert!(u64::from(OVERLAP_S) == 7 * DAY);
}

/// A node stops between the steps: another node continues, and nothing is generated twice.
pub(crate) async fn interrupted_rotation_is_continued_by_another_node(fixture: Fixture) {
    certificate(&fixture, "/ca", |p| (p.is_ca, p.duration) = (true, 900)).await;
    certificate(&fixture, "/leaf", |p| (p.ca, p.duration) = (Some("/ca".to_owned()), 800)).await;
    let single = password(&fixture, "/single").await;
    policy(&fixture, "/*", every(100)).await;
    policy(&fixture, "/leaf", every(3_000)).await;
    plans(&fixture, &["/ca", "/single", "/leaf"]).await;
    fixture.advance(101 * DAY);
    // Each step runs on a new node, which takes over the lease after the previous node has been silent for a minute.
    let mut nodes = 0;
    for _ in 0..60 {
        let (_, node) = fixture.with_masters(&["master"]);
        nodes += 1;
        // Rounds until nothing more is done. On PostgreSQL other open transactions can hide writes for a moment.
        let mut is_advanced = false;
        for _ in 0..200 {
            let round = node.rotation_round().await.unwrap();
            let is_idle = round.steps + round.rotated == 0;
            if is_advanced && is_idle {
                break;
            }
            is_advanced |= !is_idle;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let ca = fixture.credentials.current(&admin(), &name("/ca")).await.unwrap();
        let versions = fixture.credentials.versions(&admin(), &name("/ca"), None).await.unwrap();
        if versions.len() == 2 && ca.len() == 1 {
            break;
        }
        fixture.advance(4 * DAY);
    }
    assert!((2..60).contains(&nodes), "{nodes}");
    let versions = async |at: &str| fixture.credentials.versions(&admin(), &name(at), None).await.unwrap();
    assert_eq!(versions("/ca").await.len(), 2, "made once");
    let single_now = versions("/single").await;
    assert!(single_now.len() >= 2 && single_now[single_now.len() - 1].id == single.id);
    // Three versions after the first: trust in both CAs, signature by the new CA, trust in the new CA alone.
    assert_eq!(versions("/leaf").await.len(), 4);
    // Two nodes run at the same time: the node without the lease does nothing.
    let (_, other) = fixture.with_masters(&["master"]);
    fixture.advance(61);
    fixture.credentials.rotation_round().await.unwrap();
    fixture.advance(400 * DAY);
    fixture.credentials.rotation_round().await.unwrap();
    assert_eq!(other.rotation_round().await.unwrap(), RotationReport::default());
}

pub(crate) async fn rotate_now_rotates_planned_credentials_immediately(fixture: Fixture) {
    policy(&fixture, "/team/*", every(100)).await;
    let first = password(&fixture, "/team/a").await;
    // No rotation round has seen the credential yet.
    assert_eq!(fixture.credentials.rotate_now(&admin(), &path("/team/a")).await.unwrap(), 1);
    rounds(&fixture.credentials, async || newest(&fixture, "/team/a").await.id != first.id).await;
    let refused = fixture.credentials.rotate_now(&admin(), &path("/nobody")).await.unwrap_err();
    assert!(refused.to_string().contains("rotation set"), "{refused}");
    plans(&fixture, &["/team/a"]).await;
    rounds(&fixture.credentials, async || due_in_days(&fixture, &planned(&fixture).await[0]) == 100).await;
    assert_eq!(
        fixture.credentials.rotate_now(&client("a"), &path("/team/*")).await.unwrap(),
        0,
        "not theirs"
    );
    assert_eq!(fixture.credentials.rotate_now(&admin(), &path("/*")).await.unwrap(), 1);
}

/// The answers of a hook, computed from the posted body.
type Answers = Box<dyn Fn(&Json) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

#[derive(Clone)]
struct Posts {
    seen: Arc<Mutex<Vec<Json>>>,
    answers: Arc<Answers>,
}

impl HookSender for Posts {
    fn post<'a>(&'a self, hook: &'a Hook, _: uuid::Uuid, body: Vec<u8>) -> BoxFuture<'a, Result<(), String>> {
        assert_eq!(hook.secret.expose(), "a secret of the hook's");
        let body: Json = serde_json::from_slice(&body).unwrap();
        self.seen.lock().push(body.clone());
        (self.answers)(&body)
    }
}

async fn hook(fixture: &Fixture, asked: (bool, bool), answers: Answers) -> Posts {
    let posts = Posts { seen: Arc::default(), answers: Arc::new(answers) };
    fixture.credentials.set_hook_sender(Arc::new(posts.clone()));
    set_hook(fixture, "ops", asked).await;
    posts
}

async fn set_hook(fixture: &Fixture, hook: &str, (before, after): (bool, bool)) {
    let hook = Hook {
        name: hook.to_owned(),
        url: "https://ops.example/".to_owned(),
        secret: Secret::new("a secret of the hook's"),
        before,
        after,
        roots: None,
    };
    fixture.credentials.set_hook(&admin(), hook).await.unwrap();
}

pub(crate) async fn hook_notification_is_retried_until_accepted(fixture: Fixture) {
    let deaf = Arc::new(Mutex::new(2));
    let left = Arc::clone(&deaf);
    let answers: Answers = Box::new(move |_| {
        let mut left = left.lock();
        let answer = if *left > 0 { Err("503".to_owned()) } else { Ok(()) };
        *left -= i32::from(*left > 0);
        async move { answer }.boxed()
    });
    let posts = hook(&fixture, (false, true), answers).await;
    policy(&fixture, "/team/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(30) }).await;
    password(&fixture, "/team/a").await;
    plans(&fixture, &["/team/a"]).await;
    assert!(posts.seen.lock().is_empty(), "only of rotations");
    let refused = fixture.credentials.delete_hook(&admin(), "ops").await.unwrap_err();
    assert!(refused.to_string().contains("/team/*"), "{refused}");
    fixture.advance(31 * DAY);
    rounds(&fixture.credentials, async || posts.seen.lock().len() == 1).await;
    assert_eq!(fixture.credentials.rotation_round().await.unwrap().undelivered, 0, "not before its time");
    fixture.advance(61);
    assert_eq!(fixture.credentials.rotation_round().await.unwrap().undelivered, 1);
    fixture.advance(121);
    assert_eq!(fixture.credentials.rotation_round().await.unwrap().told, 1);
    fixture.advance(2 * 3_600);
    fixture.credentials.rotation_round().await.unwrap();
    let version = newest(&fixture, "/team/a").await;
    let seen = posts.seen.lock().clone();
    assert_eq!(seen.len(), 3);
    for body in seen {
        assert_eq!(body["event"], "credential.rotated");
        assert_eq!(body["version"], version.id.to_string());
        assert!(body.get("value").is_none() && body["name"] == "/team/a" && body["type"] == "password");
    }
}

pub(crate) async fn hook_rejection_keeps_the_old_value(fixture: Fixture) {
    let (read, agrees) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(false)));
    let (store, keep, says) = (fixture.credentials.clone(), Arc::clone(&read), Arc::clone(&agrees));
    let answers: Answers = Box::new(move |body| {
        let (store, keep) = (store.clone(), Arc::clone(&keep));
        let (token, agrees) = (body["token"].as_str().unwrap().to_owned(), *says.lock());
        async move {
            let value = store.unwrap("the hook", &token).await.map_err(|error| error.to_string())?;
            keep.lock().push(value.value);
            if agrees { Ok(()) } else { Err("409".to_owned()) }
        }
        .boxed()
    });
    hook(&fixture, (true, false), answers).await;
    policy(&fixture, "/team/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(30) }).await;
    let first = password(&fixture, "/team/a").await;
    plans(&fixture, &["/team/a"]).await;
    fixture.advance(31 * DAY);
    let report = fixture.credentials.rotation_round().await.unwrap();
    assert_eq!((report.rotated, report.failed), (0, 1));
    assert_eq!(newest(&fixture, "/team/a").await.id, first.id);
    assert!(planned(&fixture).await[0].error.clone().unwrap().contains("409"));
    *agrees.lock() = true;
    fixture.advance(61);
    assert_eq!(fixture.credentials.rotation_round().await.unwrap().rotated, 1);
    let asked = read.lock().clone();
    assert_eq!(
        newest(&fixture, "/team/a").await.value,
        asked[1],
        "what it was asked about is what is current"
    );
    assert!(asked.len() == 2 && asked[0] != asked[1]);
}

pub(crate) async fn candidate_token_is_invalid_after_the_hook_response(fixture: Fixture) {
    let posts = hook(&fixture, (true, false), Box::new(|_| async { Ok(()) }.boxed())).await;
    policy(&fixture, "/team/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(30) }).await;
    password(&fixture, "/team/a").await;
    plans(&fixture, &["/team/a"]).await;
    fixture.advance(31 * DAY);
    assert_eq!(fixture.credentials.rotation_round().await.unwrap().rotated, 1);
    let seen = posts.seen.lock()[0].clone();
    let late = fixture.credentials.unwrap("the hook", seen["token"].as_str().unwrap()).await.unwrap_err();
    assert!(matches!(late, CredentialError::NoToken), "{late}");
}

/// A failing hook does not delay calls to other hooks.
pub(crate) async fn calls_to_a_failing_hook_are_limited_and_do_not_block_other_hooks(fixture: Fixture) {
    let posts = hook(
        &fixture,
        (false, true),
        Box::new(|body| {
            let down = body["name"].as_str().unwrap().starts_with("/down/");
            async move { if down { Err("503".to_owned()) } else { Ok(()) } }.boxed()
        }),
    )
    .await;
    set_hook(&fixture, "down", (false, true)).await;
    policy(&fixture, "/down/*", RotationPolicy { hook: Some("down".to_owned()), ..every(30) }).await;
    policy(&fixture, "/ops/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(60) }).await;
    for number in 0..20 {
        password(&fixture, &format!("/down/{number}")).await;
    }
    password(&fixture, "/ops/a").await;
    rounds(&fixture.credentials, async || planned(&fixture).await.len() == 21).await;
    fixture.advance(61 * DAY);
    let told = |down: bool| {
        posts
            .seen
            .lock()
            .iter()
            .filter(|one| one["name"].as_str().unwrap().starts_with("/down/") == down)
            .count()
    };
    let began = Instant::now();
    while began.elapsed() < TIMEOUT {
        let before = told(true);
        fixture.credentials.rotation_round().await.unwrap();
        assert!(told(true) - before <= 8, "so many of one hook at a time");
        if told(true) == 20 && told(false) == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} and {} calls were made", told(true), told(false));
}

/// A responsive hook receives all queued calls in one round.
pub(crate) async fn recovered_hook_receives_all_pending_notifications(fixture: Fixture) {
    let deaf = Arc::new(AtomicBool::new(true));
    let is_deaf = Arc::clone(&deaf);
    let answers: Answers = Box::new(move |_| {
        let answer = if is_deaf.load(SeqCst) { Err("503".to_owned()) } else { Ok(()) };
        async move { answer }.boxed()
    });
    let posts = hook(&fixture, (false, true), answers).await;
    policy(&fixture, "/team/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(30) }).await;
    for number in 0..20 {
        password(&fixture, &format!("/team/{number}")).await;
    }
    rounds(&fixture.credentials, async || planned(&fixture).await.len() == 20).await;
    fixture.advance(31 * DAY);
    let before = rounds(&fixture.credentials, async || posts.seen.lock().len() == 20).await;
    assert_eq!((before.told, before.undelivered), (0, 20));
    deaf.store(false, SeqCst);
    fixture.advance(61);
    let report = fixture.credentials.rotation_round().await.unwrap();
    assert_eq!((report.told, report.undelivered), (20, 0));
    assert_eq!(fixture.credentials.rotation_round().await.unwrap().told, 0, "each once");
}

/// A hook that never responds costs one timeout per round. Its other names fail immediately and are retried later.
pub(crate) async fn unresponsive_hook_times_out_once_for_all_due_credentials(fixture: Fixture) {
    let posts = hook(&fixture, (true, false), Box::new(|_| std::future::pending().boxed())).await;
    nine_due(&fixture).await;
    let report = fixture.credentials.rotation_round().await.unwrap();
    assert_eq!((report.rotated, report.failed), (0, 9));
    assert_eq!(posts.seen.lock().len(), 4, "those that were asked side by side");
    assert!(planned(&fixture).await.iter().all(|one| one.failures == 1));
}
