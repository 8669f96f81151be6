//! Tests of the tables. Every test runs on SQLite and on PostgreSQL.

mod acme;
mod changes;
mod codes;
mod enrolments;
mod issued;
mod statements;
mod teams;

testbed::on_both! {
    testbed::tables::World:
    acme::unknown_challenge_type_codes_are_errors
    acme::old_orders_are_deleted_in_batches
    issued::bulk_statement_count_is_independent_of_the_number_of_rows
    issued::idempotency_key_is_used_once_within_and_across_batches
    issued::blocked_keys_are_rejected_individually_in_a_batch
    issued::issued_filters_return_only_matching_certificates
    issued::revocation_reason_changes_follow_rfc_5280
    enrolments::enrollment_waits_expires_and_is_decided_once
    enrolments::open_enrollments_are_limited_and_listed_oldest_first
    enrolments::unknown_enrollment_protocol_is_an_error
    enrolments::recipient_row_is_created_by_one_node_and_replaced_conditionally
    teams::owned_object_belongs_to_one_team
    teams::team_certificate_quota_is_enforced_per_day
    changes::change_requires_its_approvals_and_keeps_its_plan
    changes::open_changes_are_listed_newest_first
    statements::sql_statements_prepare_and_avoid_full_table_scans
}
