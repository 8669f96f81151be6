//! Tests of the store. Each case runs on SQLite and on PostgreSQL.

// clippy allows this only in test functions, not in the cases that they call.
#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod access;
mod changes;
mod ground;
mod listing;
mod migrations;
mod pruning;
mod recording;
mod writing;

testbed::on_both! {
    testbed::tables::World:
    ground::audit_hashes_match_known_values
    ground::audit_chains_verify_after_concurrent_writers
    ground::outbox_delivers_every_committed_event_once_and_in_order
    ground::failed_commit_stores_nothing
    ground::lease_has_one_holder_at_a_time
    recording::observation_stores_endpoint_certificate_and_history
    recording::unknown_severity_code_is_an_error
    recording::replayed_batch_is_counted_as_duplicates
    recording::repeated_endpoint_in_a_batch_is_stored_once
    recording::crash_before_commit_stores_nothing
    recording::retry_after_a_crash_after_commit_stores_everything_once
    recording::unknown_scan_is_rejected
    recording::older_observation_is_added_to_the_history_only
    recording::silent_endpoint_keeps_its_last_certificate
    recording::hostile_texts_are_stored_sanitized_and_truncated
    recording::concurrent_writers_share_endpoints_and_certificates
    recording::maintained_counts_equal_the_rows
    recording::sql_statements_prepare_and_avoid_full_table_scans
    listing::inventory_is_ordered_by_expiry_or_host
    listing::inventory_filters_return_only_matching_endpoints
    listing::pages_are_complete_while_rows_are_inserted
    listing::cursor_of_another_listing_is_rejected
    listing::certificates_are_found_by_fingerprint_prefix_and_name
    listing::endpoints_of_a_ca_include_those_of_certificates_below_it
    listing::issuers_are_listed_with_their_counts
    listing::scans_are_started_finished_and_resumed
    listing::known_endpoints_report_whether_they_are_silent
    changes::each_kind_of_change_is_listed_since_a_time
    changes::two_scans_are_compared
    changes::a_page_of_a_comparison_reads_a_bounded_number_of_endpoints
    changes::the_last_comparable_scans_may_be_far_apart
    changes::endpoint_history_is_paged_newest_first
    pruning::superseded_observations_are_removed_and_their_certificates_and_times_stay
    pruning::a_newer_observation_makes_a_kept_one_removable
    pruning::a_scan_without_observations_is_removed_unless_it_is_the_newest_of_its_targets
    pruning::an_unfinished_scan_is_pruned_thirty_days_after_its_start
    pruning::a_pass_removes_at_most_a_thousand_rows_a_transaction
    pruning::concurrent_passes_count_each_observation_once
    access::identities_are_found_by_key_and_updates_require_the_revision
    access::sessions_end_with_their_identity_and_on_expiry
    access::a_ceremony_is_taken_once_and_a_counter_does_not_go_back
    access::roles_are_created_updated_and_deleted
    access::repeated_idempotent_request_returns_the_stored_response
    writing::writer_stores_all_rows_before_finishing
    writing::full_channel_applies_backpressure_to_senders
    writing::writer_retries_after_a_crash_without_duplicates
    writing::write_failure_reports_the_number_of_rows_not_stored
    writing::server_out_of_disk_space_is_a_full_disk_error
    writing::reopened_database_contains_the_stored_rows
}
