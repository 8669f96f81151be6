//! Client certificates of users and programs: mutual TLS instead of a token.

use api::access::{IdentityPatch, IdentityView, NewClientCertificate};
use api::changes::ChangeView;
use authority::Authority;
use authority::profile::ProfileError;
use axum::extract::State as With;
use axum::response::Response;
use http::StatusCode;
use store::Store;
use store::{IdentityKind, IdentitySettings};
use uuid::Uuid;

use crate::access::AccessControl;
use crate::access::admin::{self, IdentityUpdate, NewIdentityValues};
use crate::access::{Caller, Permission, certificate_hash, certificate_matcher, profiled_certificate_hash};
use crate::conditional::{IfMatch, Revision};
use crate::extract::{Json, Path};
use crate::gates::{Gates, WriteResult};
use crate::paging::{Listing, PageQuery, Paging, try_listing};
use crate::problem::Problem;
use crate::routes::identity::{created, identity_change, identity_view, revised};
use crate::routing::{Api, routes};

const KIND: IdentityKind = IdentityKind::Certificate;

pub(crate) fn routes() -> Api {
    Api::area("client-certificates")
        .route(Permission::AccessRead, routes!(list))
        .route(Permission::AccessManage, routes!(create))
        .route(Permission::AccessRead, routes!(get_one))
        .route(Permission::AccessManage, routes!(update))
        .route(Permission::AccessManage, routes!(delete))
}

/// Lists the accepted client certificates, by name.
#[utoipa::path(get, path = "/api/v1/client-certificates", operation_id = "listClientCertificates",
    params(PageQuery), responses((status = 200, body = Listing<IdentityView>)))]
async fn list(With(store): With<Store>, paging: Paging) -> Result<Json<Listing<IdentityView>>, Problem> {
    let page = store::Access::of(&store).identities(KIND, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(try_listing(page, identity_view)?))
}

/// Creates an identity for a client certificate.
#[utoipa::path(post, path = "/api/v1/client-certificates", operation_id = "createClientCertificate",
    request_body = NewClientCertificate, responses((status = 201, body = IdentityView), (status = 202, body = ChangeView)))]
async fn create(
    With(authority): With<Option<Authority>>,
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Json(new): Json<NewClientCertificate>,
) -> Result<Response, Problem> {
    let matcher = certificate_matcher(&new.matcher).ok_or_else(|| {
        Problem::unprocessable(format_args!("{:?} is not a certificate matcher", new.matcher))
            .hint("give `sha256:` and 64 hexadecimal digits, `dns:NAME`, `email:ADDRESS` or `uri:URI`")
    })?;
    let settings = IdentitySettings {
        name: admin::name(&new.name)?,
        email: None,
        grants: admin::checked_grants(&access, &caller, &new.grants).await?,
        enabled: true,
        expires_at_us: admin::end(&access, new.expires_at.as_deref())?,
    };
    let (key_hash, label) = match &new.profile {
        None => (certificate_hash(&matcher), matcher),
        Some(_) if matcher.starts_with("sha256:") => {
            return Err(Problem::unprocessable("a fingerprint identifies one certificate: omit the profile"));
        }
        Some(profile) => {
            check_names(authority.as_ref(), profile).await?;
            (profiled_certificate_hash(profile, &matcher), format!("{matcher} (profile {profile})"))
        }
    };
    let new = NewIdentityValues { kind: KIND, key_hash, label, settings };
    created(
        "/api/v1/client-certificates",
        gates.identity(&caller, admin::create(&access, &caller, new).await?).await?,
    )
}

/// Rejects a profile whose certificates may contain any host name. Anyone who may request such a certificate could otherwise take
/// over any identity. A profile that is created or widened later is rejected when one of its certificates authenticates.
async fn check_names(authority: Option<&Authority>, profile: &str) -> Result<(), Problem> {
    let Some(authority) = authority else { return Ok(()) };
    match authority.profile(profile).await {
        Ok(found) if found.names.allows_any_host() => {
            let detail = format_args!(
                "the profile {profile} allows every host name, so its names cannot identify a client"
            );
            Err(Problem::unprocessable(detail)
                .hint("restrict names.dns_allowed of the profile, which allows any host name; or map the fingerprint"))
        }
        Ok(_) | Err(ProfileError::Unknown(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Shows the identity of a client certificate.
#[utoipa::path(get, path = "/api/v1/client-certificates/{id}", operation_id = "getClientCertificate",
    params(("id" = Uuid, Path)), responses((status = 200, body = IdentityView)))]
async fn get_one(
    With(access): With<AccessControl>,
    Path(id): Path<Uuid>,
) -> Result<Revision<IdentityView>, Problem> {
    revised(admin::find(&access, KIND, id).await?)
}

/// Changes the name, grants or expiry of a client certificate's identity, or disables it.
#[utoipa::path(patch, path = "/api/v1/client-certificates/{id}", operation_id = "updateClientCertificate",
    params(("id" = Uuid, Path)), request_body = IdentityPatch,
    responses((status = 200, body = IdentityView), (status = 202, body = ChangeView)))]
async fn update(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(patch): Json<IdentityPatch>,
) -> Result<WriteResult<Revision<IdentityView>>, Problem> {
    let patch = IdentityUpdate { email: None, ..identity_change(patch, &access)? };
    let change = admin::update(&access, &caller, KIND, id, &if_match, patch).await?;
    gates.identity(&caller, change).await?.try_map(revised)
}

/// Deletes the identity of a client certificate, which is then no longer accepted.
#[utoipa::path(delete, path = "/api/v1/client-certificates/{id}", operation_id = "deleteClientCertificate",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn delete(
    With(access): With<AccessControl>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<WriteResult<StatusCode>, Problem> {
    let change = admin::delete(&access, &caller, KIND, id, &if_match).await?;
    Ok(gates.write(&caller, change.into()).await?.map(|()| StatusCode::NO_CONTENT))
}
