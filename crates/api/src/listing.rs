//! Pagination: query parameters and the response envelope of lists.

use serde::{Deserialize, Serialize};

/// The parameters of every list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct PageQuery {
    /// Maximum number of items in the page; 50 when absent.
    #[cfg_attr(feature = "schemas", param(minimum = 1, maximum = 500))]
    pub limit: Option<u32>,
    /// Start of the page: the `next` value of the preceding page.
    pub cursor: Option<String>,
    /// Members to return of each item, separated by commas; all when absent.
    #[cfg_attr(feature = "schemas", param(example = "id,name"))]
    pub fields: Option<String>,
}

impl PageQuery {
    /// Returns the complete query of a page: the filter and the page parameters.
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

/// One page of a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct Listing<T> {
    /// Items of the page, at most `limit`.
    pub items: Vec<T>,
    /// The `cursor` of the next page; null when this one is the last.
    pub next: Option<String>,
    /// Number of items on all pages. Present with `count=true`, for lists that support counting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<TotalView>,
}

/// The number of items of a list on all pages.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct TotalView {
    /// The number of items that the caller may see.
    #[cfg_attr(feature = "schemas", schema(example = 1240))]
    pub value: u64,
    /// Whether `value` is exact. It is false if counting stopped at a limit; then there are at least `value` items.
    pub exact: bool,
}

/// Query parameter that requests a count.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
#[serde(default)]
pub struct CountQuery {
    /// `true` adds `total`. The count is exact for any size without a filter or with `status` alone. Otherwise matches are counted
    /// up to 100,000, or up to 5,000 for callers with restricted access.
    pub count: Option<bool>,
}

/// Sort direction of a list.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Ascending: smallest or earliest first.
    #[default]
    Asc,
    /// Descending: largest or latest first.
    Desc,
}

impl<T> Listing<T> {
    /// Returns a list that has only one page.
    #[must_use]
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None, total: None }
    }
}
