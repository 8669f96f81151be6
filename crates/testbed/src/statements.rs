//! The test that each crate with tables has for its statements: both databases accept them, and no statement reads a table
//! from end to end that grows with what was issued, ordered, proven or asked for.

use db::Sends;
use store::Store;

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
    "credential_tails",
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

/// These walk by what they are for: a part of a name has no index; what is sealed is counted and sealed again as a whole,
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

/// Prepares the statements of these modules and looks at their plans; and prepares them once more where every table has a column of a
/// newer release, as in a rolling upgrade. Returns how many statements there are, those of the engine included.
///
/// # Panics
/// With the statement that the database does not accept, or with all that walk a large table.
pub async fn check_statements(store: &Store, modules: &[Sends]) -> usize {
    let count = store.check_statements(modules).await.unwrap();
    let plans = store.plans(modules).await.unwrap();
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
    assert!(store.expand_every_table().await.unwrap() > 50);
    store.check_statements(modules).await.expect("a statement lists its columns");
    count
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
