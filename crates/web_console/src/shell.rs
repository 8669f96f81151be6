//! The frame of every page: navigation, search, the signed-in identity, and the equivalent commands.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};

use crate::failure::Failure;
use crate::session::Session;

struct NavigationItem {
    name: &'static str,
    path: &'static str,
    /// The permission that the page requires; empty for none.
    permission: &'static str,
}

const fn item(name: &'static str, path: &'static str, permission: &'static str) -> NavigationItem {
    NavigationItem { name, path, permission }
}

/// Groups of the navigation: heading and pages.
const NAVIGATION: &[(&str, &[NavigationItem])] = &[
    (
        "",
        &[
            item("Overview", "/console", ""),
            item("Certificates", "/console/certificates", "certificate.read"),
            item("Approvals", "/console/approvals", "approval.read"),
            item("Alerts", "/console/alerts", "alert.read"),
        ],
    ),
    (
        "Estate",
        &[
            item("Endpoints", "/console/endpoints", "inventory.read"),
            item("Scans", "/console/scans", "inventory.read"),
            item("Watches", "/console/watches", "inventory.read"),
            item("Transparency", "/console/transparency", "inventory.read"),
            item("Agents", "/console/agents", "agent.read"),
            item("Targets", "/console/targets", "target.read"),
            item("Jobs", "/console/jobs", "job.read"),
        ],
    ),
    (
        "Issuing",
        &[
            item("Authorities", "/console/authorities", "ca.read"),
            item("Profiles", "/console/profiles", "profile.read"),
            item("Issuers", "/console/issuers", "issuer.read"),
            item("ACME", "/console/acme", "protocol.read"),
            item("Policies", "/console/policies", "policy.read"),
        ],
    ),
    (
        "Secrets",
        &[
            item("Credentials", "/console/credentials", "credential.manage"),
            item("Keys", "/console/keys", "node.read"),
        ],
    ),
    (
        "Proxy",
        &[
            item("Proxy", "/console/proxy", "proxy.read"),
            item("Held requests", "/console/proxy/held", "proxy.read"),
            item("Requests", "/console/proxy/requests", "proxy.read"),
            item("Traffic", "/console/traffic", "metrics.read"),
        ],
    ),
    (
        "System",
        &[
            item("Audit", "/console/audit", "audit.read"),
            item("Settings", "/console/settings", "access.read"),
        ],
    ),
];

/// A page of the console, with its frame.
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
    navigation: Vec<(&'static str, Vec<(&'static NavigationItem, bool)>)>,
    commands: &'a [String],
    reads: &'a [String],
    done: Option<&'static str>,
    charts: bool,
    body: String,
}

/// Returns the event kinds that a live region may subscribe to.
fn event_kinds() -> String {
    events::Event::KINDS.join(" ")
}

/// Messages after an action, by name. The URL contains only the name, so that a forged link cannot show arbitrary text.
const DONE: &[(&str, &str)] = &[
    ("saved", "Saved."),
    ("key-added", "Security key added. From now on, signing in with the password also needs the key."),
    ("confirmed", "Identity confirmed. Go back to the previous page and send its form again."),
    ("renewed", "Renewal started."),
    ("revoked", "Revoked."),
    ("deployed", "Deployment started."),
    ("waiting", "Waiting for another person's approval."),
    ("approved", "Approved."),
    ("rejected", "Rejected."),
    ("replayed", "Sent again. This is the new request."),
    ("acknowledged", "Acknowledged."),
    ("silenced", "Silenced."),
    ("scanning", "Scan started."),
    ("removed", "Removed."),
    ("created", "Created."),
    ("requeued", "The notification waits to be sent again."),
    ("tested", "The channel accepted a test notification."),
    ("rotated", "Rotated."),
    ("claimed", "Claimed: the certificates are under management."),
];

impl<'a> Page<'a> {
    /// Creates a page with a title, which is also its heading.
    pub(crate) fn new(session: &'a Session, title: impl Into<String>) -> Self {
        Self { session, title: title.into(), commands: Vec::new(), reads: Vec::new(), script: None }
    }

    /// Adds the `bulla` command that does the same as the page.
    pub(crate) fn command(mut self, line: impl Into<String>) -> Self {
        self.commands.push(line.into());
        self
    }

    /// Sets the API path whose data the page shows.
    pub(crate) fn reads(mut self, path: impl Into<String>) -> Self {
        self.reads.push(path.into());
        self
    }

    /// Loads the chart library.
    pub(crate) fn with_charts(mut self) -> Self {
        self.script = Some("uplot.js");
        self
    }

    /// Renders the page around a body.
    ///
    /// # Errors
    /// [`Failure::Template`].
    pub(crate) fn show(self, body: &impl Template) -> Result<Response, Failure> {
        let shell = Shell {
            title: &self.title,
            actor: self.session.actor(),
            csrf: self.session.csrf(),
            navigation: navigation(self.session),
            commands: &self.commands,
            reads: &self.reads,
            done: done(&self.session.path),
            charts: self.script.is_some(),
            body: body.render()?,
        };
        Ok(Html(shell.render()?).into_response())
    }
}

/// Quotes a word of a command line for a shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn navigation(session: &Session) -> Vec<(&'static str, Vec<(&'static NavigationItem, bool)>)> {
    let path = session.path.split('?').next().unwrap_or_default();
    let current_path = current(path);
    let is_current = |item: &NavigationItem| current_path == Some(item.path);
    let groups = NAVIGATION.iter().map(|(group, navigation)| {
        let shown =
            navigation.iter().filter(|item| item.permission.is_empty() || session.may(item.permission));
        (*group, shown.map(|item| (item, is_current(item))).collect::<Vec<_>>())
    });
    groups.filter(|(_, navigation)| !navigation.is_empty()).collect()
}

/// Returns the path of the navigation item of a page: the longest item path that is a prefix of the page's path.
fn current(path: &str) -> Option<&'static str> {
    let items = NAVIGATION.iter().flat_map(|(_, items)| items.iter());
    let is_above =
        |item: &&str| path == *item || (*item != "/console" && path.starts_with(&format!("{item}/")));
    items.map(|item| item.path).filter(is_above).max_by_key(|path| path.len())
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
    fn messages_are_selected_only_by_known_names() {
        assert_eq!(done("/console?done=saved"), Some("Saved."));
        assert_eq!(done("/console?x=1&done=revoked"), Some("Revoked."));
        assert_eq!(done("/console?done=%3Cb%3E"), None);
        assert_eq!(done("/console"), None);
    }

    #[test]
    fn page_belongs_to_the_nearest_item_of_the_navigation() {
        assert_eq!(current("/console/proxy"), Some("/console/proxy"));
        assert_eq!(current("/console/proxy/requests/7"), Some("/console/proxy/requests"));
        assert_eq!(current("/console/proxy/other"), Some("/console/proxy"));
        assert_eq!(current("/console"), Some("/console"));
        assert_eq!(current("/console/proxyx"), None);
    }
}
