//! Owners and teams of certificates.

use std::collections::BTreeSet;

use api::path::segment;
use api::people::{ContactBody, NewPerson, OwnsBody, PersonBody, PersonView, QuotaBody};
use authority::teams::{Owns, Quota};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use lifecycle::people::{Contact, PeopleKind, Person};
use lifecycle::{Lifecycle, PersonRecord};

use crate::access::{Caller, Permission, forbidden};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

pub(crate) fn routes() -> Api {
    Api::area("people")
        .route(Permission::PeopleRead, routes!(list_owners))
        .route(Permission::PeopleManage, routes!(create_owner))
        .route(Permission::PeopleRead, routes!(get_owner))
        .route(Permission::PeopleManage, routes!(replace_owner))
        .route(Permission::PeopleManage, routes!(delete_owner))
        .route(Permission::PeopleRead, routes!(list_teams))
        .route(Permission::PeopleManage, routes!(create_team))
        .route(Permission::PeopleRead, routes!(get_team))
        .route(Permission::PeopleManage, routes!(replace_team))
        .route(Permission::PeopleManage, routes!(delete_team))
}

fn into_name_and_body(body: NewPerson) -> (String, PersonBody) {
    let NewPerson { name, description, team, contacts, owns, quota } = body;
    (name, PersonBody { description, team, contacts, owns, quota })
}

fn person(body: PersonBody) -> Person {
    let contact = |one: ContactBody| Contact { kind: one.kind, address: one.address };
    Person {
        description: body.description,
        team: body.team,
        contacts: body.contacts.into_iter().map(contact).collect(),
        owns: owns(body.owns),
        quota: Quota {
            requests_per_second: body.quota.requests_per_second,
            certificates_per_day: body.quota.certificates_per_day,
        },
    }
}

fn owns(body: OwnsBody) -> Owns {
    let OwnsBody { names, profiles, issuers, targets, paths } = body;
    Owns { names, profiles, issuers, targets, paths }
}

fn owns_view(owns: Owns) -> OwnsBody {
    let Owns { names, profiles, issuers, targets, paths } = owns;
    OwnsBody { names, profiles, issuers, targets, paths }
}

fn person_view(record: PersonRecord) -> PersonView {
    let contact = |one: Contact| ContactBody { kind: one.kind, address: one.address };
    PersonView {
        name: record.name,
        description: record.person.description,
        team: record.person.team,
        contacts: record.person.contacts.into_iter().map(contact).collect(),
        owns: owns_view(record.person.owns),
        quota: QuotaBody {
            requests_per_second: record.person.quota.requests_per_second,
            certificates_per_day: record.person.quota.certificates_per_day,
        },
        revision: record.revision,
        created_at: time::shown(record.created_at_us),
        updated_at: time::shown(record.updated_at_us),
    }
}

/// Checks that the caller may change the credential paths that a team owns. These paths decide which callers have access to
/// credentials. A change therefore needs full access to credentials.
fn check_paths(caller: &Caller, before: &[String], after: &[String]) -> Result<(), Problem> {
    let set = |paths: &[String]| -> BTreeSet<String> { paths.iter().cloned().collect() };
    if set(before) == set(after) || caller.has_permission_everywhere(Permission::CredentialManage) {
        return Ok(());
    }
    Err(forbidden(Permission::CredentialManage)
        .detail("a change of the credential paths that a team owns needs the permission credential.manage"))
}

async fn listed(
    lifecycle: &Lifecycle,
    kind: PeopleKind,
    paging: Paging,
) -> Result<Json<Listing<PersonView>>, Problem> {
    let page = lifecycle.people(kind, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, person_view)))
}

async fn created(
    lifecycle: &Lifecycle,
    caller: &Caller,
    kind: PeopleKind,
    path: &str,
    new: NewPerson,
) -> Result<Response, Problem> {
    let (name, body) = into_name_and_body(new);
    let person = person(body);
    check_paths(caller, &[], &person.owns.paths)?;
    let made = lifecycle.put_person(kind, &name, &person, None, caller.actor()).await?;
    let path = format!("/api/v1/{path}/{}", segment(&made.name));
    let path = HeaderValue::from_str(&path).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, path)], Revision(made.revision, person_view(made))).into_response())
}

async fn shown(lifecycle: &Lifecycle, kind: PeopleKind, name: &str) -> Result<Revision<PersonView>, Problem> {
    let record = lifecycle.person(kind, name).await?;
    Ok(Revision(record.revision, person_view(record)))
}

async fn replaced(
    lifecycle: &Lifecycle,
    caller: &Caller,
    kind: PeopleKind,
    name: &str,
    if_match: &IfMatch,
    body: PersonBody,
) -> Result<Revision<PersonView>, Problem> {
    let before = lifecycle.person(kind, name).await?;
    if_match.check(before.revision)?;
    let person = person(body);
    check_paths(caller, &before.person.owns.paths, &person.owns.paths)?;
    let record = lifecycle.put_person(kind, name, &person, Some(before.revision), caller.actor()).await?;
    Ok(Revision(record.revision, person_view(record)))
}

async fn deleted(
    lifecycle: &Lifecycle,
    caller: &Caller,
    kind: PeopleKind,
    name: &str,
    if_match: &IfMatch,
) -> Result<StatusCode, Problem> {
    let before = lifecycle.person(kind, name).await?;
    if_match.check(before.revision)?;
    check_paths(caller, &before.person.owns.paths, &[])?;
    lifecycle.delete_person(kind, name, caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists owners, by name.
#[utoipa::path(get, path = "/api/v1/owners", operation_id = "listOwners", params(PageQuery),
    responses((status = 200, body = Listing<PersonView>)))]
async fn list_owners(
    Component(lifecycle): Component<Lifecycle>,
    paging: Paging,
) -> Result<Json<Listing<PersonView>>, Problem> {
    listed(&lifecycle, PeopleKind::Owner, paging).await
}

/// Creates an owner.
#[utoipa::path(post, path = "/api/v1/owners", operation_id = "createOwner", request_body = NewPerson,
    responses((status = 201, body = PersonView)))]
async fn create_owner(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(new): Json<NewPerson>,
) -> Result<Response, Problem> {
    created(&lifecycle, &caller, PeopleKind::Owner, "owners", new).await
}

/// Shows an owner.
#[utoipa::path(get, path = "/api/v1/owners/{name}", operation_id = "getOwner", params(("name" = String, Path)),
    responses((status = 200, body = PersonView)))]
async fn get_owner(
    Component(lifecycle): Component<Lifecycle>,
    Path(name): Path<String>,
) -> Result<Revision<PersonView>, Problem> {
    shown(&lifecycle, PeopleKind::Owner, &name).await
}

/// Replaces an owner.
#[utoipa::path(put, path = "/api/v1/owners/{name}", operation_id = "replaceOwner", params(("name" = String, Path)),
    request_body = PersonBody, responses((status = 200, body = PersonView)))]
async fn replace_owner(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
    Json(body): Json<PersonBody>,
) -> Result<Revision<PersonView>, Problem> {
    replaced(&lifecycle, &caller, PeopleKind::Owner, &name, &if_match, body).await
}

/// Deletes an owner that no certificate refers to.
#[utoipa::path(delete, path = "/api/v1/owners/{name}", operation_id = "deleteOwner", params(("name" = String, Path)),
    responses((status = 204)))]
async fn delete_owner(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    deleted(&lifecycle, &caller, PeopleKind::Owner, &name, &if_match).await
}

/// Lists teams, by name.
#[utoipa::path(get, path = "/api/v1/teams", operation_id = "listTeams", params(PageQuery),
    responses((status = 200, body = Listing<PersonView>)))]
async fn list_teams(
    Component(lifecycle): Component<Lifecycle>,
    paging: Paging,
) -> Result<Json<Listing<PersonView>>, Problem> {
    listed(&lifecycle, PeopleKind::Team, paging).await
}

/// Creates a team.
#[utoipa::path(post, path = "/api/v1/teams", operation_id = "createTeam", request_body = NewPerson,
    responses((status = 201, body = PersonView)))]
async fn create_team(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Json(new): Json<NewPerson>,
) -> Result<Response, Problem> {
    created(&lifecycle, &caller, PeopleKind::Team, "teams", new).await
}

/// Shows a team.
#[utoipa::path(get, path = "/api/v1/teams/{name}", operation_id = "getTeam", params(("name" = String, Path)),
    responses((status = 200, body = PersonView)))]
async fn get_team(
    Component(lifecycle): Component<Lifecycle>,
    Path(name): Path<String>,
) -> Result<Revision<PersonView>, Problem> {
    shown(&lifecycle, PeopleKind::Team, &name).await
}

/// Replaces a team.
#[utoipa::path(put, path = "/api/v1/teams/{name}", operation_id = "replaceTeam", params(("name" = String, Path)),
    request_body = PersonBody, responses((status = 200, body = PersonView)))]
async fn replace_team(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
    Json(body): Json<PersonBody>,
) -> Result<Revision<PersonView>, Problem> {
    replaced(&lifecycle, &caller, PeopleKind::Team, &name, &if_match, body).await
}

/// Deletes a team that no certificate refers to.
#[utoipa::path(delete, path = "/api/v1/teams/{name}", operation_id = "deleteTeam", params(("name" = String, Path)),
    responses((status = 204)))]
async fn delete_team(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    deleted(&lifecycle, &caller, PeopleKind::Team, &name, &if_match).await
}
