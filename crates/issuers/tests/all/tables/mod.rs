//! The tables: every case runs on SQLite and on PostgreSQL.

mod issuers;
mod statements;

testbed::on_both! {
    testbed::tables::World:
    issuers::settings_have_names_and_revisions
    issuers::accounts_health_and_orders_go_with_their_issuer
    issuers::rows_that_cannot_be_read_are_errors
    issuers::orders_and_challenges_are_replaced_and_end
    statements::every_statement_is_accepted_and_walks_no_large_table
}
