//! A description list: the properties of one object.

use askama::Template;

use crate::cell::Cell;

/// A description list: terms with their values. Entries without a value are left out.
#[derive(Default, Template)]
#[template(path = "facts.html")]
pub(crate) struct Facts {
    facts: Vec<(&'static str, Cell)>,
}

impl Facts {
    /// Adds an entry, unless its value is empty.
    pub(crate) fn with(mut self, term: &'static str, cell: Cell) -> Self {
        if !matches!(cell, Cell::Empty) {
            self.facts.push((term, cell));
        }
        self
    }
}
