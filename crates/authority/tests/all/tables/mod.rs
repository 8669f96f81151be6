//! The tables: every case runs on SQLite and on PostgreSQL.

mod acme;
mod changes;
mod codes;
mod enrolments;
mod issued;
mod statements;
mod teams;

testbed::on_both! {
    testbed::tables::World:
    acme::a_challenge_type_that_is_not_known_proves_nothing
    acme::old_orders_go_as_a_set
    issued::sets_cost_a_constant_number_of_statements
    issued::a_key_is_used_once_whatever_comes_together
    issued::blocked_keys_are_refused_one_by_one
    issued::filters_find_what_they_say
    issued::reasons_follow_rfc_5280
    enrolments::an_enrolment_waits_and_is_decided_once
    enrolments::open_enrolments_are_bounded_and_listed_oldest_first
    enrolments::a_protocol_that_is_not_known_is_an_error
    enrolments::one_of_two_nodes_makes_the_recipient
    teams::an_object_belongs_to_one_team
    teams::a_team_has_its_certificates_of_a_day
    changes::a_change_waits_for_its_approvals_and_is_handed_out_as_it_was
    changes::open_changes_are_listed_newest_first
    statements::every_statement_is_accepted_and_walks_no_large_table
}
