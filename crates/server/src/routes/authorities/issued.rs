//! Issuance by CSR, and issued certificates.

use api::issued::{IssuedCertificate, IssuedQuery, IssuedView, NewIssued};
use api::listing::Direction;
use authority::Authority;
use authority::issue::{IssueRequest, Issued, IssuedRecord, IssuedRef, Source};
use authority::profile::Profile;
use authority::revoke::{CertificateStatus, status_of};
use authority::tables::{IssuedFilter, IssuedOrder};
use authority::teams::OwnedKind;
use authority::tree::CaError;
use axum::extract::State as With;
use axum::response::{IntoResponse, Response};
use http::header::{HeaderValue, LOCATION};
use http::{HeaderMap, StatusCode};
use store::{Clock, Cursor, Store};
use uuid::Uuid;
use x509::csr::CertificateRequest;
use x509::{Certificate, DistinguishedName, Fingerprint, GeneralName, SerialNumber, SpkiHash, UnixTime};

use super::problems::refused;
use crate::access::{Caller, Object, Permission, Reach};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
use crate::state::Component;
use crate::time;

pub(super) fn routes() -> Api {
    Api::area("issued")
        .route(Access::needs(Permission::CertificateRequest).scoped(), routes!(issue))
        .route(Access::needs(Permission::CertificateRead).scoped(), routes!(list))
        .route(Access::needs(Permission::CertificateRead).scoped(), routes!(get_one))
}

fn issued_certificate(issued: &Issued) -> IssuedCertificate {
    IssuedCertificate {
        id: issued.id,
        serial: issued.serial.to_string(),
        fingerprint: issued.fingerprint.to_string(),
        ca: issued.ca,
        profile: issued.profile.clone(),
        not_before: moment(issued.not_before),
        not_after: moment(issued.not_after),
        chain: issued.chain_pem(),
    }
}

fn issued_view(record: IssuedRecord, now_us: i64) -> IssuedView {
    let (status, revoked_at, reason) = match status_of(&record, now_us) {
        CertificateStatus::Good => ("good", None, None),
        CertificateStatus::Expired => ("expired", None, None),
        CertificateStatus::Revoked { at, reason, .. } => {
            ("revoked", Some(moment(at)), Some(reason.to_string()))
        }
    };
    let names = Certificate::parse(&record.der)
        .map(|certificate| certificate.subject_alt_names.iter().map(ToString::to_string).collect());
    IssuedView {
        id: record.id,
        serial: x509::SerialNumber::from_content(&record.serial).to_string(),
        fingerprint: Fingerprint::from_bytes(record.sha256).to_string(),
        ca: record.ca,
        profile: record.profile,
        source: record.source.to_string(),
        requester: record.requester,
        subject: record.subject,
        names: names.unwrap_or_default(),
        key_algorithm: record.key_algorithm,
        spki_sha256: x509::SpkiHash::from_bytes(record.spki_sha256).to_string(),
        issued_at: time::shown(record.issued_at_us),
        not_before: time::shown(record.not_before_us),
        not_after: time::shown(record.not_after_us),
        status: status.to_owned(),
        revoked_at,
        revocation_reason: reason,
        certificate: x509::pem::encode("CERTIFICATE", &record.der),
    }
}

fn moment(time: UnixTime) -> String {
    time::shown(time.0.saturating_mul(1_000_000))
}

/// Issues a certificate for a CSR, with a profile.
///
/// The CSR proves possession of the key; the profile determines everything else. A profile with required approval issues only to
/// managed certificates. With an `Idempotency-Key`, a repeated request returns the same certificate, even if the first response was
/// lost.
#[utoipa::path(post, path = "/api/v1/profiles/{name}/certificates", operation_id = "issueByProfile",
    params(("name" = String, Path)), request_body = NewIssued, responses((status = 201, body = IssuedCertificate)))]
async fn issue(
    Component(authority): Component<Authority>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(body): Json<NewIssued>,
) -> Result<Response, Problem> {
    let ca = body.ca.clone();
    let mut request = issue_request(&name, body, &caller)?;
    let profile = authority.profile(&name).await?;
    if profile.requires_approval {
        let detail = format_args!("certificates of the profile {name} require approval");
        return Err(
            Problem::approval_required(detail).hint("request a managed certificate: it waits for approval")
        );
    }
    if let Some(ca) = ca {
        request.ca = Some(named_ca(&authority, &caller, &profile, &ca).await?);
    }
    // The stored response for repeats is lost if the process ends between commit and response.
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    request.idempotency_key = key.map(|key| format!("{}:{}", caller.id(), key));
    let issued = authority.issue(request).await.map_err(refused)?;
    let place = HeaderValue::from_str(&format!("/api/v1/issued/{}", issued.id)).map_err(Problem::internal)?;
    Ok((StatusCode::CREATED, [(LOCATION, place)], Json(issued_certificate(&issued))).into_response())
}

/// Returns the CA that a request names. Only a caller whose permission covers all profiles may name a CA other than the profile's.
/// For a CA that is a credential, the caller also needs `credential.manage` on its path. Other callers get the same error for a
/// missing CA as for an existing one.
async fn named_ca(
    authority: &Authority,
    caller: &Caller,
    profile: &Profile,
    named: &str,
) -> Result<Uuid, Problem> {
    let refused = || {
        Problem::forbidden(format_args!("the profile {} does not issue from the CA {named}", profile.name))
            .hint("leave out `ca`, or ask a caller whose permission covers all profiles")
    };
    let everywhere = caller.has_permission_everywhere(Permission::CertificateRequest);
    let found = match authority.ca(named).await {
        Ok(found) => found,
        Err(CaError::Unknown(_)) if !everywhere => return Err(refused()),
        Err(error) => return Err(error.into()),
    };
    let own = match authority.issuing_ca_for(profile).await {
        Ok(own) => Some(own.id),
        Err(CaError::Unknown(_) | CaError::NoneIssues) => None,
        Err(error) => return Err(error.into()),
    };
    let permitted = own == Some(found.id)
        || match &found.credential {
            Some(path) => {
                caller.may(Permission::CredentialManage, Object::path(&**path)).is_ok() && everywhere
            }
            None => everywhere,
        };
    if permitted { Ok(found.id) } else { Err(refused()) }
}

fn issue_request(profile: &str, body: NewIssued, caller: &Caller) -> Result<IssueRequest, Problem> {
    let bad =
        |what: &str, error: &dyn std::fmt::Display| Problem::unprocessable(format_args!("{what}: {error}"));
    let csr = CertificateRequest::from_pem_or_der(body.csr.as_bytes()).map_err(|error| bad("csr", &error))?;
    csr.verify().map_err(|error| bad("csr", &error))?;
    let names = match &body.names {
        Some(names) => names.iter().map(|name| GeneralName::parse(name)).collect::<Result<_, _>>(),
        None => Ok(csr.names()),
    };
    let subject = match &body.subject {
        Some(text) => DistinguishedName::from_text(text).map_err(|error| bad("subject", &error))?,
        None => csr.subject.clone(),
    };
    let common = subject.common_names.iter().filter(|name| name.contains('.')).cloned();
    let names = names.map_err(|error| bad("names", &error))?;
    let object = Object::profile(profile).with_names(names.iter().map(ToString::to_string).chain(common));
    let rights = caller.check_ownership_rights(Permission::CertificateRequest, &object)?;
    let not_before = body.not_before.as_deref().map(time::parsed).transpose()?;
    Ok(IssueRequest {
        rights,
        subject: Some(subject),
        not_before: not_before.map(|us| UnixTime(us.div_euclid(1_000_000))),
        lifetime_seconds: body.lifetime_seconds,
        must_staple: body.must_staple.unwrap_or(csr.must_staple),
        ..IssueRequest::new(profile, csr.public_key.spki.to_vec(), names, Source::Api, caller.actor())
    })
}

/// Lists the certificates issued by this server, newest first.
///
/// A caller that may read only the certificates of some profiles must filter by one of them.
#[utoipa::path(get, path = "/api/v1/issued", operation_id = "listIssued", params(PageQuery, IssuedQuery),
    responses((status = 200, body = Listing<IssuedView>)))]
async fn list(
    Component(authority): Component<Authority>,
    With(store): With<Store>,
    With(clock): With<Clock>,
    caller: Caller,
    paging: Paging,
    Query(params): Query<IssuedQuery>,
) -> Result<Json<Listing<IssuedView>>, Problem> {
    match (caller.reach(Permission::CertificateRead), &params.profile) {
        (Reach::Everything, _) => {}
        (Reach::Only(_), Some(profile)) => {
            caller.may(Permission::CertificateRead, Object::profile(profile.clone()))?;
        }
        (Reach::Only(_), None) => {
            return Err(Problem::forbidden("you may read only the certificates of some profiles")
                .hint("name a profile: ?profile=NAME"));
        }
    }
    let ca = ca_of_filter(&authority, &caller, params.ca.as_deref()).await?;
    let serial = params.serial.as_deref().map(str::parse::<SerialNumber>).transpose();
    let serial = serial.map_err(|error| Problem::bad_request(format_args!("serial: {error}")))?;
    let fingerprint = params.fingerprint.as_deref().map(str::parse::<Fingerprint>).transpose();
    let fingerprint =
        fingerprint.map_err(|error| Problem::bad_request(format_args!("fingerprint: {error}")))?;
    let key = params.key.as_deref().map(str::parse::<SpkiHash>).transpose();
    let key = key.map_err(|error| Problem::bad_request(format_args!("key: {error}")))?;
    let filter = IssuedFilter {
        ca,
        profile: params.profile,
        requester: params.requester,
        source: params.source.as_deref().map(str::parse).transpose().map_err(Problem::bad_request)?,
        name_suffix: params.name,
        issued_from_us: params.from.as_deref().map(time::parsed).transpose()?,
        issued_before_us: params.before.as_deref().map(time::parsed).transpose()?,
        ends_from_us: None,
        serial: serial.map(|serial| serial.content().to_vec()),
        sha256: fingerprint.map(|fingerprint| *fingerprint.as_bytes()),
        spki_sha256: key.map(|key| *key.as_bytes()),
    };
    let order = match params.order {
        None | Some(Direction::Desc) => IssuedOrder::NewestFirst,
        Some(Direction::Asc) => IssuedOrder::OldestFirst,
    };
    let issued = authority::tables::Issued::of(&store);
    let place = (paging.after.as_ref(), paging.limit);
    let page = if covers_profiles(&caller, Permission::CertificateRead) {
        issued.sorted_page(&filter, order, place.0, place.1).await?
    } else {
        let read = |after: Option<Cursor>, limit| {
            let filter = &filter;
            async move { issued.sorted_page(filter, order, after.as_ref(), limit).await }
        };
        let sees = |record: &IssuedRecord| caller.may(Permission::CertificateRead, object_of(record)).is_ok();
        // The cursor contains only the time of a row, which reveals nothing.
        store::visible_page(place, read, sees).await?.page
    };
    let now_us = clock.now_us();
    Ok(Json(listing(page, |record| issued_view(record, now_us))))
}

/// Returns the CA of a filter. For a caller who may not read CAs, a CA that does not exist counts as a CA without certificates.
pub(super) async fn ca_of_filter(
    authority: &Authority,
    caller: &Caller,
    ca: Option<&str>,
) -> Result<Option<Uuid>, Problem> {
    let Some(ca) = ca else { return Ok(None) };
    match authority.ca(ca).await {
        Ok(found) => Ok(Some(found.id)),
        Err(CaError::Unknown(_)) if !caller.has_permission_everywhere(Permission::CaRead) => {
            Ok(Some(Uuid::nil()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Shows a certificate issued by this server, by its ID or its fingerprint.
#[utoipa::path(get, path = "/api/v1/issued/{id}", operation_id = "getIssued", params(("id" = String, Path)),
    responses((status = 200, body = IssuedView)))]
async fn get_one(
    Component(authority): Component<Authority>,
    With(clock): With<Clock>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<IssuedView>, Problem> {
    let record = find_permitted(&authority, &caller, Permission::CertificateRead, &id).await?;
    Ok(Json(issued_view(record, clock.now_us())))
}

/// Returns whether a caller with the permission on a profile has it on every certificate of the profile. If not, a team may own the
/// names of some of these certificates.
pub(super) fn covers_profiles(caller: &Caller, permission: Permission) -> bool {
    caller.has_permission_everywhere(permission) || !caller.ownership().owns_any(OwnedKind::Name)
}

/// Returns the object of a certificate for permission checks: its profile and names.
pub(crate) fn object_of(record: &IssuedRecord) -> Object {
    let object = Object::profile(record.profile.clone());
    let Ok(certificate) = Certificate::parse(&record.der) else { return object };
    object.with_names(&certificate.subject_alt_names)
}

/// Returns a certificate by ID or fingerprint.
pub(super) async fn find(authority: &Authority, id: &str) -> Result<IssuedRecord, Problem> {
    let which = match (id.parse::<Uuid>(), id.parse::<Fingerprint>()) {
        (Ok(id), _) => IssuedRef::Id(id),
        (_, Ok(fingerprint)) => IssuedRef::Fingerprint(fingerprint),
        _ => {
            return Err(Problem::not_found(format_args!(
                "certificate {id}: give an id or a SHA-256 fingerprint"
            )));
        }
    };
    let record = authority.issued(&which).await?;
    record.ok_or_else(|| missing(id))
}

fn missing(id: &str) -> Problem {
    Problem::not_found(format_args!("certificate {id} issued by this server"))
}

/// Returns a certificate by ID or fingerprint, if the caller has this permission on it. If the caller may not see the certificate,
/// the error is the same as for a missing one.
pub(super) async fn find_permitted(
    authority: &Authority,
    caller: &Caller,
    permission: Permission,
    id: &str,
) -> Result<IssuedRecord, Problem> {
    let record = find(authority, id).await?;
    let both = (permission, Permission::CertificateRead);
    caller.may_or_missing(both, object_of(&record), || missing(id))?;
    Ok(record)
}
