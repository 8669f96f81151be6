//! The handle [`Acme`]. Its methods are in the files beside this one, each with the statements it sends.

use crate::store::handle;

handle! {
    /// Rows of the ACME server: accounts, external keys, orders, authorizations, limits.
    Acme, acme
}
