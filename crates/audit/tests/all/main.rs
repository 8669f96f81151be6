//! The crate's integration tests, one binary.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod heads;
mod measured;
mod place;
mod retention;
mod rewritten;
mod tables;
mod witnesses;

testbed::on_both! {
    crate::place::Fixture:
    heads::a_head_names_the_ends_of_all_chains_and_the_head_before_it
    heads::nodes_that_sign_at_once_make_one_key_and_one_chain_of_heads
    heads::no_head_is_signed_while_the_log_does_not_grow
    heads::a_clock_that_jumped_does_not_end_the_signing
    rewritten::history_rewritten_with_a_new_chain_is_seen_by_the_witnessed_head
    rewritten::a_head_of_another_key_or_altered_does_not_count
    rewritten::a_cut_off_end_is_seen
    retention::old_events_are_sealed_and_verify_before_and_after_they_are_pruned
    retention::reads_are_counted_by_the_minute_and_their_points_stay
    retention::every_step_may_be_the_last_one_before_a_crash
    retention::a_write_that_fails_leaves_nothing_of_a_step
    retention::a_broken_chain_is_not_sealed
    retention::a_line_of_a_segment_is_proven_and_another_is_not
    retention::altered_segments_are_found
    retention::a_new_master_key_opens_segments
    witnesses::heads_that_were_deleted_raise_the_alert
    witnesses::a_file_has_every_head_once_also_after_failures
    tables::every_statement_is_accepted
}
