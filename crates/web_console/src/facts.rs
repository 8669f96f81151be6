//! Terms with their values: what is known of one object.

use askama::Template;

use crate::cell::Cell;

/// A list of terms. Those without a value are left out.
#[derive(Default, Template)]
#[template(path = "facts.html")]
pub(crate) struct Facts {
    facts: Vec<(&'static str, Cell)>,
}

impl Facts {
    /// Adds a term; not where nothing is known.
    pub(crate) fn with(mut self, term: &'static str, cell: Cell) -> Self {
        if !matches!(cell, Cell::Empty) {
            self.facts.push((term, cell));
        }
        self
    }
}
