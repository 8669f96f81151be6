//! The tables of external issuers.
//!
//! Each kind of object has a handle, created by `Name::of(&store)`. Functions that change rows take the transaction.

mod issuers;

use db::ModuleStatements;

pub use issuers::{
    ConfiguredIssuer, ExternalIssuers, IssuerAccount, IssuerChange, IssuerHealth, IssuerOrder,
    IssuerSettings, SEALED_ISSUERS, delete_configured_issuer, insert_configured_issuer, set_issuer_account,
    update_configured_issuer,
};

/// Every statement of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] = &[ModuleStatements::of(issuers::ALL, issuers::BULKS)];
