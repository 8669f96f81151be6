//! The row of links and buttons above the content of a page.

use askama::Template;

/// Links and buttons above the content of a page.
#[derive(Default, Template)]
#[template(path = "actions.html")]
pub(crate) struct Actions {
    actions: Vec<Action>,
}

struct Action {
    href: String,
    text: &'static str,
    danger: bool,
    csrf: Option<String>,
}

impl Actions {
    /// Adds a link to a page.
    pub(crate) fn link(self, href: impl Into<String>, text: &'static str) -> Self {
        self.with(Action { href: href.into(), text, danger: false, csrf: None })
    }

    /// Adds a link to the confirmation of a dangerous action.
    pub(crate) fn danger(self, href: impl Into<String>, text: &'static str) -> Self {
        self.with(Action { href: href.into(), text, danger: true, csrf: None })
    }

    /// Adds a button that sends a POST request.
    pub(crate) fn button(self, href: impl Into<String>, csrf: &str, text: &'static str) -> Self {
        self.with(Action { href: href.into(), text, danger: false, csrf: Some(csrf.to_owned()) })
    }

    /// Removes all actions if `condition` is false.
    pub(crate) fn only_if(self, condition: bool) -> Self {
        if condition { self } else { Self::default() }
    }

    fn with(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }
}
