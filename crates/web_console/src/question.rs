//! The page before a dangerous action: what it does, what depends on it, and a button that does it.

use askama::Template;

use crate::facts::Facts;
use crate::visit::Visit;

/// A question before an action. The answer is a form sent to `action`.
#[derive(Template)]
#[template(path = "question.html")]
pub(crate) struct Question {
    /// Where the form goes.
    action: String,
    csrf: String,
    /// What happens, a sentence each.
    consequences: Vec<String>,
    /// What it happens to.
    facts: Facts,
    /// Values to choose from, with the field's label.
    choice: Option<Choice>,
    /// Fields that nobody sees.
    fields: Vec<(&'static str, String)>,
    /// What the button says.
    button: &'static str,
    /// Where nothing happens.
    cancel: String,
}

/// A field with values to choose from.
pub(crate) struct Choice {
    /// Its name in the form.
    pub(crate) name: &'static str,
    /// Its label.
    pub(crate) label: &'static str,
    /// Each value with what it means.
    pub(crate) values: &'static [(&'static str, &'static str)],
}

impl Question {
    /// A question whose button does `action`; `cancel` is the page to go back to.
    pub(crate) fn new(
        visit: &Visit,
        action: impl Into<String>,
        button: &'static str,
        cancel: impl Into<String>,
    ) -> Self {
        Self {
            action: action.into(),
            csrf: visit.csrf().to_owned(),
            consequences: Vec::new(),
            facts: Facts::default(),
            choice: None,
            fields: Vec::new(),
            button,
            cancel: cancel.into(),
        }
    }

    /// Adds a sentence about what happens.
    pub(crate) fn says(mut self, sentence: impl Into<String>) -> Self {
        self.consequences.push(sentence.into());
        self
    }

    /// Shows what it happens to.
    pub(crate) fn about(mut self, facts: Facts) -> Self {
        self.facts = facts;
        self
    }

    /// Asks to choose.
    pub(crate) fn choose(mut self, choice: Choice) -> Self {
        self.choice = Some(choice);
        self
    }

    /// Sends a value along.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

/// A count with its noun: `1 certificate`, `12 certificates`, `50 certificates or more`.
pub(crate) fn counted(count: usize, more: bool, noun: &str) -> String {
    let plural = if count == 1 && !more { "" } else { "s" };
    let more = if more { " or more" } else { "" };
    format!("{count} {noun}{plural}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_noun() {
        assert_eq!(counted(0, false, "profile"), "0 profiles");
        assert_eq!(counted(1, false, "profile"), "1 profile");
        assert_eq!(counted(1, true, "profile"), "1 profiles or more");
        assert_eq!(counted(50, true, "certificate"), "50 certificates or more");
    }
}
