//! Runs every statement of these tables on both databases.

use crate::place::Fixture;

pub(crate) async fn sql_statements_prepare_and_avoid_full_table_scans(place: Fixture) {
    assert!(testbed::check_statements(&place.store, audit::tables::STATEMENTS).await > 15);
}
