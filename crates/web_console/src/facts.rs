//! A description list: the members of one object.

use askama::Template;

use crate::cell::Cell;

/// A list of terms. Those without a value are left out.
#[derive(Default, Template)]
#[template(path = "facts.html")]
pub(crate) struct Facts {
    facts: Vec<(&'static str, Cell)>,
}

impl Facts {
    /// Adds a term, unless its value is empty.
    pub(crate) fn with(mut self, term: &'static str, cell: Cell) -> Self {
        if !matches!(cell, Cell::Empty) {
            self.facts.push((term, cell));
        }
        self
    }
}
