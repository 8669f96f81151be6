//! The crate's integration tests, one binary.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod acme;
mod ceremony;
mod est;
mod http;
mod issuing;
mod keystore;
mod office;
mod place;
mod property;
mod revoking;
mod scep;
mod serving;
mod tables;
mod tree;

testbed::on_both! { crate::place::Fixture:
    est::curl_enrols_and_renews
    est::what_may_not_be_is_refused
    est::a_registrar_asks_for_any_name
    est::keys_are_made_for_those_who_cannot
    est::wishes_are_told
    est::consent_is_waited_for
    est::who_enrols_by_certificate_is_that_person_elsewhere
    est::consent_falls_with_the_profile
    est::as_many_people_as_the_profile_says_have_to_consent
    est::a_request_is_bound_to_its_connection
    scep::certmonger_enrols
    scep::a_request_is_granted_once
    scep::what_may_not_be_fails
    scep::a_renewal_is_signed_by_the_certificate
    scep::consent_is_polled_for
    scep::certificates_and_lists_are_fetched
    scep::nodes_share_the_key_and_it_outlives_its_certificate
    keystore::a_key_signs_after_a_restart_and_only_under_its_master_key
    keystore::the_same_key_is_kept_once
    keystore::a_blocked_key_signs_no_more
    keystore::values_moved_between_rows_do_not_open
    keystore::the_master_key_is_changed_while_all_goes_on
    keystore::only_master_keys_that_the_database_knows_are_begun_with
    keystore::of_two_first_starts_with_keys_of_their_own_one_begins
    keystore::a_rotation_cut_off_is_finished_by_the_next
    keystore::a_key_may_stay_with_a_provider
    tree::chains_hold_for_openssl
    tree::path_lengths_are_kept
    tree::name_limits_hold_for_openssl
    tree::what_cannot_be_made_is_refused_and_nothing_stored
    tree::a_name_is_taken_once
    tree::an_authority_made_by_openssl_is_imported
    tree::an_external_parent_signs_our_request
    tree::a_cross_signature_gives_another_chain
    tree::a_renewed_authority_keeps_its_key_and_both_chains_hold
    tree::an_authority_is_retired_in_two_steps
    tree::another_node_sees_what_changed
    tree::the_issuing_authority_is_the_lowest_one
    tree::the_default_authority_is_chosen
    tree::an_authority_that_is_needed_is_not_retired
}
