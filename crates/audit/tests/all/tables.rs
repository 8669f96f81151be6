//! Every statement of these tables, on both databases.

use crate::place::Place;

pub(crate) async fn every_statement_is_accepted(place: Place) {
    assert!(testbed::check_statements(&place.store, audit::tables::STATEMENTS).await > 15);
}
