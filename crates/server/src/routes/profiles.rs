//! Certificate profiles.

use api::changes::ChangeView;
use api::profiles::{ProfileDocument, ProfileView};
use authority::Authority;
use authority::profile::{Profile, ProfileError, ProfileRecord};
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use serde_json::{Map, Value};

use crate::access::{Caller, Object, Permission, Reach, Scope};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::gates::{GateChange, Gates, WriteResult};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
use crate::state::Component;
use crate::time;

/// Members of the view that a profile does not have. They are ignored in requests, so that clients can send back a view.
const READ_ONLY_MEMBERS: [&str; 3] = ["revision", "created_at", "updated_at"];

pub(crate) fn routes() -> Api {
    Api::area("profiles")
        .route(Access::needs(Permission::ProfileRead).scoped(), routes!(list))
        .route(Permission::ProfileManage, routes!(create))
        .route(Access::needs(Permission::ProfileRead).scoped(), routes!(get_one))
        .route(Access::needs(Permission::ProfileManage).scoped(), routes!(replace))
        .route(Permission::ProfileManage, routes!(delete))
}

impl From<ProfileError> for Problem {
    fn from(error: ProfileError) -> Self {
        match error {
            ProfileError::Unknown(name) => Self::not_found(format_args!("profile {name}")),
            ProfileError::Invalid(reason) => Self::unprocessable(reason),
            ProfileError::Stale(_) => Self::precondition_failed(error),
            ProfileError::Unreadable { .. } => Self::internal(error),
            ProfileError::Store(error) => Self::of_store(&error),
        }
    }
}

/// Lists the profiles, by name.
#[utoipa::path(get, path = "/api/v1/profiles", operation_id = "listProfiles", params(PageQuery),
    responses((status = 200, body = Listing<ProfileView>)))]
async fn list(
    Component(authority): Component<Authority>,
    caller: Caller,
    paging: Paging,
) -> Result<Json<Listing<Value>>, Problem> {
    let scopes = match caller.reach(Permission::ProfileRead) {
        Reach::Everything => {
            let page = authority.profiles(paging.after.as_ref(), paging.limit).await?;
            return Ok(Json(listing(page, shown)));
        }
        Reach::Only(scopes) => scopes,
    };
    let mut seen = Vec::new();
    for scope in scopes {
        // One query for each profile: a caller has only a few grants.
        let Scope::Profile(name) = scope else { continue };
        match authority.profile_record(&name).await {
            Ok(record) => seen.push(shown(record)),
            Err(ProfileError::Unknown(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Json(Listing::whole(seen)))
}

/// Creates a profile.
#[utoipa::path(post, path = "/api/v1/profiles", operation_id = "createProfile", request_body = ProfileDocument,
    responses((status = 201, body = ProfileView), (status = 202, body = ChangeView)))]
async fn create(
    Component(authority): Component<Authority>,
    With(gates): With<Gates>,
    caller: Caller,
    Json(body): Json<Map<String, Value>>,
) -> Result<Response, Problem> {
    let profile = Box::new(read(body)?);
    let name = profile.name.clone();
    if authority.profile_record(&name).await.is_ok() {
        return Err(Problem::conflict(format_args!("the profile {name} already exists")));
    }
    let written = gates.write(&caller, GateChange::PutProfile { profile, revision: 0 }).await?;
    if matches!(written, WriteResult::Waits(_)) {
        return Ok(written.map(|()| StatusCode::CREATED).into_response());
    }
    let made = authority.profile_record(&name).await?;
    let location = HeaderValue::from_str(&format!("/api/v1/profiles/{name}")).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, location)], Revision(made.revision, shown(made))).into_response())
}

/// Shows a profile.
#[utoipa::path(get, path = "/api/v1/profiles/{name}", operation_id = "getProfile", params(("name" = String, Path)),
    responses((status = 200, body = ProfileView)))]
async fn get_one(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Revision<Value>, Problem> {
    check_permission(&caller, Permission::ProfileRead, &name)?;
    let record = authority.profile_record(&name).await?;
    Ok(Revision(record.revision, shown(record)))
}

/// Replaces a profile. Certificates issued with it remain unchanged. A change of a profile that requires approval waits for
/// approval.
#[utoipa::path(put, path = "/api/v1/profiles/{name}", operation_id = "replaceProfile",
    params(("name" = String, Path)), request_body = ProfileDocument,
    responses((status = 200, body = ProfileView), (status = 202, body = ChangeView)))]
async fn replace(
    Component(authority): Component<Authority>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
    Json(body): Json<Map<String, Value>>,
) -> Result<WriteResult<Revision<Value>>, Problem> {
    check_permission(&caller, Permission::ProfileManage, &name)?;
    let before = authority.profile_record(&name).await?;
    let revision = before.revision;
    if_match.check(revision)?;
    let profile = read(body)?;
    check_reach(&caller, &before.profile, &profile)?;
    if profile.name != name {
        let detail =
            format_args!("the profile {name} cannot be renamed to {}: create another profile", profile.name);
        return Err(Problem::unprocessable(detail));
    }
    let change = GateChange::PutProfile { profile: Box::new(profile), revision };
    let written = gates.write(&caller, change).await?;
    let record = authority.profile_record(&name).await?;
    Ok(written.map(|()| Revision(record.revision, shown(record))))
}

/// Deletes a profile, so that no more certificates are issued with it. Certificates issued with it remain unchanged.
#[utoipa::path(delete, path = "/api/v1/profiles/{name}", operation_id = "deleteProfile",
    params(("name" = String, Path)), responses((status = 204), (status = 202, body = ChangeView)))]
async fn delete(
    Component(authority): Component<Authority>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(name): Path<String>,
    if_match: IfMatch,
) -> Result<WriteResult<StatusCode>, Problem> {
    let revision = authority.profile_record(&name).await?.revision;
    if_match.check(revision)?;
    let written = gates.write(&caller, GateChange::DeleteProfile { name, revision }).await?;
    Ok(written.map(|()| StatusCode::NO_CONTENT))
}

/// Checks a permission on a profile. If the caller may not see the profile, the error is the same as for a missing profile.
fn check_permission(caller: &Caller, permission: Permission, name: &str) -> Result<(), Problem> {
    let missing = || ProfileError::Unknown(name.to_owned()).into();
    caller.may_or_missing((permission, Permission::ProfileRead), Object::profile(name), missing)
}

/// Checks that a change has no effect beyond the profile, unless the caller's permission covers all profiles. The CA may be of another
/// team, and an application identity may have the permissions of another team's application.
fn check_reach(caller: &Caller, before: &Profile, after: &Profile) -> Result<(), Problem> {
    if caller.has_permission_everywhere(Permission::ProfileManage) {
        return Ok(());
    }
    let member = match (before, after) {
        _ if before.ca != after.ca => "ca",
        _ if !before.subject.application_identities && after.subject.application_identities => {
            "subject.application_identities"
        }
        _ => return Ok(()),
    };
    Err(Problem::forbidden(format_args!(
        "only callers with access to all profiles may change `{member}` of a profile"
    ))
    .hint(format_args!("leave `{member}` unchanged, or ask a caller with profile.manage in every scope")))
}

fn read(mut body: Map<String, Value>) -> Result<Profile, Problem> {
    for member in READ_ONLY_MEMBERS {
        body.remove(member);
    }
    serde_json::from_value(Value::Object(body))
        .map_err(|error| Problem::unprocessable(format_args!("the profile is not valid: {error}")))
}

fn shown(record: ProfileRecord) -> Value {
    let mut view = serde_json::to_value(&*record.profile).unwrap_or_default();
    view["revision"] = record.revision.into();
    view["created_at"] = time::shown(record.created_at_us).into();
    view["updated_at"] = time::shown(record.updated_at_us).into();
    view
}
