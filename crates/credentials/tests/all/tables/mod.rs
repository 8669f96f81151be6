//! Tests of the tables. Each case runs on SQLite and on PostgreSQL.

mod statements;

testbed::on_both! {
    testbed::tables::World:
    statements::sql_statements_prepare_and_avoid_full_table_scans
}
