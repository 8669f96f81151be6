//! The handle [`Store`] of a database with Bulla's tables.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use crate::inventory::recording::tally::RowIdCache;
use db::Database;

/// The database with all tables of Bulla. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Store {
    database: Database,
    /// Ids of rows that are known to be committed; see [`RowIdCache`].
    pub(crate) ids: Arc<Mutex<RowIdCache>>,
}

impl Store {
    /// Wraps a database that was opened with the migrations of this crate.
    pub(crate) fn over(database: Database) -> Self {
        Self { database, ids: Arc::default() }
    }
}

impl Deref for Store {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}

/// Declares a handle on the tables of one kind of object: a struct over a borrowed [`Store`], created by `Name::of(&store)`.
///
/// Methods of a handle read, or write in a transaction of their own. Functions whose changes belong to a larger transaction take
/// the transaction, a [`db::Tx`].
#[macro_export]
macro_rules! handle {
    ($(#[$doc:meta])* $handle:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $handle<'s>(pub(crate) &'s $crate::Store);

        impl<'s> $handle<'s> {
            /// Returns the handle on these tables of a store.
            #[must_use]
            pub fn of(store: &'s $crate::Store) -> Self {
                Self(store)
            }
        }
    };
}
pub(crate) use handle;
