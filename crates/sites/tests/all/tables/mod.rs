//! The tables: every case runs on SQLite and on PostgreSQL.

mod key_policies;
mod places;
mod statements;

testbed::on_both! {
    testbed::tables::World:
    places::site_names_are_unique_and_updates_require_the_current_revision
    places::node_join_token_is_used_once_and_rejected_when_expired
    places::nodes_are_unique_by_key_and_name_and_listed_by_site
    places::node_statements_are_due_after_changes_and_stored_once
    places::node_presence_follows_its_lease
    places::concurrent_changes_are_visible_in_number_order
    key_policies::policy_names_are_unique_and_generations_advance_by_one
    key_policies::keys_are_sealed_only_to_the_newest_generation
    key_policies::outdated_wraps_and_wraps_for_retired_nodes_are_not_stored
    key_policies::resealing_skips_withdrawn_moved_and_already_resealed_keys
    key_policies::node_reads_each_change_once_and_in_order
    key_policies::state_pages_for_a_node_are_limited_in_bytes
    statements::sql_statements_prepare_and_avoid_full_table_scans
}
