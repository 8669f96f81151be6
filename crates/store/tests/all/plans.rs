//! No statement reads a table from end to end that grows with what was issued, ordered, proven or asked for.

use store::acme::{AcmeOrder, AcmeOrderStatus, insert_acme_orders};
use uuid::Uuid;

use crate::world::{NOW, World};

/// Tables that grow without a bound of ours.
const LARGE: &[&str] = &[
    "acme_accounts",
    "acme_account_keys",
    "acme_authorizations",
    "acme_orders",
    "blocked_keys",
    "certificate_ders",
    "certificate_names",
    "certificates",
    "credential_hook_calls",
    "credential_permissions",
    "credential_rotations",
    "credential_unwraps",
    "credential_versions",
    "credential_wraps",
    "credentials",
    "crl_bases",
    "ct_issuance_ders",
    "ct_issuance_domains",
    "ct_issuances",
    "enrolments",
    "history_sketches",
    "issuance_keys",
    "issued",
    "proxy_leaves",
    "proxy_leaf_keys",
    "revocations",
];

/// These read everything where they are given no condition, which the authority refuses before it asks.
const WITHOUT_CONDITION: &[&str] = &["revoke", "revoke_matched", "holds_lift"];

/// These walk by what they are for: a part of a name has no index; what is sealed is counted and sealed anew as a whole,
/// while all goes on.
const WALKS: &[&str] = &[
    "credentials_like",
    "sealed_count credential_versions.sealed",
    "sealed_heads credential_versions.sealed",
    "sealed_count credential_wraps.sealed",
    "sealed_heads credential_wraps.sealed",
    "sealed_page credential_versions.sealed",
    "sealed_page credential_wraps.sealed",
    // Once a minute, by one proxy of all.
    "proxy_leaves_count",
    "proxy_leaf_keys_evict",
    "sealed_count proxy_leaves.sealed",
    "sealed_heads proxy_leaves.sealed",
    "sealed_count proxy_leaf_keys.sealed",
    "sealed_heads proxy_leaf_keys.sealed",
];

/// The tables of [`LARGE`] that a plan reads from end to end, table or index.
fn walked(statement: &str, plan: &[String]) -> Vec<String> {
    let bounded = statement.contains("LIMIT");
    let step = |(number, line): (usize, &String)| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let table = words.iter().find(|word| LARGE.contains(word))?;
        // PostgreSQL's words: a condition of the index stands below its scan, before the next step.
        let scan = line.contains("Scan");
        let below = plan[number + 1..].iter().take_while(|line| !line.contains("->"));
        let by_condition = below.into_iter().any(|line| line.contains("Index Cond:"));
        // Along an index it may be a page in that order, which ends with its LIMIT.
        let postgres = scan && !by_condition && (line.contains("Seq Scan") || !bounded);
        // SQLite's words.
        let sqlite = words.first() == Some(&"SCAN") && (!line.contains("INDEX") || !bounded);
        (postgres || sqlite).then(|| (*table).to_owned())
    };
    plan.iter().enumerate().filter_map(step).collect()
}

pub(crate) async fn no_statement_walks_a_large_table(world: World) {
    let plans = world.store.plans().await.unwrap();
    assert!(plans.len() > 500);
    let mut broken = Vec::new();
    for (statement, plan) in &plans {
        let name = statement.lines().next().unwrap_or_default().trim_start_matches("-- ");
        if WITHOUT_CONDITION.contains(&name) && statement.contains("TRUE") || WALKS.contains(&name) {
            continue;
        }
        let tables = walked(statement, plan);
        if !tables.is_empty() {
            broken.push(format!("{tables:?}: {statement}\n  {}", plan.join("\n  ")));
        }
    }
    assert!(broken.is_empty(), "{}\n{} in all", broken.join("\n\n"), broken.len());
}

fn order(number: u128) -> AcmeOrder {
    AcmeOrder {
        id: Uuid::from_u128(number),
        account: Uuid::from_u128(1),
        profile: "web".to_owned(),
        status: AcmeOrderStatus::Pending,
        names: vec![format!("dns:n{number}.example")],
        authorizations: vec![Uuid::from_u128(number)],
        not_before_us: None,
        not_after_us: None,
        created_at_us: NOW,
        expires_at_us: NOW,
        replaces: None,
        csr: None,
        certificate: None,
        error: None,
        claimed_until_us: None,
    }
}

pub(crate) async fn old_orders_go_as_a_set(world: World) {
    let store = &world.store;
    let new: Vec<AcmeOrder> = (0..700).map(order).collect();
    let write = store.write("test", move |tx| Box::pin(async move { insert_acme_orders(tx, &new).await }));
    write.await.unwrap();
    let before = store.statements_sent();
    assert_eq!(store.acme().tidy_orders(Uuid::from_u128(600), 500).await.unwrap(), 500);
    assert_eq!(store.statements_sent() - before, 1, "five hundred by one statement");
    assert_eq!(store.acme().tidy_orders(Uuid::from_u128(600), 500).await.unwrap(), 100);
    let ids: Vec<Uuid> = (0..700).map(Uuid::from_u128).collect();
    let before = store.statements_sent();
    assert_eq!(store.acme().orders_with_authorizations(&ids).await.unwrap().len(), 100);
    assert!(store.statements_sent() - before <= 2, "read as a set too");
}

/// What the test looks for is found where it is.
#[test]
fn walks_are_recognised() {
    let plan = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let walks = [
        ("", "Seq Scan on acme_orders o  (cost=1..2 rows=1 width=1)"),
        ("LIMIT", "Limit  (cost=1..2)\n  ->  Seq Scan on issued  (cost=1..2)"),
        ("", "Index Scan using issued_pkey on issued  (cost=1..2)\n  Filter: (x = $1)"),
        ("LIMIT", "SCAN revocations"),
        ("", "SCAN issued USING COVERING INDEX x"),
    ];
    for (statement, walk) in walks {
        assert_eq!(walked(statement, &plan(walk)).len(), 1, "{walk}");
    }
    let others = [
        ("", "Index Scan using issued_pkey on issued  (cost=1..2)\n  Index Cond: (id = $1)"),
        ("LIMIT", "Limit  (cost=1..2)\n  ->  Index Scan using acme_orders_pkey on acme_orders  (cost=1..2)"),
        ("", "Seq Scan on acme_limit_overrides  (cost=1..2)"),
        ("", "SEARCH acme_orders USING INDEX x (id=?)"),
        ("LIMIT", "SCAN acme_orders USING INDEX acme_orders_by_account"),
    ];
    for (statement, other) in others {
        assert!(walked(statement, &plan(other)).is_empty(), "{other}");
    }
}
