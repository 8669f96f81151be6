//! Revocation of certificates, individually or by filter, and blocked keys.

use api::revocations::{
    BlockedKeyEntry, BlockedKeyView, NewBlockedKey, NewRevocation, RevocationConditions, RevocationQuery,
    RevocationView, RevokedView,
};
use authority::Authority;
use authority::issue::{IssuedRecord, IssuedRef};
use authority::revoke::{IDS_MAX, RevocationDates, RevocationFilter, Revoked, Selection};
use authority::tables::{Issued, IssuedFilter, IssuedOrder, RevocationEntry, Revocations};
use authority::tree::CaError;
use axum::extract::State as With;
use store::Store;
use uuid::Uuid;
use x509::crl::Reason;
use x509::{Certificate, SerialNumber, SpkiHash, UnixTime};

use super::issued::covers_profiles;
use crate::access::{Caller, Object, Permission};
use crate::extract::{Json, Path, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
use crate::state::Component;
use crate::time;

/// Maximum certificates that one SQL statement reads.
const AT_ONCE: usize = 1_000;

pub(super) fn routes() -> Api {
    Api::area("revocations")
        .route(Access::needs(Permission::CertificateRevoke).scoped(), routes!(revoke))
        .route(Permission::KeyBlock, routes!(block))
        .route(Permission::CertificateRead, routes!(list))
        .route(Permission::CertificateRead, routes!(blocked_keys))
        .route(Permission::CertificateRead, routes!(blocked))
}

fn revoked_view(entry: RevocationEntry) -> RevokedView {
    RevokedView {
        certificate: entry.certificate,
        ca: entry.ca,
        serial: SerialNumber::from_content(&entry.serial).to_string(),
        profile: entry.profile,
        reason: entry.reason.to_string(),
        revoked_at: time::shown(entry.revoked_at_us),
        recorded_at: time::shown(entry.recorded_at_us),
        not_after: time::shown(entry.not_after_us),
        actor: entry.actor,
        action: entry.action,
    }
}

/// Lists revoked certificates, most recently revoked first.
#[utoipa::path(get, path = "/api/v1/revocations", operation_id = "listRevocations",
    params(PageQuery, RevocationQuery), responses((status = 200, body = Listing<RevokedView>)))]
async fn list(
    Component(authority): Component<Authority>,
    With(store): With<Store>,
    caller: Caller,
    paging: Paging,
    Query(params): Query<RevocationQuery>,
) -> Result<Json<Listing<RevokedView>>, Problem> {
    let ca = super::issued::ca_of_filter(&authority, &caller, params.ca.as_deref()).await?;
    let page = Revocations::of(&store).page(ca, paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, revoked_view)))
}

/// Lists blocked keys, most recently blocked first.
#[utoipa::path(get, path = "/api/v1/blocked-keys", operation_id = "listBlockedKeys", params(PageQuery),
    responses((status = 200, body = Listing<BlockedKeyEntry>)))]
async fn blocked_keys(
    Component(_authority): Component<Authority>,
    With(store): With<Store>,
    paging: Paging,
) -> Result<Json<Listing<BlockedKeyEntry>>, Problem> {
    let page = Revocations::of(&store).blocked_keys_page(paging.after.as_ref(), paging.limit).await?;
    Ok(Json(listing(page, |blocked| BlockedKeyEntry {
        key: SpkiHash::from_bytes(blocked.spki_sha256).to_string(),
        blocked_at: time::shown(blocked.blocked_at_us),
        actor: blocked.actor,
    })))
}

fn revocation_view(revoked: Revoked) -> RevocationView {
    let Revoked { count, already, expired, action } = revoked;
    RevocationView { count, already, expired, action }
}

/// Revokes certificates: one, a list, all with a key, or all that match a filter.
///
/// Certificates that are already revoked stay unchanged, with two exceptions: a certificate on hold gets the new reason, or is
/// released by `removeFromCRL`, and `keyCompromise` replaces other reasons. New CRLs are published within a second or two, and OCSP
/// responses change immediately.
#[utoipa::path(post, path = "/api/v1/revocations", operation_id = "revokeIssued", request_body = NewRevocation,
    responses((status = 200, body = RevocationView)))]
async fn revoke(
    Component(authority): Component<Authority>,
    With(store): With<Store>,
    caller: Caller,
    Json(body): Json<NewRevocation>,
) -> Result<Json<RevocationView>, Problem> {
    let reason: Reason = body.reason.parse().map_err(Problem::unprocessable)?;
    let dates = RevocationDates {
        revoked_at: seconds(body.revoked_at.as_deref())?,
        invalid_since: seconds(body.invalid_since.as_deref())?,
    };
    let selection = selected((&authority, &store), &caller, body).await?;
    let done = authority.revoke_with_invalidity_date(selection, reason, dates, caller.actor()).await?;
    Ok(Json(revocation_view(done)))
}

fn seconds(text: Option<&str>) -> Result<Option<UnixTime>, Problem> {
    let us = text.map(time::parsed).transpose()?;
    Ok(us.map(|us| UnixTime(us.div_euclid(1_000_000))))
}

/// Returns the selection of certificates, after a check that the caller may revoke every certificate that the selection can match.
async fn selected(
    (authority, store): (&Authority, &Store),
    caller: &Caller,
    body: NewRevocation,
) -> Result<Selection, Problem> {
    let everywhere = || caller.may(Permission::CertificateRevoke, Object::default());
    let within = |profile: &str| caller.may(Permission::CertificateRevoke, Object::profile(profile));
    match (body.certificate, body.serial, body.certificates, body.key, body.filter) {
        (Some(id), None, None, None, None) => {
            let permission = Permission::CertificateRevoke;
            Ok(Selection::Id(super::issued::find_permitted(authority, caller, permission, &id).await?.id))
        }
        (None, Some(named), None, None, None) => {
            let serial: SerialNumber = named.serial.parse().map_err(Problem::unprocessable)?;
            by_serial(authority, caller, &named.ca, serial).await
        }
        (None, None, Some(ids), None, None) => everywhere().map(|()| Selection::Ids(ids)),
        (None, None, None, Some(key), None) => {
            everywhere()?;
            key.parse().map(Selection::Key).map_err(Problem::unprocessable)
        }
        (None, None, None, None, Some(conditions)) => {
            match &conditions.profile {
                Some(profile) => within(profile)?,
                None => everywhere()?,
            }
            let filter = filter(authority, caller, conditions).await?;
            if covers_profiles(caller, Permission::CertificateRevoke) {
                return Ok(Selection::Filter(filter));
            }
            permitted_matches(store, caller, filter).await.map(Selection::Ids)
        }
        _ => Err(Problem::unprocessable(
            "give exactly one of certificate, serial, certificates, key or filter",
        )),
    }
}

/// Returns the certificate with a serial number. If the caller may not see the certificate, the error is the same as for a missing
/// certificate or a missing CA.
async fn by_serial(
    authority: &Authority,
    caller: &Caller,
    ca: &str,
    serial: SerialNumber,
) -> Result<Selection, Problem> {
    const BOTH: (Permission, Permission) = (Permission::CertificateRevoke, Permission::CertificateRead);
    let missing = || Problem::not_found(format_args!("certificate {serial} of the CA {ca}"));
    let everywhere = caller.has_permission_everywhere(Permission::CertificateRevoke);
    let ca = match authority.ca(ca).await {
        Ok(found) => found.id,
        Err(CaError::Unknown(_)) if !everywhere => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    let record = authority.issued(&IssuedRef::Serial(ca, serial.clone())).await?;
    let object = record.as_ref().map_or_else(Object::default, super::issued::object_of);
    caller.may_or_missing(BOTH, object, missing)?;
    Ok(Selection::Serial { ca, serial })
}

/// Returns the matching certificates that the caller may revoke. Certificates with names of another team are left out, as in
/// listings.
async fn permitted_matches(
    store: &Store,
    caller: &Caller,
    filter: RevocationFilter,
) -> Result<Vec<Uuid>, Problem> {
    let us = |time: UnixTime| time.0.saturating_mul(1_000_000);
    let filter = IssuedFilter {
        ca: filter.ca,
        profile: filter.profile,
        requester: filter.requester,
        source: filter.source,
        name_suffix: filter.name_suffix,
        issued_from_us: filter.issued_after.map(us),
        issued_before_us: filter.issued_before.map(us),
        ..IssuedFilter::default()
    };
    let (issued, mut ids, mut after) = (Issued::of(store), Vec::new(), None);
    loop {
        let page = issued.sorted_page(&filter, IssuedOrder::OldestFirst, after.as_ref(), AT_ONCE).await?;
        let may = |record: &&IssuedRecord| {
            caller.may(Permission::CertificateRevoke, super::issued::object_of(record)).is_ok()
        };
        ids.extend(page.rows.iter().filter(may).map(|record| record.id));
        if ids.len() > IDS_MAX {
            return Err(Problem::unprocessable(format_args!(
                "the filter matches more than {IDS_MAX} certificates: give a shorter time or fewer names"
            )));
        }
        after = page.next;
        if after.is_none() {
            return Ok(ids);
        }
    }
}

async fn filter(
    authority: &Authority,
    caller: &Caller,
    conditions: RevocationConditions,
) -> Result<RevocationFilter, Problem> {
    let ca = super::issued::ca_of_filter(authority, caller, conditions.ca.as_deref()).await?;
    Ok(RevocationFilter {
        profile: conditions.profile,
        ca,
        name_suffix: conditions.name,
        source: conditions.source.as_deref().map(str::parse).transpose().map_err(Problem::unprocessable)?,
        requester: conditions.requester,
        issued_after: seconds(conditions.issued_after.as_deref())?,
        issued_before: seconds(conditions.issued_before.as_deref())?,
    })
}

/// Blocks a public key: no certificate is issued for it any more, and all its certificates are revoked with reason `keyCompromise`.
#[utoipa::path(post, path = "/api/v1/blocked-keys", operation_id = "blockKey", request_body = NewBlockedKey,
    responses((status = 200, body = RevocationView)))]
async fn block(
    Component(authority): Component<Authority>,
    caller: Caller,
    Json(body): Json<NewBlockedKey>,
) -> Result<Json<RevocationView>, Problem> {
    let key = match (body.key, body.certificate) {
        (Some(key), None) => key.parse::<SpkiHash>().map_err(Problem::unprocessable)?,
        (None, Some(certificate)) => key_of(&authority, &certificate).await?,
        _ => return Err(Problem::unprocessable("give exactly one of key or certificate")),
    };
    let done = authority.block_key(key, caller.actor()).await?;
    Ok(Json(revocation_view(done)))
}

async fn key_of(authority: &Authority, certificate: &str) -> Result<SpkiHash, Problem> {
    if let Some((_, der)) = x509::pem::certificates(certificate.as_bytes()).next() {
        let parsed = Certificate::parse(&der).map_err(Problem::unprocessable)?;
        return Ok(parsed.public_key.spki_sha256);
    }
    let record = super::issued::find(authority, certificate).await?;
    Ok(SpkiHash::from_bytes(record.spki_sha256))
}

/// Returns whether a public key is blocked.
#[utoipa::path(get, path = "/api/v1/blocked-keys/{key}", operation_id = "getBlockedKey",
    params(("key" = String, Path)), responses((status = 200, body = BlockedKeyView)))]
async fn blocked(
    Component(authority): Component<Authority>,
    Path(key): Path<String>,
) -> Result<Json<BlockedKeyView>, Problem> {
    let hash: SpkiHash = key.parse().map_err(Problem::unprocessable)?;
    let blocked = authority.is_blocked(&hash).await?;
    Ok(Json(BlockedKeyView { key: hash.to_string(), blocked }))
}
