//! Every statement of these tables, on both databases.

use crate::place::Fixture;

pub(crate) async fn every_statement_is_accepted(place: Fixture) {
    assert!(testbed::check_statements(&place.store, audit::tables::STATEMENTS).await > 15);
}
