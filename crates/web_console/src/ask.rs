//! Forms as data: their fields, and the buttons of a page.

use askama::Template;

/// A form, below each other or in a row.
#[derive(Template)]
#[template(path = "ask.html")]
pub(crate) struct Ask {
    action: String,
    csrf: Option<String>,
    fields: Vec<Field>,
    button: &'static str,
    danger: bool,
    cancel: Option<String>,
}

/// A field of a form.
pub(crate) struct Field {
    name: &'static str,
    label: &'static str,
    value: String,
    hint: &'static str,
    required: bool,
    kind: Kind,
}

enum Kind {
    Line(&'static str),
    Area,
    Choice(Vec<(String, String)>),
    Tick,
    Hidden,
}

impl Field {
    fn of(name: &'static str, label: &'static str, value: impl Into<String>, kind: Kind) -> Self {
        Self { name, label, value: value.into(), hint: "", required: false, kind }
    }

    /// A line of text.
    pub(crate) fn line(name: &'static str, label: &'static str, value: impl Into<String>) -> Self {
        Self::of(name, label, value, Kind::Line("text"))
    }

    /// A text to search for.
    pub(crate) fn search(name: &'static str, label: &'static str, value: impl Into<String>) -> Self {
        Self::of(name, label, value, Kind::Line("search"))
    }

    /// A whole number, 0 or more.
    pub(crate) fn number(name: &'static str, label: &'static str, value: impl Into<String>) -> Self {
        Self::of(name, label, value, Kind::Line("number"))
    }

    /// A day.
    pub(crate) fn date(name: &'static str, label: &'static str, value: impl Into<String>) -> Self {
        Self::of(name, label, value, Kind::Line("date"))
    }

    /// Lines of text.
    pub(crate) fn area(name: &'static str, label: &'static str, value: impl Into<String>) -> Self {
        Self::of(name, label, value, Kind::Area)
    }

    /// One of several values, each with its words.
    pub(crate) fn choice<V: Into<String>, W: Into<String>>(
        name: &'static str,
        label: &'static str,
        value: impl Into<String>,
        options: impl IntoIterator<Item = (V, W)>,
    ) -> Self {
        let options = options.into_iter().map(|(value, words)| (value.into(), words.into())).collect();
        Self::of(name, label, value, Kind::Choice(options))
    }

    /// A box to tick.
    pub(crate) fn tick(name: &'static str, label: &'static str, ticked: bool) -> Self {
        Self::of(name, label, if ticked { "true" } else { "" }, Kind::Tick)
    }

    /// A hidden field.
    pub(crate) fn hidden(name: &'static str, value: impl Into<String>) -> Self {
        Self::of(name, "", value, Kind::Hidden)
    }

    /// A hint below the field.
    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    /// Marks the field as required.
    pub(crate) fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

impl Ask {
    /// A form that changes something: `csrf` is the session's token.
    pub(crate) fn post(
        action: impl Into<String>,
        csrf: &str,
        button: &'static str,
        fields: Vec<Field>,
    ) -> Self {
        let csrf = Some(csrf.to_owned());
        Self { action: action.into(), csrf, fields, button, danger: false, cancel: None }
    }

    /// The filters of a list.
    pub(crate) fn filters(action: impl Into<String>, fields: Vec<Field>) -> Self {
        Self { action: action.into(), csrf: None, fields, button: "Filter", danger: false, cancel: None }
    }

    /// Marks the action as irreversible; `instead` is the way back.
    pub(crate) fn danger(mut self, instead: impl Into<String>) -> Self {
        self.danger = true;
        self.cancel = Some(instead.into());
        self
    }
}

/// Links and buttons of a page.
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
    /// A link to a page.
    pub(crate) fn link(mut self, href: impl Into<String>, text: &'static str) -> Self {
        self.actions.push(Action { href: href.into(), text, danger: false, csrf: None });
        self
    }

    /// A link to the page of a dangerous action.
    pub(crate) fn danger(mut self, href: impl Into<String>, text: &'static str) -> Self {
        self.actions.push(Action { href: href.into(), text, danger: true, csrf: None });
        self
    }

    /// A button that does something at once.
    pub(crate) fn press(mut self, href: impl Into<String>, csrf: &str, text: &'static str) -> Self {
        self.actions.push(Action { href: href.into(), text, danger: false, csrf: Some(csrf.to_owned()) });
        self
    }

    /// These, if a condition holds; none otherwise.
    pub(crate) fn only_if(self, condition: bool) -> Self {
        if condition { self } else { Self::default() }
    }
}
