//! Storage of the ACME server: accounts, external keys, orders, authorizations, limits.
//!
//! Frequent writes (orders, responses to challenges, validations, certificates) are batched. Each call runs a constant number of
//! statements.

mod accounts;
mod authorizations;
mod external_keys;
mod handle;
mod lines;
mod orders;
mod overrides;
mod position;

use db::{BulkStatement, ModuleStatements};
pub use handle::Acme;

pub use accounts::{
    AcmeAccount, AcmeAccountChange, AcmeAccountStatus, NewAcmeAccount, NewAcmeAccountOutcome,
    change_acme_account_key, insert_acme_account, note_acme_preauthorization, set_acme_account,
};
pub use authorizations::{
    AcmeAuthorization, AcmeAuthorizationStatus, AcmeChallengeResponse, AcmeProof, AcmeValidationResult,
    Method, begin_acme_validations, deactivate_acme_authorization, insert_acme_authorizations,
    store_validation_results,
};
pub use external_keys::{
    AcmeExternalKey, SEALED_SECRETS, delete_acme_external_key, disable_acme_external_key,
    insert_acme_external_key,
};
pub use orders::{
    AcmeFinalizedOrder, AcmeIssuanceResult, AcmeOrder, AcmeOrderStatus, begin_acme_issuances,
    end_acme_issuances, insert_acme_orders,
};
pub use overrides::{AcmeLimit, AcmeLimitOverride, delete_acme_limit_override, put_acme_limit_override};

pub(crate) const SENDS: ModuleStatements =
    ModuleStatements { both: ALL, sqlite: &[], postgres: &[], bulks: BULKS, composed };

const ALL: &[&str] = &[
    accounts::ACCOUNT,
    accounts::ACCOUNT_BY_KEY,
    accounts::ACCOUNTS,
    accounts::INSERT,
    accounts::UNDO,
    accounts::SET,
    accounts::CHANGE_KEY,
    accounts::KEEP_KEY,
    accounts::EARLIER_KEYS,
    accounts::PREAUTHORIZED,
    authorizations::AUTHORIZATION,
    authorizations::DEACTIVATE,
    external_keys::KEY,
    external_keys::KEY_BY_KID,
    external_keys::KEYS,
    external_keys::INSERT,
    external_keys::DISABLE,
    external_keys::DELETE,
    external_keys::SEALED_SECRETS.page,
    external_keys::SEALED_SECRETS.count,
    external_keys::SEALED_SECRETS.heads,
    external_keys::USE,
    orders::ORDER,
    orders::ORDERS_OF,
    orders::ORDERS,
    orders::REPLACEMENT,
    overrides::OVERRIDES,
    overrides::PUT,
    overrides::DELETE,
];

const BULKS: &[&BulkStatement] = &[
    &authorizations::CLAIM,
    &authorizations::TIDY,
    &orders::CLAIM,
    &orders::TIDY,
    &external_keys::SEALED_SECRETS.replace,
    &accounts::KEYS_IN_USE,
    &authorizations::AUTHORIZATIONS,
    &authorizations::INSERT,
    &authorizations::BEGIN,
    &authorizations::END,
    &orders::ORDERS_BY_ID,
    &authorizations::RELEASE,
    &orders::INSERT,
    &orders::BEGIN,
    &orders::END,
    &orders::RELEASE,
];

fn composed() -> Vec<String> {
    authorizations::composed()
}
