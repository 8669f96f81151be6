//! Tests of the tables. Every test runs on SQLite and on PostgreSQL.

mod statements;

testbed::on_both! {
    testbed::tables::World:
    statements::sql_statements_prepare_and_avoid_full_table_scans
}
