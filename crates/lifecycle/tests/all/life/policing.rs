//! Tests of policies, owners and teams.

use lifecycle::managed::{CertificateChange, NewCertificate};
use lifecycle::people::{Contact, PeopleKind, Person};
use lifecycle::policy::{Enforcement, Policy, PolicyRequirement, PolicyScope, Rule, Severity};
use lifecycle::renewal::{Lead, RenewalRule};
use lifecycle::tables::policies::ViolationFilter;
use lifecycle::{
    AdmissionError, CreateError, DataError, ExportError, ExportFormat, PersonChangeError, PolicyChangeError,
    RemoveError, Stale, UpdateError,
};

use super::world::{DAY, World};

fn policy(enforcement: Enforcement, demand: PolicyRequirement) -> Policy {
    Policy {
        applies_to: PolicyScope { all: true, ..PolicyScope::default() },
        enforcement,
        rules: vec![Rule { severity: Severity::Critical, demand }],
        ..Policy::default()
    }
}

fn domains() -> PolicyRequirement {
    PolicyRequirement::AllowedDomains { domains: vec!["example.org".to_owned()] }
}

async fn listed(world: &World, filter: &ViolationFilter) -> Vec<lifecycle::ViolationRecord> {
    let mut all = Vec::new();
    let mut cursor = None;
    loop {
        // Small pages, to exercise the cursor.
        let page = world.life.violations(filter, cursor.as_ref(), 2).await.unwrap();
        all.extend(page.rows);
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
}

pub(super) async fn enforced_policy_rejects_and_advisory_policy_lists_violations(world: World) {
    world
        .life
        .put_policy("names", &policy(Enforcement::Enforced, domains()), None, "user:ann")
        .await
        .unwrap();
    world
        .life
        .put_policy(
            "owned",
            &policy(Enforcement::Advisory, PolicyRequirement::RequiredOwner),
            None,
            "user:ann",
        )
        .await
        .unwrap();
    let refused = world.life.create(NewCertificate::new(&["a.example.com"], "web"), "user:ann").await;
    let error = refused.unwrap_err();
    assert!(matches!(error, CreateError::Admission(AdmissionError::Forbidden(_))));
    assert_eq!(
        error.to_string(),
        "policies forbid this request: a.example.com is not under example.org (names)"
    );
    assert!(world.life.named("a.example.com").await.is_err());

    let created =
        world.life.create(NewCertificate::new(&["a.example.org"], "web"), "user:ann").await.unwrap();
    assert_eq!(created.violations.len(), 1);
    let all = listed(&world, &ViolationFilter::default()).await;
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].policy.as_str(), all[0].rule.as_str()), ("owned", "required_owner"));
    assert_eq!((all[0].severity, all[0].certificate), (Severity::Critical, created.certificate));
    world.check().await;
}

pub(super) async fn changed_policy_is_evaluated_against_all_certificates(world: World) {
    world.many(25).await;
    let mut found = Vec::new();
    let rule = policy(Enforcement::Advisory, PolicyRequirement::RequiredOwner);
    let saved = world.life.put_policy("owned", &rule, None, "user:ann").await.unwrap();
    assert_eq!(world.life.judge_all().await.unwrap(), 25);
    found.push(listed(&world, &ViolationFilter::default()).await.len());
    let by_policy = ViolationFilter { policy: Some("owned".to_owned()), ..ViolationFilter::default() };
    found.push(listed(&world, &by_policy).await.len());
    let bad = ViolationFilter { severity_from: Some(Severity::Critical), ..ViolationFilter::default() };
    found.push(listed(&world, &bad).await.len());
    // After a change to another rule there are no violations.
    let relaxed = policy(Enforcement::Advisory, domains());
    let stale = world.life.put_policy("owned", &relaxed, Some(saved.revision + 1), "user:ann").await;
    assert!(matches!(stale, Err(PolicyChangeError::Stale(_))), "{stale:?}");
    world.life.put_policy("owned", &relaxed, Some(saved.revision), "user:ann").await.unwrap();
    world.life.judge_all().await.unwrap();
    found.push(listed(&world, &ViolationFilter::default()).await.len());
    assert_eq!(found, [25, 25, 25, 0]);
    // The renewal lead of a policy reschedules the planned runs.
    let certificate = world.life.named("n0003.example.org").await.unwrap();
    let lead = RenewalRule { renew_before: Lead::Days(60), ..RenewalRule::default() };
    let early = Policy { renewal: Some(lead), ..Policy::default() };
    world.life.put_policy("early", &early, None, "user:ann").await.unwrap();
    let to = lifecycle::Reassign { policy: Some(Some("early".to_owned())), ..lifecycle::Reassign::default() };
    let selection = lifecycle::Selection::Ids(vec![certificate.id]);
    world.life.reassign(&selection, to, "user:ann").await.unwrap();
    let moved = world.life.get(certificate.id).await.unwrap();
    let left = certificate.current.unwrap().not_after_us - moved.renew_at_us().unwrap();
    assert!((60 * DAY..=65 * DAY).contains(&left), "{}", left / DAY);
    // The same when the policy itself changes.
    let record = world.life.policy("early").await.unwrap();
    let by_hand = RenewalRule { auto_renew: false, ..RenewalRule::default() };
    let by_hand = Policy { renewal: Some(by_hand), ..Policy::default() };
    world.life.put_policy("early", &by_hand, Some(record.revision), "user:ann").await.unwrap();
    assert_eq!(world.life.get(certificate.id).await.unwrap().run, None);
    world.check().await;
}

fn needs_approval(applies_to: PolicyScope) -> Policy {
    Policy { requires_approval: true, applies_to, ..Policy::default() }
}

pub(super) async fn change_that_lifts_the_need_for_approval_is_made_only_with_approval(world: World) {
    let tagged =
        PolicyScope { tags: [("tier".to_owned(), "one".to_owned())].into(), ..PolicyScope::default() };
    for (name, scope) in [("named", PolicyScope::default()), ("tagged", tagged)] {
        world.life.put_policy(name, &needs_approval(scope), None, "user:ann").await.unwrap();
    }
    let no_policy = CertificateChange { policy: Some(None), ..CertificateChange::default() };
    let no_tags = CertificateChange { tags: Some([].into()), ..CertificateChange::default() };
    let other_profile = CertificateChange { profile: Some("web".to_owned()), ..CertificateChange::default() };
    let many = lifecycle::Reassign::default;
    let cases: [(&str, fn(&mut NewCertificate), _, Option<lifecycle::Reassign>); 3] = [
        (
            "web",
            |new| new.policy = Some("named".to_owned()),
            no_policy,
            Some(lifecycle::Reassign { policy: Some(None), ..many() }),
        ),
        (
            "web",
            |new| drop(new.tags.insert("tier".to_owned(), "one".to_owned())),
            no_tags,
            Some(lifecycle::Reassign { tags_unset: vec!["tier".to_owned()], ..many() }),
        ),
        ("careful", |_| (), other_profile, None),
    ];
    for (number, (profile, guard, change, many)) in cases.into_iter().enumerate() {
        let mut new = NewCertificate::new(&[&format!("n{number}.example.org")], profile);
        new.issue = false;
        guard(&mut new);
        let id = world.life.create(new, "user:ann").await.unwrap().certificate;
        let before = world.life.get(id).await.unwrap();
        let refused = world.life.update(id, None, &change, "user:ann").await;
        assert!(matches!(refused, Err(UpdateError::LiftsApproval(_))), "{number}: {refused:?}");
        if let Some(many) = many {
            let report =
                world.life.reassign(&lifecycle::Selection::Ids(vec![id]), many, "user:ann").await.unwrap();
            assert_eq!((report.done, report.refused), (0, 1), "{number}: {report:?}");
            assert!(report.reasons[0].1.contains("requires approval"), "{report:?}");
        }
        assert_eq!(world.life.get(id).await.unwrap(), before, "{number}");
        assert!(world.life.preview_change(id, &change).await.unwrap().lifts_approval);
        // A change that keeps the need is made.
        let notes = CertificateChange { owner: Some(Some("ann".to_owned())), ..CertificateChange::default() };
        assert!(!world.life.preview_change(id, &notes).await.unwrap().lifts_approval);
        let saved = world.life.update(id, None, &notes, "user:ann").await.unwrap();
        // The stored form of a change removes what it removes.
        let stored: CertificateChange =
            serde_json::from_str(&serde_json::to_string(&change).unwrap()).unwrap();
        assert_eq!(stored, change);
        let after = world.life.update_approved(id, saved.revision, &stored, "user:ann").await.unwrap();
        assert_eq!((after.policy, after.tags.len(), after.profile.as_str()), (None, 0, "web"), "{number}");
    }
    world.check().await;
}

pub(super) async fn key_of_a_version_is_judged_by_the_policy_under_which_it_was_issued(world: World) {
    world.life.put_policy("p", &Policy::default(), None, "user:ann").await.unwrap();
    let mut new = NewCertificate::new(&["a.example.org"], "web");
    new.policy = Some("p".to_owned());
    let id = world.life.create(new, "user:ann").await.unwrap().certificate;
    world.life.tick().await.unwrap();
    let export = async || world.life.export(id, &ExportFormat::ChainAndKey, "user:ann").await.map(drop);
    export().await.unwrap();
    // The certificate leaves the policy before it requires approval.
    let none = CertificateChange { policy: Some(None), ..CertificateChange::default() };
    world.life.update(id, None, &none, "user:ann").await.unwrap();
    export().await.unwrap();
    let record = world.life.policy("p").await.unwrap();
    let strict = needs_approval(PolicyScope::default());
    world.life.put_policy("p", &strict, Some(record.revision), "user:ann").await.unwrap();
    let refused = export().await;
    assert!(matches!(refused, Err(ExportError::NotApproved(_))), "{refused:?}");
    // A version that was issued since belongs to no policy.
    world.life.renew(&lifecycle::Selection::Ids(vec![id]), "asked", "user:ann").await.unwrap();
    world.life.tick().await.unwrap();
    export().await.unwrap();
    world.check().await;
}

pub(super) async fn policy_in_use_cannot_be_deleted(world: World) {
    world.life.put_policy("p", &Policy::default(), None, "user:ann").await.unwrap();
    let taken = world.life.put_policy("p", &Policy::default(), None, "user:ann").await;
    assert!(matches!(taken, Err(PolicyChangeError::Taken(_))));
    let mut new = NewCertificate::new(&["a.example.org"], "web");
    new.policy = Some("p".to_owned());
    let created = world.life.create(new, "user:ann").await.unwrap();
    let used = world.life.delete_policy("p", "user:ann").await;
    assert!(matches!(used, Err(RemoveError::InUse { by, .. }) if by == created.certificate));
    let none = CertificateChange { policy: Some(None), ..CertificateChange::default() };
    // The first run has not begun, so the certificate can still be changed.
    world.life.update(created.certificate, None, &none, "user:ann").await.unwrap();
    world.life.delete_policy("p", "user:ann").await.unwrap();
    assert!(matches!(world.life.policy("p").await, Err(DataError::NotFound { .. })));
    let bad =
        Policy { rules: vec![Rule { severity: Severity::Info, demand: domains() }; 60], ..Policy::default() };
    assert!(matches!(
        world.life.put_policy("q", &bad, None, "user:ann").await,
        Err(PolicyChangeError::BadPolicy(_))
    ));
    world.check().await;
}

pub(super) async fn owners_and_teams_are_stored_with_revisions(world: World) {
    let ann = Person {
        team: Some("web".to_owned()),
        contacts: vec![Contact { kind: "email".to_owned(), address: "ann@example.org".to_owned() }],
        ..Person::default()
    };
    let missing = world.life.put_person(PeopleKind::Owner, "ann", &ann, None, "user:ann").await;
    assert!(matches!(missing, Err(PersonChangeError::Missing(_))));
    world.life.put_person(PeopleKind::Team, "web", &Person::default(), None, "user:ann").await.unwrap();
    let saved = world.life.put_person(PeopleKind::Owner, "ann", &ann, None, "user:ann").await.unwrap();
    assert_eq!((saved.person.clone(), saved.revision), (ann.clone(), 1));
    let taken = world.life.put_person(PeopleKind::Owner, "ann", &ann, None, "user:ann").await;
    assert!(matches!(taken, Err(PersonChangeError::Taken(_))));
    let changed = Person { description: "away".to_owned(), ..ann };
    let saved = world.life.put_person(PeopleKind::Owner, "ann", &changed, Some(1), "user:ann").await.unwrap();
    assert_eq!(saved.revision, 2);
    let stale = world.life.put_person(PeopleKind::Owner, "ann", &changed, Some(1), "user:ann").await;
    assert!(matches!(stale, Err(PersonChangeError::Stale(Stale { revision: 2 }))));
    let mut new = NewCertificate::new(&["a.example.org"], "web");
    new.owner = Some("ann".to_owned());
    world.life.create(new, "user:ann").await.unwrap();
    let used = world.life.delete_person(PeopleKind::Owner, "ann", "user:ann").await;
    assert!(matches!(used, Err(RemoveError::InUse { .. })));
    assert_eq!(world.life.people(PeopleKind::Owner, None, 10).await.unwrap().rows.len(), 1);
    world.life.delete_person(PeopleKind::Team, "web", "user:ann").await.unwrap();
    assert!(world.life.person(PeopleKind::Team, "web").await.is_err());
    world.check().await;
}
