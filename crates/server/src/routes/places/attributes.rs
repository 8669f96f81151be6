//! Attributes of sites and nodes, and what the routes of all of them share.

use std::collections::BTreeMap;

use sites::{Attributes, stored_attributes};

/// The tag of these routes.
pub(super) const AREA: &str = "places";

/// Attributes as the API has them.
pub(super) type AttributesBody = BTreeMap<String, String>;

/// Attributes as they are stored, for a view.
pub(super) fn shown_attributes(json: &str) -> AttributesBody {
    shown_pairs(&stored_attributes(json))
}

pub(super) fn shown_pairs(attributes: &Attributes) -> AttributesBody {
    attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
