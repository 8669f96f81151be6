//! ACME orders: requests to create, return and list them (RFC 8555 section 7.4).

use std::collections::HashMap;

use api::access::Object;
use aws_lc_rs::rand;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use futures_util::FutureExt;
use http::{Response, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use store::audit;
use uuid::{NoContext, Timestamp, Uuid};

use super::identifier::Identifier;
use super::limits::Kind as Limited;
use super::options::{DirectoryOptions, Method};
use super::problem::{Kind, Problem, rate_limited};
use super::request::AccountRequest;
use super::requested_identifier::RequestedIdentifier;
use super::state::OrderState;
use super::writes::OrderCreation;
use super::{Server, binding, respond};
use crate::issue::is_whole_suffix;
use crate::profile::Profile;
use crate::tables;
use crate::tables::acme::{
    AcmeAuthorization, AcmeAuthorizationStatus, AcmeOrder, AcmeOrderStatus, AcmeProof,
    insert_acme_authorizations, note_acme_preauthorization,
};
use crate::teams::{OwnershipRights, QuotaError};

/// Length of a token in bytes: RFC 8555 section 8.1 requires 128 bits.
const TOKEN_BYTES: usize = 16;
/// Number of orders on one page of a list.
const ORDERS_PAGE: usize = 100;
/// Seconds after which a client polls an order that is being processed.
pub(crate) const POLL_SECONDS: u64 = 2;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewOrder {
    identifiers: Vec<RequestedIdentifier>,
    not_before: Option<String>,
    not_after: Option<String>,
    profile: Option<String>,
    replaces: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NewAuthorization {
    identifier: RequestedIdentifier,
}

/// The checked rights of an account under a profile, for orders and pre-authorizations.
pub(crate) struct OrderPolicy {
    pub(crate) profile: std::sync::Arc<Profile>,
    pub(crate) directory: DirectoryOptions,
}

impl Server {
    /// Handles `newOrder` requests.
    pub(crate) async fn new_order(
        &self,
        profile: Option<&str>,
        signed: &AccountRequest,
    ) -> Result<Response<Bytes>, Problem> {
        let wanted: NewOrder = signed.json()?;
        let order_policy = self.order_policy(profile, wanted.profile.as_deref(), signed).await?;
        let names = self.names(&wanted.identifiers, &order_policy, signed)?;
        self.check_teams(&names, &order_policy, signed.account.row.team.as_deref()).await?;
        let now_us = self.now_us();
        let (not_before_us, not_after_us) = dates(&wanted, &order_policy, now_us)?;
        if let Some(replaces) = &wanted.replaces {
            self.check_replaces(replaces, &names, signed).await?;
        }
        self.check_limits(&names, wanted.replaces.is_some(), signed).await?;
        let reusable = self.reusable(&names, &order_policy, signed, now_us).await?;
        let expires_at_us = reusable
            .values()
            .map(|one| one.expires_at_us)
            .fold(after(now_us, order_policy.directory.order_seconds), i64::min);
        let mut order = AcmeOrder {
            id: uuid_at(now_us),
            account: signed.account.row.id,
            profile: order_policy.profile.name.clone(),
            status: AcmeOrderStatus::Pending,
            names: names.iter().map(Identifier::key).collect(),
            authorizations: Vec::with_capacity(names.len()),
            not_before_us,
            not_after_us,
            created_at_us: now_us,
            expires_at_us,
            replaces: wanted.replaces,
            csr: None,
            certificate: None,
            error: None,
            claimed_until_us: None,
        };
        let (mut all, mut new) = (Vec::with_capacity(names.len()), Vec::new());
        for name in &names {
            let authorization = match reusable.get(&(name.base().key(), name.is_wildcard())) {
                Some(reusable) => reusable.clone(),
                None => {
                    new.push(self.build_authorization(name, &order_policy, signed, now_us, expires_at_us)?);
                    new[new.len() - 1].clone()
                }
            };
            order.authorizations.push(authorization.id);
            all.push(authorization);
        }
        let body = self.order_json(&order, &all, now_us);
        let url = self.order_url(&order);
        self.writes.order(OrderCreation { order, authorizations: new }).await?;
        Ok(respond::with_header(respond::json(StatusCode::CREATED, &body)?, header::LOCATION, &url))
    }

    /// Handles `newAuthz` requests (section 7.4.1): a pre-authorization that later orders of the account use.
    pub(crate) async fn new_authorization(
        &self,
        profile: Option<&str>,
        signed: &AccountRequest,
    ) -> Result<Response<Bytes>, Problem> {
        let wanted: NewAuthorization = signed.json()?;
        let order_policy = self.order_policy(profile, None, signed).await?;
        let names = self.names(std::slice::from_ref(&wanted.identifier), &order_policy, signed)?;
        let [name] = &names[..] else { return Err(Problem::internal()) };
        if name.is_wildcard() {
            return Err(Problem::malformed(
                "wildcards can only be authorized through an order (RFC 8555 section 7.4.1)",
            ));
        }
        self.check_teams(&names, &order_policy, signed.account.row.team.as_deref()).await?;
        self.check_limits(&names, true, signed).await?;
        let now_us = self.now_us();
        let until_us =
            after(now_us, order_policy.directory.order_seconds.max(order_policy.directory.reuse_seconds));
        let mut new = self.build_authorization(name, &order_policy, signed, now_us, until_us)?;
        new.reusable_until_us = Some(until_us);
        let body = self.authorization_json(&new, now_us);
        let (url, account) = (self.authorization_url(new.id), new.account);
        let details = json!({ "identifier": new.identifier, "profile": new.profile });
        let mut event = self.account_audit_event(account, "acme_authorization.create", details);
        event.resource = format!("acme-authorization/{}", new.id);
        self.store
            .write("acme_new_authorization", move |tx| {
                async move {
                    insert_acme_authorizations(tx, &[new]).await?;
                    note_acme_preauthorization(tx, account, until_us).await?;
                    audit(tx, vec![event]).await
                }
                .boxed()
            })
            .await?;
        self.accounts.forget(account);
        Ok(respond::with_header(respond::json(StatusCode::CREATED, &body)?, header::LOCATION, &url))
    }

    /// Determines the profile whose rules apply, and checks that the account may use it.
    async fn order_policy(
        &self,
        at: Option<&str>,
        wanted: Option<&str>,
        signed: &AccountRequest,
    ) -> Result<OrderPolicy, Problem> {
        let (name, mut directory) = self.directory_options(at)?;
        let mut chosen = name;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != name) {
            let unknown = || {
                let detail = format!(
                    "this directory does not offer the profile {wanted:?}; see meta.profiles in the directory"
                );
                Problem::new(Kind::InvalidProfile, detail)
            };
            if !directory.profiles.iter().any(|offered| offered == wanted) {
                return Err(unknown());
            }
            directory = self.options.directory(wanted).unwrap_or(directory);
            chosen = wanted;
        }
        let account = &signed.account.row;
        if directory.external_account_required && account.external_key.is_none() {
            let detail = "accounts that use this profile require an external account binding";
            return Err(Problem::new(Kind::ExternalAccountRequired, detail));
        }
        if !account.allowed_profiles.is_empty() && !account.allowed_profiles.iter().any(|one| one == chosen) {
            let detail =
                format!("the external account key of this account does not allow the profile {chosen:?}");
            return Err(Problem::unauthorized(detail));
        }
        let profile = self.profile(chosen).await?;
        if profile.requires_approval {
            let detail =
                format!("the profile {chosen:?} requires approval by a person, which ACME does not support");
            return Err(Problem::unauthorized(detail));
        }
        Ok(OrderPolicy { profile, directory })
    }

    /// Returns the requested names without duplicates if all are allowed, otherwise an error for each name that is not.
    fn names(
        &self,
        wanted: &[RequestedIdentifier],
        order_policy: &OrderPolicy,
        signed: &AccountRequest,
    ) -> Result<Vec<Identifier>, Problem> {
        let most = self.options.names_max.min(order_policy.profile.names.max as usize);
        if wanted.is_empty() || wanted.len() > most {
            return Err(Problem::malformed(format!("give 1 to {most} identifiers")));
        }
        let mut names: Vec<Identifier> = Vec::with_capacity(wanted.len());
        for one in wanted {
            let name = one.read()?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let refused: Vec<(Identifier, Problem)> = names
            .iter()
            .filter_map(|name| Some((name.clone(), self.refusal(name, order_policy, signed)?)))
            .collect();
        if refused.is_empty() { Ok(names) } else { Err(Problem::combine(refused)) }
    }

    /// Returns the rights of an account's orders to names that teams own. If the external key of the account has a team, returns
    /// the rights of this team. Otherwise, returns `Proven` if the profile requires validation of every name, else `Nobody`.
    pub(crate) fn rights(&self, profile: &str, team: Option<&str>) -> OwnershipRights {
        if let Some(team) = team {
            return OwnershipRights::Team(team.to_owned());
        }
        let trusted = self.options.directory(profile).is_none_or(|directory| directory.trust_authenticated);
        if trusted { OwnershipRights::Nobody } else { OwnershipRights::Proven }
    }

    /// Checks the ownership of the names and the profile, and that the team has quota left today. Objects of two different teams,
    /// or of a team other than the client's, are rejected.
    async fn check_teams(
        &self,
        names: &[Identifier],
        order_policy: &OrderPolicy,
        team: Option<&str>,
    ) -> Result<(), Problem> {
        let teams = self.authority.teams();
        let names = names.iter().map(|name| name.general_name());
        let object = Object::profile(&order_policy.profile.name).with_names(names);
        let ownership = teams.ownership().await.map_err(|error| {
            tracing::error!(%error, "cannot read the teams");
            Problem::internal()
        })?;
        let team = ownership
            .check_issue(&object, &self.rights(&order_policy.profile.name, team))
            .map_err(|crossing| Problem::new(Kind::RejectedIdentifier, crossing.to_string()))?;
        let Some(team) = team else { return Ok(()) };
        match teams.check_quota(team, self.now_us()).await {
            Ok(()) => Ok(()),
            Err(QuotaError::Over(over)) => {
                Err(rate_limited("certificates for this team today", over.retry_after.as_secs().max(1)))
            }
            Err(QuotaError::Store(error)) => {
                tracing::error!(%error, "cannot read the quota of a team");
                Err(Problem::internal())
            }
        }
    }

    fn refusal(
        &self,
        name: &Identifier,
        order_policy: &OrderPolicy,
        signed: &AccountRequest,
    ) -> Option<Problem> {
        let rejected = |reason: String| Some(Problem::new(Kind::RejectedIdentifier, reason));
        if let Some(reason) = order_policy.profile.names.refusal(&name.general_name()) {
            return rejected(format!("{name}: {reason}"));
        }
        if let Identifier::Dns(text) = name
            && is_whole_suffix(text, &self.authority.options().private_suffixes)
        {
            return rejected(format!("{name}: this is a private suffix, a domain shared by many owners"));
        }
        if let Err(problem) = binding::allows(&signed.account.row.allowed_names, name) {
            return Some(problem);
        }
        let provable =
            self.methods(name, &order_policy.directory) != 0 || order_policy.directory.trust_authenticated;
        if provable {
            None
        } else {
            rejected(format!("{name}: no challenge method of this directory can validate this name"))
        }
    }

    /// Returns the methods that can validate a name, as a bit set.
    fn methods(&self, name: &Identifier, directory: &DirectoryOptions) -> i64 {
        let fits = |method: &Method| match (method, name) {
            (Method::Http01 | Method::TlsAlpn01, Identifier::Ip(_)) => true,
            (_, Identifier::Ip(_)) => false,
            (Method::Http01 | Method::TlsAlpn01, Identifier::Dns(_)) => !name.is_wildcard(),
            (Method::Dns01 | Method::DnsAccount01, Identifier::Dns(_)) => true,
            (Method::DnsPersist01, Identifier::Dns(_)) => !self.options.caa_identities.is_empty(),
        };
        directory
            .methods
            .iter()
            .filter(|method| fits(method))
            .map(|method| method.bit())
            .fold(0, |all, bit| all | bit)
    }

    /// Builds a new authorization: pending, or valid if the directory requires no validation.
    fn build_authorization(
        &self,
        name: &Identifier,
        order_policy: &OrderPolicy,
        signed: &AccountRequest,
        now_us: i64,
        expires_at_us: i64,
    ) -> Result<AcmeAuthorization, Problem> {
        let mut token = vec![0; TOKEN_BYTES];
        rand::fill(&mut token).map_err(|_| Problem::internal())?;
        let trusted = order_policy.directory.trust_authenticated;
        Ok(AcmeAuthorization {
            id: uuid_at(now_us),
            account: signed.account.row.id,
            profile: order_policy.profile.name.clone(),
            identifier: name.base().key(),
            wildcard: name.is_wildcard(),
            status: if trusted { AcmeAuthorizationStatus::Valid } else { AcmeAuthorizationStatus::Pending },
            token,
            methods: if trusted { 0 } else { self.methods(name, &order_policy.directory) },
            proof: trusted.then_some(AcmeProof::NotNeeded),
            created_at_us: now_us,
            expires_at_us,
            validated_at_us: trusted.then_some(now_us),
            reusable_until_us: None,
            error: None,
            claimed_until_us: None,
        })
    }

    /// Returns earlier validations that this order may reuse, keyed by identifier and wildcard flag.
    async fn reusable(
        &self,
        names: &[Identifier],
        order_policy: &OrderPolicy,
        signed: &AccountRequest,
        now_us: i64,
    ) -> Result<HashMap<(String, bool), AcmeAuthorization>, Problem> {
        let account = &signed.account.row;
        let preauthorized = account.preauthorized_until_us.is_some_and(|until| until > now_us);
        if order_policy.directory.trust_authenticated
            || (order_policy.directory.reuse_seconds == 0 && !preauthorized)
        {
            return Ok(HashMap::new());
        }
        let bases: Vec<String> = names.iter().map(|name| name.base().key()).collect();
        let found = tables::Acme::of(&self.store).reusable(account.id, &bases, now_us).await?;
        // Prefer the authorization that expires last. Skip methods that this profile does not allow.
        let mut best: HashMap<(String, bool), AcmeAuthorization> = HashMap::new();
        for one in found {
            let can_reuse = super::state::responded_method(&one).is_some_and(|method| {
                order_policy.directory.methods.contains(&method) && one.expires_at_us > now_us
            });
            let key = (one.identifier.clone(), one.wildcard);
            if can_reuse && best.get(&key).is_none_or(|other| other.expires_at_us < one.expires_at_us) {
                best.insert(key, one);
            }
        }
        Ok(best)
    }

    async fn check_limits(
        &self,
        names: &[Identifier],
        renewal: bool,
        signed: &AccountRequest,
    ) -> Result<(), Problem> {
        let account = signed.account.row.id.to_string();
        if !renewal {
            let (subject, names_text) = name_set_keys(names.iter().map(Identifier::key));
            self.check_rate_limit(Limited::DuplicateCertificates, &subject, &[&account, &names_text])
                .await
                .map_err(|seconds| rate_limited("certificates for exactly this set of names", seconds))?;
        }
        let mut failing = Vec::new();
        for name in names {
            let key = name.base().key();
            let subject = format!("{account} {key}");
            if let Err(seconds) =
                self.check_rate_limit(Limited::FailedValidations, &subject, &[&account, &key]).await
            {
                failing.push((name.clone(), rate_limited("failed validations of this name", seconds)));
            }
        }
        if !failing.is_empty() {
            return Err(Problem::combine(failing));
        }
        self.take(Limited::Orders, &account, &[])
            .await
            .map_err(|seconds| rate_limited("orders of this account", seconds))
    }

    /// Returns an order. An order that a crash interrupted is finished first.
    pub(crate) async fn order(&self, id: Uuid, signed: &AccountRequest) -> Result<Response<Bytes>, Problem> {
        signed.require_post_as_get()?;
        let (order, authorizations) = self.order_of_account(id, signed).await?;
        let order = self.finish_abandoned_order(order).await;
        self.order_response(&order, &authorizations)
    }

    /// Builds the response for an order. While the order is processed, it includes `Retry-After`.
    pub(crate) fn order_response(
        &self,
        order: &AcmeOrder,
        authorizations: &[AcmeAuthorization],
    ) -> Result<Response<Bytes>, Problem> {
        let now_us = self.now_us();
        let response = respond::json(StatusCode::OK, &self.order_json(order, authorizations, now_us))?;
        let response = respond::with_header(response, header::LOCATION, &self.order_url(order));
        if OrderState::of(order, authorizations, now_us) == OrderState::Processing {
            return Ok(respond::with_header(response, header::RETRY_AFTER, &POLL_SECONDS.to_string()));
        }
        Ok(response)
    }

    /// Returns an order of this account with its authorizations. The authorizations of a finalized order are omitted.
    pub(crate) async fn order_of_account(
        &self,
        id: Uuid,
        signed: &AccountRequest,
    ) -> Result<(AcmeOrder, Vec<AcmeAuthorization>), Problem> {
        let found = self.reads.order(id).await?;
        found.filter(|(order, _)| order.account == signed.account.row.id).ok_or_else(Problem::not_found)
    }

    /// Returns a page of the orders of an account (section 7.1.2.1).
    pub(crate) async fn orders(
        &self,
        id: Uuid,
        signed: &AccountRequest,
        query: Option<&str>,
    ) -> Result<Response<Bytes>, Problem> {
        signed.require_post_as_get()?;
        if signed.account.row.id != id {
            return Err(Problem::unauthorized("these orders belong to another account"));
        }
        let bad = || Problem::malformed("the cursor does not belong to this list");
        let after = match query {
            None => None,
            Some(query) => {
                let cursor = query.strip_prefix("cursor=").ok_or_else(bad)?;
                Some(cursor.parse::<store::Cursor>().map_err(|_| bad())?)
            }
        };
        let page = tables::Acme::of(&self.store).orders_of(id, after.as_ref(), ORDERS_PAGE).await.map_err(
            |error| match error {
                store::StoreError::BadCursor => bad(),
                other => other.into(),
            },
        )?;
        let urls: Vec<String> = page.rows.iter().map(|order| self.order_url(order)).collect();
        let response = respond::json(StatusCode::OK, &json!({ "orders": urls }))?;
        Ok(match page.next {
            Some(next) => {
                let url = format!("{}/orders?cursor={next}", self.account_url(id));
                respond::with_link(response, &url, "next")
            }
            None => response,
        })
    }
}

/// Returns the requested notBefore and notAfter in microseconds.
fn dates(
    wanted: &NewOrder,
    order_policy: &OrderPolicy,
    now_us: i64,
) -> Result<(Option<i64>, Option<i64>), Problem> {
    let read = |text: &Option<String>, name: &str| match text {
        None => Ok(None),
        Some(text) => respond::parse_time(text)
            .map(|us| Some(us.div_euclid(1_000_000) * 1_000_000))
            .ok_or_else(|| Problem::malformed(format!("{name} is {text:?}, which is not an RFC 3339 time"))),
    };
    let (not_before, not_after) =
        (read(&wanted.not_before, "notBefore")?, read(&wanted.not_after, "notAfter")?);
    if not_before.is_none() && not_after.is_none() {
        return Ok((None, None));
    }
    if !order_policy.directory.choose_dates {
        return Err(Problem::malformed(
            "this directory sets the validity period: leave out notBefore and notAfter",
        ));
    }
    let longest = order_policy.profile.validity.max_lifetime_seconds().saturating_mul(1_000_000);
    let begin = not_before.unwrap_or(now_us);
    match not_after {
        Some(end) if end <= begin.max(now_us) => {
            Err(Problem::malformed("notAfter must be after notBefore and in the future"))
        }
        Some(end) if end - begin > longest => Err(Problem::malformed(format!(
            "certificates of this profile are valid for at most {} s",
            longest / 1_000_000
        ))),
        _ => Ok((not_before, not_after)),
    }
}

/// Returns two forms of an order's set of names: a hash as the subject of the duplicate limit, and a readable form for overrides.
pub(crate) fn name_set_keys(keys: impl Iterator<Item = String>) -> (String, String) {
    let mut keys: Vec<String> = keys.collect();
    keys.sort();
    let text = keys.join(",");
    let hash = super::jose::sha256(text.as_bytes());
    (HEXLOWER.encode(&hash), text)
}

/// Returns a UUIDv7 with the given time.
pub(crate) fn uuid_at(now_us: i64) -> Uuid {
    let seconds = u64::try_from(now_us.div_euclid(1_000_000)).unwrap_or(0);
    let nanos = u32::try_from(now_us.rem_euclid(1_000_000) * 1_000).unwrap_or(0);
    Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, nanos))
}

/// Adds seconds to a time in microseconds.
pub(crate) fn after(us: i64, seconds: u64) -> i64 {
    us.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000))
}
