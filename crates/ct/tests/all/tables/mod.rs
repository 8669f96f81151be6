//! Tests of the tables. Every test runs on SQLite and on PostgreSQL.

mod ct;
mod statements;

testbed::on_both! {
    testbed::tables::World:
    ct::watched_domains_are_added_listed_and_updated
    ct::due_search_is_claimed_by_one_node
    ct::expected_verdict_applies_to_the_names_of_the_issuance
    ct::issuance_from_several_sources_is_stored_once
    ct::verdicts_are_given_once_and_expired_issuances_deleted
    ct::concurrent_recording_of_the_same_issuances_stores_each_once
    ct::recording_statement_count_is_independent_of_the_number_of_issuances
    ct::ct_log_position_and_alarm_state_are_stored
    ct::known_certificates_are_found_by_name
    statements::sql_statements_prepare_and_avoid_full_table_scans
}
