//! The tables: every case runs on SQLite and on PostgreSQL.

mod statements;

testbed::on_both! {
    testbed::tables::World:
    statements::every_statement_is_accepted_and_walks_no_large_table
}
