//! The credential store, every case on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used)]

mod certificates;
mod permissions;
mod place;
mod sealing;
mod tokens;
mod values;

/// Runs each case on both databases: `battery! { module::case … }`, each `async fn case(place: Place)`.
macro_rules! battery {
    ($($module:ident::$case:ident)*) => {
        mod sqlite { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { crate::$module::$case(crate::place::Place::sqlite().await).await; }
        )* }
        mod postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { crate::$module::$case(crate::place::Place::postgres().await).await; }
        )* }
    };
}

battery! {
    values::every_type_is_answered_as_it_was_set
    values::versions_come_newest_first_and_no_more_are_read_than_asked_for
    values::a_name_keeps_its_type_until_it_is_deleted
    values::only_the_expected_version_is_followed
    values::modes_decide_before_anything_is_made
    values::two_who_would_not_overwrite_get_one_value
    values::whoever_writes_side_by_side_shares_transactions
    values::many_names_are_one_statement
    values::references_are_replaced_by_what_they_name
    values::names_are_found_by_path_part_and_end
    permissions::case_changes_nothing
    permissions::each_operation_is_asked_for
    permissions::nobody_changes_their_own
    permissions::what_may_not_be_read_is_not_there
    certificates::an_authority_changes_without_a_gap
    certificates::all_below_an_authority_is_made_anew
    certificates::openssl_accepts_what_is_made
    certificates::what_credhub_refuses_is_refused
    certificates::the_last_version_stays
    sealing::values_moved_between_rows_do_not_open_and_others_do
    sealing::another_master_key_opens_nothing_until_it_is_there
    sealing::no_secret_is_in_the_log_or_the_events
    tokens::a_token_ends_with_its_time_or_before
}
