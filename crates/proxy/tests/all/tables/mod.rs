//! The tables: every case runs on SQLite and on PostgreSQL.

mod proxy_leaves;
mod statements;

testbed::on_both! {
    testbed::tables::World:
    proxy_leaves::lease_holder_stores_the_leaf_for_all_nodes
    proxy_leaves::leaf_lease_is_taken_over_after_expiry_or_release
    proxy_leaves::current_leaf_is_served_while_one_node_renews_it
    proxy_leaves::concurrent_lookups_grant_one_lease_per_leaf
    proxy_leaves::expired_leaves_and_the_oldest_above_the_limit_are_deleted
    proxy_leaves::key_of_a_single_leaf_is_deleted_with_it_and_shared_keys_are_kept
    proxy_leaves::shared_key_is_kept_while_one_of_its_leaves_exists
    proxy_leaves::cold_leaf_lookup_uses_few_statements
    statements::sql_statements_prepare_and_avoid_full_table_scans
}
