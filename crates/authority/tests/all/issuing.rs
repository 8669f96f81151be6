//! Tests of issuance: certificate contents, refusals and idempotency.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use authority::issue::{IssueError, IssueRequest, IssuedRef, Source};
use authority::profile::ProfileError;
use authority::tables::IssuedFilter;
use authority::teams::OwnershipRights;
use futures_util::future::join_all;
use keys::{KeyType, PrivateKey, Signer};
use serde_json::json;
use store::{Fault, OutboxPosition};
use tokio::sync::watch;
use tokio::task::JoinSet;
use x509::build::Extension;
use x509::{Certificate, DistinguishedName, GeneralName, UnixTime};

use crate::fixture::{eventually, pem};
use crate::office::{Office, both, new_spki, options, request};

both! {
    issued_certificate_verifies_in_openssl_and_is_in_the_inventory
    idempotency_key_returns_the_same_certificate
    concurrent_requests_with_one_idempotency_key_issue_one_certificate
    crash_before_commit_issues_nothing_and_a_retry_succeeds
    retry_after_a_crash_after_commit_returns_the_stored_certificate
    disallowed_requests_are_rejected_and_nothing_is_stored
    concurrent_issuance_shares_sql_statements
    each_key_type_is_certified_by_each_ca_key_type
    profile_updates_require_the_current_revision
    names_owned_by_a_team_are_issued_only_to_that_team
    private_suffixes_are_not_issued_but_names_below_them_are
    common_name_is_spelled_like_its_subject_alternative_name
    certificate_extensions_follow_the_profile_purpose
}

async fn certificate_extensions_follow_the_profile_purpose(office: Office) {
    let names = json!({"dns_allowed": ["."], "email_allowed": ["a.example"], "required": false});
    for profile in [
        json!({"name": "clock", "extended_key_usage": ["timeStamping"], "names": names}),
        json!({"name": "clients", "extended_key_usage": ["clientAuth"], "names": names, "subject": {"requested": true}}),
        json!({"name": "public", "preset": "baseline-tls", "names": names}),
        json!({"name": "servers", "names": names}),
    ] {
        office.profile(profile).await;
    }
    let has_critical = |der: &[u8], oid: &str| {
        Certificate::parse(der)
            .unwrap()
            .extensions()
            .into_iter()
            .find(|known| known.oid == oid)
            .map(|known| known.critical)
    };
    for (profile, names, critical) in
        [("clock", &[][..], true), ("clients", &[], false), ("public", &["www.example.com"], false)]
    {
        let issued = office.issue(profile, names).await;
        assert_eq!(has_critical(&issued.der, "2.5.29.37"), Some(critical), "{profile}");
        assert_eq!(has_critical(&issued.der, "2.5.29.14").is_some(), profile != "public", "{profile}");
    }
    let rsa = || PrivateKey::generate(KeyType::Rsa2048).unwrap().spki().to_vec();
    for (profile, usage) in [("clients", 0b001), ("servers", 0b101), ("public", 0b001)] {
        let issued = IssueRequest { spki: rsa(), ..request(profile, &["www.example.com"]) };
        let issued = office.authority.issue(issued).await.unwrap();
        assert_eq!(Certificate::parse(&issued.der).unwrap().key_usage.unwrap().0, usage, "{profile}");
    }
    let subject = DistinguishedName::from_text("emailAddress=me@a.example, O=Example").unwrap();
    let issue_request =
        |names: &[&str]| IssueRequest { subject: Some(subject.clone()), ..request("clients", names) };
    let refused = office.authority.issue(issue_request(&[])).await;
    assert!(matches!(refused, Err(IssueError::Subject(_))), "a mailbox that no rule has seen");
    office.authority.issue(issue_request(&["me@a.example"])).await.unwrap();
}

async fn common_name_is_spelled_like_its_subject_alternative_name(office: Office) {
    for (profile, requested) in [("first", false), ("whole", true)] {
        office
            .profile(json!({
                "name": profile, "subject": {"requested": requested},
                "names": {"dns_allowed": ["."], "ip_allowed": ["::/0"]},
            }))
            .await;
        for (issue_request, names, wanted) in [
            ("WWW.a.Example", &["www.a.example"][..], "www.a.example"),
            ("2001:DB8:0::1", &["b.example", "2001:db8::1"], "2001:db8::1"),
        ] {
            let subject = DistinguishedName::from_text(&format!("CN={issue_request}, C=DE")).unwrap();
            let issued = IssueRequest { subject: Some(subject), ..request(profile, names) };
            let issued = office.authority.issue(issued).await.unwrap();
            let certificate = Certificate::parse(&issued.der).unwrap();
            assert_eq!(certificate.subject.common_names, [wanted], "{profile}");
            assert_eq!(certificate.subject.text.contains("C=DE"), requested);
        }
    }
}

async fn count(office: &Office) -> usize {
    let page = authority::tables::Issued::of(&office.store)
        .page(&IssuedFilter::default(), None, 1_000)
        .await
        .unwrap();
    page.rows.iter().filter(|row| !row.profile.is_empty()).count()
}

async fn issued_certificate_verifies_in_openssl_and_is_in_the_inventory(office: Office) {
    office
        .profile(json!({
            "name": "all",
            "names": {
                "dns_allowed": [{"suffix": "example", "wildcards": true}],
                "ip_allowed": ["10.0.0.0/8"], "uri_allowed": ["spiffe://td"], "email_allowed": ["mail.example"],
            },
            "subject": {"fixed": "O=Example, C=DE"},
            "extended_key_usage": ["serverAuth", "clientAuth"],
            "policies": ["2.23.140.1.2.1"],
            "must_staple": "always",
        }))
        .await;
    let names = ["a.example", "*.a.example", "10.1.2.3", "spiffe://td/x", "me@mail.example", "a.example"];
    let issued = office.issue("all", &names).await;
    assert!(!issued.repeated);
    let certificate = Certificate::parse(&issued.der).unwrap();
    assert_eq!(certificate.subject_alt_names.len(), 5, "a repeated name counts once");
    assert_eq!(certificate.subject.text, "CN=a.example, O=Example, C=DE");
    let ca = office.ca.id;
    assert_eq!(certificate.crl_urls, [format!("http://pki.example/crl/{ca}.crl")]);
    assert_eq!(certificate.ocsp_urls, [format!("http://pki.example/ocsp/{ca}")]);
    assert_eq!(certificate.issuer_urls, [format!("http://pki.example/ca/{ca}.cer")]);
    assert!(certificate.must_staple && certificate.faults.is_empty());
    assert_eq!(certificate.policies, ["2.23.140.1.2.1"]);
    assert_eq!(issued.not_after.since(issued.not_before), 47 * 86_400 - 1);
    assert_eq!(certificate.serial.content().len(), 16);
    certificate.signed_by(&office.ca.certificate.public_key).unwrap();

    office.write_chain();
    office.write("leaf.pem", issued.chain_pem());
    let verdict = office
        .openssl("verify -x509_strict -purpose sslserver -CAfile root.pem -untrusted leaf.pem leaf.pem");
    assert_eq!(verdict.trim(), "leaf.pem: OK");
    assert_eq!(issued.chain.len(), 1, "the root is left out");

    let row = store::Inventory::of(&office.store)
        .certificate_by_sha256(issued.fingerprint.as_bytes())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.der, issued.der.to_vec());
    for which in [
        IssuedRef::Id(issued.id),
        IssuedRef::Fingerprint(issued.fingerprint),
        IssuedRef::Serial(ca, issued.serial.clone()),
    ] {
        let record = office.authority.issued(&which).await.unwrap().unwrap();
        assert_eq!((record.id, record.der.as_slice()), (issued.id, &*issued.der));
        assert_eq!((record.source, record.requester.as_str()), (Source::Api, "user:alice"));
    }
    assert_eq!(office.audited().await["certificate.issue"], 1);
    // On PostgreSQL an event becomes visible when no older transaction of the whole server is open.
    let issued_events = loop {
        let events = office.store.outbox_after(OutboxPosition::default(), 1_000).await.unwrap();
        let issued_events: Vec<_> =
            events.into_iter().filter(|event| event.kind == "certificate.issued").collect();
        if !issued_events.is_empty() {
            break issued_events;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(
        (issued_events.len(), issued_events[0].subject.clone()),
        (1, format!("certificate/{}", issued.id))
    );
    let suffix = IssuedFilter { name_suffix: Some("a.example".to_owned()), ..IssuedFilter::default() };
    assert_eq!(
        authority::tables::Issued::of(&office.store).page(&suffix, None, 10).await.unwrap().rows.len(),
        1
    );
}

fn keyed(key: &str, names: &[&str]) -> IssueRequest {
    IssueRequest { idempotency_key: Some(key.to_owned()), ..request("web", names) }
}

async fn idempotency_key_returns_the_same_certificate(office: Office) {
    let issue_request = keyed("order-1", &["a.example"]);
    let first = office.authority.issue(issue_request.clone()).await.unwrap();
    let second = office.authority.issue(issue_request.clone()).await.unwrap();
    assert!(second.repeated && !first.repeated);
    assert_eq!((second.id, &second.der, &second.chain), (first.id, &first.der, &first.chain));
    assert_eq!((second.not_before, second.not_after), (first.not_before, first.not_after));

    let other = keyed("order-1", &["b.example"]);
    assert!(matches!(office.authority.issue(other).await, Err(IssueError::KeyReused)));
    let elsewhere = IssueRequest { source: Source::Acme, ..issue_request.clone() };
    assert_ne!(office.authority.issue(elsewhere).await.unwrap().id, first.id);

    // The issued certificate is still returned although the profile is deleted.
    office.authority.delete_profile("web", None, "user:test").await.unwrap();
    assert_eq!(office.authority.issue(issue_request).await.unwrap().id, first.id);
    assert_eq!(count(&office).await, 2);
}

async fn concurrent_requests_with_one_idempotency_key_issue_one_certificate(office: Office) {
    let issue_request = keyed("order-1", &["a.example"]);
    let nodes = [office.authority.clone(), office.another_node()];
    let all = (0..40).map(|number| {
        let (node, issue_request) = (nodes[number % 2].clone(), issue_request.clone());
        tokio::spawn(async move { node.issue(issue_request).await.unwrap() })
    });
    let all: Vec<_> = join_all(all).await.into_iter().map(Result::unwrap).collect();
    assert!(all.iter().all(|issued| issued.id == all[0].id && issued.der == all[0].der));
    assert_eq!(all.iter().filter(|issued| !issued.repeated).count(), 1);
    assert_eq!(count(&office).await, 1);
    assert_eq!(office.audited().await["certificate.issue"], 1);
}

async fn crash_before_commit_issues_nothing_and_a_retry_succeeds(office: Office) {
    let issue_request = keyed("order-1", &["a.example"]);
    office.fail_next(Fault::BeforeCommit);
    assert!(matches!(office.authority.issue(issue_request.clone()).await, Err(IssueError::Store(_))));
    assert_eq!(count(&office).await, 0);
    let issued = office.authority.issue(issue_request).await.unwrap();
    assert!(!issued.repeated);
    assert_eq!(count(&office).await, 1);
}

async fn retry_after_a_crash_after_commit_returns_the_stored_certificate(office: Office) {
    let issue_request = keyed("order-1", &["a.example"]);
    office.fail_next(Fault::AfterCommit);
    let error = office.authority.issue(issue_request.clone()).await.unwrap_err();
    assert!(matches!(&error, IssueError::Store(error) if error.is_transient()), "{error}");
    assert_eq!(count(&office).await, 1);
    let issued = office.authority.issue(issue_request).await.unwrap();
    assert!(issued.repeated);
    assert_eq!(count(&office).await, 1);
}

async fn disallowed_requests_are_rejected_and_nothing_is_stored(office: Office) {
    office
        .profile(json!({
            "name": "public", "preset": "baseline-tls",
            "names": {"dns_allowed": ["."]}, "validity": {"default_seconds": 34_560_000},
        }))
        .await;
    office
        .profile(json!({
            "name": "narrow", "key_types": ["p384"], "must_staple": "never", "subject": {"common_name": "none"},
            "names": {"dns_allowed": ["."]}, "validity": {"default_seconds": 3600, "max_seconds": 7200},
        }))
        .await;
    office
        .profile(json!({
            "name": "devices", "names": {"dns_allowed": ["."]}, "subject": {"requested": true},
        }))
        .await;
    let p384 = || PrivateKey::generate(KeyType::P384).unwrap().spki().to_vec();
    let narrow = || IssueRequest { spki: p384(), ..request("narrow", &["a.example"]) };
    let mut off_curve = new_spki();
    *off_curve.last_mut().unwrap() ^= 1;
    let now = UnixTime(office.clock.now_seconds());
    // The lifetime limit decreases at fixed dates.
    let days = x509::lint::lifetime_limit_days(now).unwrap();
    let table: Vec<(&str, IssueRequest)> = vec![
        ("Profile(", request("nothing", &["a.example"])),
        ("Ca(", IssueRequest { ca: Some(uuid::Uuid::new_v4()), ..request("web", &["a.example"]) }),
        ("Names(", request("web", &["a.other"])),
        ("Names(", request("web", &["*.a.example"])),
        ("Names(", request("web", &["10.0.0.1"])),
        ("Names(", request("web", &[])),
        ("Key(", request("narrow", &["a.example"])),
        ("Key(", IssueRequest { spki: vec![1, 2, 3], ..request("web", &["a.example"]) }),
        ("Key(", IssueRequest { spki: off_curve, ..request("web", &["a.example"]) }),
        ("Dates(", IssueRequest { lifetime_seconds: Some(7_201), ..narrow() }),
        ("Dates(", IssueRequest { lifetime_seconds: Some(0), ..narrow() }),
        ("Dates(", IssueRequest { lifetime_seconds: Some(61), ..narrow() }),
        ("Dates(", IssueRequest { not_before: Some(now.plus(-3_600)), ..narrow() }),
        ("Dates(", IssueRequest { not_before: Some(now.plus(40 * 86_400)), ..narrow() }),
        ("Extension(", IssueRequest { must_staple: true, ..narrow() }),
        (
            "Extension(",
            IssueRequest { extensions: vec![Extension::custom("1.2.3.4", vec![5, 0])], ..narrow() },
        ),
        (
            "Subject(",
            IssueRequest { subject: Some(DistinguishedName::from_text("CN=else").unwrap()), ..narrow() },
        ),
        (
            "Subject(",
            IssueRequest {
                subject: Some(DistinguishedName::from_text("CN=else").unwrap()),
                ..request("web", &["a.example"])
            },
        ),
        (
            "Subject(",
            IssueRequest {
                subject: Some(DistinguishedName::from_text("OU=App:7, O=x").unwrap()),
                ..request("devices", &["a.example"])
            },
        ),
        ("Baseline(", request("public", &["server.internal"])),
        (
            "Dates(",
            IssueRequest {
                lifetime_seconds: Some((days + 1) * 86_400),
                ..request("public", &["www.example.com"])
            },
        ),
        ("KeyTooLong(", keyed(&"k".repeat(256), &["a.example"])),
    ];
    for (kind, issue_request) in table {
        let error = office.authority.issue(issue_request.clone()).await.unwrap_err();
        let shown = format!("{error:?}");
        assert!(shown.starts_with(kind), "{kind} {shown}");
        assert!(error.is_refusal(), "{shown}");
        if kind != "KeyTooLong(" {
            assert!(
                format!("{:?}", office.authority.check(&issue_request).await.unwrap_err()).starts_with(kind)
            );
        }
    }
    assert_eq!(count(&office).await, 0);
    // The preset shortens the lifetime of the profile.
    let public = office.issue("public", &["www.example.com"]).await;
    assert_eq!(public.not_after.since(public.not_before), days * 86_400 - 1);
    let certificate = Certificate::parse(&public.der).unwrap();
    assert_eq!(certificate.policies, ["2.23.140.1.2.1"]);
    office.authority.check(&narrow()).await.unwrap();
    // One lifetime is backdated by a minute, so that a fifth of it is left. The other one begins later.
    for (life, begins) in [(125, None), (3_600, Some(now.plus(86_400)))] {
        let issue_request = IssueRequest { lifetime_seconds: Some(life), not_before: begins, ..narrow() };
        office.authority.check(&issue_request).await.unwrap();
    }
    assert_eq!(count(&office).await, 1);

    let blocked = request("web", &["a.example"]);
    let spki = x509::SpkiHash::of(&blocked.spki);
    office.authority.block_key(spki, "user:test").await.unwrap();
    assert!(
        matches!(office.authority.issue(blocked).await, Err(IssueError::KeyBlocked(hash)) if hash == spki)
    );
    office.authority.force_retire("web", "user:test").await.unwrap();
    let retired =
        office.authority.issue(IssueRequest { ca: Some(office.ca.id), ..request("web", &["a.example"]) });
    assert!(matches!(retired.await, Err(IssueError::NotIssuing(_))));
}

/// The number of write connections on PostgreSQL (`store::postgres`).
const WRITERS: usize = 8;

/// Takes all write connections until the result is dropped. Does nothing on SQLite, whose single writer batches waiting writes by
/// itself.
async fn held_writers(office: &Office) -> (watch::Sender<()>, JoinSet<()>) {
    let (release, released) = watch::channel(());
    let (mut holding, held_writers) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..if office.store.is_postgres() { WRITERS } else { 0 } {
        let (store, held_writers, mut released) =
            (office.store.clone(), Arc::clone(&held_writers), released.clone());
        holding.spawn(async move {
            let hold = store.write("hold", move |_| {
                Box::pin(async move {
                    held_writers.fetch_add(1, Ordering::SeqCst);
                    let _ = released.changed().await;
                    Ok(())
                })
            });
            hold.await.unwrap();
        });
    }
    let all = holding.len();
    eventually("holding", async || (held_writers.load(Ordering::SeqCst) == all).then_some(())).await;
    (release, holding)
}

async fn concurrent_issuance_shares_sql_statements(office: Office) {
    const COUNT: u64 = 400;
    office.issue("web", &["warm.example"]).await;
    let before = office.store.statements_sent();
    office.issue("web", &["alone.example"]).await;
    let alone = office.store.statements_sent() - before;
    let requests: Vec<IssueRequest> =
        (0..COUNT).map(|number| keyed(&format!("k{number}"), &[&format!("n{number}.example")])).collect();
    let (release, mut holding) = held_writers(&office).await;
    let all = tokio::spawn({
        let authority = office.authority.clone();
        async move { join_all(requests.into_iter().map(|request| authority.issue(request))).await }
    });
    let mut before = office.store.statements_sent();
    if office.store.is_postgres() {
        let waiting = async || (office.authority.figures().storing == COUNT).then_some(());
        eventually("waiting for the commit", waiting).await;
        before = office.store.statements_sent();
    }
    drop(release);
    let mut ids: Vec<_> = all.await.unwrap().into_iter().map(|issued| issued.unwrap().id).collect();
    while holding.join_next().await.is_some() {}
    let sent = office.store.statements_sent() - before;
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), COUNT as usize);
    // At most two batches began before the connections were taken, and 256 orders fit into one batch. Each held connection adds two
    // statements: begin and commit.
    let most = 4 * alone + 2 * WRITERS as u64;
    assert!(sent <= most || !office.store.is_postgres(), "{sent} of at most {most} statements");
    assert_eq!(office.authority.figures().storing, 0);
    assert_eq!(office.audited().await["certificate.issue"], COUNT as usize + 2);
    let summary = store::Inventory::of(&office.store).summary(office.clock.now_us(), 0).await.unwrap();
    assert!(summary.certificates >= COUNT, "the inventory's counts hold");
}

async fn each_key_type_is_certified_by_each_ca_key_type(office: Office) {
    office.profile(json!({"name": "any", "key_types": KeyType::ALL, "names": {"dns_allowed": ["."]}})).await;
    let kinds = [KeyType::Rsa2048, KeyType::P256, KeyType::P384, KeyType::Ed25519, KeyType::MlDsa44];
    let keys: Vec<PrivateKey> = kinds.iter().map(|kind| PrivateKey::generate(*kind).unwrap()).collect();
    for kind in kinds {
        let new = authority::tree::NewCa {
            key_type: kind,
            ..authority::tree::NewCa::root(&format!("ca {kind}"), &format!("CN=CA {kind}"))
        };
        let ca = office.authority.create_root(&new, "user:test").await.unwrap();
        for key in &keys {
            let issue_request =
                IssueRequest { ca: Some(ca.id), spki: key.spki().to_vec(), ..request("any", &["a.example"]) };
            let issued = office.authority.issue(issue_request).await.unwrap();
            let certificate = Certificate::parse(&issued.der).unwrap();
            certificate.signed_by(&ca.certificate.public_key).unwrap();
            assert_eq!(issued.chain.len(), 0, "a root stands in no chain");
        }
    }
}

async fn profile_updates_require_the_current_revision(office: Office) {
    let authority = &office.authority;
    let first = authority.profile_record("web").await.unwrap();
    assert_eq!(first.revision, 1);
    let mut changed = (*first.profile).clone();
    changed.requires_approval = true;
    let stale = authority.put_profile(changed.clone(), Some(7), "user:a").await;
    assert!(matches!(stale, Err(ProfileError::Stale(_))));
    let taken = authority.put_profile(changed.clone(), Some(0), "user:a").await;
    assert!(matches!(taken, Err(ProfileError::Stale(_))));
    let second = authority.put_profile(changed.clone(), Some(1), "user:a").await.unwrap();
    assert_eq!((second.revision, second.profile.requires_approval), (2, true));
    assert!(authority.profile("web").await.unwrap().requires_approval, "the cache is not behind");

    let node = office.another_node();
    assert!(node.profile("web").await.unwrap().requires_approval);
    authority.put_profile((*first.profile).clone(), None, "user:a").await.unwrap();
    let notified = async || (!node.profile("web").await.unwrap().requires_approval).then_some(());
    eventually("that another node hears of it", notified).await;

    for name in ["b", "a", "c"] {
        let mut profile = (*first.profile).clone();
        profile.name = name.to_owned();
        authority.put_profile(profile, Some(0), "user:a").await.unwrap();
    }
    let page = authority.profiles(None, 2).await.unwrap();
    let names: Vec<_> = page.rows.iter().map(|record| record.profile.name.clone()).collect();
    assert_eq!(names, ["a", "b"]);
    let page = authority.profiles(page.next.as_ref(), 10).await.unwrap();
    let names: Vec<_> = page.rows.iter().map(|record| record.profile.name.clone()).collect();
    assert_eq!(names, ["c", "web"]);

    assert!(matches!(authority.delete_profile("a", Some(9), "user:a").await, Err(ProfileError::Stale(_))));
    authority.delete_profile("a", Some(1), "user:a").await.unwrap();
    assert!(matches!(authority.profile("a").await, Err(ProfileError::Unknown(_))));
    assert!(matches!(authority.delete_profile("a", None, "user:a").await, Err(ProfileError::Unknown(_))));
    let invalid = authority::profile::Profile { renew_at: 2.0, ..(*first.profile).clone() };
    assert!(matches!(authority.put_profile(invalid, None, "user:a").await, Err(ProfileError::Invalid(_))));
    let audited = office.audited().await;
    assert_eq!((audited["profile.put"], audited["profile.delete"]), (6, 1));
}

// A certificate never outlives its CA, and the constraints of all CAs above apply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_ca_are_enforced() {
    use authority::tree::{NameLimits, NewCa};
    let office = Office::sqlite(options()).await;
    office
        .profile(json!({"name": "any", "names": {"dns_allowed": ["."], "ip_allowed": ["0.0.0.0/0"]}}))
        .await;
    let limited = NewCa {
        lifetime_seconds: 40 * 86_400,
        name_limits: NameLimits {
            permitted: vec!["dns:a.example".into(), "ip:10.0.0.0/8".into()],
            excluded: vec![],
        },
        extended_key_usage: vec!["1.3.6.1.5.5.7.3.1".into()],
        ..NewCa::intermediate("limited", "CN=Limited")
    };
    let ca = office.authority.create_intermediate("root", &limited, "user:test").await.unwrap();
    let ca_request =
        |profile: &str, names: &[&str]| IssueRequest { ca: Some(ca.id), ..request(profile, names) };
    let issued = office.authority.issue(ca_request("any", &["x.a.example", "10.0.0.1"])).await.unwrap();
    assert_eq!(issued.not_after, ca.certificate.not_after);
    for names in [&["a.example", "b.example"][..], &["11.0.0.1"]] {
        let refused = office.authority.issue(ca_request("any", names)).await.unwrap_err();
        assert!(refused.to_string().contains("name constraints"), "{refused}");
    }
    office
        .profile(
            json!({"name": "client", "names": {"dns_allowed": ["."]}, "extended_key_usage": ["clientAuth"]}),
        )
        .await;
    let refused = office.authority.issue(ca_request("client", &["x.a.example"])).await.unwrap_err();
    assert!(refused.to_string().contains("may not issue for the purpose"), "{refused}");
    office.write_chain();
    office.write("limited.pem", pem(&[&ca.certificate.der]));
    office.write("leaf.pem", pem(&[&issued.der]));
    office.openssl("verify -CAfile root.pem -untrusted limited.pem leaf.pem");
    office.advance(40 * 86_400 - 30);
    let late = office.authority.issue(ca_request("any", &["x.a.example"])).await.unwrap_err();
    assert!(matches!(late, IssueError::Dates(_)), "{late}");
    office.advance(60);
    let over = office.authority.issue(ca_request("any", &["x.a.example"])).await.unwrap_err();
    assert!(matches!(over, IssueError::NotIssuing(_)), "{over}");
}

#[test]
fn name_error_lists_every_refused_name() {
    let name = |text: &str| Some(GeneralName::parse(text).unwrap());
    let refusal = |name, reason: &str| authority::names::NameRefusal { name, reason: reason.to_owned() };
    let error = IssueError::Names(vec![refusal(name("a.b"), "no"), refusal(None, "all")]);
    assert_eq!(error.to_string(), "names not allowed: a.b: no; all");
    let _: Arc<str> = error.to_string().into();
}

/// This check applies to every requester and protocol.
async fn names_owned_by_a_team_are_issued_only_to_that_team(office: Office) {
    let owns = authority::teams::Owns { names: vec!["a.example".to_owned()], ..Default::default() };
    office
        .store
        .write("test", move |tx| {
            let owns = owns.clone();
            Box::pin(async move {
                authority::tables::put_team(tx, "a", &owns, authority::teams::Quota::default(), 1).await
            })
        })
        .await
        .unwrap();
    office.authority.teams().forget();
    let team = |team: &str| OwnershipRights::Team(team.to_owned());
    for (source, rights, issued) in [
        (Source::Api, OwnershipRights::Nobody, false),
        (Source::Est, OwnershipRights::Nobody, false),
        (Source::Scep, team("b"), false),
        (Source::Acme, OwnershipRights::Nobody, false),
        (Source::Api, team("a"), true),
        (Source::Acme, OwnershipRights::Proven, true),
        (Source::System, OwnershipRights::Everything, true),
    ] {
        let request = IssueRequest { source, rights: rights.clone(), ..request("web", &["x.a.example"]) };
        let outcome = office.authority.issue(request).await;
        assert_eq!(outcome.is_ok(), issued, "{source} {rights:?}: {outcome:?}");
        assert!(issued || matches!(outcome, Err(IssueError::Team(_))), "{source} {rights:?}");
    }
    // A request without a team label is for no team's objects.
    let plain = IssueRequest::new("web", new_spki(), Vec::new(), Source::Est, "est:x");
    assert_eq!(plain.rights, OwnershipRights::Nobody);
}

async fn private_suffixes_are_not_issued_but_names_below_them_are(office: Office) {
    let mut with = options();
    with.private_suffixes = vec!["k8s.example".to_owned()];
    let authority = office.node_with(with);
    let names = json!({"dns_allowed": [{"suffix": "example", "wildcards": true}]});
    office.profile(json!({"name": "wild", "names": names})).await;
    for (name, issued) in
        [("a.k8s.example", true), ("*.a.k8s.example", true), ("k8s.example", false), ("*.k8s.example", false)]
    {
        let outcome = authority.issue(request("wild", &[name])).await;
        assert_eq!(outcome.is_ok(), issued, "{name}: {outcome:?}");
        assert!(issued || matches!(outcome, Err(IssueError::Names(_))), "{name}");
    }
}
