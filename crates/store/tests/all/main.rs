//! The store's battery: every case runs on SQLite and on PostgreSQL.

// clippy's allowance for tests covers functions marked as tests only, and the cases are called by those.
#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod access;
mod changes;
mod ground;
mod listing;
mod migrations;
mod recording;
mod writing;

testbed::on_both! {
    testbed::tables::World:
    ground::hashes_of_the_audit_log_are_these
    ground::audit_chains_verify_after_concurrent_writers
    ground::the_outbox_gives_every_committed_event_once_and_in_order
    ground::a_failed_commit_stores_nothing_of_it
    ground::a_lease_has_one_holder_at_a_time
    recording::an_observation_becomes_an_endpoint_a_certificate_and_a_history
    recording::a_severity_that_is_not_known_is_an_error
    recording::a_replayed_batch_stores_nothing_twice
    recording::an_endpoint_twice_in_a_batch_is_stored_once
    recording::a_crash_before_the_commit_stores_nothing
    recording::a_crash_after_the_commit_stores_everything_once
    recording::an_unknown_scan_is_refused
    recording::an_older_observation_joins_the_history_and_changes_nothing
    recording::a_silent_endpoint_keeps_its_last_certificate
    recording::hostile_texts_are_stored
    recording::two_writers_share_endpoints_and_certificates
    recording::counts_kept_by_the_writer_equal_the_rows
    recording::every_statement_is_accepted_and_walks_no_large_table
    listing::the_inventory_comes_soonest_expiry_first_and_by_host
    listing::filters_narrow_the_inventory
    listing::pages_are_complete_while_rows_arrive
    listing::cursors_fit_their_own_listing_only
    listing::certificates_are_found_by_fingerprint_prefix_and_name
    listing::endpoints_of_a_certificate_include_those_below_it
    listing::issuers_come_with_their_counts
    listing::scans_are_begun_finished_and_resumed
    listing::known_endpoints_tell_the_silent
    changes::each_kind_of_change_is_listed_since_a_time
    changes::two_scans_are_compared
    changes::history_is_newest_first_in_pages
    access::identities_are_found_by_key_and_changed_by_revision
    access::sessions_end_with_their_person_and_by_time
    access::roles_are_made_changed_and_removed
    access::a_repeated_request_gets_the_answer_that_was_kept
    writing::rows_are_stored_when_the_writer_finishes
    writing::a_full_channel_makes_the_sender_wait
    writing::a_crash_is_repeated_and_doubles_nothing
    writing::a_refusal_is_reported_with_the_rows_not_stored
    writing::a_database_server_without_room_is_a_full_disk
    writing::a_database_opened_again_holds_what_was_stored
}
