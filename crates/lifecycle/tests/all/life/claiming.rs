//! Tests of claiming certificates from the inventory.

use std::sync::Arc;

use inventory::ownership::{Assignment, Conditions, NewRule, Ownership, TagKeys};
use keys::{KeyType, PrivateKey, Signer};
use lifecycle::claim::FoundState;
use lifecycle::claim::{Claim, ClaimSubject};
use lifecycle::managed::{KeyLocation, Options, TargetRef};
use lifecycle::state::State;
use lifecycle::tables::people::Dismissal;
use lifecycle::{ClaimError, DataError, DismissError, FOUND_READ_MAX, OwnerFilter};
use store::{EndpointKey, InventoryFilter, InventoryOrder, NewCertificate, NewObservation};
use uuid::Uuid;
use x509::build::{CertificateSpec, Extension, signed, tbs_certificate};
use x509::{Certificate, DistinguishedName, Fingerprint, GeneralName, SerialNumber, UnixTime};

use super::world::{DAY, NOW, World};

fn endpoint(host: &str) -> EndpointKey {
    EndpointKey {
        host: host.to_owned(),
        port: 443,
        protocol: "tls".to_owned(),
        server_name: host.to_owned(),
        address: String::new(),
    }
}

/// Creates a leaf that another CA issued long ago.
fn leaf(name: &str, days: i64) -> Vec<u8> {
    let key = PrivateKey::generate(KeyType::P384).unwrap();
    let issuer = DistinguishedName::from_text("CN=Somebody").unwrap();
    let now = UnixTime(NOW / 1_000_000);
    let names = [GeneralName::parse(name).unwrap(), GeneralName::parse(&format!("www.{name}")).unwrap()];
    let tbs = tbs_certificate(&CertificateSpec {
        serial: &SerialNumber::from_random(*Uuid::new_v4().as_bytes()),
        signature: key.algorithm(),
        issuer: &issuer.der,
        subject: &DistinguishedName::empty().der,
        not_before: now.plus(-30 * 86_400),
        not_after: now.plus(days * 86_400),
        spki: key.spki(),
        extensions: &[Extension::subject_alt_names(&names).critical(true)],
    });
    signed(&tbs, &key.algorithm(), &key.sign_now(&tbs).unwrap())
}

/// Records that a scan sees a certificate at a host now.
pub(super) async fn seen_at(world: &World, host: &str, der: &[u8]) {
    let now_us = world.clock.now_us();
    let leaf = Certificate::parse(der).unwrap();
    let scan = Uuid::now_v7();
    store::Scans::of(&world.store).begin(scan, now_us, "{}").await.unwrap();
    let certificate = NewCertificate {
        sha256: *leaf.fingerprint.as_bytes(),
        der: leaf.der.clone(),
        subject: String::new(),
        issuer: leaf.issuer.text.clone(),
        serial: leaf.serial.to_string(),
        not_before_us: leaf.not_before.0 * 1_000_000,
        not_after_us: leaf.not_after.0 * 1_000_000,
        key_algorithm: "EC P-384".to_owned(),
        key_bits: 384,
        spki_sha256: *x509::SpkiHash::of(&leaf.public_key.spki).as_bytes(),
        names: leaf.names(),
    };
    let observation = NewObservation {
        endpoint: endpoint(host),
        address: None,
        observed_at_us: now_us,
        outcome: events::ProbeOutcome::Answered,
        answered: true,
        tls_version: Some(0x0304),
        cipher_suite: None,
        chain: vec![Arc::new(certificate)],
        trust: "trusted".to_owned(),
        severity: None,
        findings: "[]".to_owned(),
        detail: "{}".to_owned(),
    };
    store::Scans::of(&world.store).record(scan, &[observation]).await.unwrap();
}

fn claim(what: ClaimSubject) -> Claim {
    Claim {
        what,
        name: None,
        profile: "web".to_owned(),
        issuer: None,
        owner: Some("ann".to_owned()),
        team: None,
        environment: None,
        policy: None,
        key_location: KeyLocation::Server,
        targets: Vec::new(),
        options: Options::default(),
    }
}

async fn state(world: &World, host: &str) -> FoundState {
    let filter = InventoryFilter { host_contains: Some(host.to_owned()), ..InventoryFilter::default() };
    let page = world.life.found(&filter, None, 10).await.unwrap();
    page.rows.into_iter().next().unwrap().state.unwrap()
}

pub(super) async fn found_certificate_is_claimed_with_its_endpoint(world: World) {
    let der = leaf("found.example.org", 60);
    seen_at(&world, "found.example.org", &der).await;
    assert_eq!(state(&world, "found").await, FoundState::Unmanaged);
    let what = ClaimSubject::Endpoint(endpoint("found.example.org"));
    let created = world.life.claim(claim(what.clone()), "user:ann").await.unwrap();
    let certificate = world.life.get(created.certificate).await.unwrap();
    assert_eq!((certificate.state, certificate.name.as_str()), (State::Active, "found.example.org"));
    assert_eq!(certificate.key_type, KeyType::P384);
    assert_eq!(certificate.names.len(), 2);
    assert_eq!(certificate.current.unwrap().fingerprint, Fingerprint::of(&der));
    assert_eq!(certificate.current.unwrap().not_after_us, NOW + 60 * DAY);
    assert!(
        matches!(&certificate.targets[..], [TargetRef::Endpoint { host, port: 443, .. }] if host == "found.example.org")
    );
    assert_eq!(state(&world, "found").await, FoundState::Managed(certificate.id));
    let second = world.life.claim(claim(what), "user:ann").await;
    assert!(matches!(second, Err(ClaimError::Taken(_))));
    // When it is due, it is renewed by its new issuer.
    world.clock.set(certificate.renew_at_us().unwrap());
    world.life.tick().await.unwrap();
    let renewed = world.life.get(certificate.id).await.unwrap();
    assert_eq!(renewed.state, State::Active);
    assert_ne!(renewed.current.unwrap().fingerprint, Fingerprint::of(&der));
    // The endpoint was not scanned again, so the old version is its last known one.
    let served = world.life.served(certificate.id, None, 10).await.unwrap().rows;
    let [old] = &served[..] else { panic!("{served:?}") };
    assert_eq!(
        (old.endpoint.host.as_str(), old.fingerprint),
        ("found.example.org", *Fingerprint::of(&der).as_bytes())
    );
    let scan = store::Scans::of(&world.store).page(None, 1).await.unwrap().rows.remove(0).id;
    let seen_leaf = inventory::tables::EndpointNotices::of(&world.store)
        .seen_endpoints(scan, 0, NOW, 10)
        .await
        .unwrap()
        .remove(0)
        .leaf;
    assert!(seen_leaf.managed);
    assert_eq!(seen_leaf.replaced_at_us, Some(certificate.renew_at_us().unwrap()), "since its renewal");
    // The key of the found certificate was never on this server, and the current issuer did not issue it.
    assert_eq!(*world.issuer("internal").replaced.lock(), [None]);
    world.check().await;
}

pub(super) async fn dismissed_certificate_stays_dismissed_until_its_deadline(world: World) {
    let der = leaf("b.example.org", 60);
    seen_at(&world, "b.example.org", &der).await;
    let fingerprint = Fingerprint::of(&der);
    let for_good = Dismissal { note: "a test machine".to_owned(), until_us: None };
    world.life.dismiss(fingerprint, for_good.clone(), "user:ann").await.unwrap();
    assert_eq!(state(&world, "b.example.org").await, FoundState::Dismissed(for_good.clone()));
    let hour_us = 3_600_000_000;
    let now_us = world.clock.now_us();
    let until = |until_us| Dismissal { until_us: Some(until_us), ..for_good.clone() };
    let over = world.life.dismiss(fingerprint, until(now_us), "user:ann").await;
    assert!(matches!(over, Err(DismissError::Bad(_))), "{over:?}");
    world.life.dismiss(fingerprint, until(now_us + hour_us), "user:ann").await.unwrap();
    assert_eq!(state(&world, "b.example.org").await, FoundState::Dismissed(until(now_us + hour_us)));
    world.clock.set(now_us + hour_us);
    assert_eq!(state(&world, "b.example.org").await, FoundState::Unmanaged, "it was ignored for an hour");
    assert!(world.life.undismiss(fingerprint, "user:ann").await.unwrap());
    assert!(!world.life.undismiss(fingerprint, "user:ann").await.unwrap());
    assert_eq!(state(&world, "b.example.org").await, FoundState::Unmanaged);
    // Claimed by its fingerprint, without an endpoint.
    let created = world.life.claim(claim(ClaimSubject::Fingerprint(fingerprint)), "user:ann").await.unwrap();
    assert!(world.life.get(created.certificate).await.unwrap().targets.is_empty());
    let unknown = world.life.claim(claim(ClaimSubject::Fingerprint(Fingerprint::of(b"x"))), "user:ann").await;
    assert!(matches!(unknown, Err(ClaimError::Data(DataError::NotFound { .. }))));
    let nowhere =
        world.life.claim(claim(ClaimSubject::Endpoint(endpoint("c.example.org"))), "user:ann").await;
    assert!(matches!(nowhere, Err(ClaimError::Data(DataError::NotFound { .. }))));
    world.check().await;
}

async fn rule(world: &World, name: &str, when: Conditions, assign: Assignment) {
    let rules = Ownership::new(world.store.clone(), world.clock.clone());
    let from_tags = TagKeys::default();
    let new = NewRule { name: name.to_owned(), position: None, when, assign, from_tags };
    rules.create(&new, "user:ann").await.unwrap();
}

pub(super) async fn claimed_certificate_gets_its_owner_from_the_rules(world: World) {
    let text = |text: &str| Some(text.to_owned());
    let leaves = ["a.pay.example.org", "b.example.org", "c.example.org", "d.example.org"].map(|name| {
        let der = leaf(name, 60);
        (name, Fingerprint::of(&der), der)
    });
    for (name, _, der) in &leaves {
        seen_at(&world, name, der).await;
    }
    // One certificate at two endpoints.
    seen_at(&world, "c.pay.example.org", &leaves[2].2).await;
    let unruled = world.life.found(&InventoryFilter::default(), None, 10).await.unwrap().rows;
    assert!(unruled.iter().all(|found| found.ownership.is_none()));

    let payments = Assignment {
        team: text("payments"),
        owner: text("pat"),
        environment: text("production"),
        tags: [("pci".to_owned(), "yes".to_owned())].into(),
    };
    let host = Conditions { host: text("*.pay.example.org"), ..Conditions::default() };
    rule(&world, "payments", host, payments.clone()).await;
    let platform = Assignment { team: text("platform"), ..Assignment::default() };
    let named = Conditions { name: text("www.b.*"), issuer: text("SOMEBODY"), ..Conditions::default() };
    rule(&world, "platform", named, platform.clone()).await;
    let found = world.life.found(&InventoryFilter::default(), None, 10).await.unwrap().rows;
    let ownership = |host: &str| {
        let one = found.iter().find(|found| found.row.endpoint.host == host).unwrap();
        one.ownership.clone()
    };
    assert_eq!(ownership("a.pay.example.org"), Some(payments.clone()));
    assert_eq!((ownership("b.example.org"), ownership("c.example.org")), (Some(platform), None));

    let claimed = async |what: ClaimSubject, owner: Option<String>| {
        let claim = Claim { owner, ..claim(what) };
        let created = world.life.claim(claim, "user:ann").await.unwrap();
        let certificate = world.life.get(created.certificate).await.unwrap();
        Assignment {
            team: certificate.team,
            owner: certificate.owner,
            environment: certificate.environment,
            tags: certificate.tags,
        }
    };
    let fingerprint = |number: usize| ClaimSubject::Fingerprint(leaves[number].1);
    assert_eq!(claimed(ClaimSubject::Endpoint(endpoint("a.pay.example.org")), None).await, payments);
    // If the request sets owner or team, ownership rules are not applied.
    let expected = Assignment { owner: text("bob"), ..Assignment::default() };
    assert_eq!(claimed(fingerprint(1), text("bob")).await, expected);
    assert_eq!(claimed(fingerprint(2), None).await, payments, "by the other of its two places");
    assert_eq!(claimed(fingerprint(3), None).await, Assignment::default(), "no rule is for it");
    world.check().await;
}

/// Returns an observation of an endpoint that did not answer.
fn silent(host: &str) -> NewObservation {
    NewObservation {
        endpoint: endpoint(host),
        address: None,
        observed_at_us: NOW,
        outcome: events::ProbeOutcome::Refused,
        answered: false,
        tls_version: None,
        cipher_suite: None,
        chain: Vec::new(),
        trust: "not-judged".to_owned(),
        severity: None,
        findings: "[]".to_owned(),
        detail: "{}".to_owned(),
    }
}

/// A page examines a limited number of endpoints. All pages together list every endpoint once, in order.
pub(super) async fn found_certificates_are_filtered_by_owner_in_bounded_pages(world: World) {
    const ENDPOINTS: usize = FOUND_READ_MAX + 700;
    let scan = Uuid::now_v7();
    store::Scans::of(&world.store).begin(scan, NOW, "{}").await.unwrap();
    let all: Vec<_> = (0..ENDPOINTS).map(|n| silent(&format!("h{n:05}.example.org"))).collect();
    for some in all.chunks(500) {
        store::Scans::of(&world.store).record(scan, some).await.unwrap();
    }
    let text = |text: &str| Some(text.to_owned());
    let host = |pattern: &str| Conditions { host: text(pattern), ..Conditions::default() };
    let team = |team: &str| Assignment { team: text(team), ..Assignment::default() };
    rule(&world, "payments", host("*7.example.org"), team("payments")).await;
    let late = format!("h{:05}.*", ENDPOINTS - 1);
    rule(&world, "last", host(&late), Assignment { owner: text("ann"), ..Assignment::default() }).await;
    let filter = InventoryFilter { order: InventoryOrder::Host, ..InventoryFilter::default() };
    let ownership = |team: Option<&str>, owner: Option<&str>, nobody: bool| OwnerFilter {
        team: team.map(str::to_owned),
        owner: owner.map(str::to_owned),
        nobody,
    };
    let walk = async |ownership: OwnerFilter, limit: usize| {
        let (mut hosts, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let before = world.store.statements_sent();
            let page = world.life.found_of(&filter, &ownership, after.as_ref(), limit).await.unwrap();
            assert!(page.rows.len() <= limit);
            let sent = world.store.statements_sent() - before;
            assert!(sent <= 6 + FOUND_READ_MAX as u64 / 500, "{sent} statements a page");
            hosts.extend(page.rows.into_iter().map(|found| found.row.endpoint.host));
            (after, pages) = (page.next, pages + 1);
            if after.is_none() {
                return (hosts, pages);
            }
        }
    };
    let (found, pages) = walk(ownership(Some("payments"), None, false), 100).await;
    let wanted: Vec<_> =
        (0..ENDPOINTS).filter(|n| n % 10 == 7).map(|n| format!("h{n:05}.example.org")).collect();
    assert_eq!((&found, pages), (&wanted, wanted.len().div_ceil(100)));
    // The only match is beyond the endpoints of the first page. That page is empty and has a cursor.
    let (found, pages) = walk(ownership(None, Some("ann"), false), 100).await;
    assert_eq!((found, pages), (vec![format!("h{:05}.example.org", ENDPOINTS - 1)], 2));
    assert_eq!(walk(ownership(Some("payments"), Some("ann"), false), 100).await.0, Vec::<String>::new());
    let (nobodys, _) = walk(ownership(None, None, true), 500).await;
    assert_eq!(nobodys.len(), ENDPOINTS - wanted.len() - 1);
    // A page that ends with the very last endpoint is the last page.
    let (found, pages) = walk(ownership(None, Some("ann"), false), 1).await;
    assert_eq!((found.len(), pages), (1, 2));
    world.check().await;
}
