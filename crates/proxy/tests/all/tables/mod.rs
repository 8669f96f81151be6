//! The tables: every case runs on SQLite and on PostgreSQL.

mod proxy_leaves;
mod statements;

testbed::on_both! {
    testbed::tables::World:
    proxy_leaves::one_mints_and_the_others_find
    proxy_leaves::a_lease_is_taken_over_after_its_end_and_given_back_before
    proxy_leaves::a_leaf_is_given_out_while_one_renews_it
    proxy_leaves::of_many_who_ask_at_once_one_mints
    proxy_leaves::what_has_ended_goes_and_the_oldest_beyond_the_limit
    proxy_leaves::keys_of_one_leaf_go_with_it_and_shared_ones_stay
    proxy_leaves::a_key_stays_while_one_of_its_leaves_does
    proxy_leaves::a_cold_leaf_costs_few_statements
    statements::every_statement_is_accepted_and_walks_no_large_table
}
