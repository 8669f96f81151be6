//! Orders from a compromised server: the signer rejects each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::ca_keys::{CaKey, CaKeys, SigningOrder, SigningPurpose};
use authority::issue::ApprovalRef;
use authority::plan::{DocumentVersion, IssuancePlan, PlannedKey};
use authority::signer_checks::{ApprovalSource, ApprovedPlan};
use futures_util::future::{BoxFuture, FutureExt};
use keys::{KeyType, PrivateKey, SignError, Signer};
use parking_lot::Mutex;
use serde_json::json;
use store::StoreError;
use x509::build::{CertificateSpec, Extension, distinguished_name, tbs_certificate};
use x509::{BasicConstraints, GeneralName, KeyUsage, SerialNumber};

use crate::taken_over::Forgery;
use crate::world::{World, new_spki, refused, request};

testbed::on_both! { crate::world::World:
    document_that_differs_from_its_request_is_rejected
    request_forbidden_by_the_stored_profile_is_rejected
    only_pinned_profile_versions_are_signed
    ca_certificate_for_a_key_of_the_server_is_not_signed
    profile_requiring_approval_needs_approval_of_the_same_plan
}

async fn document_that_differs_from_its_request_is_rejected(world: World) {
    let table: [(&str, Forgery); 6] = [
        ("list of names", Forgery::Request(|r| r.names = vec![GeneralName::Dns("b.example".into())])),
        ("key", Forgery::Request(|r| r.spki = new_spki())),
        ("validity", Forgery::Request(|r| r.lifetime_seconds = Some(3_600))),
        ("extension", Forgery::Request(|r| r.must_staple = true)),
        ("the plan is dated", Forgery::Moment(-3_600)),
        ("not a certificate", Forgery::Document(vec![0x30, 0])),
    ];
    for (word, forgery) in table {
        let reason = world.refusal(forgery, request("web", &["a.example"])).await;
        assert!(reason.contains(word), "{word}: {reason}");
    }
    world.issue("web", &["a.example"]).await.unwrap();
}

async fn request_forbidden_by_the_stored_profile_is_rejected(world: World) {
    let everything = json!({"name": "lax", "names": {"dns_allowed": [".example", ".test"]},
        "validity": {"default_seconds": 7_776_000}, "key_types": ["p256", "p384"]});
    world.profile(everything).await;
    let narrow = json!({"name": "narrow", "names": {"dns_allowed": [".example"]},
        "validity": {"default_seconds": 3_600}, "key_types": ["p256"]});
    world.profile(narrow).await;
    let claim = || Forgery::Request(|r| r.profile = "narrow".to_owned());
    let reason = world.refusal(claim(), request("lax", &["a.test"])).await;
    assert!(reason.contains("names not allowed"), "{reason}");
    let reason = world.refusal(claim(), request("lax", &["a.example"])).await;
    assert!(reason.contains("validity"), "{reason}");
    let mut issue_request = request("lax", &["a.example"]);
    issue_request.lifetime_seconds = Some(86_400);
    let reason = world.refusal(claim(), issue_request).await;
    assert!(reason.contains("dates are not allowed"), "{reason}");
    let mut issue_request = request("lax", &["a.example"]);
    issue_request.spki = PrivateKey::generate(KeyType::P384).unwrap().spki().to_vec();
    let reason = world.refusal(claim(), issue_request).await;
    assert!(reason.contains("the public key is not accepted"), "{reason}");
}

async fn only_pinned_profile_versions_are_signed(mut world: World) {
    world.profile(json!({"name": "other", "names": {"dns_allowed": [".example"]}})).await;
    let version = world.version("web").await;
    world.rules.profiles.insert("web".to_owned(), version.sha256);
    world.restart_signer().await;
    world.issue("web", &["a.example"]).await.unwrap();
    let reason = refused(world.issue("other", &["a.example"]).await);
    assert!(reason.contains("does not list this profile"), "{reason}");
    world.profile(json!({"name": "web", "names": {"dns_allowed": [".example", ".test"]}})).await;
    for names in [["a.example"], ["a.test"]] {
        let reason = refused(world.issue("web", &names).await);
        assert!(reason.contains("does not match signer.profiles"), "{reason}");
    }
}

async fn ca_certificate_for_a_key_of_the_server_is_not_signed(world: World) {
    let own = world.keystore.prepare(KeyType::P256, "CA mine").await.unwrap();
    let subject = distinguished_name(&[(x509::build::Attribute::CommonName, "Mine".to_owned())]);
    let ca = |spki: &[u8]| {
        tbs_certificate(&CertificateSpec {
            serial: &SerialNumber::from_random([7; 16]),
            signature: world.root.signer.algorithm(),
            issuer: &world.root.certificate.subject.der,
            subject: &subject.der,
            not_before: world.root.certificate.not_before,
            not_after: world.root.certificate.not_after,
            spki,
            extensions: &[
                Extension::basic_constraints(BasicConstraints { ca: true, path_len: None }),
                Extension::key_usage(KeyUsage(KeyUsage::KEY_CERT_SIGN)),
            ],
        })
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    for subject_key in [Some(&own), None] {
        let tbs = ca(own.signer.spki());
        let order = SigningOrder {
            key: CaKey::Of(&world.root),
            purpose: SigningPurpose::CaCertificate { subject_key },
            tbs: &tbs,
        };
        let refused = world.client.sign(order, deadline).await;
        assert!(matches!(refused, Err(SignError::Failed(_))), "{refused:?}");
    }
    // The same document for a key of the signer is signed. Only the key was wrong.
    let tbs = ca(world.ca.signer.spki());
    let purpose = SigningPurpose::CaCertificate { subject_key: None };
    let order = SigningOrder { key: CaKey::Of(&world.root), purpose, tbs: &tbs };
    world.client.sign(order, deadline).await.unwrap();
    // A leaf is not signed as a CA certificate either.
    let issued = world.issue("web", &["a.example"]).await.unwrap();
    let leaf = x509::Certificate::parse(&issued.der).unwrap();
    let order = SigningOrder { key: CaKey::Of(&world.ca), purpose, tbs: leaf.tbs() };
    let refused = world.client.sign(order, deadline).await.unwrap_err().to_string();
    assert!(refused.contains("not a CA certificate"), "{refused}");
}

/// One approval, for the run `r`.
#[derive(Debug, Default)]
struct Approval(Mutex<Option<ApprovedPlan>>);

impl ApprovalSource for Approval {
    fn of_run<'a>(&'a self, run: &'a str) -> BoxFuture<'a, Result<Option<ApprovedPlan>, StoreError>> {
        let found = self.0.lock().clone().filter(|_| run == "r");
        async { Ok(found) }.boxed()
    }
}

fn plan(names: &[&str], version: DocumentVersion) -> IssuancePlan {
    IssuancePlan {
        object: "certificate/1".to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        subject: None,
        key: PlannedKey::New { key_type: "p256".to_owned(), location: "server".to_owned() },
        must_staple: false,
        profile: "guarded".to_owned(),
        profile_version: Some(version),
        issuer: "internal".to_owned(),
        issuer_version: None,
        ca: None,
        issuer_profile: None,
        lifetime_seconds: None,
        targets: Vec::new(),
    }
}

async fn profile_requiring_approval_needs_approval_of_the_same_plan(mut world: World) {
    let guarded = |suffix: &str| json!({"name": "guarded", "names": {"dns_allowed": [suffix]}, "requires_approval": true});
    world.profile(guarded(".example")).await;
    let approval = Arc::new(Approval::default());
    world.consents = approval.clone();
    world.restart_signer().await;
    let issue_request = || {
        let mut request = request("guarded", &["a.example"]);
        request.consent = Some(ApprovalRef::Run("r".to_owned()));
        request
    };
    let give = |plan: IssuancePlan, by: &str| {
        let sha256 = plan.sha256();
        let (decided_by, barred) = (by.to_owned(), vec!["user:alice".to_owned()]);
        *approval.0.lock() = Some(ApprovedPlan { plan, sha256, decided_by, barred });
    };
    let refusal = async |request| refused(world.authority.issue(request).await);

    let reason = refusal(request("guarded", &["a.example"])).await;
    assert!(reason.contains("the request names no approval"), "{reason}");
    let reason = refusal(issue_request()).await;
    assert!(reason.contains("the run is not approved"), "{reason}");
    let version = world.version("guarded").await;
    give(plan(&["a.example"], version.clone()), "user:bob");
    let reason = refusal(issue_request()).await;
    assert!(reason.contains("a different CA"), "{reason}");
    let ca = Some(format!("{} {}", world.ca.name, world.ca.id));
    let plan = |names: &[&str], version| IssuancePlan { ca: ca.clone(), ..plan(names, version) };
    give(plan(&["b.example"], version.clone()), "user:bob");
    let reason = refusal(issue_request()).await;
    assert!(reason.contains("a different list of names"), "{reason}");
    give(plan(&["a.example"], version.clone()), "user:alice");
    let reason = refusal(issue_request()).await;
    assert!(reason.contains("was not allowed to approve"), "{reason}");
    give(IssuancePlan { lifetime_seconds: Some(60), ..plan(&["a.example"], version.clone()) }, "user:bob");
    let reason = refusal(issue_request()).await;
    assert!(reason.contains("a different lifetime"), "{reason}");
    let key = PlannedKey::New { key_type: "p384".to_owned(), location: "server".to_owned() };
    give(IssuancePlan { key, ..plan(&["a.example"], version.clone()) }, "user:bob");
    let reason = refusal(issue_request()).await;
    assert!(reason.contains("a different key"), "{reason}");
    // The plan changes after the approval.
    give(plan(&["b.example"], version.clone()), "user:bob");
    if let Some(approved) = approval.0.lock().as_mut() {
        approved.plan.names = vec!["a.example".to_owned()];
    }
    let reason = refusal(issue_request()).await;
    assert!(reason.contains("differs from the approved one"), "{reason}");

    give(plan(&["a.example"], version), "user:bob");
    world.authority.issue(issue_request()).await.unwrap();
    world.profile(guarded("a.example")).await;
    let reason = refusal(issue_request()).await;
    assert!(reason.contains("another revision of it"), "{reason}");
}
