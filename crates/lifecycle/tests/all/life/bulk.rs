//! Tests of bulk operations, which run in sets.

use std::collections::BTreeMap;

use lifecycle::managed::NewCertificate;
use lifecycle::policy::{Enforcement, Policy, PolicyRequirement, PolicyScope, Rule, Severity};
use lifecycle::state::State;
use lifecycle::tables::managed::{ManagedFilter, ManagedOrder};
use lifecycle::{Reassign, RevokeRequest, Selection};
use store::AuditFilter;
use uuid::Uuid;
use x509::crl::Reason;

use super::world::{HOUR, Mood, World};

fn all() -> Selection {
    Selection::Filter(ManagedFilter::default())
}

fn request(replace: bool) -> RevokeRequest {
    RevokeRequest { reason: Reason::KeyCompromise, replace }
}

pub(super) async fn filter_selects_every_certificate_for_renewal(world: World) {
    world.many(120).await;
    let report = world.life.renew(&all(), "asked", "user:ann").await.unwrap();
    assert_eq!((report.matched, report.done, report.already, report.refused), (120, 120, 0, 0));
    assert_eq!(world.life.tick().await.unwrap().done, 120);
    assert_eq!(world.issuer("internal").made(), 240);
    let some = Selection::Filter(ManagedFilter {
        suffix: Some("n0007.example.org".to_owned()),
        ..ManagedFilter::default()
    });
    assert_eq!(world.life.renew(&some, "asked", "user:ann").await.unwrap().matched, 1);
    let missing = Selection::Ids(vec![Uuid::now_v7()]);
    let report = world.life.renew(&missing, "asked", "user:ann").await.unwrap();
    assert_eq!((report.matched, report.missing), (0, 1));
    let too_many = Selection::Ids((0..10_001).map(|_| Uuid::now_v7()).collect());
    assert!(world.life.renew(&too_many, "asked", "user:ann").await.is_err());
    world.check().await;
}

pub(super) async fn each_wave_of_renewals_starts_those_that_the_former_left(world: World) {
    world.many(120).await;
    let mut waves = Vec::new();
    for _ in 0..4 {
        let report = world.life.renew_up_to(Some(50), &all(), "asked", "user:ann").await.unwrap();
        waves.push((report.matched, report.done, report.already));
    }
    assert_eq!(waves, [(50, 50, 0), (100, 50, 50), (120, 20, 100), (120, 0, 120)]);
    assert_eq!(world.life.tick().await.unwrap().done, 120);
    assert_eq!(world.issuer("internal").made(), 240);
    world.check().await;
}

pub(super) async fn bulk_revocation_uses_one_issuer_call(world: World) {
    world.many(120).await;
    let archived = world.issued("archived.example.org").await;
    world.life.archive(archived.id, None, "user:ann").await.unwrap();
    let never = {
        let mut new = NewCertificate::new(&["never.example.org"], "web");
        new.issue = false;
        world.life.create(new, "user:ann").await.unwrap()
    };
    let report = world.life.revoke(&all(), request(false), "user:ann").await.unwrap();
    assert_eq!((report.matched, report.done, report.refused), (122, 121, 1));
    assert_eq!(report.reasons, [(never.certificate, "the certificate was never issued".to_owned())]);
    assert_eq!(*world.own.revoked.lock(), [(121, Reason::KeyCompromise)]);
    let counts = world.life.counts().await.unwrap();
    assert_eq!(counts.states[&State::Revoked], 120);
    let second = world.life.revoke(&all(), request(false), "user:ann").await.unwrap();
    assert_eq!((second.done, second.already), (0, 121));
    // Certificates that were revoked without replacement are not renewed.
    world.advance(400 * 24 * HOUR);
    assert_eq!(world.life.tick().await.unwrap().begun, 0);
    let filter = AuditFilter { action: Some("certificate.revoke".to_owned()), ..AuditFilter::default() };
    assert_eq!(world.store.audit_page(&filter, None, 1_000).await.unwrap().rows.len(), 120);
    let unknown = RevokeRequest { reason: Reason::RemoveFromCrl, replace: false };
    assert!(world.life.revoke(&all(), unknown, "user:ann").await.is_err());
    world.check().await;
}

pub(super) async fn revocation_at_an_external_issuer_is_retried(world: World) {
    let mut new = NewCertificate::new(&["a.example.org"], "web");
    new.issuer = Some("other".to_owned());
    let created = world.life.create(new, "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    *world.issuer("other").mood.lock() = Mood::Down;
    let selection = Selection::Ids(vec![created.certificate]);
    let report = world.life.revoke(&selection, request(false), "user:ann").await.unwrap();
    assert_eq!((report.done, report.already), (0, 1));
    assert_eq!(world.life.get(created.certificate).await.unwrap().state, State::Active);
    *world.issuer("other").mood.lock() = Mood::Well;
    world.advance(HOUR);
    assert_eq!(world.life.tick().await.unwrap().revoked, 1);
    let revoked = world.life.get(created.certificate).await.unwrap();
    assert_eq!(revoked.state, State::Revoked);
    assert_eq!(*world.issuer("other").revoked.lock(), [revoked.current.unwrap().fingerprint]);
    world.check().await;
}

pub(super) async fn revoked_certificate_is_replaced_with_a_new_key(world: World) {
    let certificate = world.issued("a.example.org").await;
    let selection = Selection::Ids(vec![certificate.id]);
    world.life.revoke(&selection, request(true), "user:ann").await.unwrap();
    assert_eq!(world.life.tick().await.unwrap().done, 1);
    let replaced = world.life.get(certificate.id).await.unwrap();
    assert_eq!(replaced.state, State::Active);
    let versions = world.life.versions(certificate.id, None, 10).await.unwrap().rows;
    let keys: Vec<Vec<u8>> = versions
        .iter()
        .map(|version| x509::Certificate::parse(&version.chain[0]).unwrap().public_key.spki.to_vec())
        .collect();
    assert_ne!(keys[0], keys[1]);
    assert!(versions[0].revoked.is_none());
    assert_eq!(versions[1].revoked, Some((world.clock.now_us(), Reason::KeyCompromise)));
    // A revoked certificate is not named as the replaced one.
    assert_eq!(world.issuer("internal").replaced.lock().last(), Some(&None));
    world.check().await;
}

pub(super) async fn owners_and_tags_are_changed_in_bulk(world: World) {
    let ids = world.many(30).await;
    let policy = Policy {
        applies_to: PolicyScope { all: true, ..PolicyScope::default() },
        enforcement: Enforcement::Enforced,
        rules: vec![Rule {
            severity: Severity::Error,
            demand: PolicyRequirement::RequiredEnvironment { environments: vec!["prod".to_owned()] },
        }],
        ..Policy::default()
    };
    let to = Reassign {
        owner: Some(Some("ann".to_owned())),
        team: Some(Some("web".to_owned())),
        environment: Some(Some("prod".to_owned())),
        tags_set: BTreeMap::from([("cost".to_owned(), "42".to_owned())]),
        ..Reassign::default()
    };
    let report = world.life.reassign(&all(), to.clone(), "user:ann").await.unwrap();
    assert_eq!((report.matched, report.done), (30, 30));
    let second = world.life.reassign(&all(), to, "user:ann").await.unwrap();
    assert_eq!((second.done, second.already), (0, 30));
    let tagged = ManagedFilter {
        tag: Some(("cost".to_owned(), "42".to_owned())),
        owner: Some("ann".to_owned()),
        ..ManagedFilter::default()
    };
    let found = world.life.page(&tagged, ManagedOrder::Name, None, 100).await.unwrap();
    assert_eq!(found.rows.len(), 30);
    let untag = Reassign { tags_unset: vec!["cost".to_owned()], ..Reassign::default() };
    world.life.reassign(&Selection::Ids(ids[..10].to_vec()), untag, "user:ann").await.unwrap();
    let found = world.life.page(&tagged, ManagedOrder::Name, None, 100).await.unwrap();
    assert_eq!(found.rows.len(), 20);
    // An enforced policy also applies to bulk operations.
    world.life.put_policy("prod-only", &policy, None, "user:ann").await.unwrap();
    let no_environment = Reassign { environment: Some(None), ..Reassign::default() };
    let report = world.life.reassign(&all(), no_environment, "user:ann").await.unwrap();
    assert_eq!((report.done, report.refused), (0, 30));
    assert_eq!(report.reasons[0].1, "the certificate has no environment (prod-only)");
    world.check().await;
}

pub(super) async fn bulk_statement_count_is_independent_of_the_selection_size(world: World) {
    let ids = world.many(300).await;
    let count = |ids: &[Uuid]| {
        let selection = Selection::Ids(ids.to_vec());
        let (life, store) = (world.life.clone(), world.store.clone());
        async move {
            let before = store.statements_sent();
            life.renew(&selection, "asked", "user:ann").await.unwrap();
            let renew = store.statements_sent() - before;
            let tag = Reassign {
                tags_set: BTreeMap::from([("n".to_owned(), selection_len(&selection))]),
                ..Reassign::default()
            };
            life.reassign(&selection, tag, "user:ann").await.unwrap();
            let reassign = store.statements_sent() - before - renew;
            life.revoke(&selection, request(false), "user:ann").await.unwrap();
            let revoke = store.statements_sent() - before - renew - reassign;
            (renew, reassign, revoke)
        }
    };
    let few = count(&ids[..20]).await;
    let many = count(&ids[20..]).await;
    assert_eq!(few, many);
    assert!(many.2 < 60, "{many:?}");
    world.check().await;
}

fn selection_len(selection: &Selection) -> String {
    let Selection::Ids(ids) = selection else { panic!("{selection:?}") };
    ids.len().to_string()
}
