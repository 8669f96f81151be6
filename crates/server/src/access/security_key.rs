//! Security keys of users (WebAuthn): registration, and assertions for sign-in, confirmation and approvals.
//!
//! A ceremony has two requests. The first stores a challenge and returns the options for the browser. The second removes the
//! ceremony from the database before anything is verified, so that each challenge is used once. The error for a rejected assertion
//! is the same for every cause.

use std::time::Duration;

use api::security_keys::{
    SecurityKeyAssertion, SecurityKeyCeremony, SecurityKeyRegistration, SecurityKeyView,
};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use futures_util::FutureExt;
use serde_json::{Value, json};
use store::{
    AccessChange, AuditEvent, CeremonyPurpose, Identity, IdentityKind, KeyCeremony, SECURITY_KEYS_MAX,
    SecurityKey, SecurityKeyUse, StoreError, Tx,
};
use uuid::Uuid;
use webauthn::approval::Statement;
use webauthn::assertion::{RegisteredKey, Verified};
use webauthn::{Algorithm, Assertion, Base64Url, Credential, Expected, PublicKey, Registration};
use x509::Fingerprint;

use crate::access::admin;
use crate::access::control::micros;
use crate::access::managers::LOCAL;
use crate::access::secret;
use crate::access::site::Site;
use crate::access::{AccessControl, Caller, CallerKind};
use crate::problem::Problem;
use crate::time::{maybe_shown, shown};

/// Time in which a ceremony must be finished.
pub(crate) const CEREMONY_LIFETIME: Duration = Duration::from_secs(300);

/// Maximum length of the secret of a ceremony, in bytes.
const SECRET_MAX: usize = 128;

/// The transports that WebAuthn Level 3 registers. Others are not stored.
const TRANSPORTS: [&str; 6] = ["usb", "nfc", "ble", "smart-card", "hybrid", "internal"];

/// The parameters of a ceremony in which a registered key signs.
pub(crate) struct AssertionStart<'a> {
    pub(crate) site: &'a Site,
    pub(crate) purpose: CeremonyPurpose,
    /// The user; `None` for a passkey whose user is not known yet.
    pub(crate) user: Option<Uuid>,
    pub(crate) session: Option<[u8; 32]>,
    /// Whether the user entered a correct password before this ceremony.
    pub(crate) after_password: bool,
    /// The approval, the SHA-256 of the plan to sign, and the approver.
    pub(crate) plan: Option<(Uuid, [u8; 32], &'a str)>,
}

/// A verified assertion whose use is not stored yet.
pub(crate) struct ProvedKey {
    pub(crate) user: Identity,
    pub(crate) key: SecurityKey,
    pub(crate) assertion: Assertion,
    verified: Verified,
    at_us: i64,
}

impl ProvedKey {
    /// Stores the use of the key. Returns false if another use was stored meanwhile, or the key was removed.
    pub(crate) async fn store(&self, tx: &mut Tx) -> Result<bool, StoreError> {
        let Verified { sign_count, backed_up, .. } = self.verified;
        let used = SecurityKeyUse { sign_count, backed_up, at_us: self.at_us };
        store::security_key_used(tx, &self.key, used).await
    }
}

/// Returns the user of the caller's session, and the session.
///
/// # Errors
/// 409 for other callers.
pub(crate) fn own_session(caller: &Caller) -> Result<(Uuid, [u8; 32]), Problem> {
    match caller.session() {
        Some(session) if caller.kind() == CallerKind::User => Ok((caller.id(), session.hash)),
        _ => Err(Problem::conflict("only a user who is signed in at the console has security keys")
            .hint("sign in as a user: /console/sign-in")),
    }
}

/// Begins the registration of a security key for the user of the caller's session.
pub(crate) async fn begin_registration(
    access: &AccessControl,
    caller: &Caller,
    site: &Site,
    name: &str,
) -> Result<SecurityKeyCeremony, Problem> {
    let (id, session) = own_session(caller)?;
    let name = admin::name(name)?;
    let user = admin::find(access, IdentityKind::User, id).await?;
    let keys = store::Access::of(access.store()).security_keys(id).await?;
    check_count(keys.len())?;
    let challenge = random()?;
    let known: Vec<Value> = keys.iter().filter(|key| key.rp_id == site.rp_id).map(descriptor).collect();
    let options = json!({
        "rp": { "id": site.rp_id, "name": "Bulla" },
        "user": { "id": Base64Url::from(id.as_bytes().as_slice()), "name": user.name, "displayName": user.name },
        "challenge": Base64Url::from(challenge.as_slice()),
        "pubKeyCredParams": Algorithm::ALL.map(|one| json!({ "type": "public-key", "alg": one.cose() })),
        "timeout": timeout_ms(),
        "excludeCredentials": known,
        "authenticatorSelection": { "residentKey": "preferred", "userVerification": "preferred" },
        "attestation": "none",
    });
    let ceremony = KeyCeremony {
        identity: id,
        challenge,
        session: Some(session),
        name: Some(name),
        ..new_ceremony(access, site, CeremonyPurpose::Register)
    };
    begin(access, ceremony, options).await
}

/// Stores the key of a registration. The first key of a user ends the user's other sessions and unused links, which began without a
/// key.
pub(crate) async fn finish_registration(
    access: &AccessControl,
    caller: &Caller,
    given: SecurityKeyRegistration,
) -> Result<SecurityKey, Problem> {
    let (id, session) = own_session(caller)?;
    let ceremony = take(access, &given.ceremony, CeremonyPurpose::Register).await?;
    if (ceremony.identity, ceremony.session) != (id, Some(session)) {
        return Err(refused());
    }
    let registration = Registration {
        client_data_json: bytes(&given.client_data_json)?,
        attestation_object: bytes(&given.attestation_object)?,
    };
    let credential = registration.verify(&expected(&ceremony, false)).map_err(|error| {
        tracing::debug!(%error, "a security key is not registered");
        refused()
    })?;
    let key = key_of(access, &ceremony, credential, &given.transports)?;
    let mut event = AuditEvent {
        at_us: key.created_at_us,
        actor: caller.actor().to_owned(),
        action: "user.security-key-add",
        resource: admin::resource(IdentityKind::User, id),
        details: json!({
            "security_key": key.id,
            "name": key.name,
            "host": key.rp_id,
            "algorithm": algorithm(&key),
            "public_key_sha256": public_key_sha256(&key),
        }),
    };
    let stored = key.clone();
    let work = access.store().write("security_key_add", move |tx| {
        async move {
            let count = store::security_keys_in(tx, stored.identity).await?.len();
            if count >= SECURITY_KEYS_MAX {
                return Ok(None);
            }
            let change = store::insert_security_key(tx, &stored).await?;
            if change == AccessChange::Done {
                if count == 0 {
                    let ended = store::sign_out_others(tx, stored.identity, session).await?;
                    event.details["sessions_ended"] = ended.into();
                }
                store::audit(tx, vec![event]).await?;
            }
            Ok(Some(change))
        }
        .boxed()
    });
    let change = work.await?;
    access.forget();
    match change {
        Some(AccessChange::Done) => Ok(key),
        Some(_) => Err(Problem::conflict("this security key is registered already")),
        None => check_count(SECURITY_KEYS_MAX).map(|()| key),
    }
}

/// Begins a ceremony in which a registered key signs.
pub(crate) async fn begin_assertion(
    access: &AccessControl,
    start: AssertionStart<'_>,
) -> Result<SecurityKeyCeremony, Problem> {
    let AssertionStart { site, purpose, user, session, after_password, plan } = start;
    let mut allowed = Vec::new();
    if let Some(user) = user {
        let keys = store::Access::of(access.store()).security_keys(user).await?;
        allowed = keys.iter().filter(|key| key.rp_id == site.rp_id).map(descriptor).collect();
        if allowed.is_empty() {
            return Err(no_key_for_site(&keys, site));
        }
    }
    let (mut challenge, nonce) = (random()?, random()?);
    if let Some((subject, plan_sha256, actor)) = plan {
        challenge = Statement { subject: subject.into_bytes(), plan_sha256, actor, nonce }.challenge();
    }
    let verification = match purpose {
        _ if after_password => "discouraged",
        CeremonyPurpose::Approve => "preferred",
        _ => "required",
    };
    let options = json!({
        "challenge": Base64Url::from(challenge.as_slice()),
        "timeout": timeout_ms(),
        "rpId": site.rp_id,
        "allowCredentials": allowed,
        "userVerification": verification,
    });
    let ceremony = KeyCeremony {
        identity: user.unwrap_or_default(),
        challenge,
        session,
        after_password,
        subject: plan.map(|(subject, ..)| subject),
        plan_sha256: plan.map(|(_, hash, _)| hash),
        nonce: plan.map(|_| nonce),
        ..new_ceremony(access, site, purpose)
    };
    begin(access, ceremony, options).await
}

/// Removes a ceremony from the database, and verifies the assertion of a key against it.
///
/// # Errors
/// 401 with the same text for every rejected assertion; 422 when a member of the request is malformed.
pub(crate) async fn prove(
    access: &AccessControl,
    purpose: CeremonyPurpose,
    given: &SecurityKeyAssertion,
    address: &str,
) -> Result<(KeyCeremony, ProvedKey), Problem> {
    let ceremony = take(access, &given.ceremony, purpose).await?;
    let assertion = assertion(given)?;
    let found = store::Access::of(access.store()).security_key(assertion.credential_id.0.clone()).await?;
    let Some((key, user)) = found else {
        audit_refused(access, &ceremony, None, address, "the security key is not registered").await?;
        return Err(refused());
    };
    let alone = purpose == CeremonyPurpose::SignIn && !ceremony.after_password;
    let reason = match check(&ceremony, &key, &assertion) {
        Err(error) => error.to_string(),
        Ok(_) if !is_active(access, &user) => "the user is disabled or has expired".to_owned(),
        Ok(_) if alone && needs_issuer(access, &user).await? => {
            "the user signs in through an OpenID Connect issuer".to_owned()
        }
        Ok(verified) => {
            let at_us = access.clock().now_us();
            return Ok((ceremony, ProvedKey { user, key, assertion, verified, at_us }));
        }
    };
    audit_refused(access, &ceremony, Some((&key, user)), address, &reason).await?;
    Err(refused())
}

/// Returns whether the user can sign in only through an OIDC issuer. Such a user cannot sign in with a passkey alone, because the
/// issuer may have ended the user's access. A user with a password can.
async fn needs_issuer(access: &AccessControl, user: &Identity) -> Result<bool, Problem> {
    let of_issuer = user.label != LOCAL;
    Ok(of_issuer && store::Access::of(access.store()).password(&user.name).await?.is_none())
}

/// Checks an assertion against its ceremony and its key.
fn check(
    ceremony: &KeyCeremony,
    key: &SecurityKey,
    assertion: &Assertion,
) -> Result<Verified, webauthn::Error> {
    let of_ceremony = ceremony.identity.is_nil() || ceremony.identity == key.identity;
    // Without a known user, the response of the authenticator identifies the user.
    let says_who = !ceremony.identity.is_nil() || assertion.user_handle.is_some();
    if !of_ceremony || !says_who || key.rp_id != ceremony.rp_id {
        return Err(webauthn::Error::Credential);
    }
    let known = RegisteredKey {
        id: &key.credential_id,
        public_key: &key.public_key,
        sign_count: key.sign_count,
        backup_eligible: key.backup_eligible,
        user_handle: key.identity.as_bytes(),
    };
    // A key that could not verify its user at registration can only prove presence.
    let may_verify = ceremony.purpose != CeremonyPurpose::Approve || key.user_verified;
    let verification = !ceremony.after_password && may_verify;
    assertion.verify(&expected(ceremony, verification), &known)
}

pub(crate) fn view(key: SecurityKey) -> SecurityKeyView {
    SecurityKeyView {
        algorithm: algorithm(&key).to_owned(),
        public_key_sha256: public_key_sha256(&key),
        id: key.id,
        name: key.name,
        host: key.rp_id,
        user_verified: key.user_verified,
        backup_eligible: key.backup_eligible,
        backed_up: key.backed_up,
        created_at: shown(key.created_at_us),
        last_used_at: maybe_shown(key.last_used_at_us),
    }
}

/// Returns the error for a rejected response of a security key. The error is the same for every cause.
pub(crate) fn refused() -> Problem {
    Problem::unauthenticated(
        "the security key was rejected: it is not registered here, or its response has expired or was used before",
    )
    .hint("start again; a key works only at the host name for which it was registered, and users of an OpenID Connect issuer sign in there")
}

fn no_key_for_site(keys: &[SecurityKey], site: &Site) -> Problem {
    let mut hosts: Vec<&str> = keys.iter().map(|key| key.rp_id.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    if hosts.is_empty() {
        return Problem::conflict("this user has no security key").hint("register one: /console/account");
    }
    Problem::conflict(format_args!("this user has no security key for the host name {}", site.rp_id))
        .hint(format_args!("open the console at the host name of a key: {}", hosts.join(", ")))
}

fn check_count(count: usize) -> Result<(), Problem> {
    if count < SECURITY_KEYS_MAX {
        return Ok(());
    }
    Err(Problem::conflict(format_args!("a user has at most {SECURITY_KEYS_MAX} security keys"))
        .hint("remove a key that is no longer used"))
}

fn is_active(access: &AccessControl, user: &Identity) -> bool {
    let now = access.clock().now_us();
    user.kind == IdentityKind::User && user.enabled && user.expires_at_us.is_none_or(|end| now < end)
}

fn timeout_ms() -> u64 {
    CEREMONY_LIFETIME.as_secs() * 1_000
}

fn random() -> Result<[u8; 32], Problem> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes)
        .map_err(|_| Problem::internal("the system's random number generator is not available"))?;
    Ok(bytes)
}

/// Returns a ceremony without its user, its challenge and its secret.
fn new_ceremony(access: &AccessControl, site: &Site, purpose: CeremonyPurpose) -> KeyCeremony {
    let now = access.clock().now_us();
    KeyCeremony {
        secret_hash: [0; 32],
        identity: Uuid::nil(),
        purpose,
        challenge: [0; 32],
        rp_id: site.rp_id.clone(),
        origin: site.origin.clone(),
        session: None,
        after_password: false,
        name: None,
        subject: None,
        plan_sha256: None,
        nonce: None,
        created_at_us: now,
        expires_at_us: now + micros(CEREMONY_LIFETIME),
    }
}

/// Stores a ceremony under a new secret.
async fn begin(
    access: &AccessControl,
    mut ceremony: KeyCeremony,
    options: Value,
) -> Result<SecurityKeyCeremony, Problem> {
    let secret = secret::random_text()?;
    ceremony.secret_hash = secret::ceremony_hash(&secret);
    let expires_at = shown(ceremony.expires_at_us);
    let work = access.store().write("security_key_ceremony", move |tx| {
        async move { store::insert_key_ceremony(tx, &ceremony).await }.boxed()
    });
    work.await?;
    Ok(SecurityKeyCeremony { ceremony: secret.to_string(), expires_at, options })
}

async fn take(
    access: &AccessControl,
    secret: &str,
    purpose: CeremonyPurpose,
) -> Result<KeyCeremony, Problem> {
    if secret.is_empty() || secret.len() > SECRET_MAX {
        return Err(Problem::unprocessable(format_args!("ceremony: 1 to {SECRET_MAX} bytes")));
    }
    let hash = secret::ceremony_hash(secret);
    let work = access.store().write("security_key_ceremony_take", move |tx| {
        async move { store::take_key_ceremony(tx, hash).await }.boxed()
    });
    let now = access.clock().now_us();
    let taken = work.await?.filter(|taken| taken.purpose == purpose && now < taken.expires_at_us);
    taken.ok_or_else(refused)
}

fn expected(ceremony: &KeyCeremony, user_verification: bool) -> Expected<'_> {
    Expected {
        challenge: &ceremony.challenge,
        rp_id: &ceremony.rp_id,
        origin: &ceremony.origin,
        user_verification,
    }
}

fn key_of(
    access: &AccessControl,
    ceremony: &KeyCeremony,
    credential: Credential,
    transports: &[String],
) -> Result<SecurityKey, Problem> {
    let known = TRANSPORTS.iter().filter(|known| transports.iter().any(|one| one == **known));
    Ok(SecurityKey {
        id: Uuid::now_v7(),
        identity: ceremony.identity,
        name: ceremony.name.clone().unwrap_or_default(),
        credential_id: credential.id,
        public_key: credential.public_key,
        rp_id: ceremony.rp_id.clone(),
        sign_count: credential.sign_count,
        user_verified: credential.user_verified,
        backup_eligible: credential.backup_eligible,
        backed_up: credential.backed_up,
        aaguid: Uuid::from_bytes(credential.aaguid),
        transports: serde_json::to_string(&known.collect::<Vec<_>>()).map_err(Problem::internal)?,
        created_at_us: access.clock().now_us(),
        last_used_at_us: None,
    })
}

/// Returns a key as `PublicKeyCredentialDescriptorJSON`.
fn descriptor(key: &SecurityKey) -> Value {
    let transports: Value = serde_json::from_str(&key.transports).unwrap_or_default();
    json!({
        "type": "public-key",
        "id": Base64Url::from(key.credential_id.as_slice()),
        "transports": transports,
    })
}

fn bytes(text: &str) -> Result<Base64Url, Problem> {
    Base64Url::parse(text).ok_or_else(|| {
        Problem::unprocessable("the members of a security key's response must be base64url without padding")
    })
}

fn assertion(given: &SecurityKeyAssertion) -> Result<Assertion, Problem> {
    Ok(Assertion {
        credential_id: bytes(&given.credential_id)?,
        client_data_json: bytes(&given.client_data_json)?,
        authenticator_data: bytes(&given.authenticator_data)?,
        signature: bytes(&given.signature)?,
        user_handle: given.user_handle.as_deref().filter(|text| !text.is_empty()).map(bytes).transpose()?,
    })
}

fn algorithm(key: &SecurityKey) -> &'static str {
    PublicKey::parse(&key.public_key).map_or("unknown", |parsed| parsed.algorithm().name())
}

fn public_key_sha256(key: &SecurityKey) -> String {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, &key.public_key).as_ref());
    Fingerprint::from_bytes(hash).to_string()
}

/// Records in the audit log that a user entered the correct password, and whether the ceremony of the second factor began. Without
/// this record, the use of a stolen password that the second factor stops would leave no trace.
pub(crate) async fn audit_challenge(
    access: &AccessControl,
    user: &Identity,
    purpose: CeremonyPurpose,
    address: &str,
    begun: bool,
) -> Result<(), Problem> {
    let details = json!({
        "name": user.name, "address": address, "method": "password", "purpose": purpose.name(), "begun": begun,
    });
    audit_sign_in(access, "session.challenge", user, details).await
}

/// Records a refused assertion in the audit log, for the user of the ceremony or, if unknown, the user of the key. A counter that
/// did not increase hints at a copied key.
async fn audit_refused(
    access: &AccessControl,
    ceremony: &KeyCeremony,
    key: Option<(&SecurityKey, Identity)>,
    address: &str,
    reason: &str,
) -> Result<(), Problem> {
    let mut details = json!({
        "address": address, "method": "security-key", "purpose": ceremony.purpose.name(), "reason": reason,
    });
    if let Some((key, _)) = &key {
        details["security_key"] = key.id.to_string().into();
    }
    let user = match key {
        Some((_, user)) if ceremony.identity.is_nil() || ceremony.identity == user.id => Some(user),
        _ => store::Access::of(access.store()).identity(IdentityKind::User, ceremony.identity).await?,
    };
    let Some(user) = user else { return Ok(()) };
    details["name"] = user.name.as_str().into();
    audit_sign_in(access, "session.refuse", &user, details).await
}

async fn audit_sign_in(
    access: &AccessControl,
    action: &'static str,
    user: &Identity,
    details: Value,
) -> Result<(), Problem> {
    let event = AuditEvent {
        at_us: access.clock().now_us(),
        actor: "system:sign-in".to_owned(),
        action,
        resource: admin::resource(user.kind, user.id),
        details,
    };
    let work = access.store().write("sign_in_audit", move |tx| {
        async move { store::audit(tx, vec![event]).await.map(drop) }.boxed()
    });
    Ok(work.await?)
}
