//! Tests of the tables. Every test runs on SQLite and on PostgreSQL.

mod agents;
mod statements;

testbed::on_both! {
    testbed::tables::World:
    agents::agent_join_token_is_used_once_and_rejected_when_expired
    agents::agents_are_unique_by_key_and_name_and_filtered_by_labels
    agents::agents_last_seen_are_updated_in_one_statement
    agents::agent_group_updates_require_the_current_revision
    agents::target_names_are_unique_and_updates_require_the_current_revision
    agents::repeated_deployment_reports_are_counted_once
    statements::sql_statements_prepare_and_avoid_full_table_scans
}
