//! How the databases answer listings: along indexes, never through whole tables.

use lifecycle::managed::NewCertificate;
use lifecycle::tables::Managed;
use lifecycle::tables::managed::NEVER_ISSUED_US;

use super::world::World;

/// Enough that walking the table would be the dearer plan.
const ROWS: usize = 12_000;

const TABLES: [&str; 5] =
    ["managed_certificates", "jobs", "managed_names", "managed_versions", "policy_violations"];

const EMPTY: [&str; 2] = ["managed_versions", "policy_violations"];

pub(super) async fn no_listing_walks_a_large_table(world: World) {
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
    for (statement, plan) in plans {
        // SQLite keeps the table itself in the order of its ids: a page in that order is read where it stands.
        let as_it_stands =
            statement.contains("ORDER BY id") && !plan.iter().any(|line| line.contains("TEMP B-TREE"));
        for line in plan.iter().filter(|line| !(as_it_stands && line.starts_with("SCAN"))) {
            let walked = TABLES.iter().find(|table| {
                // PostgreSQL's words, then SQLite's, which says "USING INDEX" when it walks one. PostgreSQL reads a table
                // from end to end that is empty here.
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
