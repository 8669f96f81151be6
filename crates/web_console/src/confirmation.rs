//! The confirmation page of an action: its consequences, and the form that performs it.

use askama::Template;

use crate::facts::Facts;
use crate::form::{Field, Fields};
use crate::session::Session;
use crate::table::Table;

/// A page that shows the consequences of an action, with the HTML form that confirms it.
#[derive(Template)]
#[template(path = "confirmation.html")]
pub(crate) struct Confirmation {
    action: String,
    csrf: String,
    cancel: String,
    button: &'static str,
    danger: bool,
    consequences: Vec<String>,
    problem: Option<String>,
    facts: Facts,
    tables: Vec<(&'static str, Table)>,
    fields: Fields,
    alternative: Option<(String, &'static str)>,
}

impl Confirmation {
    /// Creates a form that is sent to `action`; `cancel` is the page to return to without the action.
    pub(crate) fn new(
        session: &Session,
        action: impl Into<String>,
        cancel: impl Into<String>,
        button: &'static str,
    ) -> Self {
        Self {
            action: action.into(),
            csrf: session.csrf().to_owned(),
            cancel: cancel.into(),
            button,
            danger: false,
            consequences: Vec::new(),
            problem: None,
            facts: Facts::default(),
            tables: Vec::new(),
            fields: Fields::default(),
            alternative: None,
        }
    }

    /// Marks the action as dangerous: it cannot be undone, or it stops something.
    pub(crate) fn danger(mut self) -> Self {
        self.danger = true;
        self
    }

    /// Adds a sentence about a consequence.
    pub(crate) fn says(mut self, sentence: impl Into<String>) -> Self {
        self.consequences.push(sentence.into());
        self
    }

    /// Adds a sentence about a consequence, if there is one.
    pub(crate) fn says_if_any(mut self, sentence: Option<String>) -> Self {
        self.consequences.extend(sentence);
        self
    }

    /// Sets the reason why the API rejected the form.
    pub(crate) fn problem(mut self, problem: Option<String>) -> Self {
        self.problem = problem;
        self
    }

    /// Sets the facts about the object.
    pub(crate) fn facts(mut self, facts: Facts) -> Self {
        self.facts = facts;
        self
    }

    /// Adds a table of objects that the action changes.
    pub(crate) fn table(mut self, heading: &'static str, table: Table) -> Self {
        self.tables.push((heading, table));
        self
    }

    pub(crate) fn field(mut self, field: Field) -> Self {
        self.fields.extend([field]);
        self
    }

    pub(crate) fn fields(mut self, fields: impl IntoIterator<Item = Field>) -> Self {
        self.fields.extend(fields);
        self
    }

    /// Sets a link to another form for the same action, below the fields.
    pub(crate) fn alternative(mut self, page: impl Into<String>, label: &'static str) -> Self {
        self.alternative = Some((page.into(), label));
        self
    }

    /// Adds a hidden form field.
    pub(crate) fn hidden(self, name: &'static str, value: impl Into<String>) -> Self {
        self.field(Field::hidden(name, value))
    }
}
