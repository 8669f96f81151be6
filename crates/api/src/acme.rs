//! The embedded ACME server: external account keys, accounts, orders, limits.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A key for external account binding (RFC 8555 section 7.3.4). Its secret is never shown again.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ExternalKeyView {
    /// UUID of the key, used in `/api/v1/acme/external-keys/{id}`.
    pub id: Uuid,
    /// Key identifier that ACME clients send.
    pub kid: String,
    /// Human-readable description.
    pub label: String,
    /// Whether the key may bind any number of accounts.
    pub reusable: bool,
    /// Profiles that the accounts of the key may use. An empty list allows any.
    pub profiles: Vec<String>,
    /// Names that the accounts of the key may request. An empty list allows any.
    pub names: Vec<String>,
    /// Team on whose behalf the accounts of the key act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Actor that created the key.
    pub created_by: String,
    /// Time after which the key binds no new accounts.
    pub expires_at: Option<String>,
    /// Time at which the key and its accounts were disabled; null if enabled.
    pub disabled_at: Option<String>,
    /// Time of the last account binding with the key.
    pub used_at: Option<String>,
    /// Number of accounts bound with the key.
    pub uses: i64,
}

/// A key for external account binding to create.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewExternalKeyBody {
    /// Key identifier that ACME clients send; generated when absent.
    #[serde(default)]
    #[cfg_attr(
        feature = "schemas",
        schema(example = "web-team", min_length = 1, max_length = 200, nullable = false)
    )]
    pub kid: Option<String>,
    /// Human-readable description.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = "web team", max_length = 200))]
    pub label: String,
    /// Whether the key may bind any number of accounts; otherwise it binds one.
    #[serde(default)]
    pub reusable: bool,
    /// Profiles that the accounts of the key may use. An empty list allows any.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// Names that the accounts of the key may request: `a.example` allows that name and all its subdomains, `10.0.0.0/8` allows
    /// addresses. An empty list allows any.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = json!(["a.example"])))]
    pub names: Vec<String>,
    /// Team on whose behalf the accounts of the key act. The accounts may request names that the team owns and names that are
    /// shared, but no names of other teams.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(nullable = false))]
    pub team: Option<String>,
    /// Time after which the key binds no new accounts.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(format = DateTime, nullable = false))]
    pub expires_at: Option<String>,
}

/// Response to the creation of a key for external account binding, with the MAC key.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedExternalKey {
    /// UUID of the key, used in `/api/v1/acme/external-keys/{id}`.
    pub id: Uuid,
    /// Key identifier; many ACME clients have the option `--eab-kid` for it.
    pub kid: String,
    /// The MAC key, base64url; many ACME clients have the option `--eab-hmac-key` for it. It is shown only in this response.
    pub hmac_key: String,
}

/// An account of an ACME client (RFC 8555 section 7.1.2).
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AcmeAccountView {
    /// UUID of the account, used in `/api/v1/acme/accounts/{id}`.
    pub id: Uuid,
    /// State of the account: `valid`, `deactivated` (by its owner) or `revoked` (by an operator).
    #[cfg_attr(feature = "schemas", schema(example = "valid"))]
    pub status: String,
    /// Contacts, as `mailto:` URLs.
    pub contacts: Vec<String>,
    /// External key with which the account was bound.
    pub external_key: Option<Uuid>,
    /// Profile of the ACME directory at which the account was created.
    pub profile: String,
    /// Network address from which the account was created.
    pub address: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// An order of an ACME client (RFC 8555 section 7.1.3).
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AcmeOrderView {
    /// UUID of the order, used in `/api/v1/acme/orders/{id}`.
    pub id: Uuid,
    /// Account that placed the order.
    pub account: Uuid,
    /// Profile of the ACME directory of the order.
    pub profile: String,
    /// State of the order: `pending`, `ready`, `processing`, `valid` or `invalid`.
    #[cfg_attr(feature = "schemas", schema(example = "valid"))]
    pub status: String,
    /// Names of the order, such as `dns:a.example` or `ip:10.0.0.1`.
    pub names: Vec<String>,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Expiry time, RFC 3339.
    pub expires_at: String,
    /// Id of the issued certificate.
    pub certificate: Option<Uuid>,
    /// The certificate that the order replaces (RFC 9773).
    pub replaces: Option<String>,
    /// Reason why the order is invalid: the ACME problem document that the client receives.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<Object>))]
    pub error: Option<Value>,
}

/// A rate limit for one account, network or name that replaces the general limit.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct LimitOverrideView {
    /// UUID of the override, used in `/api/v1/acme/limit-overrides/{id}`.
    pub id: Uuid,
    /// Limit that is overridden: `new_accounts`, `orders`, `failed_validations` or `duplicate_certificates`.
    pub kind: String,
    /// Subject of the limit: the identifier of an account, a network, or a name (`dns:a.example`).
    pub subject: String,
    /// Number of events allowed in each period of `seconds`; null for no limit.
    pub allowed: Option<u32>,
    /// Length of the period in seconds.
    pub seconds: u32,
    /// Reason for the override.
    pub note: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Actor that created the override.
    pub created_by: String,
}

/// A rate limit override to set.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LimitOverrideBody {
    /// Limit to override: `new_accounts`, `orders`, `failed_validations` or `duplicate_certificates`.
    #[cfg_attr(
        feature = "schemas",
        schema(
            example = "orders",
            pattern = "^(new_accounts|orders|failed_validations|duplicate_certificates)$"
        )
    )]
    pub kind: String,
    /// Subject of the limit: the identifier of an account; for `new_accounts` an address or network; for `failed_validations` and
    /// `duplicate_certificates` also a name (`dns:a.example`).
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 500))]
    pub subject: String,
    /// Number of events allowed in each period of `seconds`; no limit when absent.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(nullable = false))]
    pub allowed: Option<u32>,
    /// Length of the period in seconds.
    #[cfg_attr(feature = "schemas", schema(example = 3600, minimum = 1))]
    pub seconds: u32,
    /// Reason for the override.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 500))]
    pub note: String,
}

/// Query parameters of `GET /api/v1/acme/orders`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct AcmeOrderQuery {
    /// Only orders of this account, without orders that failed. Expired orders are included.
    pub account: Option<Uuid>,
}
