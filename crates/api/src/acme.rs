//! The embedded ACME server: external account keys, accounts, orders, limits.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A key for external account binding (RFC 8555 section 7.3.4); its secret is never shown again.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ExternalKeyView {
    /// Its identity.
    pub id: Uuid,
    /// The name clients give.
    pub kid: String,
    /// A description.
    pub label: String,
    /// Whether it may bind any number of accounts.
    pub reusable: bool,
    /// Profiles its accounts may use; empty: any.
    pub profiles: Vec<String>,
    /// Names its accounts may ask for; empty: any.
    pub names: Vec<String>,
    /// The team that its accounts act for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Actor that created it.
    pub created_by: String,
    /// When it stops binding new accounts.
    pub expires_at: Option<String>,
    /// Since when neither it nor its accounts may do anything.
    pub disabled_at: Option<String>,
    /// When it last bound an account.
    pub used_at: Option<String>,
    /// Accounts bound.
    pub uses: i64,
}

/// An external key to make.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewExternalKeyBody {
    /// The name clients give; made unless given.
    #[serde(default)]
    #[cfg_attr(
        feature = "schemas",
        schema(example = "web-team", min_length = 1, max_length = 200, nullable = false)
    )]
    pub kid: Option<String>,
    /// A description.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = "web team", max_length = 200))]
    pub label: String,
    /// Whether it may bind any number of accounts; otherwise one.
    #[serde(default)]
    pub reusable: bool,
    /// Profiles its accounts may use; empty: any.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// Names its accounts may ask for: `a.example` is that name and all below it, `10.0.0.0/8` are addresses; empty:
    /// any.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!(["a.example"])))]
    pub names: Vec<String>,
    /// The team that its accounts act for: they are given what the team owns and what is shared, and nothing of other teams.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(nullable = false))]
    pub team: Option<String>,
    /// When it stops binding new accounts.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(format = DateTime, nullable = false))]
    pub expires_at: Option<String>,
}

/// An external key just made.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedExternalKey {
    /// Its identity.
    pub id: Uuid,
    /// What clients call `--eab-kid`.
    pub kid: String,
    /// What clients call `--eab-hmac-key`, base64url. It is shown here and nowhere else.
    pub hmac_key: String,
}

/// An account of an ACME client.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AcmeAccountView {
    /// Its identity.
    pub id: Uuid,
    /// `valid`, `deactivated` (by its owner) or `revoked` (by an operator).
    #[cfg_attr(feature = "schemas", schema(example = "valid"))]
    pub status: String,
    /// `mailto:` addresses.
    pub contacts: Vec<String>,
    /// The external key it was bound with.
    pub external_key: Option<Uuid>,
    /// The profile of the directory it was made at.
    pub profile: String,
    /// The address it was made from.
    pub address: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// An order of an ACME client.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AcmeOrderView {
    /// Its identity.
    pub id: Uuid,
    /// The account.
    pub account: Uuid,
    /// The profile of its directory.
    pub profile: String,
    /// `pending`, `processing`, `valid` or `invalid`; a single order also says `ready`.
    #[cfg_attr(feature = "schemas", schema(example = "valid"))]
    pub status: String,
    /// `dns:a.example`, `ip:10.0.0.1`.
    pub names: Vec<String>,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// When it ends, RFC 3339.
    pub expires_at: String,
    /// The certificate issued.
    pub certificate: Option<Uuid>,
    /// The certificate it replaces (RFC 9773).
    pub replaces: Option<String>,
    /// Why it is invalid, as its client is told.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub error: Option<Value>,
}

/// A limit for one account, network or name in place of the general one.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct LimitOverrideView {
    /// Its identity.
    pub id: Uuid,
    /// `new_accounts`, `orders`, `failed_validations` or `duplicate_certificates`.
    pub kind: String,
    /// An account's id, a network, a name (`dns:a.example`).
    pub subject: String,
    /// How many in `seconds`; null: any number.
    pub allowed: Option<u32>,
    /// The period, seconds.
    pub seconds: u32,
    /// Why.
    pub note: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Actor that created it.
    pub created_by: String,
}

/// A limit to set.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LimitOverrideBody {
    /// `new_accounts`, `orders`, `failed_validations` or `duplicate_certificates`.
    #[cfg_attr(
        feature = "schemas",
        schema(
            example = "orders",
            pattern = "^(new_accounts|orders|failed_validations|duplicate_certificates)$"
        )
    )]
    pub kind: String,
    /// An account's id; for `new_accounts` an address or network; for `failed_validations` and
    /// `duplicate_certificates` also a name (`dns:a.example`).
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 500))]
    pub subject: String,
    /// How many in `seconds`; absent: any number.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(nullable = false))]
    pub allowed: Option<u32>,
    /// In how long.
    #[cfg_attr(feature = "schemas", schema(example = 3600, minimum = 1))]
    pub seconds: u32,
    /// Why.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 500))]
    pub note: String,
}

/// Which orders to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct AcmeOrderQuery {
    /// This account's only, without those refused.
    pub account: Option<Uuid>,
}
