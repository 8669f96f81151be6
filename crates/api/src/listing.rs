//! The envelope of a page.

use serde::{Deserialize, Serialize};

/// The parameters of every listing.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct PageQuery {
    /// Most items in the page; 50 when absent.
    #[cfg_attr(feature = "schemas", param(minimum = 1, maximum = 500))]
    pub limit: Option<u32>,
    /// Where the page begins: `next` of the page before.
    pub cursor: Option<String>,
    /// Members to give of each item, separated by commas; all when absent.
    #[cfg_attr(feature = "schemas", param(example = "id,name"))]
    pub fields: Option<String>,
}

impl PageQuery {
    /// The whole query of a page: which items, and which page of them.
    pub fn of<'a, Q: Serialize>(&'a self, filter: &'a Q) -> impl Serialize + 'a {
        #[derive(Serialize)]
        struct Paged<'a, Q> {
            #[serde(flatten)]
            filter: &'a Q,
            #[serde(flatten)]
            page: &'a PageQuery,
        }
        Paged { filter, page: self }
    }
}

/// One page of a listing.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct Listing<T> {
    /// At most as many as asked for.
    pub items: Vec<T>,
    /// The `cursor` of the next page; null when this one is the last.
    pub next: Option<String>,
}

impl<T> Listing<T> {
    /// A listing that is always whole.
    #[must_use]
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}
