//! Signed heads, segments and export of the audit log over the API.

use api::audit::{InclusionProof, SignedHead, VerificationView};
use audit::{AuditLog, AuditOptions, AuditParts, Retention, Step};
use audit_proof::stored_heads::StoredHeads;
use audit_proof::{export, head, inclusion};
use authority::keystore::KeyStore;
use futures_util::FutureExt;
use http::Method;
use keys::Keyring;
use serde_json::json;
use server::Components;
use store::{AuditEvent, Clock};
use testbed::Database;

use crate::world::{Plan, World};

const DAY_US: i64 = 86_400_000_000;

#[tokio::test]
async fn audit_export_with_segments_matches_an_earlier_signed_head() {
    let (database, clock) = (Database::sqlite(), Clock::system());
    let store = database.open().await;
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let retention = Retention { seal_after_days: Some(30), ..Retention::default() };
    let options = AuditOptions { retention, ..AuditOptions::default() };
    let log = AuditLog::new(AuditParts { store: store.clone(), keystore, clock: clock.clone(), options });
    let old: Vec<AuditEvent> = (0..20)
        .map(|at| AuditEvent {
            at_us: clock.now_us() - 60 * DAY_US + at,
            actor: "user:alice".to_owned(),
            action: "certificate.revoke",
            resource: format!("certificate/{at}"),
            details: json!({ "reason": "test", "ratio": 0.5 }),
        })
        .collect();
    store.write("old", move |tx| async move { store::audit(tx, old).await }.boxed()).await.unwrap();
    let components = Components { audit: Some(log.clone()), ..Components::default() };
    let world = World::start_with(Plan { components, database, ..Plan::default() }).await;

    let text = |response: reqwest::Response| async move {
        assert_eq!(response.status(), 200);
        response.text().await.unwrap()
    };
    let get = |path: &'static str| {
        let request = world.with(&world.admin, Method::GET, path);
        async move { text(request.send().await.unwrap()).await }
    };
    let pem = world.get("/api/v1/audit/key").await.expect(200).json();
    let pem = pem["public_key_pem"].as_str().unwrap().to_owned();
    let (_, key) = x509::pem::blocks(pem.as_bytes()).next().unwrap();
    let before = world.with(&world.admin, Method::POST, "/api/v1/audit/heads").send().await.unwrap();
    let before = text(before).await;
    let signed: SignedHead = serde_json::from_str(&before).unwrap();
    assert_eq!(head::line(&signed), before, "the answer is the line that is signed and hashed");
    head::check(&signed, Some(&key)).unwrap();

    // The segment is sealed and its rows still exist: the export contains each event once.
    assert_eq!(log.retain().await.unwrap(), Step::Sealed(1));
    for when in ["with the rows", "without them"] {
        let exported = get("/api/v1/audit/export").await;
        let stored_heads = StoredHeads::parse(&before).unwrap();
        let verified = export::verify(exported.as_bytes(), &stored_heads, Some(&key)).unwrap();
        assert!(verified.good && verified.segments == 1, "{when}: {:?}", verified.faults);
        assert_eq!(exported.matches("certificate/7\"").count(), 1, "{when}");
        let server = world.post("/api/v1/audit/verify", json!({})).await.expect(200).json();
        let server: VerificationView = serde_json::from_value(server).unwrap();
        assert!(
            server.good && (server.segments, server.signed_heads) == (1, 1),
            "{when}: {:?}",
            server.faults
        );
        while matches!(log.retain().await.unwrap(), Step::Trimmed(_)) {}
    }
    let filtered = get("/api/v1/audit/export?action=certificate.revoke").await;
    assert_eq!(filtered, "", "a filter reads what is not sealed");

    let listed = world.get("/api/v1/audit/segments").await.expect(200).json();
    assert_eq!(
        (&listed["items"][0]["head"]["segment"], &listed["items"][0]["head"]["last"]),
        (&json!(1), &json!(20))
    );
    let lines = get("/api/v1/audit/segments/1").await;
    assert_eq!(lines.lines().count(), 21, "the head, and the lines: {lines}");
    let proof: InclusionProof =
        serde_json::from_str(&get("/api/v1/audit/segments/1/proof?line=3").await).unwrap();
    assert_eq!(inclusion::check(&proof, &[], Some(&key)), Ok(()));
    world.get("/api/v1/audit/segments/1/proof?line=99").await.expect(404);
    world.get("/api/v1/audit/segments/2").await.expect(404);
    let heads = get("/api/v1/audit/heads").await;
    assert_eq!(heads, format!("{before}\n"));
    // Auditors can sign heads, operators cannot.
    let operator = world.token("op", "operator", "any").await;
    let refused = world.with(&operator, Method::POST, "/api/v1/audit/heads").send().await.unwrap();
    assert_eq!(refused.status(), 403);
}
