//! The test of SQL statements, which each crate with tables runs. Both databases must accept the statements. No statement may scan
//! a whole table whose size grows with certificates, orders, proofs or requests.

use db::ModuleStatements;
use store::Store;

/// Tables whose size has no limit.
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

/// Statements that scan a whole table if they have no condition. The authority rejects such requests earlier.
const WITHOUT_CONDITION: &[&str] = &["revoke", "revoke_matched", "holds_lift"];

/// Statements that need a full scan: searches for a part of a name, which no index supports, and background work such as counting
/// and re-encrypting all sealed values.
const FULL_SCANS: &[&str] = &[
    "credentials_like",
    "sealed_count credential_versions.sealed",
    "sealed_heads credential_versions.sealed",
    "sealed_count credential_wraps.sealed",
    "sealed_heads credential_wraps.sealed",
    "sealed_page credential_versions.sealed",
    "sealed_page credential_wraps.sealed",
    // Runs once a minute, in only one of all proxies.
    "proxy_leaves_count",
    "proxy_leaf_keys_evict",
    "sealed_count proxy_leaves.sealed",
    "sealed_heads proxy_leaves.sealed",
    "sealed_count proxy_leaf_keys.sealed",
    "sealed_heads proxy_leaf_keys.sealed",
];

/// Returns the tables of [`LARGE`] that a plan scans completely, by table or by index.
fn scanned_tables(statement: &str, plan: &[String]) -> Vec<String> {
    let bounded = statement.contains("LIMIT");
    let step = |(number, line): (usize, &String)| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let table = words.iter().find(|word| LARGE.contains(word))?;
        // PostgreSQL: the condition of an index is on a line below its scan, before the next step.
        let scan = line.contains("Scan");
        let below = plan[number + 1..].iter().take_while(|line| !line.contains("->"));
        let by_condition = below.into_iter().any(|line| line.contains("Index Cond:"));
        // PostgreSQL scans along an index may read one page in index order; such a scan ends at the LIMIT.
        let postgres = scan && !by_condition && (line.contains("Seq Scan") || !bounded);
        // The same check for a plan of SQLite.
        let sqlite = words.first() == Some(&"SCAN") && (!line.contains("INDEX") || !bounded);
        (postgres || sqlite).then(|| (*table).to_owned())
    };
    plan.iter().enumerate().filter_map(step).collect()
}

/// Prepares the statements of these modules and checks their plans. Prepares them again after each table has got a column of a
/// newer release, as in a rolling upgrade. Returns the number of statements, including the engine's.
///
/// # Panics
/// The database does not accept a statement, or statements scan a large table.
pub async fn check_statements(store: &Store, modules: &[ModuleStatements]) -> usize {
    let count = store.check_statements(modules).await.unwrap();
    let plans = store.plans(modules).await.unwrap();
    let mut broken = Vec::new();
    for (statement, plan) in &plans {
        let name = statement.lines().next().unwrap_or_default().trim_start_matches("-- ");
        if WITHOUT_CONDITION.contains(&name) && statement.contains("TRUE") || FULL_SCANS.contains(&name) {
            continue;
        }
        let tables = scanned_tables(statement, plan);
        if !tables.is_empty() {
            broken.push(format!("{tables:?}: {statement}\n  {}", plan.join("\n  ")));
        }
    }
    assert!(broken.is_empty(), "{}\n{} in all", broken.join("\n\n"), broken.len());
    assert!(store.expand_every_table().await.unwrap() > 50);
    store.check_statements(modules).await.expect("a statement lists its columns");
    count
}

/// The check detects known full scans.
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
        assert_eq!(scanned_tables(statement, &plan(walk)).len(), 1, "{walk}");
    }
    let others = [
        ("", "Index Scan using issued_pkey on issued  (cost=1..2)\n  Index Cond: (id = $1)"),
        ("LIMIT", "Limit  (cost=1..2)\n  ->  Index Scan using acme_orders_pkey on acme_orders  (cost=1..2)"),
        ("", "Seq Scan on acme_limit_overrides  (cost=1..2)"),
        ("", "SEARCH acme_orders USING INDEX x (id=?)"),
        ("LIMIT", "SCAN acme_orders USING INDEX acme_orders_by_account"),
    ];
    for (statement, other) in others {
        assert!(scanned_tables(statement, &plan(other)).is_empty(), "{other}");
    }
}
