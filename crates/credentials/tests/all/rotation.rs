//! Values made again by policy, and who is asked and told.

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
use store::OutboxPlace;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::place::{Fixture, admin, client, name};

const DAY: u64 = 86_400;
/// Far more than it takes, on a loaded machine too.
const PATIENCE: Duration = Duration::from_secs(60);

fn path(text: &str) -> PermissionPath {
    PermissionPath::parse(text).unwrap()
}

fn every(days: u32) -> RotationPolicy {
    RotationPolicy { every_s: Some(days * DAY as u32), ..RotationPolicy::default() }
}

async fn policy(place: &Fixture, at: &str, policy: RotationPolicy) {
    place.credentials.set_rotation_policy(&admin(), &path(at), policy).await.unwrap();
}

async fn generate(place: &Fixture, at: &str, kind: Kind, parameters: Json) -> Version {
    let parameters = Parameters::read(kind, Some(parameters), None).unwrap();
    let request =
        GenerateRequest { name: name(at), parameters, mode: Mode::Overwrite, metadata: None, ttl_s: None };
    place.credentials.generate(&admin(), request).await.unwrap()
}

async fn password(place: &Fixture, at: &str) -> Version {
    generate(place, at, Kind::Password, json!({})).await
}

async fn newest(place: &Fixture, at: &str) -> Version {
    place.credentials.versions(&admin(), &name(at), Some(1)).await.unwrap().remove(0)
}

async fn planned(place: &Fixture) -> Vec<PlannedRotation> {
    place.credentials.rotations(&admin(), &path("/*"), None, 100).await.unwrap().rows
}

/// Rounds until what was written has been seen: on PostgreSQL another's open transaction hides it for a moment.
async fn rounds(credentials: &Credentials, done: impl AsyncFn() -> bool) -> RotationReport {
    let mut all = RotationReport::default();
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let round = credentials.rotation_round().await.unwrap();
        all.rotated += round.rotated;
        all.steps += round.steps;
        all.failed += round.failed;
        all.told += round.told;
        all.untold += round.untold;
        if done().await {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("what was waited for did not come: {all:?}");
}

/// Rounds until the plan has these names, the next first.
async fn plans(place: &Fixture, names: &[&str]) -> RotationReport {
    rounds(&place.credentials, async || {
        let planned = planned(place).await;
        planned.iter().map(|one| one.name.as_str()).collect::<Vec<_>>() == names
    })
    .await
}

fn due_in_days(place: &Fixture, planned: &PlannedRotation) -> i64 {
    (planned.due_at_us - place.clock.now_us()) / (DAY as i64 * 1_000_000)
}

pub(crate) async fn nothing_is_rotated_while_nothing_is_to_be_changed(place: Fixture) {
    let store = &place.credentials;
    let first = password(&place, "/r/a").await;
    policy(&place, "/r/*", every(1)).await;
    rounds(store, async || !planned(&place).await.is_empty()).await;
    place.advance(2 * DAY);
    store.set_read_only(true);
    assert_eq!(store.rotation_round().await.unwrap(), RotationReport::default());
    assert_eq!(newest(&place, "/r/a").await.id, first.id);
    store.set_read_only(false);
    rounds(store, async || newest(&place, "/r/a").await.id != first.id).await;
}

/// A hook that is asked, and while it is asked the store becomes read-only if the flag says so.
async fn hook_that_stops(place: &Fixture) -> (Posts, Arc<AtomicBool>) {
    let stops = Arc::new(AtomicBool::new(true));
    let (store, says) = (place.credentials.clone(), Arc::clone(&stops));
    let answers: Answers = Box::new(move |_| {
        store.set_read_only(says.load(SeqCst));
        async { Ok(()) }.boxed()
    });
    (hook(place, (true, false), answers).await, stops)
}

/// Nine passwords that the hook is asked about and that are due.
async fn nine_due(place: &Fixture) {
    policy(place, "/team/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(30) }).await;
    for number in 0..9 {
        password(place, &format!("/team/{number}")).await;
    }
    rounds(&place.credentials, async || planned(place).await.len() == 9).await;
    place.advance(31 * DAY);
}

pub(crate) async fn a_round_ends_when_nothing_is_to_be_changed_any_more(place: Fixture) {
    let (posts, stops) = hook_that_stops(&place).await;
    nine_due(&place).await;
    let report = place.credentials.rotation_round().await.unwrap();
    assert_eq!((report.rotated, report.failed), (0, 0));
    assert!(posts.seen.lock().len() <= 4, "those that were asked side by side");
    assert!(planned(&place).await.iter().all(|one| one.failures == 0));
    stops.store(false, SeqCst);
    place.credentials.set_read_only(false);
    let report = place.credentials.rotation_round().await.unwrap();
    assert_eq!((report.rotated, report.failed), (9, 0));
}

pub(crate) async fn an_authority_waits_while_nothing_is_to_be_changed(place: Fixture) {
    let (_posts, stops) = hook_that_stops(&place).await;
    let old = certificate(&place, "/ca", |p| (p.is_ca, p.duration) = (true, 900)).await;
    certificate(&place, "/leaf", |p| (p.ca, p.duration) = (Some("/ca".to_owned()), 800)).await;
    policy(&place, "/ca", every(100)).await;
    policy(&place, "/leaf", RotationPolicy { hook: Some("ops".to_owned()), ..every(3_000) }).await;
    plans(&place, &["/ca", "/leaf"]).await;
    let step = async || planned(&place).await[0].step;
    place.advance(101 * DAY);
    rounds(&place.credentials, async || step().await == ChangeStep::Trusted).await;
    place.advance(8 * DAY);
    rounds(&place.credentials, async || place.credentials.is_read_only()).await;
    assert_eq!(step().await, ChangeStep::Signs);
    assert_eq!(trusted(&newest(&place, "/leaf").await)[0], pem(&old), "what would have followed has not");
    stops.store(false, SeqCst);
    place.credentials.set_read_only(false);
    rounds(&place.credentials, async || step().await == ChangeStep::Followed).await;
    let new = newest(&place, "/ca").await;
    assert_eq!(trusted(&newest(&place, "/leaf").await)[0], pem(&new));
    assert_eq!(planned(&place).await[0].failures, 0);
}

#[test]
fn codes_and_names_of_steps_are_those_of_databases() {
    let steps = [(0, "none"), (1, "begun"), (2, "trusted"), (3, "signs"), (4, "followed")];
    assert_eq!(ChangeStep::ALL.map(|step| (step.code(), step.name())), steps);
}

pub(crate) async fn rows_that_are_not_known_are_errors(place: Fixture) {
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
        let work = place.store.write("test", move |tx| Box::pin(tx.execute(change, Vec::new())));
        assert_eq!(work.await.unwrap(), 1, "{change}");
    };
    policy(&place, "/team/*", every(30)).await;
    password(&place, "/team/a").await;
    plans(&place, &["/team/a"]).await;
    write("UPDATE credential_rotations SET step = 5").await;
    let rotations = tables::Credentials::of(&place.store).rotations_due(i64::MAX, 10).await;
    let error = rotations.unwrap_err().to_string();
    assert!(error.ends_with("credential_rotations.step: unknown code 5 of rotation step"), "{error}");
    let new = [calls(Kind::Password)];
    let work =
        place.store.write("test", move |tx| Box::pin(async move { insert_hook_calls(tx, &new).await }));
    work.await.unwrap();
    let due = async || tables::Credentials::of(&place.store).hook_calls_due(1, 10).await;
    assert_eq!(due().await.unwrap()[0].kind, Kind::Password);
    write("UPDATE credential_hook_calls SET kind = 'token'").await;
    let error = due().await.unwrap_err().to_string();
    assert!(error.ends_with("credential_hook_calls.kind: unknown credential type \"token\""), "{error}");
}

pub(crate) async fn what_is_old_is_made_anew(place: Fixture) {
    policy(&place, "/team/*", every(30)).await;
    let first = password(&place, "/team/a").await;
    let other = password(&place, "/other/a").await;
    plans(&place, &["/team/a"]).await;
    assert_eq!(due_in_days(&place, &planned(&place).await[0]), 30);
    place.advance(29 * DAY);
    assert_eq!(place.credentials.rotation_round().await.unwrap().rotated, 0);
    place.advance(2 * DAY);
    let report =
        rounds(&place.credentials, async || due_in_days(&place, &planned(&place).await[0]) == 30).await;
    assert_eq!((report.rotated, report.failed), (1, 0));
    let second = newest(&place, "/team/a").await;
    assert_ne!(second.value, first.value);
    assert_eq!(second.parameters, first.parameters, "by the same parameters");
    assert_eq!(newest(&place, "/other/a").await.id, other.id);
    assert!(
        place
            .log()
            .await
            .iter()
            .any(|line| { line.starts_with("system:rotation credential.regenerate credential/team/a") })
    );
    // A write by hand counts as well.
    place.advance(10 * DAY);
    place.credentials.regenerate(&admin(), &name("/team/a"), None).await.unwrap();
    rounds(&place.credentials, async || due_in_days(&place, &planned(&place).await[0]) == 30).await;
}

pub(crate) async fn the_most_specific_policy_counts(place: Fixture) {
    for at in ["/team/a", "/team/deep/b", "/Team/deep/c", "/x"] {
        password(&place, at).await;
    }
    policy(&place, "/*", every(100)).await;
    policy(&place, "/team/*", every(50)).await;
    policy(&place, "/TEAM/deep/*", every(20)).await;
    policy(&place, "/team/deep/b", every(10)).await;
    let due = async || {
        let planned = planned(&place).await;
        planned.iter().map(|one| (one.name.clone(), due_in_days(&place, one))).collect::<Vec<_>>()
    };
    let of =
        |all: &[(&str, i64)]| all.iter().map(|(name, days)| ((*name).to_owned(), *days)).collect::<Vec<_>>();
    let all = of(&[("/team/deep/b", 10), ("/Team/deep/c", 20), ("/team/a", 50), ("/x", 100)]);
    rounds(&place.credentials, async || due().await == all).await;
    // What loses its policy falls to the one above; what has none above is planned no more.
    let remove = async |at: &str| place.credentials.remove_rotation_policy(&admin(), &path(at)).await;
    remove("/team/deep/b").await.unwrap();
    remove("/*").await.unwrap();
    assert!(matches!(remove("/*").await.unwrap_err(), CredentialError::NotFound));
    rounds(&place.credentials, async || due().await.len() == 3 && due().await[0].1 == 20).await;
    place.credentials.delete(&admin(), &name("/team/a")).await.unwrap();
    rounds(&place.credentials, async || due().await.len() == 2).await;
    // Only anyone who may write there, and sees what they may read.
    let a = client("a");
    let refused = place.credentials.set_rotation_policy(&a, &path("/team/*"), every(5)).await.unwrap_err();
    assert!(matches!(refused, CredentialError::Forbidden));
    assert!(place.credentials.rotations(&a, &path("/*"), None, 10).await.unwrap().rows.is_empty());
    assert!(place.credentials.rotation_policies(&a, None, 10).await.unwrap().rows.is_empty());
    let listed = place.credentials.rotation_policies(&admin(), None, 1).await.unwrap();
    assert_eq!((listed.rows.len(), listed.rows[0].path.as_str()), (1, "/team/*"));
    let next = place.credentials.rotation_policies(&admin(), listed.next.as_ref(), 1).await.unwrap();
    assert_eq!(next.rows[0].path, "/TEAM/deep/*");
    for bad in [
        RotationPolicy { every_s: Some(1), ..RotationPolicy::default() },
        RotationPolicy { before_expiry_percent: Some(91), ..RotationPolicy::default() },
        RotationPolicy { hook: Some("nobody".to_owned()), ..RotationPolicy::default() },
    ] {
        let refused = place.credentials.set_rotation_policy(&admin(), &path("/y"), bad.clone()).await;
        assert!(matches!(refused.unwrap_err(), CredentialError::Bad(_)), "{bad:?}");
    }
}

async fn events(place: &Fixture, kind: &str) -> Vec<Json> {
    let all = place.store.outbox_after(OutboxPlace::default(), 1_000).await.unwrap();
    all.iter()
        .filter(|event| event.kind == kind)
        .map(|event| serde_json::from_str(&event.body).unwrap())
        .collect()
}

pub(crate) async fn what_was_set_by_hand_is_told_once(place: Fixture) {
    place.set("/team/hand", Kind::Password, json!("by hand")).await;
    place.set("/team/note", Kind::Value, json!("no secret of a type that is made")).await;
    policy(&place, "/team/*", every(1)).await;
    plans(&place, &["/team/hand"]).await;
    assert!(planned(&place).await[0].set_by_hand);
    for _ in 0..3 {
        place.advance(2 * DAY);
        let report = place.credentials.rotation_round().await.unwrap();
        assert_eq!((report.rotated, report.failed), (0, 1));
    }
    let row = planned(&place).await.remove(0);
    assert!(row.failures == 3 && row.error.unwrap().contains("set by hand"));
    rounds(&place.credentials, async || events(&place, "credential.rotation_failed").await.len() == 1).await;
    assert_eq!(newest(&place, "/team/hand").await.value, Value::Password(Secret::new("by hand")));
    // Generated, it has what to be made by, and the trouble is over.
    password(&place, "/team/hand").await;
    rounds(&place.credentials, async || events(&place, "credential.rotation_recovered").await.len() == 1)
        .await;
    place.advance(2 * DAY);
    assert_eq!(rounds(&place.credentials, async || planned(&place).await[0].failures == 0).await.failed, 0);
}

async fn certificate(place: &Fixture, at: &str, with: impl FnOnce(&mut CertificateParameters)) -> Version {
    let mut parameters = CertificateParameters {
        common_name: Some(at.trim_start_matches('/').replace('/', ".")),
        key_type: Some(keys::KeyType::P256),
        duration: 300,
        ..CertificateParameters::default()
    };
    with(&mut parameters);
    generate(place, at, Kind::Certificate, serde_json::to_value(&parameters).unwrap()).await
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

/// The certificates that a leaf trusts, in order.
fn trusted(version: &Version) -> Vec<String> {
    let text = value(version).trusted(CaVersions::All).unwrap();
    text.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned).collect()
}

pub(crate) async fn certificates_are_made_anew_before_they_end(place: Fixture) {
    certificate(&place, "/part", |p| (p.self_sign, p.duration) = (true, 300)).await;
    certificate(&place, "/time", |p| (p.self_sign, p.duration) = (true, 300)).await;
    password(&place, "/no-certificate").await;
    policy(&place, "/*", RotationPolicy::default()).await;
    policy(
        &place,
        "/time",
        RotationPolicy { before_expiry_s: Some(20 * DAY as u32), ..RotationPolicy::default() },
    )
    .await;
    plans(&place, &["/part", "/time"]).await;
    let days: Vec<i64> = planned(&place).await.iter().map(|one| due_in_days(&place, one)).collect();
    assert_eq!(days, [201, 280], "a third of three hundred days is left (33 %), or twenty");
    place.advance(202 * DAY);
    let report = plans(&place, &["/time", "/part"]).await;
    assert_eq!(report.rotated, 1);
    assert_eq!(due_in_days(&place, &planned(&place).await[0]), 78);
}

pub(crate) async fn a_time_longer_than_a_life_is_half_of_it(place: Fixture) {
    certificate(&place, "/short", |p| (p.self_sign, p.duration) = (true, 30)).await;
    let before = RotationPolicy { before_expiry_s: Some(90 * DAY as u32), ..RotationPolicy::default() };
    policy(&place, "/*", before).await;
    plans(&place, &["/short"]).await;
    assert_eq!(due_in_days(&place, &planned(&place).await[0]), 15);
    place.advance(16 * DAY);
    let report =
        rounds(&place.credentials, async || due_in_days(&place, &planned(&place).await[0]) == 15).await;
    assert_eq!(report.rotated, 1);
    for _ in 0..3 {
        assert_eq!(place.credentials.rotation_round().await.unwrap().rotated, 0, "once");
    }
}

pub(crate) async fn what_is_made_again_as_another_type_is_planned_no_more(place: Fixture) {
    policy(&place, "/team/*", every(1)).await;
    password(&place, "/team/x").await;
    plans(&place, &["/team/x"]).await;
    // Both are seen by one round.
    place.credentials.delete(&admin(), &name("/team/x")).await.unwrap();
    place.set("/team/x", Kind::Value, json!("no secret of a type that is made")).await;
    plans(&place, &[]).await;
}

pub(crate) async fn a_name_that_goes_ends_the_trouble_with_it(place: Fixture) {
    place.set("/team/hand", Kind::Password, json!("by hand")).await;
    policy(&place, "/team/*", every(1)).await;
    plans(&place, &["/team/hand"]).await;
    place.advance(2 * DAY);
    assert_eq!(place.credentials.rotation_round().await.unwrap().failed, 1);
    let store = &place.credentials;
    store.change_versions(&admin(), &name("/team/hand"), None, VersionsChange::Delete).await.unwrap();
    plans(&place, &[]).await;
    assert_eq!(events(&place, "credential.rotation_recovered").await.len(), 0, "it can be taken back");
    place.advance(8 * DAY);
    store.destroy_past(&CancellationToken::new()).await.unwrap();
    rounds(store, async || events(&place, "credential.rotation_recovered").await.len() == 1).await;
}

pub(crate) async fn an_authority_that_is_one_no_more_is_planned_as_what_it_is(place: Fixture) {
    certificate(&place, "/ca", |p| (p.is_ca, p.duration) = (true, 900)).await;
    policy(&place, "/ca", every(100)).await;
    plans(&place, &["/ca"]).await;
    place.advance(101 * DAY);
    rounds(&place.credentials, async || planned(&place).await[0].step == ChangeStep::Trusted).await;
    let other = certificate(&place, "/ca", |p| (p.self_sign, p.duration) = (true, 900)).await;
    place.advance(8 * DAY);
    rounds(&place.credentials, async || planned(&place).await[0].step == ChangeStep::None).await;
    assert_eq!(due_in_days(&place, &planned(&place).await[0]), 92);
    for _ in 0..3 {
        assert_eq!(place.credentials.rotation_round().await.unwrap().rotated, 0);
    }
    assert_eq!(newest(&place, "/ca").await.id, other.id);
}

pub(crate) async fn what_has_a_time_to_live_keeps_it(place: Fixture) {
    let ca = certificate(&place, "/ca", |p| (p.is_ca, p.duration) = (true, 900)).await;
    let parameters = json!({ "common_name": "leaf", "ca": "/ca", "key_type": "p256" });
    let leaf = GenerateRequest {
        name: name("/leaf"),
        parameters: Parameters::read(Kind::Certificate, Some(parameters), None).unwrap(),
        mode: Mode::Overwrite,
        metadata: None,
        ttl_s: Some(200 * DAY),
    };
    let leaf = place.credentials.generate(&admin(), leaf).await.unwrap();
    assert!(leaf.ends_at_us.is_some());
    policy(&place, "/ca", every(100)).await;
    plans(&place, &["/ca"]).await;
    place.advance(101 * DAY);
    rounds(&place.credentials, async || planned(&place).await[0].step == ChangeStep::Trusted).await;
    let told = newest(&place, "/leaf").await;
    assert_ne!(told.id, leaf.id, "it trusts both");
    assert_eq!(told.ends_at_us, leaf.ends_at_us);
    place.advance(8 * DAY);
    rounds(&place.credentials, async || planned(&place).await[0].step == ChangeStep::Followed).await;
    let (new, followed) = (newest(&place, "/ca").await, newest(&place, "/leaf").await);
    assert_ne!(pem(&new), pem(&ca));
    assert_eq!(trusted(&followed)[0], pem(&new), "the old one goes before the leaf ends");
    assert_eq!(followed.ends_at_us, leaf.ends_at_us);
    let again = place.credentials.regenerate(&admin(), &name("/leaf"), None).await.unwrap();
    assert_eq!(again.ends_at_us, leaf.ends_at_us);
}

/// Each state of an authority's change, as clients see it.
pub(crate) async fn an_authority_changes_step_by_step(place: Fixture) {
    let old = certificate(&place, "/ca", |p| (p.is_ca, p.duration) = (true, 900)).await;
    let leaf = certificate(&place, "/a/leaf", |p| (p.ca, p.duration) = (Some("/ca".to_owned()), 800)).await;
    certificate(&place, "/a/middle", |p| (p.is_ca, p.ca) = (true, Some("/ca".to_owned()))).await;
    certificate(&place, "/a/deep", |p| p.ca = Some("/a/middle".to_owned())).await;
    policy(&place, "/ca", every(100)).await;
    plans(&place, &["/ca"]).await;
    let step = async |wanted: ChangeStep| {
        rounds(&place.credentials, async || planned(&place).await[0].step == wanted).await
    };
    place.advance(101 * DAY);
    step(ChangeStep::Trusted).await;
    let new = newest(&place, "/ca").await;
    assert!(new.transitional && pem(&new) != pem(&old));
    assert_eq!(trusted(&newest(&place, "/a/leaf").await), [pem(&old), pem(&new)]);
    assert_eq!(pem(&newest(&place, "/a/leaf").await), pem(&leaf));
    // Nothing happens while both are being spread.
    place.advance(6 * DAY);
    assert_eq!(place.credentials.rotation_round().await.unwrap().steps, 0);
    place.advance(2 * DAY);
    step(ChangeStep::Followed).await;
    let current = place.credentials.current(&admin(), &name("/ca")).await.unwrap();
    assert_eq!(current.iter().map(|one| one.id).collect::<Vec<_>>(), [new.id, old.id], "the new one signs");
    let followed = newest(&place, "/a/leaf").await;
    assert_ne!(pem(&followed), pem(&leaf));
    assert_eq!(trusted(&followed), [pem(&new), pem(&old)]);
    let (middle, deep) = (newest(&place, "/a/middle").await, newest(&place, "/a/deep").await);
    assert_eq!(trusted(&middle)[0], pem(&new));
    assert_eq!(trusted(&deep)[0], pem(&middle), "what hangs on what it signed, too");
    place.advance(8 * DAY);
    step(ChangeStep::None).await;
    let current = place.credentials.current(&admin(), &name("/ca")).await.unwrap();
    assert_eq!(current.iter().map(|one| one.id).collect::<Vec<_>>(), [new.id]);
    let last = newest(&place, "/a/leaf").await;
    assert_eq!((trusted(&last), pem(&last)), (vec![pem(&new)], pem(&followed)));
    // And again, a hundred days after the new one was made.
    assert_eq!(due_in_days(&place, &planned(&place).await[0]), 100 - 16);
    assert!(u64::from(OVERLAP_S) == 7 * DAY);
}

/// A node that dies between the steps: another goes on, and nothing is made twice.
pub(crate) async fn another_node_goes_on_where_one_fell(place: Fixture) {
    certificate(&place, "/ca", |p| (p.is_ca, p.duration) = (true, 900)).await;
    certificate(&place, "/leaf", |p| (p.ca, p.duration) = (Some("/ca".to_owned()), 800)).await;
    let single = password(&place, "/single").await;
    policy(&place, "/*", every(100)).await;
    policy(&place, "/leaf", every(3_000)).await;
    plans(&place, &["/ca", "/single", "/leaf"]).await;
    place.advance(101 * DAY);
    // Each step on a node of its own, which has the duty once the one before it is silent for a minute.
    let mut nodes = 0;
    for _ in 0..60 {
        let (_, node) = place.with_masters(&["master"]);
        nodes += 1;
        for _ in 0..5 {
            node.rotation_round().await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let ca = place.credentials.current(&admin(), &name("/ca")).await.unwrap();
        let versions = place.credentials.versions(&admin(), &name("/ca"), None).await.unwrap();
        if versions.len() == 2 && ca.len() == 1 {
            break;
        }
        place.advance(4 * DAY);
    }
    assert!((2..60).contains(&nodes), "{nodes}");
    let versions = async |at: &str| place.credentials.versions(&admin(), &name(at), None).await.unwrap();
    assert_eq!(versions("/ca").await.len(), 2, "made once");
    let single_now = versions("/single").await;
    assert!(single_now.len() >= 2 && single_now[single_now.len() - 1].id == single.id);
    // Told of both, signed by the new one, told of the one: three versions after the first.
    assert_eq!(versions("/leaf").await.len(), 4);
    // Two nodes at once: the one without the duty does nothing.
    let (_, other) = place.with_masters(&["master"]);
    place.advance(61);
    place.credentials.rotation_round().await.unwrap();
    place.advance(400 * DAY);
    place.credentials.rotation_round().await.unwrap();
    assert_eq!(other.rotation_round().await.unwrap(), RotationReport::default());
}

pub(crate) async fn now_is_now(place: Fixture) {
    policy(&place, "/team/*", every(100)).await;
    let first = password(&place, "/team/a").await;
    // Before any round has seen it.
    assert_eq!(place.credentials.rotate_now(&admin(), &path("/team/a")).await.unwrap(), 1);
    rounds(&place.credentials, async || newest(&place, "/team/a").await.id != first.id).await;
    let refused = place.credentials.rotate_now(&admin(), &path("/nobody")).await.unwrap_err();
    assert!(refused.to_string().contains("rotation set"), "{refused}");
    plans(&place, &["/team/a"]).await;
    rounds(&place.credentials, async || due_in_days(&place, &planned(&place).await[0]) == 100).await;
    assert_eq!(place.credentials.rotate_now(&client("a"), &path("/team/*")).await.unwrap(), 0, "not theirs");
    assert_eq!(place.credentials.rotate_now(&admin(), &path("/*")).await.unwrap(), 1);
}

/// What a hook was posted, and what it answers: whatever the function says of the body.
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

async fn hook(place: &Fixture, asked: (bool, bool), answers: Answers) -> Posts {
    let posts = Posts { seen: Arc::default(), answers: Arc::new(answers) };
    place.credentials.post_through(Arc::new(posts.clone()));
    set_hook(place, "ops", asked).await;
    posts
}

async fn set_hook(place: &Fixture, hook: &str, (before, after): (bool, bool)) {
    let hook = Hook {
        name: hook.to_owned(),
        url: "https://ops.example/".to_owned(),
        secret: Secret::new("a secret of the hook's"),
        before,
        after,
        roots: None,
    };
    place.credentials.set_hook(&admin(), hook).await.unwrap();
}

pub(crate) async fn a_hook_is_told_until_it_has_heard(place: Fixture) {
    let deaf = Arc::new(Mutex::new(2));
    let left = Arc::clone(&deaf);
    let answers: Answers = Box::new(move |_| {
        let mut left = left.lock();
        let answer = if *left > 0 { Err("503".to_owned()) } else { Ok(()) };
        *left -= i32::from(*left > 0);
        async move { answer }.boxed()
    });
    let posts = hook(&place, (false, true), answers).await;
    policy(&place, "/team/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(30) }).await;
    password(&place, "/team/a").await;
    plans(&place, &["/team/a"]).await;
    assert!(posts.seen.lock().is_empty(), "only of rotations");
    let refused = place.credentials.delete_hook(&admin(), "ops").await.unwrap_err();
    assert!(refused.to_string().contains("/team/*"), "{refused}");
    place.advance(31 * DAY);
    rounds(&place.credentials, async || posts.seen.lock().len() == 1).await;
    assert_eq!(place.credentials.rotation_round().await.unwrap().untold, 0, "not before its time");
    place.advance(61);
    assert_eq!(place.credentials.rotation_round().await.unwrap().untold, 1);
    place.advance(121);
    assert_eq!(place.credentials.rotation_round().await.unwrap().told, 1);
    place.advance(2 * 3_600);
    place.credentials.rotation_round().await.unwrap();
    let version = newest(&place, "/team/a").await;
    let seen = posts.seen.lock().clone();
    assert_eq!(seen.len(), 3);
    for body in seen {
        assert_eq!(body["event"], "credential.rotated");
        assert_eq!(body["version"], version.id.to_string());
        assert!(body.get("value").is_none() && body["name"] == "/team/a" && body["type"] == "password");
    }
}

pub(crate) async fn a_hook_that_does_not_agree_keeps_the_old_value(place: Fixture) {
    let (read, agrees) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(false)));
    let (store, keep, says) = (place.credentials.clone(), Arc::clone(&read), Arc::clone(&agrees));
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
    hook(&place, (true, false), answers).await;
    policy(&place, "/team/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(30) }).await;
    let first = password(&place, "/team/a").await;
    plans(&place, &["/team/a"]).await;
    place.advance(31 * DAY);
    let report = place.credentials.rotation_round().await.unwrap();
    assert_eq!((report.rotated, report.failed), (0, 1));
    assert_eq!(newest(&place, "/team/a").await.id, first.id);
    assert!(planned(&place).await[0].error.clone().unwrap().contains("409"));
    *agrees.lock() = true;
    place.advance(61);
    assert_eq!(place.credentials.rotation_round().await.unwrap().rotated, 1);
    let asked = read.lock().clone();
    assert_eq!(newest(&place, "/team/a").await.value, asked[1], "what it was asked about is what is current");
    assert!(asked.len() == 2 && asked[0] != asked[1]);
}

pub(crate) async fn a_candidate_is_not_read_after_the_answer(place: Fixture) {
    let posts = hook(&place, (true, false), Box::new(|_| async { Ok(()) }.boxed())).await;
    policy(&place, "/team/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(30) }).await;
    password(&place, "/team/a").await;
    plans(&place, &["/team/a"]).await;
    place.advance(31 * DAY);
    assert_eq!(place.credentials.rotation_round().await.unwrap().rotated, 1);
    let seen = posts.seen.lock()[0].clone();
    let late = place.credentials.unwrap("the hook", seen["token"].as_str().unwrap()).await.unwrap_err();
    assert!(matches!(late, CredentialError::NoToken), "{late}");
}

/// A hook that refuses everything holds up no other's calls.
pub(crate) async fn a_hook_that_is_down_takes_its_own_turn_only(place: Fixture) {
    let posts = hook(
        &place,
        (false, true),
        Box::new(|body| {
            let down = body["name"].as_str().unwrap().starts_with("/down/");
            async move { if down { Err("503".to_owned()) } else { Ok(()) } }.boxed()
        }),
    )
    .await;
    set_hook(&place, "down", (false, true)).await;
    policy(&place, "/down/*", RotationPolicy { hook: Some("down".to_owned()), ..every(30) }).await;
    policy(&place, "/ops/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(60) }).await;
    for number in 0..20 {
        password(&place, &format!("/down/{number}")).await;
    }
    password(&place, "/ops/a").await;
    rounds(&place.credentials, async || planned(&place).await.len() == 21).await;
    place.advance(61 * DAY);
    let told = |down: bool| {
        posts
            .seen
            .lock()
            .iter()
            .filter(|one| one["name"].as_str().unwrap().starts_with("/down/") == down)
            .count()
    };
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let before = told(true);
        place.credentials.rotation_round().await.unwrap();
        assert!(told(true) - before <= 8, "so many of one hook at a time");
        if told(true) == 20 && told(false) == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} and {} calls were made", told(true), told(false));
}

/// One that answers is told all in one round, however much waits.
pub(crate) async fn a_hook_that_answers_is_told_all_at_once(place: Fixture) {
    let deaf = Arc::new(AtomicBool::new(true));
    let is_deaf = Arc::clone(&deaf);
    let answers: Answers = Box::new(move |_| {
        let answer = if is_deaf.load(SeqCst) { Err("503".to_owned()) } else { Ok(()) };
        async move { answer }.boxed()
    });
    let posts = hook(&place, (false, true), answers).await;
    policy(&place, "/team/*", RotationPolicy { hook: Some("ops".to_owned()), ..every(30) }).await;
    for number in 0..20 {
        password(&place, &format!("/team/{number}")).await;
    }
    rounds(&place.credentials, async || planned(&place).await.len() == 20).await;
    place.advance(31 * DAY);
    let before = rounds(&place.credentials, async || posts.seen.lock().len() == 20).await;
    assert_eq!((before.told, before.untold), (0, 20));
    deaf.store(false, SeqCst);
    place.advance(61);
    let report = place.credentials.rotation_round().await.unwrap();
    assert_eq!((report.told, report.untold), (20, 0));
    assert_eq!(place.credentials.rotation_round().await.unwrap().told, 0, "each once");
}

/// A hook that never answers is waited for once a round: its other names fail at once, and are tried again.
pub(crate) async fn a_hook_that_never_answers_is_waited_for_once(place: Fixture) {
    let posts = hook(&place, (true, false), Box::new(|_| std::future::pending().boxed())).await;
    nine_due(&place).await;
    let report = place.credentials.rotation_round().await.unwrap();
    assert_eq!((report.rotated, report.failed), (0, 9));
    assert_eq!(posts.seen.lock().len(), 4, "those that were asked side by side");
    assert!(planned(&place).await.iter().all(|one| one.failures == 1));
}
