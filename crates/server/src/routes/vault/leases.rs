//! Dynamic credentials and their leases, as Vault's engine `database` and its API below `sys/leases` serve them.
//!
//! The mount `database` is the root of all roles: `database/creds/team/db` creates a credential of the role `/team/db`.

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use credentials::{CredentialError, LeaseRequest, LeaseRow, LeaseState, PermissionPath, Requester};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

use super::super::credhub::context::Context;
use super::answer::{Answer, Body, Refused, data, leased, number, time};
use super::path::SecretName;
use super::principal::Principal;

/// Prefix of every lease ID in Vault's API.
const PREFIX: &str = "database/creds";

/// Maximum rounds of a revocation by prefix, of 1,000 leases each.
const ROUNDS_MAX: usize = 100;

/// Returns the lease ID of Vault's API: the path that created the lease, and the UUID of the lease.
fn lease_id(lease: &LeaseRow) -> String {
    format!("{PREFIX}{}/{}", lease.name, lease.id)
}

fn parse_id(text: &str) -> Result<Uuid, Refused> {
    let text = text.trim_matches('/');
    let id =
        text.strip_prefix(PREFIX).and_then(|rest| rest.rsplit('/').next()).and_then(|id| id.parse().ok());
    id.ok_or_else(|| Refused::bad("invalid lease. hint: a lease_id is database/creds/ROLE/ID"))
}

fn seconds_until(context: &Context, lease: &LeaseRow) -> i64 {
    (lease.expires_at_us.div_euclid(1_000_000) - context.server().clock().now_seconds()).max(0)
}

fn refused(error: CredentialError) -> Refused {
    match error {
        // The response is the same for a missing role and for a role that the caller may not read, as in the rest of this API.
        CredentialError::NoRole => Refused::denied(),
        CredentialError::NoLease => Refused::bad("invalid lease"),
        error => error.into(),
    }
}

/// Creates a dynamic credential and its lease.
pub(super) async fn create(
    context: Context,
    Principal { requester, token }: Principal,
    SecretName(name): SecretName,
    headers: HeaderMap,
) -> Result<Answer, Refused> {
    // Browsers add a client certificate to requests of any page, and this request has an effect.
    if token.is_none() && inbound::is_sent_by_web_page(&headers) {
        return Err(Refused::denied());
    }
    let wanted = LeaseRequest { ttl_s: None, clamps_ttl: true };
    let new = context.hub().credentials().create_lease(&requester, &name, wanted).await.map_err(refused)?;
    let fields = json!({ "username": new.lease.username, "password": new.password.expose() });
    let seconds = (new.lease.expires_at_us - new.lease.created_at_us) / 1_000_000;
    Ok(leased(&lease_id(&new.lease), seconds, fields))
}

/// A request about one lease, which the path or the body names.
pub(super) struct LeaseCall {
    requester: Requester,
    id: Uuid,
    body: Map<String, Json>,
}

impl FromRequest<Context> for LeaseCall {
    type Rejection = Refused;

    async fn from_request(request: Request, context: &Context) -> Result<Self, Refused> {
        let (mut parts, body) = request.into_parts();
        let Principal { requester, .. } = Principal::from_request_parts(&mut parts, context).await?;
        let path = Path::<String>::from_request_parts(&mut parts, context).await.ok();
        let Body(body) =
            Body::<Map<String, Json>>::from_request(Request::from_parts(parts, body), context).await?;
        let id = match path {
            Some(Path(path)) => parse_id(&path)?,
            None => parse_id(body.get("lease_id").and_then(Json::as_str).unwrap_or_default())?,
        };
        Ok(Self { requester, id, body })
    }
}

pub(super) async fn renew(
    context: Context,
    LeaseCall { requester, id, body }: LeaseCall,
) -> Result<Answer, Refused> {
    let increment = match body.get("increment") {
        None | Some(Json::Null) => None,
        Some(value) => {
            let seconds =
                number(value).ok_or_else(|| Refused::bad("increment is not a number of seconds"))?;
            Some(u32::try_from(seconds).unwrap_or(u32::MAX))
        }
    };
    let wanted = LeaseRequest { ttl_s: increment, clamps_ttl: true };
    let lease = context.hub().credentials().renew_lease(&requester, id, wanted).await.map_err(refused)?;
    Ok(leased(&lease_id(&lease), seconds_until(&context, &lease), Json::Null))
}

pub(super) async fn revoke(
    context: Context,
    LeaseCall { requester, id, .. }: LeaseCall,
) -> Result<StatusCode, Refused> {
    match context.hub().credentials().revoke_lease(&requester, id).await {
        // The revocation is retried until the database has dropped the credential.
        Ok(_) | Err(CredentialError::NoLease) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(refused(error)),
    }
}

pub(super) async fn lookup(
    context: Context,
    LeaseCall { requester, id, .. }: LeaseCall,
) -> Result<Answer, Refused> {
    let lease = context.hub().credentials().lease(&requester, id).await.map_err(refused)?;
    Ok(data(json!({
        "id": lease_id(&lease),
        "issue_time": time(lease.created_at_us),
        "expire_time": time(lease.expires_at_us),
        "last_renewal": null,
        "renewable": lease.state == LeaseState::Active,
        "ttl": seconds_until(&context, &lease),
    })))
}

/// Revokes the leases of a role, and of all roles below its name.
pub(super) async fn revoke_prefix(
    context: Context,
    Principal { requester, .. }: Principal,
    Path(prefix): Path<String>,
) -> Result<StatusCode, Refused> {
    let below = prefix.trim_matches('/').strip_prefix(PREFIX).ok_or_else(|| {
        Refused::bad("no leases have this prefix. hint: a prefix is database/creds, or database/creds/ROLE")
    })?;
    let below = below.trim_matches('/');
    let paths = if below.is_empty() {
        vec!["/*".to_owned()]
    } else {
        vec![format!("/{below}"), format!("/{below}/*")]
    };
    let mut permitted = false;
    for path in paths {
        permitted |= revoke_below(&context, &requester, &PermissionPath::parse(&path)?).await?;
    }
    if permitted { Ok(StatusCode::NO_CONTENT) } else { Err(Refused::denied()) }
}

/// Revokes the leases below a path. Returns false if the caller may not revoke them.
async fn revoke_below(
    context: &Context,
    requester: &Requester,
    path: &PermissionPath,
) -> Result<bool, Refused> {
    for _ in 0..ROUNDS_MAX {
        match context.hub().credentials().revoke_leases_below(requester, path).await {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(CredentialError::Forbidden) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_ids_are_parsed_with_any_role() {
        let id = Uuid::from_u128(7);
        for text in [format!("database/creds/app/{id}"), format!("/database/creds/a/b/{id}/")] {
            assert_eq!(parse_id(&text).unwrap(), id, "{text}");
        }
        for text in [format!("secret/data/{id}"), "database/creds/app/x".to_owned(), String::new()] {
            assert!(parse_id(&text).is_err(), "{text}");
        }
    }
}
