//! How a host becomes an agent: a token used once, a key made there, a certificate from here.

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;
use serde_json::json;
use store::agents::{AgentRow, AgentTokenRow};
use store::{
    AccessChange, AuditEvent, Cursor, IdentityKind, IdentitySettings, NewIdentity, Page, StoreError, Tx,
};
use uuid::Uuid;
use x509::csr::CertificateRequest;
use zeroize::Zeroizing;

use super::identity::agent_uri;
use super::presence::stored;
use super::work::{Enrolled, Enrolment};
use super::{AgentError, Agents, Labels, check_labels, check_name, labels_of};

/// What a token begins with, so that it is recognized where it leaks.
pub(super) const TOKEN_PREFIX: &str = "bulla-enroll-";
/// Octets of randomness in a token.
const TOKEN_OCTETS: usize = 32;
/// Seconds a token is good at most.
const TOKEN_SECONDS_MAX: i64 = 30 * 86_400;
/// The role of agents.
const GRANTS: &str = r#"[{"role":"agent","scope":"any"}]"#;
/// Names tried when the host's own is taken.
const NAMES_TRIED: usize = 2;

/// Why a host did not become an agent.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// Unknown, used, or expired: not told apart, so that guessing teaches nothing.
    #[error("the enrolment token is not good: it is unknown, used, or expired")]
    Token,
    /// The request cannot be read, or is not signed by its key.
    #[error("the CSR is not good: {0}")]
    Csr(String),
    /// Anything else.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

impl From<StoreError> for EnrolError {
    fn from(error: StoreError) -> Self {
        Self::Agent(error.into())
    }
}

/// A token to make.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Labels its agent gets.
    pub labels: Labels,
    /// Seconds it is good, a month at most.
    pub seconds: i64,
}

/// A token just made.
#[derive(Debug)]
pub struct MadeToken {
    /// To be shown once.
    pub token: Zeroizing<String>,
    /// What is kept of it.
    pub row: AgentTokenRow,
}

impl Agents {
    /// Makes an enrolment token.
    ///
    /// # Errors
    /// [`AgentError::Invalid`]; those of the database.
    pub async fn create_token(&self, new: NewToken, actor: &str) -> Result<MadeToken, AgentError> {
        check_labels(&new.labels)?;
        if !(1..=TOKEN_SECONDS_MAX).contains(&new.seconds) {
            return Err(AgentError::Invalid(format!("a token is good for 1 to {TOKEN_SECONDS_MAX} seconds")));
        }
        let mut octets = Zeroizing::new([0; TOKEN_OCTETS]);
        rand::fill(&mut *octets)
            .map_err(|_| AgentError::Invalid("the system gives no random numbers".to_owned()))?;
        let token = Zeroizing::new(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(*octets)));
        let now = self.now_us();
        let row = AgentTokenRow {
            id: Uuid::now_v7(),
            labels: json!(new.labels).to_string(),
            created_by: actor.to_owned(),
            created_at_us: now,
            expires_at_us: now.saturating_add(new.seconds * 1_000_000),
            used_at_us: None,
            agent: None,
        };
        let (hash, stored) = (hash_of(&token), row.clone());
        let details = json!({"labels": new.labels, "seconds": new.seconds});
        let event = self.event(actor, "agent_token.create", format!("agent-token/{}", row.id), details);
        self.store()
            .write("agent_token", move |tx| {
                async move {
                    store::agents::insert_agent_token(tx, &stored, &hash).await?;
                    store::audit(tx, vec![event]).await
                }
                .boxed()
            })
            .await?;
        Ok(MadeToken { token, row })
    }

    /// Tokens, newest first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn tokens(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AgentTokenRow>, AgentError> {
        Ok(self.store().agent_tokens(after, limit).await?)
    }

    /// Takes a token back.
    ///
    /// # Errors
    /// [`AgentError::NotFound`]; those of the database.
    pub async fn delete_token(&self, id: Uuid, actor: &str) -> Result<(), AgentError> {
        let event = self.event(actor, "agent_token.delete", format!("agent-token/{id}"), json!({}));
        let done = self
            .store()
            .write("agent_token_delete", move |tx| {
                async move {
                    let done = store::agents::delete_agent_token(tx, id).await?;
                    super::record(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if done { Ok(()) } else { Err(AgentError::NotFound("enrolment token")) }
    }

    /// Makes a host an agent. Whoever comes again with the same token and the same key, because no answer arrived, gets
    /// the same agent.
    ///
    /// # Errors
    /// [`EnrolError`].
    pub async fn enroll(&self, request: &Enrolment) -> Result<Enrolled, EnrolError> {
        let csr = CertificateRequest::from_pem_or_der(request.csr_pem.as_bytes())
            .map_err(|error| EnrolError::Csr(error.to_string()))?;
        csr.verify().map_err(|error| EnrolError::Csr(error.to_string()))?;
        let spki = csr.public_key.spki.to_vec();
        let spki_sha256 = *csr.public_key.spki_sha256.as_bytes();
        let hash = hash_of(&request.token);
        let agent = match self.again(&hash, &spki_sha256).await? {
            Some(agent) => agent,
            None => self.enter(request, hash, spki_sha256).await?,
        };
        let key = format!("agent:{}:enroll:{}", agent.id, x509::SpkiHash::from_bytes(spki_sha256));
        self.certificate_for(&agent, spki, key).await.map_err(EnrolError::from)
    }

    /// The next certificate of an agent, for the same key.
    ///
    /// # Errors
    /// [`EnrolError`].
    pub async fn renew(&self, agent: Uuid, csr_pem: &str) -> Result<Enrolled, EnrolError> {
        let csr = CertificateRequest::from_pem_or_der(csr_pem.as_bytes())
            .map_err(|error| EnrolError::Csr(error.to_string()))?;
        csr.verify().map_err(|error| EnrolError::Csr(error.to_string()))?;
        let row = self.agent(agent).await?;
        if row.retired_at_us.is_some() {
            return Err(AgentError::Retired.into());
        }
        if row.spki_sha256 != *csr.public_key.spki_sha256.as_bytes() {
            return Err(AgentError::OtherKey.into());
        }
        // The end of the one before names this renewal: repeated, it gets the same certificate.
        let key = format!("agent:{agent}:renew:{}", row.not_after_us);
        let spki = csr.public_key.spki.to_vec();
        self.certificate_for(&row, spki, key).await.map_err(EnrolError::from)
    }

    async fn certificate_for(
        &self,
        agent: &AgentRow,
        spki: Vec<u8>,
        idempotency_key: String,
    ) -> Result<Enrolled, AgentError> {
        let certified = self.parts().certify.certify(agent_uri(agent.id), spki, idempotency_key).await?;
        let (id, key, until) = (agent.id, agent.spki_sha256, certified.not_after_us);
        self.store()
            .write("agent_certified", move |tx| {
                async move { store::agents::agent_certified(tx, id, &key, until).await }.boxed()
            })
            .await?;
        Ok(Enrolled {
            agent: agent.id,
            name: agent.name.clone(),
            certificate_pem: certified.chain_pem,
            ca_pem: self.parts().ca_pem.clone(),
        })
    }

    /// The agent that this token has made with this key before.
    async fn again(&self, hash: &[u8; 32], spki_sha256: &[u8; 32]) -> Result<Option<AgentRow>, StoreError> {
        let Some(agent) = self.store().agent_of_key(spki_sha256).await? else { return Ok(None) };
        let made = self.store().agent_of_token(hash, self.now_us()).await?;
        Ok((made == Some(agent.id) && agent.retired_at_us.is_none()).then_some(agent))
    }

    async fn enter(
        &self,
        request: &Enrolment,
        hash: [u8; 32],
        spki_sha256: [u8; 32],
    ) -> Result<AgentRow, EnrolError> {
        let now = self.now_us();
        let id = Uuid::now_v7();
        let facts = stored(request.facts.clone());
        let wished = request.name.clone().unwrap_or_else(|| facts.hostname.clone());
        let wished = if check_name(&wished).is_ok() { wished } else { format!("agent-{id}") };
        let mut row = AgentRow {
            id,
            name: wished,
            labels: "{}".to_owned(),
            spki_sha256,
            not_after_us: now,
            facts,
            revision: 1,
            enrolled_at_us: now,
            last_seen_at_us: now,
            retired_at_us: None,
        };
        for _ in 0..NAMES_TRIED {
            let new = NewAgent {
                row: row.clone(),
                token: hash,
                identity: self.identity_of(&row),
                event: self.event(&format!("agent:{id}"), "agent.enroll", format!("agent/{id}"), json!({})),
            };
            let entered = self.store().write("agent_enroll", move |tx| enter(tx, new).boxed()).await?;
            match entered {
                Entered::Done(labels) => return Ok(AgentRow { labels, ..row }),
                Entered::BadToken => return Err(EnrolError::Token),
                // The last digits of a UUIDv7 are random.
                Entered::Taken => {
                    let digits = id.simple().to_string();
                    row.name = format!("{}-{}", row.name, &digits[digits.len() - 8..]);
                }
            }
        }
        Err(AgentError::NameTaken(row.name).into())
    }

    fn identity_of(&self, row: &AgentRow) -> NewIdentity {
        let uri = agent_uri(row.id);
        NewIdentity {
            id: row.id,
            kind: IdentityKind::Certificate,
            key_hash: (self.parts().identity)(&uri),
            label: format!("uri:{uri}"),
            settings: IdentitySettings {
                name: format!("agent-{}", row.id),
                email: None,
                grants: GRANTS.to_owned(),
                enabled: true,
                expires_at_us: None,
            },
            created_at_us: row.enrolled_at_us,
            created_by: format!("agent:{}", row.id),
        }
    }
}

struct NewAgent {
    row: AgentRow,
    token: [u8; 32],
    identity: NewIdentity,
    event: AuditEvent,
}

enum Entered {
    Done(String),
    BadToken,
    Taken,
}

/// Token, agent, identity and audit together, or nothing: a token is not lost for a name that is taken.
async fn enter(tx: &mut Tx, mut new: NewAgent) -> Result<Entered, StoreError> {
    let at = new.row.enrolled_at_us;
    if store::agents::is_agent_taken(tx, &new.row.name, &new.row.spki_sha256).await? {
        return Ok(Entered::Taken);
    }
    let Some(token) = store::agents::use_agent_token(tx, &new.token, at, new.row.id).await? else {
        return Ok(Entered::BadToken);
    };
    new.row.labels = token.labels;
    let labels: Vec<_> = labels_of(&new.row.labels).into_iter().collect();
    let entered = store::agents::insert_agent(tx, &new.row, &labels).await?;
    let known = store::insert_identity(tx, &new.identity).await?;
    if !entered || known != AccessChange::Done {
        return Err(StoreError::Corrupt("an agent was entered twice at once; ask again".to_owned()));
    }
    new.event.details = json!({"name": new.row.name, "token": token.id, "token_by": token.created_by});
    store::audit(tx, vec![new.event]).await?;
    Ok(Entered::Done(new.row.labels))
}

fn hash_of(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}
