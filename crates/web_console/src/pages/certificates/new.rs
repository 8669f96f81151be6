//! Bringing a certificate under management.

use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use super::actions::people;
use super::shared::{LIST, PAGE};
use crate::confirmation::{Confirmation, Field};
use crate::failure::Failure;
use crate::form::{Form, back};
use crate::json;
use crate::shell::Page;
use crate::visit::Visit;

/// The empty form.
pub(super) async fn ask(visit: Visit) -> Result<Response, Failure> {
    show(&visit, None, &Form::default()).await
}

async fn show(visit: &Visit, problem: Option<String>, form: &Form) -> Result<Response, Failure> {
    let profiles = visit.api.get_if_allowed("/api/v1/profiles?limit=500").await?.unwrap_or_default();
    let profiles: Vec<(String, String)> = json::items(&profiles).iter().map(profile).collect();
    let (owners, teams) = people(visit).await?;
    let of = |name| form.field(name).unwrap_or_default().to_owned();
    let first = profiles.iter().find(|(name, _)| name == "default").or(profiles.first());
    let chosen = form.field("profile").map(str::to_owned).or(first.map(|(name, _)| name.clone()));
    let body = Confirmation::new(visit, format!("{PAGE}/new"), PAGE, "Issue and manage it")
        .problem(problem)
        .says("The certificate is issued at once, and renewed by itself before it ends.")
        .says("Its key is made and kept by this server. For keys at agents or in the key service, and for targets, use `bulla cert create`.")
        .field(Field::lines("names", "Names").value(of("names")).required().hint("DNS names or IP addresses, one a line. The first one is its name here."))
        .field(Field::choice("profile", "Profile", profiles).value(chosen.unwrap_or_default()).required())
        .field(Field::line("owner", "Owner").suggesting(owners).value(of("owner")).hint("Who is told when something is wrong with it."))
        .field(Field::line("team", "Team").suggesting(teams).value(of("team")))
        .field(Field::line("environment", "Environment").value(of("environment")));
    Page::new(visit, "New certificate")
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

/// Asks for the certificate. What the API refuses is said above the form, which keeps what was written.
pub(super) async fn act(visit: Visit, form: Form) -> Result<Response, Failure> {
    let names: Vec<&str> = form.field("names").unwrap_or_default().split([',', ' ', '\n', '\r']).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let mut body = json!({"names": names, "profile": form.field("profile").unwrap_or_default()});
    for member in ["owner", "team", "environment"] {
        if let Some(value) = form.field(member) {
            body[member] = value.into();
        }
    }
    match visit.api.change(Method::POST, LIST, form.csrf(), Some(&body)).await {
        Ok(answer) => {
            let page = format!("{PAGE}/{}", json::text(&answer, "/id"));
            Ok(back(&page, "created", &Value::Null))
        }
        Err(Failure::Refused(problem)) if matches!(problem.status, 400 | 409 | 422) => {
            let told = [Some(problem.title), problem.detail, problem.hint];
            let told: Vec<String> = told.into_iter().flatten().collect();
            show(&visit, Some(told.join(". ")), &form).await
        }
        Err(other) => Err(other),
    }
}
