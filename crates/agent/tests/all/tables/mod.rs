//! The tables: every case runs on SQLite and on PostgreSQL.

mod agents;
mod statements;

testbed::on_both! {
    testbed::tables::World:
    agents::a_token_enrols_once_and_not_after_its_end
    agents::agents_are_found_by_key_name_and_labels
    agents::agents_are_seen_many_at_once
    agents::groups_have_revisions
    agents::targets_belong_to_agents
    agents::a_deployment_reported_twice_counts_once
    statements::every_statement_is_accepted_and_walks_no_large_table
}
