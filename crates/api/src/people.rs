//! Owners and teams.

use serde::{Deserialize, Serialize};

/// A contact.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ContactBody {
    /// What kind: `email`, `slack`, `phone`, …
    #[cfg_attr(feature = "schemas", schema(example = "email", min_length = 1, max_length = 500))]
    pub kind: String,
    /// The address.
    #[cfg_attr(feature = "schemas", schema(example = "ann@example.org", min_length = 1, max_length = 500))]
    pub address: String,
}

/// What a team owns. Each object belongs to one team alone.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct OwnsBody {
    /// DNS suffixes (`a.example`: that name and all below it) and addresses.
    #[cfg_attr(feature = "schemas", schema(example = json!(["a.example"])))]
    pub names: Vec<String>,
    /// Profiles, by name.
    pub profiles: Vec<String>,
    /// Issuers, by name.
    pub issuers: Vec<String>,
    /// Deployment targets, by name.
    pub targets: Vec<String>,
    /// Credential paths: `/a` is that credential and all below it.
    pub paths: Vec<String>,
}

/// How much a team may ask for; without a number there is no limit of the team's own.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct QuotaBody {
    /// Requests a second to the API and the credential store, of all its callers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Certificates a day (UTC), over every protocol and issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_per_day: Option<u32>,
}

/// What an owner or team is.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PersonBody {
    /// For people.
    #[cfg_attr(feature = "schemas", schema(max_length = 500))]
    pub description: String,
    /// The team an owner belongs to; teams have none.
    pub team: Option<String>,
    /// How to reach them.
    #[cfg_attr(feature = "schemas", schema(max_items = 16))]
    pub contacts: Vec<ContactBody>,
    /// What a team owns; owners own nothing.
    pub owns: OwnsBody,
    /// How much a team may ask for.
    pub quota: QuotaBody,
}

/// An owner or team to make.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPerson {
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "ann", min_length = 1, max_length = 200))]
    pub name: String,
    /// For people.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 500))]
    pub description: String,
    /// The team an owner belongs to; teams have none.
    pub team: Option<String>,
    /// How to reach them.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_items = 16))]
    pub contacts: Vec<ContactBody>,
    /// What a team owns; owners own nothing.
    #[serde(default)]
    pub owns: OwnsBody,
    /// How much a team may ask for.
    #[serde(default)]
    pub quota: QuotaBody,
}

/// An owner or team.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Person))]
pub struct PersonView {
    /// Its name.
    pub name: String,
    /// For people.
    pub description: String,
    /// The team an owner belongs to; teams have none.
    pub team: Option<String>,
    /// How to reach them.
    pub contacts: Vec<ContactBody>,
    /// What a team owns.
    pub owns: OwnsBody,
    /// How much a team may ask for.
    pub quota: QuotaBody,
    /// Moves with every change.
    pub revision: i64,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}
