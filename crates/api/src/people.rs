//! Owners and teams of certificates.

use serde::{Deserialize, Serialize};

/// A contact of an owner or team.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ContactBody {
    /// Kind of contact: `email`, `slack`, `phone`, …
    #[cfg_attr(feature = "schemas", schema(example = "email", min_length = 1, max_length = 500))]
    pub kind: String,
    /// Address of the contact, such as an email address or a phone number.
    #[cfg_attr(feature = "schemas", schema(example = "ann@example.org", min_length = 1, max_length = 500))]
    pub address: String,
}

/// The resources that a team owns. Each resource belongs to exactly one team.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct OwnsBody {
    /// DNS suffixes (`a.example` is that name and all its subdomains) and IP addresses.
    #[cfg_attr(feature = "schemas", schema(example = json!(["a.example"])))]
    pub names: Vec<String>,
    /// Names of profiles that belong to the team.
    pub profiles: Vec<String>,
    /// Names of issuers that belong to the team.
    pub issuers: Vec<String>,
    /// Names of deployment targets that belong to the team.
    pub targets: Vec<String>,
    /// Credential paths: `/a` is that credential and all credentials below it.
    pub paths: Vec<String>,
}

/// Quotas of a team. An absent quota does not limit the team.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct QuotaBody {
    /// Maximum requests per second to the API and the credential store, for all callers of the team together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Maximum certificates per day (UTC), over all protocols and issuers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_per_day: Option<u32>,
}

/// Properties of an owner or team.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PersonBody {
    /// Human-readable description.
    #[cfg_attr(feature = "schemas", schema(max_length = 500))]
    pub description: String,
    /// Team that the owner belongs to; only for owners.
    pub team: Option<String>,
    /// Contacts of the owner or team.
    #[cfg_attr(feature = "schemas", schema(max_items = 16))]
    pub contacts: Vec<ContactBody>,
    /// Resources that the team owns; only for teams.
    pub owns: OwnsBody,
    /// Quotas of the team; only for teams.
    pub quota: QuotaBody,
}

/// An owner or team to create.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPerson {
    /// Name of the owner or team, unique.
    #[cfg_attr(feature = "schemas", schema(example = "ann", min_length = 1, max_length = 200))]
    pub name: String,
    /// Human-readable description.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 500))]
    pub description: String,
    /// Team that the owner belongs to; only for owners.
    pub team: Option<String>,
    /// Contacts of the owner or team.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_items = 16))]
    pub contacts: Vec<ContactBody>,
    /// Resources that the team owns; only for teams.
    #[serde(default)]
    pub owns: OwnsBody,
    /// Quotas of the team; only for teams.
    #[serde(default)]
    pub quota: QuotaBody,
}

/// An owner or team.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Person))]
pub struct PersonView {
    /// Name of the owner or team.
    pub name: String,
    /// Human-readable description.
    pub description: String,
    /// Team that the owner belongs to; only for owners.
    pub team: Option<String>,
    /// Contacts of the owner or team.
    pub contacts: Vec<ContactBody>,
    /// Resources that the team owns.
    pub owns: OwnsBody,
    /// Quotas of the team; only for teams.
    pub quota: QuotaBody,
    /// Number that changes with every change of the object.
    pub revision: i64,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}
