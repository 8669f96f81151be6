//! The handle callers hold.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use crate::inventory::recording::tally::Ids;
use db::Database;

/// The database with all tables of Bulla. Cheap to clone; the clones share connections.
#[derive(Clone)]
pub struct Store {
    database: Database,
    /// Rows that are known to be committed; see [`Ids`].
    pub(crate) ids: Arc<Mutex<Ids>>,
}

impl Store {
    /// A store over a database that was opened for these tables.
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

/// A handle on the tables of one noun, and the method of [`Store`] that returns it.
macro_rules! handle {
    ($(#[$doc:meta])* $handle:ident, $accessor:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $handle<'s>(pub(crate) &'s $crate::store::Store);

        impl $crate::store::Store {
            $(#[$doc])*
            #[must_use]
            pub fn $accessor(&self) -> $handle<'_> {
                $handle(self)
            }
        }
    };
}
pub(crate) use handle;
