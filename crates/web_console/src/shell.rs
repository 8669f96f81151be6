//! What surrounds every page: navigation, search, who is signed in, and how to do the same by program.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};

use crate::failure::Failure;
use crate::session::Session;

/// A page of the navigation.
struct NavigationPage {
    name: &'static str,
    path: &'static str,
    /// Without this permission there is nothing to see.
    permission: &'static str,
}

const fn place(name: &'static str, path: &'static str, permission: &'static str) -> NavigationPage {
    NavigationPage { name, path, permission }
}

/// The navigation, in groups.
const PLACES: &[(&str, &[NavigationPage])] = &[
    (
        "",
        &[
            place("Overview", "/console", ""),
            place("Certificates", "/console/certificates", "certificate.read"),
            place("Approvals", "/console/approvals", "approval.read"),
            place("Alerts", "/console/alerts", "alert.read"),
        ],
    ),
    (
        "Estate",
        &[
            place("Endpoints", "/console/endpoints", "inventory.read"),
            place("Watches", "/console/watches", "inventory.read"),
            place("Transparency", "/console/transparency", "inventory.read"),
            place("Agents", "/console/agents", "agent.read"),
            place("Targets", "/console/targets", "target.read"),
            place("Jobs", "/console/jobs", "job.read"),
        ],
    ),
    (
        "Issuing",
        &[
            place("Authorities", "/console/authorities", "ca.read"),
            place("Profiles", "/console/profiles", "profile.read"),
            place("Issuers", "/console/issuers", "issuer.read"),
            place("ACME", "/console/acme", "protocol.read"),
            place("Policies", "/console/policies", "policy.read"),
        ],
    ),
    (
        "Secrets",
        &[
            place("Credentials", "/console/credentials", "credential.manage"),
            place("Keys", "/console/keys", "node.read"),
            place("Traffic", "/console/traffic", "metrics.read"),
        ],
    ),
    (
        "System",
        &[
            place("Audit", "/console/audit", "audit.read"),
            place("Settings", "/console/settings", "access.read"),
        ],
    ),
];

/// A page to be shown.
pub(crate) struct Page<'a> {
    session: &'a Session,
    title: String,
    commands: Vec<String>,
    reads: Vec<String>,
    script: Option<&'static str>,
}

#[derive(Template)]
#[template(path = "shell.html")]
struct Shell<'a> {
    title: &'a str,
    actor: &'a str,
    csrf: &'a str,
    places: Vec<(&'static str, Vec<(&'static NavigationPage, bool)>)>,
    commands: &'a [String],
    reads: &'a [String],
    done: Option<&'static str>,
    charts: bool,
    body: String,
}

/// The kinds of events that a live region may follow.
fn event_kinds() -> String {
    events::Event::KINDS.join(" ")
}

/// What a page says after an action. The address carries the short name alone, so nobody can put words into it.
const DONE: &[(&str, &str)] = &[
    ("saved", "Saved."),
    ("confirmed", "Identity confirmed. Go back to the previous page and send its form again."),
    ("renewed", "Renewal started."),
    ("revoked", "Revoked."),
    ("deployed", "Deployment started."),
    ("waiting", "Waiting for another person's approval."),
    ("approved", "Approved."),
    ("rejected", "Rejected."),
    ("acknowledged", "Acknowledged."),
    ("silenced", "Silenced."),
    ("scanning", "Scan started."),
    ("removed", "Removed."),
    ("created", "Created."),
    ("rotated", "Rotated."),
    ("claimed", "Claimed: the certificates are under management."),
];

impl<'a> Page<'a> {
    /// A page with a title, which is its heading too.
    pub(crate) fn new(session: &'a Session, title: impl Into<String>) -> Self {
        Self { session, title: title.into(), commands: Vec::new(), reads: Vec::new(), script: None }
    }

    /// The command that shows or does the same.
    pub(crate) fn command(mut self, line: impl Into<String>) -> Self {
        self.commands.push(line.into());
        self
    }

    /// The path of the API that the page is made from.
    pub(crate) fn reads(mut self, path: impl Into<String>) -> Self {
        self.reads.push(path.into());
        self
    }

    /// Loads the chart library.
    pub(crate) fn with_charts(mut self) -> Self {
        self.script = Some("uplot.js");
        self
    }

    /// The page around a body.
    ///
    /// # Errors
    /// [`Failure::Template`].
    pub(crate) fn show(self, body: &impl Template) -> Result<Response, Failure> {
        let shell = Shell {
            title: &self.title,
            actor: self.session.actor(),
            csrf: self.session.csrf(),
            places: places(self.session),
            commands: &self.commands,
            reads: &self.reads,
            done: done(&self.session.path),
            charts: self.script.is_some(),
            body: body.render()?,
        };
        Ok(Html(shell.render()?).into_response())
    }
}

fn places(session: &Session) -> Vec<(&'static str, Vec<(&'static NavigationPage, bool)>)> {
    let path = session.path.split('?').next().unwrap_or_default();
    let is_here = |place: &NavigationPage| {
        path == place.path || (place.path != "/console" && path.starts_with(&format!("{}/", place.path)))
    };
    let groups = PLACES.iter().map(|(group, places)| {
        let shown =
            places.iter().filter(|place| place.permission.is_empty() || session.may(place.permission));
        (*group, shown.map(|place| (place, is_here(place))).collect::<Vec<_>>())
    });
    groups.filter(|(_, places)| !places.is_empty()).collect()
}

fn done(path: &str) -> Option<&'static str> {
    let (_, query) = path.split_once('?')?;
    let key = query.split('&').find_map(|pair| pair.strip_prefix("done="))?;
    DONE.iter().find(|(name, _)| *name == key).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_chosen_by_its_name_alone() {
        assert_eq!(done("/console?done=saved"), Some("Saved."));
        assert_eq!(done("/console?x=1&done=revoked"), Some("Revoked."));
        assert_eq!(done("/console?done=%3Cb%3E"), None);
        assert_eq!(done("/console"), None);
    }
}
