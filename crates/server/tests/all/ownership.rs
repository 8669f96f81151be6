//! Ownership rules over the API.

use http::{Method, StatusCode};
use inventory::ownership::Ownership;
use serde_json::{Value, json};
use server::Components;

use crate::world::{Plan, World};

/// The rules are in a separate database from the server's.
async fn world() -> (World, store::Store, tempfile::TempDir) {
    let (folder, database) = crate::world::store().await;
    let ownership = Ownership::new(database.clone(), store::Clock::system());
    let plan = Plan {
        components: Components { ownership: Some(ownership), ..Components::default() },
        ..Plan::default()
    };
    (World::start_with(plan).await, database, folder)
}

const PATH: &str = "/api/v1/ownership-rules";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ownership_rules_are_created_updated_explained_and_deleted() {
    let (world, database, _folder) = world().await;
    let body = json!({"name": "payments", "when": {"host": "*.Pay.example", "network": "10.20.30.40/16"},
        "assign": {"team": "payments", "tags": {"pci": "yes"}}});
    let made = world.post(PATH, body.clone()).await.expect(201);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(made.header("location"), format!("{PATH}/{id}"));
    assert_eq!(made.header("etag"), "\"1\"");
    assert_eq!(
        (&made.json()["position"], &made.json()["when"]["network"]),
        (&json!(10), &json!("10.20.0.0/16"))
    );
    world.post(PATH, body).await.expect(409);
    let rest = json!({"name": "rest", "assign": {"team": "platform", "owner": "ann"}});
    assert_eq!(world.post(PATH, rest).await.expect(201).json()["position"], 20);
    let first =
        json!({"name": "lab", "position": 1, "when": {"source": "lab"}, "assign": {"environment": "lab"}});
    world.post(PATH, first).await.expect(201);
    let listed = world.get(PATH).await.expect(200).json();
    let names: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|rule| rule["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["lab", "payments", "rest"]);
    assert_eq!(world.get(&format!("{PATH}/payments")).await.expect(200).json()["id"], json!(id));
    world.get(&format!("{PATH}/other")).await.expect(404);

    let explain =
        async |question: Value| world.post(&format!("{PATH}/explain"), question).await.expect(200).json();
    let explanation =
        explain(json!({"host": "shop.pay.example", "address": "10.20.1.1", "source": "tls"})).await;
    assert_eq!(
        (&explanation["rule"], &explanation["assign"]["team"]),
        (&json!("payments"), &json!("payments"))
    );
    let steps = json!([
        {"rule": "lab", "position": 1, "matches": false, "why_not": "source lab: the source is tls"},
        {"rule": "payments", "position": 10, "matches": true, "why_not": null},
    ]);
    assert_eq!(explanation["steps"], steps);
    let explanation = explain(json!({"host": "10.9.9.9", "server_name": "shop.pay.example"})).await;
    assert_eq!((&explanation["rule"], &explanation["assign"]["owner"]), (&json!("rest"), &json!("ann")));
    assert_eq!(explanation["steps"][1]["why_not"], "network 10.20.0.0/16: the address is 10.9.9.9");
    world.post(&format!("{PATH}/explain"), json!({"address": "pay.example"})).await.expect(422);

    let send = |method: Method, path: String, tag: &'static str, body: Value| {
        let request = world.with(&world.admin, method, &path).json(&body);
        crate::world::send(if tag.is_empty() { request } else { request.header("if-match", tag) })
    };
    let path = format!("{PATH}/{id}");
    let changed = json!({"name": "pay", "when": {"host": "*.pay.example"}, "assign": {"team": "payments"}});
    send(Method::PUT, path.clone(), "\"7\"", changed.clone()).await.expect(412);
    let answer = send(Method::PUT, path.clone(), "\"1\"", changed).await.expect(200);
    assert_eq!(
        (answer.header("etag"), &answer.json()["position"]),
        ("\"2\"", &json!(10)),
        "it stays in its place"
    );
    let taken = json!({"name": "rest", "assign": {"team": "payments"}});
    send(Method::PUT, path.clone(), "", taken).await.expect(409);
    send(Method::DELETE, path.clone(), "\"1\"", json!({})).await.expect(412);
    assert_eq!(send(Method::DELETE, path.clone(), "", json!({})).await.status, StatusCode::NO_CONTENT);
    world.get(&path).await.expect(404);
    let rows = database.audit_page(&store::AuditFilter::default(), None, 10).await.unwrap().rows;
    let mut actions: Vec<_> = rows.into_iter().map(|row| row.action).collect();
    actions.sort();
    let wanted =
        ["ownership_rule.create"; 3].into_iter().chain(["ownership_rule.delete", "ownership_rule.update"]);
    assert_eq!(actions, wanted.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_ownership_rules_are_rejected_and_viewers_are_read_only() {
    let (world, _, _folder) = world().await;
    for (change, wanted) in [
        (json!({"name": "a b"}), "a name must have"),
        (json!({"name": "explain"}), "a name must have"),
        (json!({"position": 1_000_001}), "maximum position is 1000000"),
        (json!({"when": {"host": ""}}), "host: a pattern must have 1 to 253"),
        (json!({"when": {"network": "10.0.0.0/40"}}), "neither a network"),
        (json!({"when": {"issuer": ""}}), "issuer: a part"),
        (json!({"assign": {}}), "must name a team"),
        (json!({"assign": {"team": ""}}), "the team must have 1 to 200"),
    ] {
        let mut body = json!({"name": "one", "assign": {"team": "t"}});
        for (key, value) in change.as_object().unwrap() {
            body[key] = value.clone();
        }
        let answer = world.post(PATH, body).await.expect(422);
        assert!(answer.text.contains(wanted), "{change}: {answer:?}");
    }
    let slip = json!({"name": "one", "when": {"hosts": "x"}, "assign": {"team": "t"}});
    assert!(!world.post(PATH, slip).await.status.is_success());
    // A viewer can list and explain rules, but not create them.
    let viewer = world.token("v", "viewer", "any").await;
    let request = |method, path: &str| crate::world::send(world.with(&viewer, method, path).json(&json!({})));
    request(Method::GET, PATH).await.expect(200);
    request(Method::POST, &format!("{PATH}/explain")).await.expect(200);
    request(Method::POST, PATH).await.expect(403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ownership_rules_match_tags_and_copy_values_from_them() {
    let (world, _database, _folder) = world().await;
    let explain =
        async |question: Value| world.post(&format!("{PATH}/explain"), question).await.expect(200).json();
    let tagged = json!({"name": "tagged", "position": 2, "when": {"tag": "Stage=prod*"}, "from_tags": {"team": "Team"}});
    let made = world.post(PATH, tagged.clone()).await.expect(201).json();
    assert_eq!((&made["when"]["tag"], &made["from_tags"]["team"]), (&json!("stage=prod*"), &json!("Team")));
    let explanation = explain(json!({"host": "x", "tags": {"stage": "production", "team": "bank"}})).await;
    assert_eq!((&explanation["rule"], &explanation["assign"]["team"]), (&json!("tagged"), &json!("bank")));
    let explanation = explain(json!({"host": "x", "tags": {"stage": "prod"}})).await;
    assert_eq!(explanation["steps"][0]["why_not"], "no tag to copy the value from: the tags are stage=prod");
    world.post(PATH, json!({"name": "odd", "from_tags": {"team": ""}})).await.expect(422);
    world.post(PATH, json!({"name": "nothing"})).await.expect(422);
    let many: serde_json::Map<_, _> = (0..65).map(|n| (format!("t{n}"), json!("v"))).collect();
    world.post(&format!("{PATH}/explain"), json!({"host": "x", "tags": many})).await.expect(422);
}
