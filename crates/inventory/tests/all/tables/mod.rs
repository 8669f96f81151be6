//! The tables: every case runs on SQLite and on PostgreSQL.

mod clouds;
mod history;
mod ownership;
mod statements;
mod watches;

testbed::on_both! {
    testbed::tables::World:
    watches::a_watch_is_made_changed_and_removed
    watches::a_due_watch_has_one_holder_and_ends_once
    watches::a_dead_holders_run_is_taken_over_with_its_scan
    watches::claims_and_renewals_are_one_statement_for_many
    watches::parts_of_a_run_have_one_holder_each_and_go_with_its_end
    ownership::a_rule_is_made_changed_and_removed
    ownership::rules_are_bounded_and_listed_in_their_order
    ownership::what_rules_look_at_is_read_for_many_at_once
    ownership::tags_are_kept_by_place_and_read_by_certificate
    history::sketches_are_put_read_in_pages_and_trimmed
    history::an_hour_of_all_nodes_is_folded
    history::a_drift_begins_and_ends_once
    history::what_is_taken_of_the_pools_is_known
    clouds::the_latest_state_of_a_source_is_kept
    clouds::certificates_are_read_by_fingerprint_many_at_once
    clouds::connections_are_known
    statements::every_statement_is_accepted_and_walks_no_large_table
}
