//! The life of managed certificates: every case runs on SQLite and on PostgreSQL.

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
    issuing::what_is_created_is_issued_and_planned
    issuing::a_taken_name_is_refused_and_the_rest_of_the_batch_goes_in
    issuing::what_it_names_has_to_exist
    issuing::an_issuer_that_is_down_is_tried_again_until_it_is_well
    issuing::an_issuer_that_lies_gets_nothing_stored
    issuing::an_issuer_that_refuses_ends_the_run_and_it_is_planned_anew
    issuing::a_slow_issuer_is_cut_off_and_the_order_goes_on
    issuing::a_resting_issuer_is_left_alone
    issuing::a_panic_in_an_issuer_is_a_failed_attempt
    issuing::runs_under_way_at_a_stop_are_taken_over_at_once
    issuing::no_issuer_gets_more_than_its_places
    issuing::keys_are_given_out_with_an_audit_row
    issuing::a_change_asks_for_a_version_that_has_it
    issuing::what_is_archived_is_left_alone_until_it_is_restored
    issuing::runs_are_cancelled_and_hastened
    issuing::a_key_service_that_is_away_is_waited_for
    renewing::a_certificate_is_renewed_at_its_time_with_a_new_key
    renewing::a_clock_that_jumps_a_year_renews_everything_once
    renewing::a_clock_set_back_does_nothing_twice
    renewing::two_schedulers_renew_each_certificate_once
    renewing::the_issuers_window_moves_the_run
    renewing::auto_renew_is_obeyed
    renewing::a_maintenance_window_is_waited_for
    renewing::a_tick_is_a_constant_number_of_statements
    signing::every_version_that_holds_is_signed_for
    signing::a_key_that_does_not_open_is_told_of_once
    signing::a_thousand_keys_are_a_few_statements
    crashing::a_crash_at_any_step_loses_nothing_and_issues_nothing_twice
    crashing::two_crashes_in_a_row_do_no_more_harm
    crashing::a_crash_while_creating_leaves_all_or_nothing
    crashing::a_crash_while_revoking_revokes_once
    telling::an_end_that_comes_near_is_an_alert_with_the_certificates_tags
    telling::a_deployment_that_keeps_failing_is_told_and_no_renewal_hides_it
    telling::what_is_served_is_what_agents_and_scans_verified
    approving::a_second_person_has_to_consent
    approving::a_signer_reads_the_approval_of_a_run
    approving::the_scheduler_asks_too
    approving::a_refusal_ends_the_run_and_silence_does
    approving::an_approval_falls_with_its_run
    approving::a_changed_plan_voids_an_open_approval
    approving::a_changed_plan_voids_a_given_approval
    approving::a_changed_profile_voids_an_approval
    approving::what_changed_while_the_issuer_was_at_it_is_not_delivered
    approving::an_approval_without_a_plan_is_void
    approving::one_person_is_one_principal
    approving::as_many_people_as_the_profile_says_have_to_approve
    approving::who_changed_the_plan_of_a_planned_renewal_cannot_approve_it
    agents::an_agent_makes_the_key_and_deploys
    agents::a_request_that_is_not_what_was_asked_for_is_refused
    agents::a_failed_deployment_is_tried_again_and_given_up_at_last
    agents::an_agent_that_says_nothing_is_not_waited_for_for_ever
    agents::a_newer_version_ends_the_deployment_of_the_older
    agents::a_deployment_nobody_reports_is_given_up
    agents::what_an_agent_needs_has_to_exist
    bulk::a_filter_reaches_every_certificate
    bulk::a_revocation_of_many_is_one_call
    bulk::a_revocation_at_another_issuer_is_tried_again
    bulk::what_is_revoked_is_replaced_at_once_with_a_new_key
    bulk::owners_and_tags_change_in_sets
    bulk::statements_do_not_grow_with_the_selection
    policing::an_enforced_policy_refuses_and_an_advising_one_lists
    policing::a_changed_policy_is_held_against_everything
    policing::a_policy_in_use_stays
    policing::owners_and_teams_are_kept
    claiming::what_was_found_is_claimed_with_its_endpoint
    claiming::what_was_dismissed_stays_away
    claiming::whose_a_claim_is_follows_from_the_rules
    claiming::what_is_somebodys_is_listed_in_bounded_pages
    reading::every_page_is_another
    reading::filters_find_what_they_say
    reading::the_other_end_comes_first
    reading::what_matches_is_counted_and_grouped
    reading::counts_are_whole
    running::the_scheduler_runs_and_stops
    plans::no_listing_walks_a_large_table
}
