//! The sections of a page in order, each with its heading.

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
    /// Adds a section without a heading.
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

    /// Adds a live section. It is reloaded on events whose kind begins with one of the words in `live`, which are separated by
    /// spaces.
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

/// A paragraph with a CSS class.
#[derive(Template)]
#[template(
    source = "{% import \"cell.html\" as cells %}<p class=\"{{ class }}\">{% call cells::prose(text) %}{% endcall %}</p>",
    ext = "html"
)]
pub(crate) struct Note {
    class: &'static str,
    text: String,
}

impl Note {
    /// Creates a paragraph with important information.
    pub(crate) fn hint(text: impl Into<String>) -> Self {
        Self { class: "hint", text: text.into() }
    }

    /// Creates a paragraph with an optional explanation.
    pub(crate) fn faint(text: impl Into<String>) -> Self {
        Self { class: "faint", text: text.into() }
    }
}

/// A section that shows a secret once, after the secret was created.
#[derive(Template)]
#[template(path = "one_time_secret.html")]
pub(crate) struct OneTimeSecret {
    /// Description of the secret.
    pub(crate) what: &'static str,
    /// The secret in plain text.
    pub(crate) secret: String,
    /// The command that uses the secret.
    pub(crate) usage: String,
    /// URL of the page to which the link "Back" leads.
    pub(crate) href: String,
}
