//! Tests of the tables. Every test runs on SQLite and on PostgreSQL.

mod issuers;
mod statements;

testbed::on_both! {
    testbed::tables::World:
    issuers::issuer_names_are_unique_and_updates_require_the_current_revision
    issuers::issuer_deletion_removes_account_health_and_orders
    issuers::unreadable_rows_are_errors
    issuers::orders_and_challenges_are_replaced_expired_and_deleted
    statements::sql_statements_prepare_and_avoid_full_table_scans
}
