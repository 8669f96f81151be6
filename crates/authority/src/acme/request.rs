//! Verification of signed requests: the signer, the URL and the nonce (RFC 8555 section 6).

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::Server;
use super::accounts::{Account, Missing};
use super::jose::{AccountKey, Jws, JwsError, REQUEST_MAX, Signer, strict};
use super::problem::{Kind, Problem};

const MEDIA_TYPE: &str = "application/jose+json";

/// A verified request that an account signed.
#[derive(Debug)]
pub(crate) struct AccountRequest {
    pub(crate) account: Arc<Account>,
    /// URL of the account, as the client sent it.
    pub(crate) account_url: String,
    pub(crate) url: String,
    payload: Vec<u8>,
}

/// A verified request that is signed with the key in its header.
#[derive(Debug)]
pub(crate) struct KeyRequest {
    pub(crate) key: AccountKey,
    pub(crate) url: String,
    payload: Vec<u8>,
}

/// A verified request, signed by an account or with the key in its header.
#[derive(Debug)]
pub(crate) enum VerifiedRequest {
    Account(AccountRequest),
    Key(KeyRequest),
}

impl AccountRequest {
    /// Parses the payload as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        read(&self.payload)
    }

    /// Returns whether the request is a POST-as-GET (section 6.3).
    pub(crate) fn is_post_as_get(&self) -> bool {
        self.payload.is_empty()
    }

    /// Rejects requests that are not POST-as-GET.
    pub(crate) fn require_post_as_get(&self) -> Result<(), Problem> {
        if self.is_post_as_get() {
            return Ok(());
        }
        Err(Problem::malformed("this resource is read-only: send an empty payload (POST-as-GET)"))
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }
}

impl KeyRequest {
    /// Parses the payload as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        read(&self.payload)
    }
}

impl VerifiedRequest {
    /// Parses the payload as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        match self {
            Self::Account(signed) => signed.json(),
            Self::Key(signed) => signed.json(),
        }
    }
}

fn read<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Problem> {
    let malformed = |error| Problem::malformed(format!("cannot parse the payload: {error}"));
    serde_json::from_value(strict::parse(payload).map_err(malformed)?).map_err(malformed)
}

impl Server {
    /// Verifies a request that a valid account signed.
    pub(crate) async fn verify_account_request(
        &self,
        request: &Request<Bytes>,
    ) -> Result<AccountRequest, Problem> {
        match self.signed(request).await? {
            VerifiedRequest::Account(signed) => Ok(signed),
            VerifiedRequest::Key(_) => {
                Err(Problem::malformed("this request must identify an account (kid), not carry a key (jwk)"))
            }
        }
    }

    /// Verifies a request that is signed with the key in its header.
    pub(crate) async fn verify_key_request(&self, request: &Request<Bytes>) -> Result<KeyRequest, Problem> {
        match self.signed(request).await? {
            VerifiedRequest::Key(signed) => Ok(signed),
            VerifiedRequest::Account(_) => Err(Problem::malformed(
                "this request must carry the key (jwk), not identify an account (kid)",
            )),
        }
    }

    /// Verifies a request that is signed by an account or with the key in its header.
    pub(crate) async fn signed(&self, request: &Request<Bytes>) -> Result<VerifiedRequest, Problem> {
        check_media_type(request)?;
        if request.body().len() > REQUEST_MAX {
            let detail = format!("the request is longer than {REQUEST_MAX} bytes");
            return Err(Problem::malformed(detail).status(StatusCode::PAYLOAD_TOO_LARGE));
        }
        let jws = Jws::parse(request.body())?;
        jws.check_algorithm()?;
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        let request_url = format!("{}{path}", self.options.base_url);
        if jws.url != request_url {
            let detail = format!(
                "the url in the protected header is {}, but the request was sent to {request_url}",
                jws.url
            );
            return Err(Problem::unauthorized(detail));
        }
        match jws.nonce.as_deref() {
            Some(nonce) if self.nonces.spend(nonce) => {}
            Some(_) => {
                let detail =
                    "the nonce is used, expired or from another server; use the nonce of this response";
                return Err(Problem::new(Kind::BadNonce, detail));
            }
            None => return Err(Problem::new(Kind::BadNonce, "the protected header has no nonce")),
        }
        let Jws { ref signer, .. } = jws;
        match signer {
            Signer::Kid(kid) => {
                let (account, account_url) = (self.account_of(&jws, kid).await?, kid.clone());
                Ok(VerifiedRequest::Account(AccountRequest {
                    account,
                    account_url,
                    url: jws.url,
                    payload: jws.payload,
                }))
            }
            Signer::Key(key) => {
                jws.verify(key)?;
                let Signer::Key(key) = jws.signer else { return Err(Problem::internal()) };
                Ok(VerifiedRequest::Key(KeyRequest { key: *key, url: jws.url, payload: jws.payload }))
            }
        }
    }

    /// Returns the account that signed, if it is valid.
    async fn account_of(&self, jws: &Jws, kid: &str) -> Result<Arc<Account>, Problem> {
        let unknown = || Problem::new(Kind::AccountDoesNotExist, format!("unknown account {kid}"));
        let id = self.account_id(kid).ok_or_else(unknown)?;
        let missing = |missing| match missing {
            Missing::Unknown => unknown(),
            Missing::Busy => Problem::busy(),
            Missing::Broken => Problem::internal(),
        };
        let mut account = self.accounts.get(&self.store, id).await.map_err(missing)?;
        if jws.verify(&account.key) == Err(JwsError::BadSignature) {
            // Another node may have changed the account key recently, so the cached key may be old.
            account = self.accounts.reload(&self.store, id).await.map_err(missing)?;
        }
        jws.verify(&account.key)?;
        account.check()?;
        Ok(account)
    }

    /// Returns the identifier in the URL of an account.
    pub(crate) fn account_id(&self, url: &str) -> Option<Uuid> {
        let id = Uuid::parse_str(url.strip_prefix(&self.url("acct/"))?).ok()?;
        (self.account_url(id) == url).then_some(id)
    }

    pub(crate) fn account_url(&self, id: Uuid) -> String {
        self.url(format_args!("acct/{id}"))
    }
}

fn check_media_type(request: &Request<Bytes>) -> Result<(), Problem> {
    let sent =
        request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = sent.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case(MEDIA_TYPE) {
        return Ok(());
    }
    let detail = format!("the Content-Type is {sent:?}; it must be {MEDIA_TYPE}");
    Err(Problem::malformed(detail).status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}
