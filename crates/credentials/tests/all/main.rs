//! The credential store, every case on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod access;
mod authorities;
mod away;
mod certificates;
mod fields;
mod permissions;
mod place;
mod read_audit;
mod replica;
mod rotation;
mod sealing;
mod tables;
mod tokens;
mod values;
mod wrap;

testbed::on_both! { crate::place::Fixture:
    certificates::a_certificate_lives_for_the_minimum_at_least
    authorities::an_authority_is_known_as_one_and_trusted_by_nobody
    authorities::what_it_signs_is_revoked_and_published
    authorities::each_version_is_an_authority_and_what_it_signed_outlives_it
    authorities::one_that_is_retired_signs_no_more
    authorities::what_cannot_be_an_authority_signs_as_before
    values::every_type_is_answered_as_it_was_set
    values::versions_come_newest_first_and_no_more_are_read_than_asked_for
    values::a_name_keeps_its_type_until_it_is_deleted
    values::only_the_expected_version_is_followed
    values::modes_decide_before_anything_is_made
    values::two_who_would_not_overwrite_get_one_value
    values::whoever_writes_side_by_side_shares_transactions
    values::many_names_are_one_statement
    values::one_answer_has_64_mib_at_most
    values::references_are_replaced_by_what_they_name
    values::names_are_found_by_path_part_and_end
    values::a_search_finds_a_text_wherever_it_is
    values::a_search_for_a_whole_name_is_one_statement
    permissions::case_changes_nothing
    permissions::each_operation_is_asked_for
    permissions::nobody_changes_their_own
    permissions::what_may_not_be_read_is_not_there
    certificates::an_authority_changes_without_a_gap
    certificates::all_below_an_authority_is_made_anew
    certificates::openssl_accepts_what_is_made
    certificates::what_credhub_refuses_is_refused
    certificates::the_last_version_stays
    certificates::keys_are_answered_to_who_may_read_them
    sealing::values_moved_between_rows_do_not_open_and_others_do
    sealing::another_master_key_opens_nothing_until_it_is_there
    sealing::a_bit_changed_anywhere_is_named_and_all_others_are_answered
    sealing::what_is_under_a_missing_master_key_is_counted
    sealing::no_secret_is_in_the_log_or_the_events
    away::a_version_ends_with_its_time
    away::what_ended_by_its_time_to_live_is_listed_and_taken_back
    away::what_is_deleted_is_taken_back_within_its_days
    certificates::a_ca_that_has_expired_signs_nothing
    away::versions_are_deleted_taken_back_and_destroyed_by_number
    away::as_many_versions_stay_as_their_path_allows
    away::a_path_has_children
    away::a_name_deleted_meanwhile_is_made_again
    away::what_ended_gives_its_place_to_no_older_version
    away::what_is_taken_back_keeps_its_time_to_live
    away::a_name_with_many_versions_goes_some_hundred_at_a_time
    fields::a_version_is_found_by_its_number_whatever_became_of_it
    fields::patches_side_by_side_are_all_kept
    fields::whoever_may_not_write_is_told_nothing_of_the_type
    tokens::a_token_ends_with_its_time_or_before
    rotation::rows_that_are_not_known_are_errors
    rotation::nothing_is_rotated_while_nothing_is_to_be_changed
    tokens::a_refresh_token_ends_at_logout_and_not_by_its_use
    rotation::a_round_ends_when_nothing_is_to_be_changed_any_more
    rotation::an_authority_waits_while_nothing_is_to_be_changed
    rotation::what_is_old_is_made_anew
    rotation::the_most_specific_policy_counts
    rotation::what_was_set_by_hand_is_told_once
    rotation::certificates_are_made_anew_before_they_end
    rotation::a_time_longer_than_a_life_is_half_of_it
    rotation::what_is_made_again_as_another_type_is_planned_no_more
    rotation::a_name_that_goes_ends_the_trouble_with_it
    rotation::an_authority_that_is_one_no_more_is_planned_as_what_it_is
    rotation::what_has_a_time_to_live_keeps_it
    rotation::an_authority_changes_step_by_step
    rotation::another_node_goes_on_where_one_fell
    rotation::now_is_now
    rotation::a_hook_is_told_until_it_has_heard
    rotation::a_hook_that_does_not_agree_keeps_the_old_value
    rotation::a_candidate_is_not_read_after_the_answer
    rotation::a_hook_that_is_down_takes_its_own_turn_only
    rotation::a_hook_that_answers_is_told_all_at_once
    rotation::a_hook_that_never_answers_is_waited_for_once
    read_audit::a_read_is_in_the_log_before_its_answer
    read_audit::nothing_is_read_while_the_log_cannot_be_written
    read_audit::reads_under_way_share_a_transaction
    read_audit::a_lookup_is_logged_by_one_transaction
    read_audit::buffered_reads_go_on_without_the_log
    wrap::of_two_who_read_at_once_one_does
    wrap::a_token_ends_and_nothing_of_it_stays
    wrap::what_does_not_open_stays_to_be_read
    wrap::a_token_ends_with_what_it_reads
    access::each_reader_is_named_with_the_reason
    access::two_names_and_two_times_are_compared
}
