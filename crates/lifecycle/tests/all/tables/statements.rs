//! Every statement of these tables, on both databases.

use testbed::tables::World;

pub(crate) async fn every_statement_is_accepted_and_walks_no_large_table(world: World) {
    assert!(testbed::check_statements(&world.store, lifecycle::tables::STATEMENTS).await > 250);
}
