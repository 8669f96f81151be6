//! The account with an ACME server (RFC 8555 section 7.3): one stored key, and one account created with it.

use std::sync::Arc;
use std::time::Instant;

use authority::keystore::KeyStore;
use keys::KeyType;
use serde_json::{Value, json};
use store::Store;
use tokio::sync::Mutex;

use super::client::{Client, Signed};
use super::wire::Directory;
use crate::config::{AcmeConfig, Eab};
use crate::error::IssuerError;
use crate::issuer::IssuerIdentity;
use crate::jose::{JwsKey, flattened_hmac, from_base64url};
use crate::tables;
use crate::tables::IssuerAccount;

/// An account that is registered at the ACME server.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) key: JwsKey,
    pub(super) url: String,
}

impl Account {
    pub(super) fn signed(&self) -> Signed<'_> {
        Signed::Account(&self.key, &self.url)
    }
}

/// The account at the ACME server, which is found or created at its first use.
pub(super) struct Accounts {
    identity: IssuerIdentity,
    store: Store,
    keystore: KeyStore,
    /// Locked during the lookup, so that the account is created only once.
    known: Mutex<Option<Arc<Account>>>,
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accounts").field("issuer", &self.identity.name).finish_non_exhaustive()
    }
}

impl Accounts {
    pub(super) fn new(identity: IssuerIdentity, store: Store, keystore: KeyStore) -> Self {
        Self { identity, store, keystore, known: Mutex::default() }
    }

    /// Returns the account: cached, stored in the database, or newly created.
    pub(super) async fn get(
        &self,
        client: &Client,
        config: &AcmeConfig,
        deadline: Instant,
    ) -> Result<Arc<Account>, IssuerError> {
        let mut known = self.known.lock().await;
        if let Some(account) = &*known {
            return Ok(Arc::clone(account));
        }
        let account = Arc::new(self.find_or_create(client, config, deadline).await?);
        *known = Some(Arc::clone(&account));
        Ok(account)
    }

    /// Forgets an account that the server no longer knows. The next [`Accounts::get`] creates it again with the same key.
    pub(super) async fn forget(&self, config: &AcmeConfig) -> Result<(), IssuerError> {
        let mut known = self.known.lock().await;
        *known = None;
        if let Some(stored_account) = self.stored_account(config).await? {
            tables::ExternalIssuers::of(&self.store)
                .set_account(self.identity.id, IssuerAccount { url: None, ..stored_account })
                .await?;
        }
        Ok(())
    }

    async fn stored_account(&self, config: &AcmeConfig) -> Result<Option<IssuerAccount>, IssuerError> {
        let row = tables::ExternalIssuers::of(&self.store).get(self.identity.id).await?;
        let row = row.ok_or_else(|| IssuerError::misconfigured("this issuer has been removed"))?;
        Ok(row.account.filter(|account| account.directory == config.directory))
    }

    async fn find_or_create(
        &self,
        client: &Client,
        config: &AcmeConfig,
        deadline: Instant,
    ) -> Result<Account, IssuerError> {
        let stored_account = match self.stored_account(config).await? {
            Some(stored_account) => stored_account,
            None => self.new_key(config).await?,
        };
        let key = self.keystore.signer(stored_account.key).await.map_err(key_failed)?;
        let key = JwsKey::new(key).map_err(|error| IssuerError::misconfigured(error.to_string()))?;
        if let Some(url) = stored_account.url {
            return Ok(Account { key, url });
        }
        let directory = client.directory(deadline).await?;
        let request = new_account(&directory, config, &key)?;
        let reply = client.post(&directory.new_account, Some(&request), Signed::Key(&key), deadline).await?;
        let url = reply.header("location").map(str::to_owned);
        let url =
            url.ok_or_else(|| IssuerError::unavailable("the server created an account without a URL"))?;
        let registered = IssuerAccount { url: Some(url.clone()), ..stored_account };
        tables::ExternalIssuers::of(&self.store).set_account(self.identity.id, registered).await?;
        tracing::info!(issuer = %self.identity.name, account = %url, "ACME account ready");
        Ok(Account { key, url })
    }

    /// Generates and stores a key before the server gets it. After a crash, the same key finds the same account.
    async fn new_key(&self, config: &AcmeConfig) -> Result<IssuerAccount, IssuerError> {
        let label = format!("ACME account of issuer {}", self.identity.name);
        let (key, _) =
            self.keystore.generate(KeyType::P256, &label, "system:issuers").await.map_err(key_failed)?;
        let account = IssuerAccount { key, url: None, directory: config.directory.clone() };
        tables::ExternalIssuers::of(&self.store).set_account(self.identity.id, account.clone()).await?;
        Ok(account)
    }
}

fn key_failed(error: impl std::fmt::Display) -> IssuerError {
    IssuerError::Storage { reason: format!("the account key cannot be used: {error}") }
}

fn new_account(directory: &Directory, config: &AcmeConfig, key: &JwsKey) -> Result<Value, IssuerError> {
    if let Some(terms) = directory.meta.terms_of_service.as_ref().filter(|_| !config.terms_agreed) {
        return Err(IssuerError::misconfigured(format!(
            "the server has terms of service at {terms}; set terms_agreed after you agree to them"
        )));
    }
    let mut request = json!({ "termsOfServiceAgreed": config.terms_agreed });
    if !config.contact.is_empty() {
        request["contact"] = json!(config.contact);
    }
    match &config.eab {
        Some(eab) => request["externalAccountBinding"] = binding(directory, eab, key)?,
        None if directory.meta.external_account_required => {
            return Err(IssuerError::misconfigured(
                "the server requires an external account binding; set eab.key_id and eab.hmac_key as given by the CA",
            ));
        }
        None => {}
    }
    Ok(request)
}

/// Builds the external account binding (RFC 8555 section 7.3.4).
fn binding(directory: &Directory, eab: &Eab, key: &JwsKey) -> Result<Value, IssuerError> {
    let mac = from_base64url(eab.hmac_key.expose()).filter(|mac| !mac.is_empty());
    let mac = mac.ok_or_else(|| IssuerError::misconfigured("eab.hmac_key is not base64url"))?;
    let protected = json!({ "alg": "HS256", "kid": eab.key_id, "url": directory.new_account });
    Ok(flattened_hmac(&mac, &protected, key.jwk()))
}
