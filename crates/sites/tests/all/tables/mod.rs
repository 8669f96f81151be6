//! The tables: every case runs on SQLite and on PostgreSQL.

mod key_policies;
mod places;
mod statements;

testbed::on_both! {
    testbed::tables::World:
    places::sites_have_names_and_revisions
    places::a_node_token_is_used_once_and_not_after_its_end
    places::nodes_are_found_by_key_name_and_site
    places::statements_are_due_and_put_once
    places::nodes_come_and_go_with_their_leases
    places::changes_are_seen_in_the_order_of_their_numbers
    key_policies::policies_have_names_and_generations
    key_policies::keys_are_sealed_to_the_newest_generation
    key_policies::wraps_are_made_by_what_nodes_are_now
    key_policies::sealing_anew_leaves_what_others_did
    key_policies::a_node_reads_each_change_once_and_in_order
    key_policies::a_page_for_a_node_is_bounded_by_octets
    statements::every_statement_is_accepted_and_walks_no_large_table
}
