//! Proof of control over an order's names (RFC 8555 section 7.5).

use std::collections::HashSet;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use callout::excerpt;
use futures_util::future::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;

use super::account::Account;
use super::client::Client;
use super::wire::{Authorization, AuthorizationStatus, Challenge};
use super::{PollInterval, wait};
use crate::config::{AcmeConfig, ChallengeKind};
use crate::dns01::{Solver, TxtRecord};
use crate::error::IssuerError;
use crate::jose::base64url;
use crate::responder::{ListenGuard, Protocol, Responders};

/// Maximum number of authorizations processed concurrently.
const AT_ONCE: usize = 8;
/// Timeout for removing challenge responses, independent of the order's deadline.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(30);

/// The selected challenge of one name, not yet started.
#[derive(Clone, Debug)]
struct Proof {
    authorization: String,
    challenge: String,
    kind: ChallengeKind,
    name: String,
    token: String,
    key_authorization: String,
}

/// Dependencies for proving control over names.
pub(super) struct Prover<'a> {
    pub(super) client: &'a Client,
    pub(super) config: &'a AcmeConfig,
    pub(super) account: &'a Account,
    pub(super) responders: &'a Responders,
    pub(super) dns01: Option<&'a Solver>,
    pub(super) deadline: Instant,
}

impl Prover<'_> {
    /// Proves control over every name whose authorization is pending.
    pub(super) async fn prove(&self, authorizations: &[String]) -> Result<(), IssuerError> {
        let lookups: Vec<_> = authorizations.iter().map(|url| self.pending_proof(url).boxed()).collect();
        let pending: Vec<Option<Proof>> = stream::iter(lookups).buffered(AT_ONCE).try_collect().await?;
        let proofs: Vec<Proof> = pending.into_iter().flatten().collect();
        if proofs.is_empty() {
            return Ok(());
        }
        let mut placed = PublishedChallenges::new(self.responders.clone(), self.dns01.cloned());
        let result = async {
            self.publish(&proofs, &mut placed).await?;
            let runs: Vec<_> = proofs.iter().map(|proof| self.run(proof).boxed()).collect();
            stream::iter(runs).buffer_unordered(AT_ONCE).try_collect().await
        }
        .await;
        placed.remove().await;
        result
    }

    /// Fetches an authorization. `None` when no proof is needed any more.
    async fn pending_proof(&self, url: &str) -> Result<Option<Proof>, IssuerError> {
        let authorization = self.authorization(url).await?.0;
        match authorization.status {
            AuthorizationStatus::Valid => Ok(None),
            AuthorizationStatus::Pending => self.choose(url, &authorization).map(Some),
            _ => Err(unproven(&authorization)),
        }
    }

    /// Selects the first configured method that the server offers and the name allows.
    fn choose(&self, url: &str, authorization: &Authorization) -> Result<Proof, IssuerError> {
        let name = &authorization.identifier.value;
        let fits = |kind: &ChallengeKind| match kind {
            ChallengeKind::Dns01 => authorization.identifier.kind == "dns" && self.dns01.is_some(),
            ChallengeKind::Http01 | ChallengeKind::TlsAlpn01 => !authorization.wildcard,
        };
        let offered = |kind: ChallengeKind| {
            authorization.challenges.iter().find(|challenge| challenge.kind == kind.name()).map(|c| (kind, c))
        };
        let found = self.config.challenges.iter().copied().filter(fits).find_map(offered);
        let Some((kind, challenge)) = found else {
            let offers: Vec<&str> = authorization.challenges.iter().map(|c| c.kind.as_str()).collect();
            return Err(IssuerError::misconfigured(format!(
                "no configured challenge type can validate {}{name}; the server offers {}; wildcards need dns-01",
                if authorization.wildcard { "*." } else { "" },
                excerpt(&offers.join(", ")),
            )));
        };
        Ok(Proof {
            authorization: url.to_owned(),
            challenge: challenge.url.clone(),
            kind,
            name: name.clone(),
            token: challenge.token.clone(),
            key_authorization: format!("{}.{}", challenge.token, self.account.key.thumbprint()),
        })
    }

    /// Publishes every challenge response before the server is asked to validate.
    async fn publish(&self, proofs: &[Proof], placed: &mut PublishedChallenges) -> Result<(), IssuerError> {
        let of = |kind| proofs.iter().filter(move |proof| proof.kind == kind);
        let http: Vec<_> = of(ChallengeKind::Http01)
            .map(|proof| (proof.token.clone(), proof.key_authorization.clone()))
            .collect();
        if !http.is_empty() {
            self.open(self.config.listen.http01, Protocol::Http01, placed).await?;
            placed.tokens = http.iter().map(|(token, _)| token.clone()).collect();
            self.responders.put_http01(http).await?;
        }
        for proof in of(ChallengeKind::TlsAlpn01) {
            if placed.names.is_empty() {
                self.open(self.config.listen.tls_alpn01, Protocol::TlsAlpn01, placed).await?;
            }
            placed.names.insert(proof.name.clone());
            self.responders.put_alpn(&proof.name, &sha256(&proof.key_authorization))?;
        }
        let records: Vec<_> = of(ChallengeKind::Dns01)
            .map(|proof| TxtRecord {
                name: format!("_acme-challenge.{}", proof.name),
                value: base64url(sha256(&proof.key_authorization)),
            })
            .collect();
        match self.dns01 {
            Some(solver) if !records.is_empty() => {
                solver.present(&records, &mut placed.records, self.deadline).await
            }
            _ => Ok(()),
        }
    }

    async fn open(
        &self,
        address: Option<std::net::SocketAddr>,
        protocol: Protocol,
        placed: &mut PublishedChallenges,
    ) -> Result<(), IssuerError> {
        if let Some(address) = address {
            placed.listeners.push(self.responders.listen(address, protocol).await?);
        }
        Ok(())
    }

    /// Asks the server to validate, and waits for the result.
    async fn run(&self, proof: &Proof) -> Result<(), IssuerError> {
        let reported =
            self.client.post(&proof.challenge, Some(&json!({})), self.account.signed(), self.deadline).await;
        // A server that has already decided rejects another request. The result is in the authorization.
        if let Err(failed) = reported
            && !matches!(failed.error, IssuerError::Refused { .. })
        {
            return Err(failed.error);
        }
        let mut poll_interval = PollInterval::default();
        loop {
            let (authorization, retry_after) = self.authorization(&proof.authorization).await?;
            match authorization.status {
                AuthorizationStatus::Valid => return Ok(()),
                AuthorizationStatus::Pending => {
                    wait(poll_interval.next(retry_after), self.deadline, "the server validates the names")
                        .await?;
                }
                _ => return Err(unproven(&authorization)),
            }
        }
    }

    async fn authorization(&self, url: &str) -> Result<(Authorization, Option<Duration>), IssuerError> {
        let reply = self.client.post(url, None, self.account.signed(), self.deadline).await?;
        Ok((reply.json()?, reply.retry_after(self.client.now())))
    }
}

fn sha256(text: &str) -> [u8; 32] {
    <[u8; 32]>::try_from(digest(&SHA256, text.as_bytes()).as_ref()).unwrap_or_default()
}

fn unproven(authorization: &Authorization) -> IssuerError {
    let reported = |challenge: &Challenge| challenge.error.as_ref().map(|error| error.text());
    let invalid = authorization.challenges.iter().find(|challenge| challenge.status == "invalid");
    let reason = invalid.and_then(reported).or_else(|| authorization.challenges.iter().find_map(reported));
    let reason =
        reason.unwrap_or_else(|| format!("the authorization is {:?}", authorization.status).to_lowercase());
    IssuerError::Unproven { name: authorization.identifier.value.clone(), reason }
}

/// Published challenge responses. Removed by [`PublishedChallenges::remove`], or in the background when dropped.
struct PublishedChallenges {
    responders: Responders,
    dns01: Option<Solver>,
    tokens: Vec<String>,
    names: HashSet<String>,
    records: Vec<TxtRecord>,
    listeners: Vec<ListenGuard>,
}

impl PublishedChallenges {
    fn new(responders: Responders, dns01: Option<Solver>) -> Self {
        let (tokens, names, records, listeners) = Default::default();
        Self { responders, dns01, tokens, names, records, listeners }
    }

    fn take(&mut self) -> Self {
        let mut taken = Self::new(self.responders.clone(), self.dns01.clone());
        std::mem::swap(&mut taken.tokens, &mut self.tokens);
        std::mem::swap(&mut taken.names, &mut self.names);
        std::mem::swap(&mut taken.records, &mut self.records);
        std::mem::swap(&mut taken.listeners, &mut self.listeners);
        taken
    }

    fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.names.is_empty() && self.records.is_empty()
    }

    async fn remove(&mut self) {
        for name in self.names.drain() {
            self.responders.remove_alpn(&name);
        }
        if !self.tokens.is_empty()
            && let Err(error) = self.responders.remove_http01(self.tokens.clone()).await
        {
            tracing::warn!(%error, "responses to http-01 challenges could not be removed; they stay until they expire");
        }
        self.tokens.clear();
        if let Some(solver) = self.dns01.as_ref().filter(|_| !self.records.is_empty()) {
            // Cleared record by record. On a drop, remaining records are removed in the background.
            solver.remove(&mut self.records, Instant::now() + CLEAN_UP_LIMIT).await;
        }
        self.listeners.clear();
    }
}

impl Drop for PublishedChallenges {
    fn drop(&mut self) {
        if self.is_empty() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut left = self.take();
        // The caller stopped waiting. The task ends within the limit.
        runtime.spawn(async move {
            let _guard = telemetry::tasks::guard("challenge-clean-up");
            left.remove().await;
            left.records.clear();
        });
    }
}
