//! Tests of the query plans of listings: they use indexes and never scan whole tables.

use lifecycle::managed::NewCertificate;
use lifecycle::tables::Managed;
use lifecycle::tables::managed::NEVER_ISSUED_US;

use super::world::World;

/// Number of rows: enough that a table scan would be the more expensive plan.
const ROWS: usize = 12_000;

const TABLES: [&str; 5] =
    ["managed_certificates", "jobs", "managed_names", "managed_versions", "policy_violations"];

const EMPTY: [&str; 2] = ["managed_versions", "policy_violations"];

pub(super) async fn listings_avoid_full_table_scans(world: World) {
    let new = (0..ROWS).map(|number| {
        let mut new = NewCertificate::new(&[&format!("n{number:05}.example.org")], "web");
        new.environment = Some(format!("e{}", number % 100));
        new.owner = Some(format!("o{}", number % 100));
        new.team = Some(format!("t{}", number % 100));
        new.tags.insert("cost".to_owned(), format!("{}", number % 1_000));
        new
    });
    for created in world.life.create_many(new.collect(), "user:ann").await {
        created.unwrap();
    }
    let managed = Managed::of(&world.store);
    managed.analyze().await.unwrap();
    let plans = managed.plans().await.unwrap();
    assert!(plans.len() > 40);
    // No index leads from a CA to the certificates of its versions: that condition reads all rows once, for a few waves of renewals.
    let indexed = plans.into_iter().filter(|(statement, _)| !statement.contains("FROM cas"));
    for (statement, plan) in indexed {
        // SQLite stores the table in the order of its IDs. A page in that order is a scan without sorting.
        let in_id_order =
            statement.contains("ORDER BY id") && !plan.iter().any(|line| line.contains("TEMP B-TREE"));
        for line in plan.iter().filter(|line| !(in_id_order && line.starts_with("SCAN"))) {
            let walked = TABLES.iter().find(|table| {
                // PostgreSQL's wording, then SQLite's, which says "USING INDEX" for an index scan. PostgreSQL scans tables that are
                // empty here.
                line.contains(&format!("Seq Scan on {table}")) && !EMPTY.contains(table)
                    || (line.contains("SCAN")
                        && !line.contains("INDEX")
                        && line.split(' ').any(|word| word == **table))
            });
            assert!(walked.is_none(), "{statement}\n{}", plan.join("\n"));
        }
    }
    let page = world
        .life
        .page(
            &lifecycle::tables::managed::ManagedFilter::default(),
            lifecycle::tables::managed::ManagedOrder::Expiry,
            None,
            1,
        )
        .await
        .unwrap();
    assert_eq!(page.rows[0].current.map_or(NEVER_ISSUED_US, |version| version.not_after_us), NEVER_ISSUED_US);
}
