//! Attributes of sites and nodes, and helpers that their routes share.

use std::collections::BTreeMap;

use sites::{Attributes, stored_attributes};

/// The OpenAPI tag of these routes.
pub(super) const AREA: &str = "places";

/// Attributes of a site or node in the API: the value by name.
pub(super) type AttributesBody = BTreeMap<String, String>;

/// Parses stored attributes for a view.
pub(super) fn shown_attributes(json: &str) -> AttributesBody {
    attribute_pairs(&stored_attributes(json))
}

pub(super) fn attribute_pairs(attributes: &Attributes) -> AttributesBody {
    attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
