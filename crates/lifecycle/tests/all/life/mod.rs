//! Tests of the lifecycle of managed certificates. Every test runs on SQLite and on PostgreSQL.

pub(crate) mod world;

mod agents;
mod approving;
mod bulk;
mod claiming;
mod crashing;
mod issuing;
mod plans;
mod policing;
mod reading;
mod renewing;
mod running;
mod signing;
mod telling;

testbed::on_both! { super::world::World:
    issuing::created_certificate_is_issued_and_its_renewal_scheduled
    issuing::taken_names_are_rejected_and_the_rest_of_the_batch_is_created
    issuing::unknown_profile_policy_or_issuer_is_rejected
    issuing::unavailable_issuer_is_retried_with_backoff_until_it_recovers
    issuing::certificate_that_does_not_match_the_request_is_not_stored
    issuing::issuer_rejection_fails_the_run_and_schedules_another
    issuing::slow_issuer_times_out_and_the_order_is_retried
    issuing::issuer_is_not_called_before_its_requested_delay_ends
    issuing::issuer_panic_is_a_failed_attempt_and_is_retried
    issuing::interrupted_runs_are_taken_over_immediately_after_shutdown
    issuing::issuer_concurrency_limit_is_respected
    issuing::key_export_is_audited
    issuing::changed_names_and_issuer_apply_to_the_next_version
    issuing::archived_certificate_is_not_renewed_until_restored
    issuing::runs_are_cancelled_and_retried_on_request
    issuing::issuance_is_retried_while_the_key_service_is_unavailable
    renewing::certificate_is_renewed_on_time_with_a_new_key
    renewing::clock_jump_of_a_year_renews_each_certificate_once
    renewing::clock_set_back_renews_nothing_twice
    renewing::two_schedulers_renew_each_certificate_once
    renewing::renewal_follows_the_window_suggested_by_the_issuer
    renewing::renewal_is_skipped_while_auto_renew_is_off
    renewing::renewal_waits_for_the_maintenance_window
    renewing::tick_statement_count_is_independent_of_the_number_of_due_runs
    signing::every_valid_version_has_a_signing_key
    signing::undecryptable_key_is_reported_once
    signing::signing_keys_are_loaded_in_few_statements
    crashing::crash_at_any_step_loses_nothing_and_issues_nothing_twice
    crashing::two_consecutive_crashes_lose_nothing_and_issue_nothing_twice
    crashing::crash_during_creation_stores_all_or_nothing
    crashing::crash_during_revocation_revokes_once
    telling::expiry_alert_contains_the_certificate_tags_and_resolves_on_renewal
    telling::repeated_deployment_failure_raises_an_alert_despite_renewals
    telling::served_version_is_the_one_verified_by_agents_and_scans
    approving::issuance_requires_approval_by_a_second_person
    approving::signer_reads_the_approval_of_a_run
    approving::scheduled_renewal_requires_approval_by_policy
    approving::rejection_or_expiry_of_an_approval_ends_the_run
    approving::approval_is_withdrawn_when_its_run_ends
    approving::changed_plan_voids_an_open_approval
    approving::changed_plan_voids_a_given_approval
    approving::changed_profile_voids_an_approval
    approving::certificate_is_revoked_when_its_plan_changed_during_issuance
    approving::approval_without_a_plan_is_void
    approving::requester_cannot_approve_under_another_identity
    approving::issuance_requires_the_number_of_approvals_of_the_profile
    approving::author_of_a_plan_change_cannot_approve_the_scheduled_renewal
    agents::agent_generates_the_key_and_deploys_the_certificate
    agents::csr_that_differs_from_the_job_is_rejected
    agents::failed_deployment_is_retried_and_finally_fails
    agents::run_expires_when_the_agent_sends_no_csr
    agents::newer_version_cancels_the_deployment_of_the_older
    agents::unreported_deployment_expires_after_days
    agents::unknown_agents_and_targets_are_rejected
    agents::key_of_a_guarded_certificate_is_sent_to_approved_targets_only
    bulk::filter_selects_every_certificate_for_renewal
    bulk::each_wave_of_renewals_starts_those_that_the_former_left
    bulk::bulk_revocation_uses_one_issuer_call
    bulk::revocation_at_an_external_issuer_is_retried
    bulk::revoked_certificate_is_replaced_with_a_new_key
    bulk::owners_and_tags_are_changed_in_bulk
    bulk::bulk_statement_count_is_independent_of_the_selection_size
    policing::enforced_policy_rejects_and_advisory_policy_lists_violations
    policing::changed_policy_is_evaluated_against_all_certificates
    policing::policy_in_use_cannot_be_deleted
    policing::change_that_lifts_the_need_for_approval_is_made_only_with_approval
    policing::key_of_a_version_is_judged_by_the_policy_under_which_it_was_issued
    policing::owners_and_teams_are_stored_with_revisions
    claiming::found_certificate_is_claimed_with_its_endpoint
    claiming::dismissed_certificate_stays_dismissed_until_its_deadline
    claiming::claimed_certificate_gets_its_owner_from_the_rules
    claiming::found_certificates_are_filtered_by_owner_in_bounded_pages
    reading::pages_list_every_certificate_once_in_each_order
    reading::filters_return_only_matching_certificates
    reading::descending_order_reverses_the_listing
    reading::matching_certificates_are_counted_and_grouped
    reading::counts_cover_all_certificates
    running::scheduler_issues_until_stopped
    plans::listings_avoid_full_table_scans
}
