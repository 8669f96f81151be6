//! States of orders, authorizations and challenges, computed from the stored data and the time, and their JSON objects (RFC 8555
//! section 7.1.6).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coded::named;
use serde_json::{Map, Value, json};

use super::Server;
use super::identifier::Identifier;
use super::options::Method;
use super::problem::Problem;
use super::respond::{put, time};
use crate::tables::acme::{
    AcmeAuthorization, AcmeAuthorizationStatus as Stored, AcmeOrder, AcmeOrderStatus, AcmeProof,
};

named! {
    /// The `status` of an authorization (RFC 8555 section 7.1.6).
    pub(crate) enum AuthorizationState: "ACME authorization status" {
        Pending => "pending",
        Valid => "valid",
        Invalid => "invalid",
        Deactivated => "deactivated",
        Expired => "expired",
        Revoked => "revoked",
    }
}

impl AuthorizationState {
    pub(crate) fn of(row: &AcmeAuthorization, now_us: i64) -> Self {
        let expired = row.expires_at_us <= now_us;
        match row.status {
            Stored::Pending if expired => Self::Expired,
            Stored::Pending => Self::Pending,
            Stored::Valid if expired => Self::Expired,
            Stored::Valid => Self::Valid,
            Stored::Invalid => Self::Invalid,
            Stored::Deactivated => Self::Deactivated,
            Stored::Revoked => Self::Revoked,
        }
    }
}

named! {
    /// The `status` of an order (RFC 8555 section 7.1.6).
    pub(crate) enum OrderState: "ACME order status" {
        Pending => "pending",
        Ready => "ready",
        Processing => "processing",
        Valid => "valid",
        Invalid => "invalid",
    }
}

impl OrderState {
    /// Returns the state of an order. For a finalized order, `authorizations` may be empty because they are not used.
    pub(crate) fn of(row: &AcmeOrder, authorizations: &[AcmeAuthorization], now_us: i64) -> Self {
        match row.status {
            AcmeOrderStatus::Processing => return Self::Processing,
            AcmeOrderStatus::Valid => return Self::Valid,
            AcmeOrderStatus::Invalid => return Self::Invalid,
            AcmeOrderStatus::Pending => {}
        }
        let whole = authorizations.len() == row.authorizations.len();
        if row.expires_at_us <= now_us || !whole {
            return Self::Invalid;
        }
        let states = || authorizations.iter().map(|one| AuthorizationState::of(one, now_us));
        if states().all(|state| state == AuthorizationState::Valid) {
            Self::Ready
        } else if states()
            .all(|state| matches!(state, AuthorizationState::Valid | AuthorizationState::Pending))
        {
            Self::Pending
        } else {
            Self::Invalid
        }
    }
}

named! {
    /// The `status` of a challenge (RFC 8555 section 7.1.6).
    enum ChallengeState: "ACME challenge status" {
        Pending => "pending",
        Processing => "processing",
        Valid => "valid",
        Invalid => "invalid",
    }
}

/// Returns the token of an authorization's challenges.
pub(crate) fn token(row: &AcmeAuthorization) -> String {
    URL_SAFE_NO_PAD.encode(&row.token)
}

/// Returns the method of the challenge to which the client responded; `None` if there was no response or no validation was
/// required.
pub(crate) fn responded_method(row: &AcmeAuthorization) -> Option<Method> {
    match row.proof {
        Some(AcmeProof::Challenge(method)) => Some(method),
        Some(AcmeProof::NotNeeded) | None => None,
    }
}

impl Server {
    pub(crate) fn order_url(&self, order: &AcmeOrder) -> String {
        self.url(format_args!("order/{}", order.id))
    }

    pub(crate) fn authorization_url(&self, id: uuid::Uuid) -> String {
        self.url(format_args!("authz/{id}"))
    }

    /// Returns the JSON object of an order.
    pub(crate) fn order_json(
        &self,
        order: &AcmeOrder,
        authorizations: &[AcmeAuthorization],
        now_us: i64,
    ) -> Value {
        let state = OrderState::of(order, authorizations, now_us);
        let identifiers: Vec<Identifier> =
            order.names.iter().filter_map(|name| Identifier::from_key(name)).collect();
        let urls: Vec<String> = order.authorizations.iter().map(|id| self.authorization_url(*id)).collect();
        let url = self.order_url(order);
        let mut object = Map::new();
        put(&mut object, "status", Some(state.name().into()));
        put(&mut object, "expires", Some(time(order.expires_at_us).into()));
        put(&mut object, "identifiers", Some(json!(identifiers)));
        put(&mut object, "profile", Some(order.profile.clone().into()));
        put(&mut object, "notBefore", order.not_before_us.map(|us| time(us).into()));
        put(&mut object, "notAfter", order.not_after_us.map(|us| time(us).into()));
        put(&mut object, "replaces", order.replaces.clone().map(Value::from));
        put(&mut object, "error", order_error(order, authorizations, state));
        put(&mut object, "authorizations", Some(urls.into()));
        put(&mut object, "finalize", Some(format!("{url}/finalize").into()));
        let certificate = order.certificate.filter(|_| state == OrderState::Valid);
        put(
            &mut object,
            "certificate",
            certificate.map(|_| self.url(format_args!("cert/{}", order.id)).into()),
        );
        object.into()
    }

    /// Returns the JSON object of an authorization. A pending authorization lists all challenges, a decided one only the challenge
    /// that was used.
    pub(crate) fn authorization_json(&self, row: &AcmeAuthorization, now_us: i64) -> Value {
        let state = AuthorizationState::of(row, now_us);
        let responded_method = responded_method(row);
        let shown = Method::methods_in_bits(row.methods).filter(|method| match state {
            AuthorizationState::Pending => true,
            AuthorizationState::Valid | AuthorizationState::Invalid => responded_method == Some(*method),
            _ => responded_method.is_none_or(|responded_method| responded_method == *method),
        });
        let challenges: Vec<Value> = shown.map(|method| self.challenge_json(row, method, now_us)).collect();
        let mut object = Map::new();
        put(&mut object, "status", Some(state.name().into()));
        put(&mut object, "expires", Some(time(row.expires_at_us).into()));
        put(&mut object, "identifier", Identifier::from_key(&row.identifier).map(|one| json!(one)));
        put(&mut object, "challenges", Some(challenges.into()));
        put(&mut object, "wildcard", row.wildcard.then_some(true.into()));
        object.into()
    }

    /// Returns the JSON object of a challenge.
    pub(crate) fn challenge_json(&self, row: &AcmeAuthorization, method: Method, now_us: i64) -> Value {
        let own = responded_method(row) == Some(method);
        let status = match AuthorizationState::of(row, now_us) {
            AuthorizationState::Pending if own => ChallengeState::Processing,
            AuthorizationState::Valid if own => ChallengeState::Valid,
            AuthorizationState::Pending | AuthorizationState::Valid => ChallengeState::Pending,
            // A challenge of a closed authorization accepts no response. Section 7.1.6 has no other status for this case.
            _ => ChallengeState::Invalid,
        };
        let mut object = Map::new();
        put(&mut object, "type", Some(method.name().into()));
        put(&mut object, "url", Some(self.challenge_url(row, method).into()));
        put(&mut object, "status", Some(status.name().into()));
        if method == Method::DnsPersist01 {
            let names = &self.options.caa_identities;
            put(&mut object, "issuerDomainNames", Some(names.clone().into()));
            // Member name of the drafts before 02.
            put(&mut object, "issuer-domain-names", Some(names.clone().into()));
        } else {
            put(&mut object, "token", Some(token(row).into()));
        }
        put(
            &mut object,
            "validated",
            row.validated_at_us.filter(|_| status == ChallengeState::Valid).map(|us| time(us).into()),
        );
        let error = row.error.as_deref().filter(|_| own && status == ChallengeState::Invalid);
        put(&mut object, "error", error.and_then(|text| serde_json::from_str(text).ok()));
        object.into()
    }

    pub(crate) fn challenge_url(&self, row: &AcmeAuthorization, method: Method) -> String {
        self.url(format_args!("chall/{}/{}", row.id, method.name()))
    }
}

/// Returns the stored error of an order. For an invalid order without a stored error, returns the errors of its authorizations.
pub(super) fn order_error(
    order: &AcmeOrder,
    authorizations: &[AcmeAuthorization],
    state: OrderState,
) -> Option<Value> {
    if let Some(own) = &order.error {
        return serde_json::from_str(own).ok();
    }
    if state != OrderState::Invalid {
        return None;
    }
    let failed: Vec<(Identifier, Problem)> = authorizations
        .iter()
        .filter_map(|one| {
            let problem = Problem::from_json(one.error.as_deref()?)?;
            Some((Identifier::from_key(&one.identifier)?, problem))
        })
        .collect();
    if failed.is_empty() {
        return Some(
            Problem::malformed("the order or one of its authorizations has ended; create a new order").json(),
        );
    }
    Some(Problem::combine(failed).json())
}

#[cfg(test)]
mod tests {
    use crate::tables::acme::AcmeOrderStatus;
    use uuid::Uuid;

    use super::*;

    pub(crate) fn authorization(status: Stored, expires_at_us: i64) -> AcmeAuthorization {
        AcmeAuthorization {
            id: Uuid::from_u128(1),
            account: Uuid::nil(),
            profile: "default".to_owned(),
            identifier: "dns:a.example".to_owned(),
            wildcard: false,
            status,
            token: vec![1; 16],
            methods: Method::Http01.bit() | Method::Dns01.bit(),
            proof: None,
            created_at_us: 0,
            expires_at_us,
            validated_at_us: None,
            reusable_until_us: None,
            error: None,
            claimed_until_us: None,
        }
    }

    fn order(status: AcmeOrderStatus, authorizations: usize) -> AcmeOrder {
        AcmeOrder {
            id: Uuid::nil(),
            account: Uuid::nil(),
            profile: "default".to_owned(),
            status,
            names: vec!["dns:a.example".to_owned(); authorizations],
            authorizations: vec![Uuid::from_u128(1); authorizations],
            not_before_us: None,
            not_after_us: None,
            created_at_us: 0,
            expires_at_us: 100,
            replaces: None,
            csr: None,
            certificate: None,
            error: None,
            claimed_until_us: None,
        }
    }

    #[test]
    fn order_state_follows_its_authorizations() {
        use AcmeOrderStatus as O;
        use OrderState as S;
        let one = |status, end| authorization(status, end);
        let (pending, valid) = (|| one(Stored::Pending, 100), || one(Stored::Valid, 100));
        let table: Vec<(O, Vec<AcmeAuthorization>, i64, S)> = vec![
            (O::Pending, vec![pending()], 50, S::Pending),
            (O::Pending, vec![valid()], 50, S::Ready),
            (O::Pending, vec![valid(), pending()], 50, S::Pending),
            (O::Pending, vec![valid(), valid()], 50, S::Ready),
            (O::Pending, vec![valid(), one(Stored::Invalid, 100)], 50, S::Invalid),
            (O::Pending, vec![valid(), one(Stored::Deactivated, 100)], 50, S::Invalid),
            (O::Pending, vec![valid(), one(Stored::Revoked, 100)], 50, S::Invalid),
            (O::Pending, vec![one(Stored::Valid, 40)], 50, S::Invalid),
            (O::Pending, vec![one(Stored::Pending, 40)], 50, S::Invalid),
            (O::Pending, vec![valid()], 100, S::Invalid),
            (O::Processing, vec![one(Stored::Valid, 40)], 150, S::Processing),
            (O::Valid, vec![one(Stored::Deactivated, 40)], 150, S::Valid),
            (O::Invalid, vec![valid()], 50, S::Invalid),
        ];
        for (status, authorizations, now, expected) in table {
            let order = order(status, authorizations.len());
            let found = OrderState::of(&order, &authorizations, now);
            assert_eq!(found, expected, "{status:?} {authorizations:?} at {now}");
        }
        // A deleted authorization counts as not valid.
        assert_eq!(OrderState::of(&order(O::Pending, 2), &[valid()], 50), S::Invalid);
    }
}
