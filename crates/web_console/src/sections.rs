//! The parts of a page, one after the other, each with its heading.

use askama::Template;

use crate::failure::Failure;

/// The body of a page.
#[derive(Default, Template)]
#[template(path = "sections.html")]
pub(crate) struct Sections {
    parts: Vec<Part>,
}

struct Part {
    id: &'static str,
    heading: Option<String>,
    live: &'static str,
    html: String,
}

impl Sections {
    /// Adds a part without a heading.
    ///
    /// # Errors
    /// [`Failure::Template`].
    pub(crate) fn plain(self, body: &impl Template) -> Result<Self, Failure> {
        self.add("", None, "", body)
    }

    /// Adds a section with a heading and an id, unique on its page.
    ///
    /// # Errors
    /// [`Failure::Template`].
    pub(crate) fn section(
        self,
        id: &'static str,
        heading: &str,
        body: &impl Template,
    ) -> Result<Self, Failure> {
        self.add(id, Some(heading), "", body)
    }

    /// Adds a section that is read again when an event happens whose kind begins with one of `live`, separated by blanks.
    ///
    /// # Errors
    /// [`Failure::Template`].
    pub(crate) fn live(
        self,
        id: &'static str,
        heading: &str,
        live: &'static str,
        body: &impl Template,
    ) -> Result<Self, Failure> {
        self.add(id, Some(heading), live, body)
    }

    fn add(
        mut self,
        id: &'static str,
        heading: Option<&str>,
        live: &'static str,
        body: &impl Template,
    ) -> Result<Self, Failure> {
        let heading = heading.map(str::to_owned);
        self.parts.push(Part { id, heading, live, html: body.render()? });
        Ok(self)
    }
}

/// A paragraph.
#[derive(Template)]
#[template(source = "<p class=\"{{ class }}\">{{ text }}</p>", ext = "html")]
pub(crate) struct Note {
    class: &'static str,
    text: String,
}

impl Note {
    /// What a person should know.
    pub(crate) fn hint(text: impl Into<String>) -> Self {
        Self { class: "hint", text: text.into() }
    }

    /// An explanation that may be skipped.
    pub(crate) fn faint(text: impl Into<String>) -> Self {
        Self { class: "faint", text: text.into() }
    }
}

/// A secret that is shown this once.
#[derive(Template)]
#[template(path = "one_time_secret.html")]
pub(crate) struct OneTimeSecret {
    /// What it is.
    pub(crate) what: &'static str,
    /// The secret.
    pub(crate) secret: String,
    /// How it is used: a command.
    pub(crate) usage: String,
    /// The link.
    pub(crate) href: String,
}
