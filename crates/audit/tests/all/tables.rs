//! Runs every statement of these tables on both databases.

use crate::fixture::Fixture;

pub(crate) async fn sql_statements_prepare_and_avoid_full_table_scans(fixture: Fixture) {
    assert!(testbed::check_statements(&fixture.store, audit::tables::STATEMENTS).await > 15);
}
