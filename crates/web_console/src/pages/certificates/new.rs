//! Creation of a managed certificate.

use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use super::actions::people;
use super::shared::{LIST, PAGE};
use crate::confirmation::Confirmation;
use crate::failure::Failure;
use crate::form::Field;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::query::item;
use crate::session::Session;
use crate::shell::Page;

pub(super) async fn show_form(session: Session) -> Result<Response, Failure> {
    show(&session, None, &FormData::default()).await
}

async fn show(session: &Session, problem: Option<String>, form: &FormData) -> Result<Response, Failure> {
    let profiles = session.api.get_if_allowed("/api/v1/profiles?limit=500").await?.unwrap_or_default();
    let profiles: Vec<(String, String)> = json::items(&profiles).iter().map(profile).collect();
    let (owners, teams) = people(session).await?;
    let of = |name| form.field(name).unwrap_or_default().to_owned();
    let first = profiles.iter().find(|(name, _)| name == "default").or(profiles.first());
    let chosen = form.field("profile").map(str::to_owned).or(first.map(|(name, _)| name.clone()));
    let body = Confirmation::new(session, format!("{PAGE}/new"), PAGE, "Issue and manage it")
        .problem(problem)
        .says("The certificate is issued immediately, and renewed automatically before it expires.")
        .says("This server generates and stores its key. For keys at agents or in the key service, and for targets, use `bulla cert create`.")
        .field(Field::lines("names", "Names").value(of("names")).required().hint("DNS names or IP addresses, one per line. \
         The first one becomes the name of the certificate."))
        .field(Field::choice("profile", "Profile", profiles).value(chosen.unwrap_or_default()).required())
        .field(Field::line("owner", "Owner").suggestions(owners).value(of("owner")).hint("Receives its alerts."))
        .field(Field::line("team", "Team").suggestions(teams).value(of("team")))
        .field(Field::line("environment", "Environment").value(of("environment")));
    Page::new(session, "New certificate")
        .command("bulla cert create www.example.com --owner alice")
        .reads(LIST)
        .show(&body)
}

fn profile(profile: &Value) -> (String, String) {
    let name = json::text(profile, "/name");
    let description = json::text(profile, "/description");
    let waits = if json::flag(profile, "/requires_approval") { " (waits for approval)" } else { "" };
    let dash = if description.is_empty() { "" } else { ": " };
    (name.to_owned(), format!("{name}{dash}{description}{waits}"))
}

/// Requests the certificate. An API error is shown above the form, which keeps the input.
pub(super) async fn create(session: Session, form: FormData) -> Result<Response, Failure> {
    let names: Vec<&str> = form.text("names").split([',', ' ', '\n', '\r']).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let mut body = json!({"names": names, "profile": form.text("profile")});
    for member in ["owner", "team", "environment"] {
        if let Some(value) = form.field(member) {
            body[member] = value.into();
        }
    }
    match session.api.change(Method::POST, LIST, form.csrf(), Some(&body)).await {
        Ok(answer) => {
            let page = item(PAGE, json::text(&answer, "/id"));
            Ok(redirect(&page, "created", &Value::Null))
        }
        Err(failure) => show(&session, Some(failure.form_problem()?), &form).await,
    }
}
