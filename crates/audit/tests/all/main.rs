//! Integration tests of this crate, in one binary.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod fixture;
mod heads;
mod measured;
mod retention;
mod rewritten;
mod tables;
mod witnesses;

testbed::on_both! {
    crate::fixture::Fixture:
    heads::signed_head_covers_all_chains_and_links_to_the_previous_head
    heads::nodes_signing_concurrently_share_one_key_and_one_head_chain
    heads::no_head_is_signed_while_the_log_is_unchanged
    heads::clock_jump_does_not_stop_head_signing
    rewritten::rewritten_history_is_detected_by_the_witnessed_head
    rewritten::head_that_is_altered_or_signed_by_another_key_is_rejected
    rewritten::truncated_chain_is_detected_by_a_signed_head
    retention::old_events_are_sealed_then_pruned_and_the_log_verifies
    retention::sealed_reads_are_counted_per_minute_and_signed_points_kept
    retention::log_verifies_after_a_restart_at_each_retention_step
    retention::failed_write_rolls_back_the_whole_retention_step
    retention::altered_chain_is_not_sealed_and_raises_an_event
    retention::inclusion_proof_verifies_segment_lines_and_rejects_altered_ones
    retention::altered_and_deleted_segments_are_detected
    retention::segments_are_readable_after_master_key_rotation
    witnesses::deleted_heads_raise_a_witness_alert
    witnesses::witness_file_contains_each_head_once_despite_failures
    tables::sql_statements_prepare_and_avoid_full_table_scans
}
