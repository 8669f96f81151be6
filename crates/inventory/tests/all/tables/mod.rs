//! Tests of the tables. Every test runs on SQLite and on PostgreSQL.

mod clouds;
mod history;
mod ownership;
mod retention;
mod statements;
mod watches;

testbed::on_both! {
    testbed::tables::World:
    watches::watch_is_created_updated_and_deleted
    watches::due_watch_is_claimed_by_one_node_and_finished_once
    watches::expired_watch_lease_is_taken_over_with_its_scan
    watches::many_watches_are_claimed_or_renewed_in_one_statement
    watches::run_parts_have_one_holder_each_and_are_deleted_with_the_run
    retention::scans_of_watches_keep_their_observations
    retention::one_node_prunes_and_records_it_in_the_audit_log
    ownership::ownership_rule_is_created_updated_and_deleted
    ownership::ownership_rules_are_limited_and_listed_by_position
    ownership::certificate_names_and_watch_groups_are_read_in_bulk
    ownership::tags_are_stored_by_endpoint_and_read_by_certificate
    history::sketches_are_stored_paged_and_trimmed
    history::measurements_of_all_nodes_are_folded_by_hour
    history::drift_begins_and_ends_once
    history::pool_connections_in_use_are_reported
    clouds::latest_state_of_a_source_is_kept
    clouds::certificates_are_read_by_fingerprint_in_bulk
    clouds::connection_counts_and_limits_are_reported
    statements::sql_statements_prepare_and_avoid_full_table_scans
}
