//! Managed certificates: create, list, change, renew, revoke, export.

mod body;
mod bulk;
mod counting;
mod filter;
pub(crate) mod problems;
mod revocation;
mod scope;
mod view;

use agent::Agents;
use api::certificates::{
    CertificateFilter, CertificatePatch, CertificateView, CreatedView, DeploymentView, ExportBody,
    ExportKind, FacetQuery, FacetsView, GroupQuery, GroupsView, NewCertificateBody, Order, RevokeBody,
    ServedView, SummaryView, VersionView,
};
use api::changes::ChangeView;
use api::jobs::JobView;
use api::listing::{CountQuery, Direction};
use authority::Authority;
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, HeaderValue, LOCATION};
use lifecycle::managed::{CertificateChange, ManagedCertificate};
use lifecycle::tables::managed::{self, GroupBy, ManagedOrder, ManagedSort};
use lifecycle::{DataError, ExportFormat, Lifecycle, Selection, UpdateError};
use serde::Deserialize;
use store::Store;
use utoipa::IntoParams;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::access::{Caller, Permission};
use crate::conditional::IfMatch;
use crate::extract::{Json, Path, Query};
use crate::gates::{GateChange, Gates};
use crate::idempotency::HoldsSecret;
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routes::jobs::job_view;
use crate::routing::{Access, Api, routes};
use crate::state::Component;
use body::{certificate_change, new_certificate};
pub(crate) use body::{key_location, options_of, target_ref};
use filter::managed_filter;
use revocation::revoke_request;
pub(crate) use scope::may_see;
use scope::{
    Facts, References, check_name, check_profile_and_issuer, check_references, may_create, names_of,
    visible_scopes,
};
use view::{certificate_view, created_view, deployment_view, served_view, summary_view, version_view};

/// Maximum attempts of a change without `If-Match`, each on the newest revision.
const UPDATE_TRIES: u32 = 5;

pub(crate) fn routes() -> Api {
    let scoped = |permission| Access::needs(permission).scoped();
    Api::area("certificates")
        .route(scoped(Permission::CertificateRead), routes!(list))
        .route(scoped(Permission::CertificateRequest), routes!(create))
        .route(Permission::CertificateRead, routes!(summary))
        .route(scoped(Permission::CertificateRead), routes!(groups))
        .route(scoped(Permission::CertificateRead), routes!(facets))
        .route(scoped(Permission::CertificateRead), routes!(get_one))
        .route(scoped(Permission::CertificateManage), routes!(update))
        .route(scoped(Permission::CertificateManage), routes!(archive))
        .route(scoped(Permission::CertificateManage), routes!(restore))
        .route(scoped(Permission::CertificateManage), routes!(deploy))
        .route(scoped(Permission::CertificateRenew), routes!(renew))
        .route(scoped(Permission::CertificateRevoke), routes!(revoke))
        .route(scoped(Permission::CertificateRead), routes!(versions))
        .route(scoped(Permission::CertificateRead), routes!(served))
        .route(scoped(Permission::CertificateRead), routes!(jobs))
        .route(scoped(Permission::CertificateRead), routes!(deployments))
        .route(scoped(Permission::CertificateRead), routes!(chain))
        .route(scoped(Permission::CertificateExport), routes!(export))
        .merge(bulk::routes())
}

/// Returns the certificate, if the caller has this permission on it; 404 if the caller may not see it.
async fn permitted(
    lifecycle: &Lifecycle,
    caller: &Caller,
    permission: Permission,
    id: Uuid,
) -> Result<ManagedCertificate, Problem> {
    let found = lifecycle.get(id).await;
    let Ok(certificate) = &found else {
        // Marks the permission as checked for a missing certificate too: the guard then treats both cases alike.
        let _ = caller.reach(permission);
        return Err(found
            .map(drop)
            .map_or_else(Problem::from, |()| Problem::internal("a certificate is lost")));
    };
    let object = Facts::of(certificate).into_object(lifecycle.store(), caller).await?;
    if caller.may(Permission::CertificateRead, &object).is_err() {
        return Err(DataError::NotFound { what: "certificate", id: id.to_string() }.into());
    }
    caller.may(permission, &object)?;
    found.map_err(Problem::from)
}

/// Checks a permission on a certificate, for a request about one of its objects, such as a run. `both` contains this permission and
/// the permission to read the certificate. A caller with neither gets the error `missing`.
pub(crate) async fn check_permission(
    lifecycle: &Lifecycle,
    caller: &Caller,
    both: (Permission, Permission),
    id: Uuid,
    missing: impl FnOnce() -> Problem,
) -> Result<(), Problem> {
    let certificate = lifecycle.get(id).await?;
    let object = Facts::of(&certificate).into_object(lifecycle.store(), caller).await?;
    caller.may_or_missing(both, object, missing)
}

/// Returns a certificate with its ETag. The ETag contains the revision, which `If-Match` compares, and the run, which changes
/// without a new revision.
fn with_etag(certificate: ManagedCertificate) -> Response {
    let run = certificate.run.map_or_else(String::new, |run| {
        format!(".{}-{}-{}", run.state, run.attempts, run.next_attempt_at_us)
    });
    let tag = HeaderValue::from_str(&format!("\"{}{run}\"", certificate.revision));
    let mut response = Json(certificate_view(certificate)).into_response();
    if let Ok(tag) = tag {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Query parameters that sort the list of managed certificates.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Sorting {
    /// `expiry` (earliest first, never issued last), `name`, `created` or `issued` (start of validity of the current version).
    #[param(inline)]
    sort: Option<Order>,
    /// Direction: `asc`, or `desc` for the reverse order.
    #[param(inline)]
    order: Option<Direction>,
}

impl Sorting {
    fn sort(&self) -> ManagedSort {
        let by = match self.sort.unwrap_or_default() {
            Order::Expiry => ManagedOrder::Expiry,
            Order::Name => ManagedOrder::Name,
            Order::Created => ManagedOrder::Created,
            Order::Issued => ManagedOrder::Issued,
        };
        let direction = match self.order.unwrap_or_default() {
            Direction::Asc => managed::Direction::Ascending,
            Direction::Desc => managed::Direction::Descending,
        };
        ManagedSort { by, direction }
    }
}

/// Lists managed certificates.
#[utoipa::path(get, path = "/api/v1/certificates", operation_id = "listCertificates",
    params(PageQuery, CertificateFilter, Sorting, CountQuery), responses((status = 200, body = Listing<CertificateView>)))]
async fn list(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    paging: Paging,
    Query(filter): Query<CertificateFilter>,
    Query(sorting): Query<Sorting>,
    Query(count): Query<CountQuery>,
) -> Result<Json<Listing<CertificateView>>, Problem> {
    let filter = managed_filter(filter, visible_scopes(&caller, Permission::CertificateRead))?;
    let (sort, place) = (sorting.sort(), (paging.after.as_ref(), paging.limit));
    let page = if caller.has_permission_everywhere(Permission::CertificateRead) {
        lifecycle.sorted_page(&filter, sort, place.0, place.1).await?
    } else {
        let sees = |one: &ManagedCertificate| may_see(&caller, Permission::CertificateRead, one);
        lifecycle.visible_page(&filter, sort, place, &sees).await?
    };
    let mut listing = listing(page, certificate_view);
    if count.count == Some(true) {
        listing.total = Some(counting::total(&lifecycle, &caller, &filter).await?);
    }
    Ok(Json(listing))
}

/// Counts certificates by issuer, profile, algorithm, owner, team, environment, status or day of expiry.
///
/// Archived certificates are left out unless `status` names them. Without a filter the counts are exact at any size.
#[utoipa::path(get, path = "/api/v1/certificates/groups", operation_id = "groupCertificates",
    params(GroupQuery, CertificateFilter), responses((status = 200, body = GroupsView)))]
async fn groups(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Query(group): Query<GroupQuery>,
    Query(filter): Query<CertificateFilter>,
) -> Result<Json<GroupsView>, Problem> {
    let by: GroupBy = group.by.parse().map_err(Problem::bad_request)?;
    let filter = managed_filter(filter, visible_scopes(&caller, Permission::CertificateRead))?;
    let groups = counting::groups(&lifecycle, &caller, by, &filter).await?;
    Ok(Json(view::groups_view(by, groups)))
}

/// Counts certificates by several properties in one request, such as for the filters of a list.
///
/// Each property is counted without its own filter. With `status=failed`, for example, the counts by status cover all certificates,
/// and the counts by issuer cover only failed ones. Archived certificates are left out unless `status` names them.
#[utoipa::path(get, path = "/api/v1/certificates/facets", operation_id = "countCertificateFacets",
    params(FacetQuery, CertificateFilter), responses((status = 200, body = FacetsView)))]
async fn facets(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Query(query): Query<FacetQuery>,
    Query(filter): Query<CertificateFilter>,
) -> Result<Json<FacetsView>, Problem> {
    let by = view::facet_names(&query.by)?;
    let filter = managed_filter(filter, visible_scopes(&caller, Permission::CertificateRead))?;
    let all = counting::facets(&lifecycle, &caller, &by, &filter).await?;
    let facets = by.into_iter().zip(all).map(|(by, groups)| view::groups_view(by, groups)).collect();
    Ok(Json(FacetsView { facets }))
}

/// Creates a managed certificate.
///
/// It is issued immediately unless `issue` is false. Watch its `run`, or the events, for the result.
#[utoipa::path(post, path = "/api/v1/certificates", operation_id = "createCertificate",
    request_body = NewCertificateBody, responses((status = 201, body = CreatedView)))]
async fn create(
    Component(lifecycle): Component<Lifecycle>,
    With(agents): With<Option<Agents>>,
    caller: Caller,
    Json(body): Json<NewCertificateBody>,
) -> Result<Response, Problem> {
    let new = new_certificate(body)?;
    may_create((lifecycle.store(), agents.as_ref()), &caller, &new).await?;
    let created = lifecycle.create(new, caller.actor()).await?;
    let place = HeaderValue::from_str(&format!("/api/v1/certificates/{}", created.certificate));
    let place = place.map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, place)], Json(created_view(created))).into_response())
}

/// Counts certificates by state and by remaining lifetime.
#[utoipa::path(get, path = "/api/v1/certificates/summary", operation_id = "summarizeCertificates",
    responses((status = 200, body = SummaryView)))]
async fn summary(
    Component(lifecycle): Component<Lifecycle>,
    Component(authority): Component<Authority>,
) -> Result<Json<SummaryView>, Problem> {
    let short_lived = counting::short_lived(&lifecycle, &authority).await?;
    Ok(Json(summary_view(lifecycle.counts().await?, short_lived)))
}

/// Shows a certificate.
#[utoipa::path(get, path = "/api/v1/certificates/{id}", operation_id = "getCertificate", params(("id" = Uuid, Path)),
    responses((status = 200, body = CertificateView)))]
async fn get_one(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    let certificate = permitted(&lifecycle, &caller, Permission::CertificateRead, id).await?;
    Ok(with_etag(certificate))
}

/// Changes a certificate. New names, profile, issuer and key apply from the next version on; `renew` requests this version now.
///
/// Without `If-Match` the change applies to the newest revision, unless the same members were changed concurrently. A change after
/// which the certificate no longer needs approval waits for approval itself.
#[utoipa::path(patch, path = "/api/v1/certificates/{id}", operation_id = "updateCertificate",
    params(("id" = Uuid, Path)), request_body = CertificatePatch,
    responses((status = 200, body = CertificateView), (status = 202, body = ChangeView)))]
async fn update(
    Component(lifecycle): Component<Lifecycle>,
    With(agents): With<Option<Agents>>,
    With(gates): With<Gates>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
    Json(patch): Json<CertificatePatch>,
) -> Result<Response, Problem> {
    let first = permitted(&lifecycle, &caller, Permission::CertificateManage, id).await?;
    if_match.check(first.revision)?;
    let wanted = certificate_change(patch.clone(), &first)?;
    let mut before = first.clone();
    let mut tries = 1;
    loop {
        let change = certificate_change(patch.clone(), &before)?;
        check_change(&lifecycle, agents.as_ref(), &caller, &before, &change).await?;
        let stale = match lifecycle.update(id, Some(before.revision), &change, caller.actor()).await {
            // The lifecycle may update state and versions at any time.
            Err(UpdateError::Stale(stale)) if tries < UPDATE_TRIES && if_match.is_absent() => stale,
            Err(UpdateError::LiftsApproval(_)) => {
                let (revision, change) = (before.revision, Box::new(change));
                let change = GateChange::UpdateCertificate { id, revision, change };
                let written = gates.write(&caller, change).await?;
                let after = lifecycle.get(id).await?;
                return Ok(written.map(|()| with_etag(after)).into_response());
            }
            other => return Ok(with_etag(other?)),
        };
        tries += 1;
        before = permitted(&lifecycle, &caller, Permission::CertificateManage, id).await?;
        if wanted.conflicts(&first, &before) {
            return Err(UpdateError::Stale(stale).into());
        }
    }
}

/// Checks that the caller may make this change, including that the certificate does not move into a scope that the caller lacks.
async fn check_change(
    lifecycle: &Lifecycle,
    agents: Option<&Agents>,
    caller: &Caller,
    before: &ManagedCertificate,
    change: &CertificateChange,
) -> Result<(), Problem> {
    let profile = change.profile.as_deref().unwrap_or(&before.profile);
    let issuer = change.issuer.as_deref().unwrap_or(&before.issuer);
    let team = change.team.as_ref().unwrap_or(&before.team);
    let after = Facts {
        profile,
        issuer,
        team: team.as_deref(),
        names: change.names.as_deref().map_or_else(|| Facts::of(before).names, names_of),
        targets: change.targets.as_ref().unwrap_or(&before.targets),
    };
    let after = after.into_object(lifecycle.store(), caller).await?;
    if change.profile.is_some() || change.issuer.is_some() {
        let permission = Permission::CertificateManage;
        check_profile_and_issuer(lifecycle.store(), caller, permission, &after).await?;
    }
    caller.may(Permission::CertificateManage, &after)?;
    if let Some(name) = change.name.as_deref().filter(|name| *name != before.name) {
        check_name(caller, Permission::CertificateManage, name, &after)?;
    }
    let team = team.as_deref();
    let moved = team != before.team.as_deref();
    let targets = change.targets.as_ref().unwrap_or(&before.targets).iter();
    let key = change.key_location.as_ref().unwrap_or(&before.key_location);
    let references = References {
        team: team.filter(|_| moved),
        // After a move to another team, all targets count as new.
        targets: targets.filter(|target| moved || !before.targets.contains(target)).collect(),
        key: Some(key).filter(|key| moved || **key != before.key_location),
    };
    check_references(agents, caller, Permission::CertificateManage, references, &after).await
}

/// Archives a certificate. Deployed versions stay in place, and the certificate is no longer renewed.
#[utoipa::path(delete, path = "/api/v1/certificates/{id}", operation_id = "archiveCertificate",
    params(("id" = Uuid, Path)), responses((status = 204)))]
async fn archive(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<StatusCode, Problem> {
    let before = permitted(&lifecycle, &caller, Permission::CertificateManage, id).await?;
    if_match.check(before.revision)?;
    lifecycle.archive(id, Some(before.revision), caller.actor()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restores an archived certificate.
#[utoipa::path(post, path = "/api/v1/certificates/{id}/restore", operation_id = "restoreCertificate",
    params(("id" = Uuid, Path)), responses((status = 200, body = CertificateView)))]
async fn restore(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
    if_match: IfMatch,
) -> Result<Response, Problem> {
    let before = permitted(&lifecycle, &caller, Permission::CertificateManage, id).await?;
    if_match.check(before.revision)?;
    lifecycle.restore(id, Some(before.revision), caller.actor()).await?;
    Ok(with_etag(lifecycle.get(id).await?))
}

/// Deploys the current version to its targets again.
#[utoipa::path(post, path = "/api/v1/certificates/{id}/deploy", operation_id = "deployCertificate",
    params(("id" = Uuid, Path)), responses((status = 202, body = CertificateView)))]
async fn deploy(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    permitted(&lifecycle, &caller, Permission::CertificateManage, id).await?;
    lifecycle.redeploy(id, caller.actor()).await?;
    let mut response = with_etag(lifecycle.get(id).await?);
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

/// Renews a certificate now.
#[utoipa::path(post, path = "/api/v1/certificates/{id}/renew", operation_id = "renewCertificate",
    params(("id" = Uuid, Path)), responses((status = 202, body = CertificateView)))]
async fn renew(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    permitted(&lifecycle, &caller, Permission::CertificateRenew, id).await?;
    let report = lifecycle.renew(&Selection::Ids(vec![id]), "requested", caller.actor()).await?;
    if let Some((_, reason)) = report.reasons.into_iter().next() {
        return Err(Problem::conflict(reason));
    }
    let mut response = with_etag(lifecycle.get(id).await?);
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

/// Revokes the current version. A revocation that the issuer does not complete immediately is retried: see the certificate's jobs.
#[utoipa::path(post, path = "/api/v1/certificates/{id}/revoke", operation_id = "revokeCertificate",
    params(("id" = Uuid, Path)), request_body = RevokeBody, responses((status = 200, body = CertificateView)))]
async fn revoke(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<RevokeBody>,
) -> Result<Response, Problem> {
    permitted(&lifecycle, &caller, Permission::CertificateRevoke, id).await?;
    let request = revoke_request(&body)?;
    let report = lifecycle.revoke(&Selection::Ids(vec![id]), request, caller.actor()).await?;
    if let Some((_, reason)) = report.reasons.into_iter().next() {
        return Err(Problem::conflict(reason));
    }
    Ok(with_etag(lifecycle.get(id).await?))
}

/// Lists a certificate's versions, newest first.
#[utoipa::path(get, path = "/api/v1/certificates/{id}/versions", operation_id = "listCertificateVersions",
    params(("id" = Uuid, Path), PageQuery), responses((status = 200, body = Listing<VersionView>)))]
async fn versions(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
    paging: Paging,
) -> Result<Json<Listing<VersionView>>, Problem> {
    permitted(&lifecycle, &caller, Permission::CertificateRead, id).await?;
    let page = lifecycle.versions(id, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, version_view)))
}

/// Lists the endpoints that presented a version of the certificate in their last scan, oldest version first. After a renewal this
/// shows which endpoints still present the old version.
#[utoipa::path(get, path = "/api/v1/certificates/{id}/endpoints", operation_id = "listCertificateEndpoints",
    params(("id" = Uuid, Path), PageQuery), responses((status = 200, body = Listing<ServedView>)))]
async fn served(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
    paging: Paging,
) -> Result<Json<Listing<ServedView>>, Problem> {
    let certificate = permitted(&lifecycle, &caller, Permission::CertificateRead, id).await?;
    let current = certificate.current.map(|current| current.fingerprint);
    let page = lifecycle.served(id, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, |row| served_view(row, current))))
}

/// Lists a certificate's runs, newest first.
#[utoipa::path(get, path = "/api/v1/certificates/{id}/jobs", operation_id = "listCertificateJobs",
    params(("id" = Uuid, Path), PageQuery), responses((status = 200, body = Listing<JobView>)))]
async fn jobs(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
    paging: Paging,
) -> Result<Json<Listing<JobView>>, Problem> {
    permitted(&lifecycle, &caller, Permission::CertificateRead, id).await?;
    let page = lifecycle.jobs_of(id, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, job_view)))
}

/// Lists a certificate's deployments, newest first.
#[utoipa::path(get, path = "/api/v1/certificates/{id}/deployments", operation_id = "listCertificateDeployments",
    params(("id" = Uuid, Path), PageQuery), responses((status = 200, body = Listing<DeploymentView>)))]
async fn deployments(
    Component(lifecycle): Component<Lifecycle>,
    With(store): With<Store>,
    caller: Caller,
    Path(id): Path<Uuid>,
    paging: Paging,
) -> Result<Json<Listing<DeploymentView>>, Problem> {
    permitted(&lifecycle, &caller, Permission::CertificateRead, id).await?;
    let page = agent::tables::Agents::of(&store)
        .deployments_of_certificate(id, paging.after.as_ref(), paging.limit)
        .await?;
    Ok(Json(listing(page, deployment_view)))
}

/// Returns the current chain in PEM, leaf first.
#[utoipa::path(get, path = "/api/v1/certificates/{id}/chain", operation_id = "getCertificateChain",
    params(("id" = Uuid, Path)),
    responses((status = 200, body = String, content_type = "application/pem-certificate-chain")))]
async fn chain(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    permitted(&lifecycle, &caller, Permission::CertificateRead, id).await?;
    let page = lifecycle.versions(id, None, 1).await?;
    let version = page.rows.into_iter().next();
    let version = version.ok_or_else(|| Problem::conflict("the certificate has not been issued yet"))?;
    let kind = HeaderValue::from_static("application/pem-certificate-chain");
    Ok(([(CONTENT_TYPE, kind)], view::chain_pem(&version.chain)).into_response())
}

/// Exports a certificate with its private key, if this server stores the key. The export is recorded in the audit log.
#[utoipa::path(post, path = "/api/v1/certificates/{id}/export", operation_id = "exportCertificate",
    params(("id" = Uuid, Path)), request_body = ExportBody,
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream")))]
async fn export(
    Component(lifecycle): Component<Lifecycle>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Json(body): Json<ExportBody>,
) -> Result<Response, Problem> {
    permitted(&lifecycle, &caller, Permission::CertificateExport, id).await?;
    let (format, ending) = match (body.format, body.password.map(Zeroizing::new)) {
        (ExportKind::Pem, _) => (ExportFormat::ChainAndKey, "pem"),
        (ExportKind::Pkcs12, Some(password)) => (ExportFormat::Pkcs12 { password }, "p12"),
        (ExportKind::Pkcs12, None) => return Err(Problem::unprocessable("a PKCS#12 file needs a password")),
    };
    let exported = lifecycle.export(id, &format, caller.actor()).await?;
    let name = HeaderValue::from_str(&format!("attachment; filename=\"{id}.{ending}\""));
    let name = name.map_err(Problem::internal)?;
    let headers =
        [(CONTENT_TYPE, HeaderValue::from_static(exported.media_type)), (CONTENT_DISPOSITION, name)];
    let mut response = (headers, exported.bytes.to_vec()).into_response();
    response.extensions_mut().insert(HoldsSecret);
    Ok(response)
}
