//! A page that says what an action does before it is done, with the form that does it.

use askama::Template;

use crate::facts::Facts;
use crate::table::Table;
use crate::visit::Visit;

/// What an action does, and its form.
#[derive(Template)]
#[template(path = "confirmation.html")]
pub(crate) struct Confirmation {
    action: String,
    csrf: String,
    back: String,
    button: &'static str,
    danger: bool,
    consequences: Vec<String>,
    problem: Option<String>,
    facts: Facts,
    tables: Vec<(&'static str, Table)>,
    fields: Vec<Field>,
    hidden: Vec<(&'static str, String)>,
}

/// A field of the form.
pub(crate) struct Field {
    name: &'static str,
    label: &'static str,
    hint: &'static str,
    value: String,
    required: bool,
    kind: Kind,
}

enum Kind {
    /// A line, with values that the browser suggests.
    Line(Vec<String>),
    /// Several lines.
    Lines,
    /// One of these: the value and its words.
    Choice(Vec<(String, String)>),
    /// A box to tick.
    Tick,
}

impl Field {
    fn of(name: &'static str, label: &'static str, kind: Kind) -> Self {
        Self { name, label, hint: "", value: String::new(), required: false, kind }
    }

    /// A line of text.
    pub(crate) fn line(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::Line(Vec::new()))
    }

    /// Several lines of text.
    pub(crate) fn lines(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::Lines)
    }

    /// One of several values, each with its words.
    pub(crate) fn choice(
        name: &'static str,
        label: &'static str,
        options: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        Self::of(name, label, Kind::Choice(options.into_iter().collect()))
    }

    /// One of several values that somebody has to choose: none is chosen at first.
    pub(crate) fn chosen(name: &'static str, label: &'static str, options: &[(&str, &str)]) -> Self {
        let options = options.iter().map(|(value, words)| ((*value).to_owned(), (*words).to_owned()));
        let none = (String::new(), "Choose".to_owned());
        Self::choice(name, label, std::iter::once(none).chain(options)).required()
    }

    /// A box to tick.
    pub(crate) fn tick(name: &'static str, label: &'static str) -> Self {
        Self::of(name, label, Kind::Tick)
    }

    /// What the browser suggests for a line.
    pub(crate) fn suggesting(mut self, values: Vec<String>) -> Self {
        self.kind = Kind::Line(values);
        self
    }

    /// An explanation below the field.
    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    /// The initial value of the field.
    pub(crate) fn value(mut self, value: impl Into<String>) -> Self {
        self.value = value.into();
        self
    }

    /// The form is not sent without it.
    pub(crate) fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

impl Confirmation {
    /// The form is sent to `action`; `back` is the page for those who change their mind.
    pub(crate) fn new(
        visit: &Visit,
        action: impl Into<String>,
        back: impl Into<String>,
        button: &'static str,
    ) -> Self {
        Self {
            action: action.into(),
            csrf: visit.csrf().to_owned(),
            back: back.into(),
            button,
            danger: false,
            consequences: Vec::new(),
            problem: None,
            facts: Facts::default(),
            tables: Vec::new(),
            fields: Vec::new(),
            hidden: Vec::new(),
        }
    }

    /// The action cannot be taken back, or something stops working.
    pub(crate) fn danger(mut self) -> Self {
        self.danger = true;
        self
    }

    /// A sentence about the consequences.
    pub(crate) fn says(mut self, sentence: impl Into<String>) -> Self {
        self.consequences.push(sentence.into());
        self
    }

    /// Why the form was not accepted.
    pub(crate) fn problem(mut self, problem: Option<String>) -> Self {
        self.problem = problem;
        self
    }

    /// Facts about the object.
    pub(crate) fn facts(mut self, facts: Facts) -> Self {
        self.facts = facts;
        self
    }

    /// What the action concerns, below a heading.
    pub(crate) fn table(mut self, heading: &'static str, table: Table) -> Self {
        self.tables.push((heading, table));
        self
    }

    /// A field of the form.
    pub(crate) fn field(mut self, field: Field) -> Self {
        self.fields.push(field);
        self
    }

    /// A value that the form carries.
    pub(crate) fn hidden(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.hidden.push((name, value.into()));
        self
    }
}
