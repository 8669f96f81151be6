//! Certificates of CAs: renewal, cross-signatures, import, and the certificate of an external parent.

use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::get;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::authorities::{PAGE, facts};
use crate::api::Api;
use crate::confirmation::Confirmation;
use crate::failure::Failure;
use crate::form::Field;
use crate::form_data::{FormData, redirect};
use crate::json;
use crate::query::item;
use crate::session::Session;
use crate::shell::Page;

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/console/authorities/import", get(import_form).post(import))
        .route("/console/authorities/{ca}/renew", get(confirm_renew).post(renew))
        .route("/console/authorities/{ca}/cross-sign", get(confirm_cross_sign).post(cross_sign))
        .route("/console/authorities/{ca}/install", get(install_form).post(install))
}

fn at(ca: &str) -> String {
    item("/api/v1/authorities", ca)
}

/// Redirects to the page of the CA in an API response.
fn redirect_to_ca(answer: &Value, message: &str) -> Response {
    let id = json::text(answer, "/id");
    let page = if id.is_empty() { PAGE.to_owned() } else { item(PAGE, id) };
    redirect(&page, message, answer)
}

async fn confirm_renew(session: Session, Path(ca): Path<String>) -> Result<Response, Failure> {
    show_renew(&session, &ca, None).await
}

async fn show_renew(session: &Session, ca: &str, problem: Option<String>) -> Result<Response, Failure> {
    let (page, path) = (item(PAGE, ca), at(ca));
    let ca = session.api.get(&path).await?;
    let name = json::text(&ca, "/name");
    let mut body = Confirmation::new(session, format!("{page}/renew"), &page, "Renew")
        .danger()
        .problem(problem)
        .says("The CA gets a new certificate under the same key. Certificates that it issued are valid under both.")
        .says("The old certificate is offered in an alternate chain while it is valid.");
    if json::flag(&ca, "/root") {
        body = body.says("It is a root: clients that pin the certificate itself must trust the new one before the old one expires. Distribute it first.");
    }
    let body = body
        .field(Field::number("days", "Lifetime in days").hint("Empty: as long as the present certificate."))
        .facts(facts(session, &ca));
    Page::new(session, format!("Renew {name}"))
        .command(format!("bulla ca renew '{name}'"))
        .reads(path)
        .show(&body)
}

async fn renew(session: Session, Path(ca): Path<String>, form: FormData) -> Result<Response, Failure> {
    let Ok(days) = form.field("days").map(str::parse::<i64>).transpose() else {
        return show_renew(&session, &ca, Some("The lifetime is a whole number of days.".to_owned())).await;
    };
    let seconds = days.map(|days| days.saturating_mul(86_400));
    let body = seconds.map_or_else(|| json!({}), |seconds| json!({ "lifetime_seconds": seconds }));
    let path = format!("{}/renew", at(&ca));
    match session.api.change(Method::POST, &path, form.csrf(), Some(&body)).await {
        Ok(answer) => Ok(redirect_to_ca(&answer, "saved")),
        Err(failure) => show_renew(&session, &ca, Some(failure.form_problem()?)).await,
    }
}

async fn confirm_cross_sign(session: Session, Path(ca): Path<String>) -> Result<Response, Failure> {
    show_cross_sign(&session, &ca, None).await
}

async fn show_cross_sign(session: &Session, ca: &str, problem: Option<String>) -> Result<Response, Failure> {
    let (page, path) = (item(PAGE, ca), at(ca));
    let ca = session.api.get(&path).await?;
    let all = session.api.get("/api/v1/authorities").await?;
    let (id, name) = (json::text(&ca, "/id"), json::text(&ca, "/name"));
    let others = json::items(&all)
        .iter()
        .filter(|other| json::text(other, "/state") == "active" && json::text(other, "/id") != id);
    let others = others.map(|other| {
        let label = format!("{} ({})", json::text(other, "/name"), json::text(other, "/subject"));
        (json::text(other, "/id").to_owned(), label)
    });
    let others: Vec<(String, String)> =
        std::iter::once((String::new(), "Choose".to_owned())).chain(others).collect();
    let body = Confirmation::new(session, format!("{page}/cross-sign"), &page, "Cross-sign")
        .danger()
        .problem(problem)
        .says(format!("Another CA signs the key of {name}. Clients that trust the root of that CA then trust everything that {name} issues."))
        .says("The cross-signed certificate is offered in an alternate chain. To undo it, revoke that certificate.")
        .field(Field::choice("by", "Signed by", others).required())
        .facts(facts(session, &ca));
    Page::new(session, format!("Cross-sign {name}"))
        .command(format!("bulla ca cross-sign '{name}' --by NAME"))
        .reads(path)
        .show(&body)
}

async fn cross_sign(session: Session, Path(ca): Path<String>, form: FormData) -> Result<Response, Failure> {
    let path = format!("{}/cross-signatures", at(&ca));
    let body = json!({ "by": form.text("by") });
    match session.api.change(Method::POST, &path, form.csrf(), Some(&body)).await {
        Ok(answer) => Ok(redirect(&item(PAGE, &ca), "saved", &answer)),
        Err(failure) => show_cross_sign(&session, &ca, Some(failure.form_problem()?)).await,
    }
}

async fn import_form(session: Session) -> Result<Response, Failure> {
    show_import(&session, &FormData::default(), None)
}

/// Shows the form of an import. The key is never sent back to the browser.
fn show_import(session: &Session, form: &FormData, problem: Option<String>) -> Result<Response, Failure> {
    let body = Confirmation::new(session, "/console/authorities/import", PAGE, "Import the CA")
        .danger()
        .problem(problem)
        .says("This server issues certificates, CRLs and OCSP responses with the imported key from now on. Stop the system that used the key before: two that assign serial numbers and CRL numbers contradict each other.")
        .says("The key is encrypted with the master key of this server and is never shown.")
        .field(Field::line("name", "Name").value(form.text("name")).required())
        .field(Field::lines("certificates", "Certificate of the CA, then its parents (PEM)").value(form.text("certificates")).hint("The root may be left out.").required())
        .field(Field::lines("key", "Private key (PEM)").hint("It passes through this browser. For a CA in production, prefer the command below on the server.").required());
    Page::new(session, "Import a CA")
        .command("bulla ca import NAME --certificates chain.pem --key key.pem")
        .show(&body)
}

async fn import(session: Session, form: FormData) -> Result<Response, Failure> {
    let body = json!({
        "name": form.text("name"),
        "certificates": form.text("certificates"),
        "key": form.text("key"),
    });
    match session.api.change(Method::POST, "/api/v1/authorities/import", form.csrf(), Some(&body)).await {
        Ok(answer) => Ok(redirect_to_ca(&answer, "created")),
        Err(failure) => show_import(&session, &form, Some(failure.form_problem()?)),
    }
}

async fn install_form(session: Session, Path(ca): Path<String>) -> Result<Response, Failure> {
    show_install(&session, &ca, "", None).await
}

async fn show_install(
    session: &Session,
    ca: &str,
    certificates: &str,
    problem: Option<String>,
) -> Result<Response, Failure> {
    let (page, path) = (item(PAGE, ca), at(ca));
    let ca = session.api.get(&path).await?;
    let name = json::text(&ca, "/name");
    if json::text(&ca, "/state") != "pending" {
        let hint = "open the CA's page: it has its certificate already";
        return Err(Failure::refused(StatusCode::CONFLICT, format!("{name} waits for no certificate"), hint));
    }
    let body = Confirmation::new(session, format!("{page}/install"), &page, "Install")
        .problem(problem)
        .says(format!("{name} becomes active: profiles that name it issue from it."))
        .field(
            Field::lines("certificates", "Its certificate, then its parents (PEM)")
                .value(certificates)
                .required(),
        )
        .facts(facts(session, &ca));
    Page::new(session, format!("Install the certificate of {name}"))
        .command(format!("bulla ca install {} --certificates chain.pem", json::text(&ca, "/id")))
        .reads(path)
        .show(&body)
}

async fn install(session: Session, Path(ca): Path<String>, form: FormData) -> Result<Response, Failure> {
    let certificates = form.text("certificates");
    let body = json!({ "certificates": certificates });
    let path = format!("{}/certificate", at(&ca));
    match session.api.change(Method::PUT, &path, form.csrf(), Some(&body)).await {
        Ok(answer) => Ok(redirect_to_ca(&answer, "saved")),
        Err(failure) => show_install(&session, &ca, certificates, Some(failure.form_problem()?)).await,
    }
}
