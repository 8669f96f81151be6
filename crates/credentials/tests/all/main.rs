//! Tests of the credential store. Each case runs on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod access;
mod authorities;
mod certificates;
mod deletion;
mod fields;
mod fixture;
mod leases;
mod permissions;
mod read_audit;
mod replica;
mod rotation;
mod sealing;
mod tables;
mod tokens;
mod values;
mod wrap;

testbed::on_both! { crate::fixture::Fixture:
    certificates::certificate_lifetime_is_raised_to_the_configured_minimum
    authorities::credential_ca_is_registered_but_not_trusted_for_clients
    authorities::certificates_of_a_credential_ca_are_revoked_and_published
    authorities::each_ca_version_is_registered_and_its_crl_outlives_deletion
    authorities::retiring_credential_ca_does_not_sign
    authorities::unregistrable_ca_still_signs_without_revocation_urls
    values::each_credential_type_is_returned_as_set
    values::versions_are_listed_newest_first_up_to_the_limit
    values::credential_type_is_fixed_until_deletion
    values::set_requires_the_expected_version
    values::generation_mode_decides_whether_a_new_value_is_generated
    values::concurrent_no_overwrite_generation_creates_one_value
    values::concurrent_writes_share_transactions
    values::lookup_of_many_names_uses_one_statement
    values::lookup_responses_are_limited_to_64_mib
    values::json_values_are_returned_byte_for_byte
    values::credential_references_are_interpolated
    values::names_are_found_by_path_and_by_substring
    values::substring_search_finds_text_anywhere_in_the_name
    values::search_for_a_whole_name_uses_one_statement
    permissions::credential_names_and_permission_paths_ignore_case
    permissions::each_operation_requires_its_permission
    permissions::own_permissions_cannot_be_changed
    permissions::unreadable_credentials_are_reported_as_not_found
    certificates::transitional_ca_version_rotates_trust_without_a_gap
    certificates::bulk_regenerate_renews_all_certificates_below_a_ca
    certificates::openssl_accepts_generated_certificates
    certificates::invalid_certificate_values_are_rejected_like_credhub
    certificates::last_certificate_version_cannot_be_deleted
    certificates::private_keys_are_returned_only_with_read_permission
    sealing::sealed_values_moved_between_rows_are_rejected
    sealing::credentials_are_unreadable_without_their_master_key
    sealing::any_flipped_bit_is_detected_and_other_credentials_stay_readable
    sealing::values_under_a_missing_master_key_are_counted
    sealing::secrets_are_absent_from_logs_events_and_debug_output
    deletion::version_expires_at_its_time_to_live
    deletion::expired_credentials_are_listed_and_undeleted
    deletion::deleted_credential_is_undeleted_within_the_retention_period
    certificates::expired_ca_signs_only_when_allowed
    deletion::versions_are_deleted_undeleted_and_destroyed_by_number
    deletion::old_versions_are_retained_as_the_path_policy_allows
    deletion::child_paths_are_listed_by_read_permission
    deletion::generation_succeeds_while_the_name_is_deleted_concurrently
    deletion::expired_version_is_not_replaced_by_an_older_one
    deletion::undeleted_version_keeps_its_time_to_live
    deletion::deleted_versions_are_destroyed_in_batches_of_five_hundred
    fields::numbered_lookup_reports_readable_expired_and_destroyed_versions
    fields::concurrent_patches_are_all_applied
    fields::credential_type_is_hidden_without_write_permission
    tokens::access_token_is_rejected_after_expiry_or_revocation
    rotation::unknown_stored_values_are_errors
    rotation::rotation_is_skipped_while_read_only
    tokens::refresh_token_is_reusable_until_logout
    rotation::rotation_round_stops_when_set_read_only
    rotation::ca_rotation_pauses_while_read_only
    rotation::credential_rotates_at_its_policy_age
    rotation::most_specific_rotation_policy_applies
    rotation::credential_set_by_hand_fails_rotation_and_is_reported_once
    rotation::certificates_rotate_before_expiry
    rotation::renewal_time_longer_than_the_lifetime_is_half_the_lifetime
    rotation::credential_recreated_as_another_type_is_not_planned
    rotation::destroyed_credential_ends_its_rotation_failure
    rotation::ca_replaced_by_a_leaf_is_planned_as_a_leaf
    rotation::rotated_certificate_keeps_its_time_to_live
    rotation::ca_rotates_in_steps
    rotation::interrupted_rotation_is_continued_by_another_node
    rotation::rotate_now_rotates_planned_credentials_immediately
    rotation::hook_notification_is_retried_until_accepted
    rotation::hook_rejection_keeps_the_old_value
    rotation::candidate_token_is_invalid_after_the_hook_response
    rotation::calls_to_a_failing_hook_are_limited_and_do_not_block_other_hooks
    rotation::recovered_hook_receives_all_pending_notifications
    rotation::unresponsive_hook_times_out_once_for_all_due_credentials
    read_audit::read_is_logged_before_the_response
    read_audit::reads_fail_while_the_audit_log_is_not_writable
    read_audit::concurrent_reads_share_log_transactions
    read_audit::lookup_is_logged_in_one_transaction
    read_audit::buffered_reads_succeed_without_the_log_and_are_written_on_shutdown
    wrap::concurrent_unwraps_of_one_token_succeed_once
    wrap::wrapping_token_expires_and_is_used_once
    wrap::failed_decryption_does_not_consume_the_wrapping_token
    wrap::wrapping_token_expires_with_its_credential
    access::readers_are_listed_with_the_reason_of_their_access
    access::access_difference_lists_actors_with_access_to_one_name_only
    leases::credential_works_until_its_lease_is_revoked
    leases::expired_lease_is_revoked_by_the_next_round
    leases::leases_end_with_their_identity
    leases::lease_without_confirmation_is_revoked_a_minute_later
    leases::abandoned_request_leaves_a_lease_that_is_revoked
    leases::revocation_is_retried_until_the_database_answers
    leases::rejected_creation_leaves_neither_lease_nor_password
    leases::leases_need_read_permission_and_belong_to_their_actor
    leases::stored_password_is_only_sent_to_its_address
    leases::renewal_extends_a_lease_to_its_maximum
    leases::roles_are_listed_in_pages
    leases::tls_to_the_database_is_verified_as_configured
}
