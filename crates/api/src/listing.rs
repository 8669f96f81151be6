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
    /// How many items there are on all pages: with `count=true`, of listings that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<TotalView>,
}

/// How many items a listing has on all pages.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct TotalView {
    /// The number of items that the caller may see.
    #[cfg_attr(feature = "schemas", schema(example = 1240))]
    pub value: u64,
    /// False when counting stopped at a bound: there are at least `value`.
    pub exact: bool,
}

/// Whether a listing is counted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
#[serde(default)]
pub struct CountQuery {
    /// `true` adds `total`. Exact at any size without a filter or with `status` alone; otherwise matches are counted up to
    /// 100,000, and up to 5,000 for callers that do not see everything.
    pub count: Option<bool>,
}

/// From which end of its order a listing begins.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The smallest, soonest or first.
    #[default]
    Asc,
    /// The largest, latest or last.
    Desc,
}

impl<T> Listing<T> {
    /// A listing that is always whole.
    #[must_use]
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None, total: None }
    }
}
