//! The first steps of a new installation, listed on the overview.

use serde_json::Value;

use crate::failure::Failure;
use crate::json;
use crate::session::Session;

/// A step of a new installation, with the page where it is done.
pub(crate) struct FirstStep {
    pub(crate) is_done: bool,
    pub(crate) title: &'static str,
    pub(crate) text: &'static str,
    pub(crate) href: &'static str,
}

/// A step with the permission that it needs. The step is done once the given list of the API has an item.
struct Step {
    title: &'static str,
    text: &'static str,
    href: &'static str,
    permission: &'static str,
    list: &'static str,
}

const STEPS: &[Step] = &[
    Step {
        title: "Find the certificates you have",
        text: "A watch scans your networks and hosts on a schedule.",
        href: "/console/watches/new",
        permission: "inventory.manage",
        list: "watches",
    },
    Step {
        title: "Choose an issuer",
        text: "Bulla's own CA is ready. For public certificates add an ACME CA such as Let's Encrypt.",
        href: "/console/issuers/new",
        permission: "issuer.manage",
        list: "issuers",
    },
    Step {
        title: "Enrol an agent",
        text: "Agents deploy certificates on hosts: nginx, HAProxy, Apache and others.",
        href: "/console/agents",
        permission: "agent.enroll",
        list: "agents",
    },
    Step {
        title: "Request a certificate",
        text: "It is renewed and deployed from then on.",
        href: "/console/certificates/new",
        permission: "certificate.request",
        list: "certificates",
    },
    Step {
        title: "Get notified",
        text: "An alert channel sends alerts to mail, Slack, PagerDuty and others.",
        href: "/console/alert-channels/new",
        permission: "alert.manage",
        list: "alert-channels",
    },
];

/// Returns the steps that the user may take; none once a certificate is managed.
pub(crate) async fn first_steps(session: &Session, summary: &Value) -> Result<Vec<FirstStep>, Failure> {
    if json::number(summary, "/certificates") > 0 {
        return Ok(Vec::new());
    }
    let mut steps = Vec::new();
    for step in STEPS.iter().filter(|step| session.may(step.permission)) {
        let listing = session.api.get_if_allowed(&format!("/api/v1/{}?limit=1", step.list)).await?;
        if let Some(listing) = listing {
            let Step { title, text, href, .. } = *step;
            steps.push(FirstStep { is_done: !json::items(&listing).is_empty(), title, text, href });
        }
    }
    Ok(steps)
}
