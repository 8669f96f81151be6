//! The API of a server: the connection, its documents as rows, and how they are printed.

mod client;
mod listing;
mod lookup;
mod row;

pub use client::{Client, ServerArgs, document_of, local, read_as};
pub use listing::{Listing, Output, ShortListing, print_query_result, print_rows, show_one};
pub use lookup::path_of;
pub use row::{Columns, DocumentRow};
