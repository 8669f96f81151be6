//! Runs every statement of these tables on both databases.

use testbed::tables::World;

pub(crate) async fn sql_statements_prepare_and_avoid_full_table_scans(world: World) {
    assert!(testbed::check_statements(&world.store, issuers::tables::STATEMENTS).await > 35);
}
