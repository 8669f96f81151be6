//! The integration tests of this crate, in one binary.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod acme;
mod ceremony;
mod est;
mod fixture;
mod http;
mod issuing;
mod keystore;
mod office;
mod property;
mod revoking;
mod scep;
mod serving;
mod tables;
mod tree;

testbed::on_both! { crate::fixture::Fixture:
    est::curl_enrolls_and_renews
    est::invalid_and_unauthorized_requests_are_rejected
    est::strangers_cannot_tell_which_profiles_are_offered_for_enrollment
    est::registrar_enrolls_for_any_name
    est::server_generates_the_key_on_request
    est::csr_attributes_list_key_type_signature_and_must_staple
    est::enrollment_waits_for_approval_and_is_issued_or_rejected
    est::requester_by_certificate_cannot_approve_as_its_api_identity
    est::profile_change_invalidates_an_enrollment_approval
    est::enrollment_requires_the_number_of_approvals_of_the_profile
    est::mismatched_channel_binding_is_rejected
    scep::certmonger_enrolls
    scep::repeated_transaction_returns_the_same_certificate
    scep::invalid_requests_fail_with_their_failure_code
    scep::renewal_is_authenticated_by_the_current_certificate
    scep::pending_request_is_polled_until_approved_or_rejected
    scep::certificates_and_crls_are_fetched
    scep::nodes_share_the_recipient_key_and_renew_its_certificate
    keystore::key_signs_after_restart_only_with_its_master_key
    keystore::imported_key_is_stored_once
    keystore::blocked_key_cannot_sign
    keystore::sealed_keys_moved_between_rows_are_rejected
    keystore::master_key_rotates_in_pages_while_keys_are_used
    keystore::startup_rejects_master_keys_unknown_to_the_database
    keystore::concurrent_first_starts_with_different_master_keys_admit_one
    keystore::interrupted_master_key_rotation_is_finished_by_the_next
    keystore::provider_key_stays_with_the_provider_and_swapped_keys_are_rejected
    tree::ca_chains_verify_in_openssl
    tree::path_length_constraints_are_enforced
    tree::name_constraints_are_enforced_by_openssl
    tree::invalid_cas_are_rejected_and_nothing_is_stored
    tree::ca_name_is_taken_once_under_concurrency
    tree::openssl_ca_is_imported
    tree::external_parent_signs_the_ca_csr
    tree::cross_signing_adds_an_alternate_chain
    tree::renewed_ca_keeps_its_key_and_both_chains_verify
    tree::ca_is_retired_in_two_steps
    tree::ca_changes_are_visible_on_another_node
    tree::issuing_ca_is_the_first_intermediate_unless_named
    tree::default_ca_is_selected_and_replaced_on_retirement
    tree::last_or_referenced_ca_is_not_retired
}
