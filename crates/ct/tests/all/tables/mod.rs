//! The tables: every case runs on SQLite and on PostgreSQL.

mod ct;
mod statements;

testbed::on_both! {
    testbed::tables::World:
    ct::domains_are_watched_and_changed
    ct::a_due_question_is_asked_by_one_holder
    ct::an_expected_issuance_speaks_for_its_names
    ct::an_issuance_is_stored_once_whoever_tells_of_it
    ct::verdicts_are_given_once_and_what_has_ended_goes
    ct::two_who_find_the_same_at_once_store_it_once
    ct::finding_costs_a_constant_number_of_statements
    ct::a_log_keeps_its_place_and_its_alarm
    ct::what_is_known_for_a_name_is_found
    statements::every_statement_is_accepted_and_walks_no_large_table
}
