//! The store's battery: every case runs on SQLite and on PostgreSQL.

// clippy's allowance for tests covers functions marked as tests only, and the cases are called by those.
#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod access;
mod agents;
mod changes;
mod clouds;
mod ct;
mod enrolments;
mod ground;
mod history;
mod issued;
mod issuers;
mod key_policies;
mod listing;
mod ownership;
mod places;
mod plans;
mod proxy_leaves;
mod recording;
mod watches;
mod world;
mod writing;

/// Runs each case on both databases.
macro_rules! battery {
    ($($module:ident::$case:ident)*) => {
        mod sqlite { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { crate::$module::$case(crate::world::World::sqlite().await).await; }
        )* }
        mod postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { crate::$module::$case(crate::world::World::postgres().await).await; }
        )* }
    };
}

battery! {
    proxy_leaves::one_mints_and_the_others_find
    proxy_leaves::a_lease_is_taken_over_after_its_end_and_given_back_before
    proxy_leaves::a_leaf_is_given_out_while_one_renews_it
    proxy_leaves::of_many_who_ask_at_once_one_mints
    proxy_leaves::what_has_ended_goes_and_the_oldest_beyond_the_limit
    proxy_leaves::keys_of_one_leaf_go_with_it_and_shared_ones_stay
    proxy_leaves::a_key_stays_while_one_of_its_leaves_does
    proxy_leaves::a_cold_leaf_costs_few_statements
    agents::a_token_enrols_once_and_not_after_its_end
    agents::agents_are_found_by_key_name_and_labels
    agents::agents_are_seen_many_at_once
    agents::groups_have_revisions
    agents::targets_belong_to_agents
    agents::a_deployment_reported_twice_counts_once
    ground::audit_chains_verify_after_concurrent_writers
    ground::the_outbox_gives_every_committed_event_once_and_in_order
    ground::a_failed_commit_stores_nothing_of_it
    ground::a_lease_has_one_holder_at_a_time
    issued::sets_cost_a_constant_number_of_statements
    issued::a_key_is_used_once_whatever_comes_together
    issued::blocked_keys_are_refused_one_by_one
    issued::filters_find_what_they_say
    issued::reasons_follow_rfc_5280
    recording::an_observation_becomes_an_endpoint_a_certificate_and_a_history
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
    recording::every_statement_is_accepted
    places::sites_have_names_and_revisions
    places::a_node_token_is_used_once_and_not_after_its_end
    places::nodes_are_found_by_key_name_and_site
    places::statements_are_due_and_put_once
    places::nodes_come_and_go_with_their_leases
    places::changes_are_seen_in_the_order_of_their_numbers
    key_policies::policies_have_names_and_generations
    key_policies::keys_are_sealed_to_the_newest_generation
    key_policies::wraps_are_made_by_what_nodes_are_now
    key_policies::sealing_anew_leaves_what_others_did
    key_policies::a_node_reads_each_change_once_and_in_order
    key_policies::a_page_for_a_node_is_bounded_by_octets
    plans::no_statement_walks_a_large_table
    plans::old_orders_go_as_a_set
    issuers::settings_have_names_and_revisions
    issuers::accounts_health_and_orders_go_with_their_issuer
    issuers::orders_and_challenges_are_replaced_and_end
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
    ct::domains_are_watched_and_changed
    ct::a_due_question_is_asked_by_one_holder
    ct::an_expected_issuance_speaks_for_its_names
    ct::an_issuance_is_stored_once_whoever_tells_of_it
    ct::verdicts_are_given_once_and_what_has_ended_goes
    ct::two_who_find_the_same_at_once_store_it_once
    ct::finding_costs_a_constant_number_of_statements
    ct::a_log_keeps_its_place_and_its_alarm
    ct::what_is_known_for_a_name_is_found
    history::sketches_are_put_read_in_pages_and_trimmed
    history::an_hour_of_all_nodes_is_folded
    history::a_drift_begins_and_ends_once
    history::what_is_taken_of_the_pools_is_known
    watches::a_watch_is_made_changed_and_removed
    watches::a_due_watch_has_one_holder_and_ends_once
    watches::a_dead_holders_run_is_taken_over_with_its_scan
    watches::claims_and_renewals_are_one_statement_for_many
    watches::parts_of_a_run_have_one_holder_each_and_go_with_its_end
    ownership::a_rule_is_made_changed_and_removed
    ownership::rules_are_bounded_and_listed_in_their_order
    ownership::what_rules_look_at_is_read_for_many_at_once
    ownership::tags_are_kept_by_place_and_read_by_certificate
    clouds::the_latest_state_of_a_source_is_kept
    clouds::certificates_are_read_by_fingerprint_many_at_once
    clouds::connections_are_known
    enrolments::an_enrolment_waits_and_is_decided_once
    enrolments::open_enrolments_are_bounded_and_listed_oldest_first
    enrolments::one_of_two_nodes_makes_the_recipient
    access::identities_are_found_by_key_and_changed_by_revision
    access::sessions_end_with_their_person_and_by_time
    access::roles_are_made_changed_and_removed
    access::a_repeated_request_gets_the_answer_that_was_kept
    writing::rows_are_stored_when_the_writer_finishes
    writing::a_full_channel_makes_the_sender_wait
    writing::a_crash_is_repeated_and_doubles_nothing
    writing::a_refusal_is_reported_with_the_rows_not_stored
    writing::a_database_opened_again_holds_what_was_stored
}
