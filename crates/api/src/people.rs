//! Owners and teams.

use serde::{Deserialize, Serialize};

/// A way to reach somebody.
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
    /// Moves with every change.
    pub revision: i64,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it last changed, RFC 3339.
    pub updated_at: String,
}
