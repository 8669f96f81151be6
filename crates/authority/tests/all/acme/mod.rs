//! The ACME server, on both databases.

mod certbot;
mod client;
mod flow;
mod leftovers;
mod net;
mod refused;
mod revoking;
mod validating;
mod world;

/// Runs each case on both databases: `each { module::case … }`, each `async fn case(place: Place)`.
macro_rules! each {
    ($($module:ident::$case:ident)*) => {
        mod sqlite { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(crate::place::Fixture::sqlite().await).await; }
        )* }
        mod postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(crate::place::Fixture::postgres().await).await; }
        )* }
    };
}

each! {
    flow::an_order_goes_from_nothing_to_a_certificate
    flow::every_answer_has_a_nonce_and_the_way_back
    flow::every_kind_of_account_key_signs
    flow::accounts_are_found_changed_and_ended
    flow::terms_of_service_must_be_agreed_to
    flow::keys_are_rolled_over
    flow::another_node_takes_a_new_key_at_once
    flow::profiles_are_offered_and_chosen
    flow::a_trusting_directory_wants_no_proof
    flow::proofs_are_used_again_while_they_last
    flow::a_name_is_authorized_before_any_order
    flow::dates_are_chosen_within_the_profile
    refused::requests_that_are_not_for_here_and_now
    refused::what_belongs_to_another_account
    refused::orders_that_cannot_be_finalized
    refused::names_that_are_not_to_be_had
    refused::accounts_without_their_external_key
    refused::more_than_the_limits_allow
    refused::a_profile_that_needs_approval
    revoking::by_its_account
    revoking::by_an_account_that_holds_all_its_names
    revoking::trust_proves_nothing_of_others_certificates
    revoking::by_its_own_key
    revoking::certificates_say_when_to_renew
    revoking::an_order_replaces_a_certificate_once
    validating::http01_follows_redirects_and_no_further
    validating::names_that_lead_to_this_machine_are_not_reached
    validating::dns01_finds_the_record_wherever_it_is
    validating::tls_alpn01_wants_the_very_certificate
    validating::a_persistent_record_proves_for_its_account
    validating::a_persistent_record_outlives_the_key_it_was_made_with
    validating::caa_is_looked_for_up_to_the_top
    validating::caa_is_asked_again_when_a_proof_is_old
    validating::an_answer_that_comes_late_is_waited_for
    validating::a_failed_order_says_which_name_failed
    leftovers::a_validation_cut_off_is_done_after_a_restart
    leftovers::a_validation_under_way_at_a_stop_is_taken_over_at_once
    leftovers::an_order_cut_off_is_finished_by_the_next_poll
    leftovers::an_order_cut_off_is_finished_at_the_start
    leftovers::two_that_finish_one_order_issue_one_certificate
    leftovers::a_refused_order_says_why_and_stays_refused
    leftovers::what_is_over_is_deleted
    leftovers::orders_are_listed_in_pages
    leftovers::many_orders_are_few_statements
    leftovers::a_whole_order_costs_a_constant_number_of_statements
    certbot::registers_orders_renews_revokes_and_leaves
    certbot::binds_its_account_and_proves_a_wildcard
}
