//! Tests of the ACME server, on both databases.

mod certbot;
mod client;
mod flow;
mod leftovers;
mod net;
mod refused;
mod revoking;
mod validating;
mod world;

/// Runs each test on both databases: `each { module::case … }`, each `async fn case(place: Place)`.
macro_rules! each {
    ($($module:ident::$case:ident)*) => {
        mod sqlite { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(crate::fixture::Fixture::sqlite().await).await; }
        )* }
        mod postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(crate::fixture::Fixture::postgres().await).await; }
        )* }
    };
}

each! {
    flow::order_is_validated_finalized_and_issued
    flow::responses_contain_nonce_and_index_and_up_links
    flow::all_account_key_types_are_accepted
    flow::accounts_are_found_updated_and_deactivated
    flow::new_account_must_agree_to_terms_of_service
    flow::account_key_rollover_replaces_the_key_and_rejects_invalid_requests
    flow::rolled_over_account_key_is_used_by_another_node
    flow::profiles_are_listed_in_the_directory_and_selected_by_orders
    flow::trusting_directory_issues_without_challenges
    flow::valid_authorizations_are_reused_until_they_expire
    flow::preauthorized_name_is_used_by_a_later_order
    flow::order_dates_are_limited_by_profile_and_directory
    refused::requests_with_invalid_nonce_url_or_key_are_rejected
    refused::resources_of_another_account_are_reported_as_not_found
    refused::invalid_finalize_requests_are_rejected
    refused::orders_for_disallowed_names_are_rejected
    refused::external_account_binding_is_required_and_limits_the_account
    refused::rate_limits_are_enforced_and_overridable
    refused::order_for_a_profile_that_requires_approval_is_rejected
    revoking::issuing_account_revokes_with_a_permitted_reason
    revoking::account_authorized_for_all_names_revokes_the_certificate
    revoking::trusted_authorization_does_not_permit_revocation_by_other_accounts
    revoking::certificate_key_revokes_its_own_certificate
    revoking::renewal_info_suggests_a_window_and_past_dates_after_revocation
    revoking::certificate_is_replaced_by_one_order_only
    validating::http01_follows_only_permitted_redirects_and_checks_the_response
    validating::validation_of_loopback_addresses_is_rejected
    validating::dns01_follows_cname_and_tcp_and_reports_missing_records
    validating::tls_alpn01_rejects_certificates_that_differ_from_the_challenge
    validating::persistent_dns_record_is_valid_for_its_account_only
    validating::persistent_dns_record_stays_valid_after_account_key_rollover
    validating::caa_records_are_looked_up_to_the_root
    validating::caa_is_rechecked_when_an_authorization_is_old
    validating::validation_is_retried_until_the_challenge_response_appears
    validating::failed_order_reports_the_failed_identifiers
    leftovers::interrupted_validation_completes_after_restart
    leftovers::validation_claim_is_released_on_shutdown
    leftovers::interrupted_order_is_finished_by_the_next_poll
    leftovers::interrupted_order_is_finished_at_startup
    leftovers::concurrent_polls_of_an_interrupted_order_issue_one_certificate
    leftovers::order_rejected_at_finalization_stays_invalid_with_its_error
    leftovers::ended_orders_are_deleted_after_the_retention_period
    leftovers::account_orders_are_listed_in_pages
    leftovers::new_order_statement_count_is_independent_of_the_number_of_names
    leftovers::order_statement_count_is_independent_of_the_number_of_names
    certbot::certbot_registers_issues_renews_revokes_and_unregisters
    certbot::certbot_binds_an_external_account_and_issues_a_wildcard
}
