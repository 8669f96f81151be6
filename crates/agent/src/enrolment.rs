//! Enrolment of a host as an agent: a single-use token, a key generated on the host, a certificate from the server.

use enrollment::{ProvedKey, Token, check_seconds, hash_of, identity_of, suffixed_name};
use futures_util::FutureExt;
use serde_json::json;
use store::{AccessChange, AuditEvent, Cursor, NewIdentity, Page, StoreError, Tx};
use uuid::Uuid;
use x509::GeneralName;
use zeroize::Zeroizing;

use crate::directory::{AgentError, Agents, Labels, check_labels, check_name, labels_of};
use crate::identity::agent_uri;
use crate::presence::stored;
use crate::tables;
use crate::tables::{AgentRow, AgentTokenRow};
use crate::work::{Enrolled, Enrolment};

/// Prefix of every token, so that secret scanners recognize a leaked one.
pub(super) const TOKEN_PREFIX: &str = "bulla-enroll-";
/// Name of the agents' identity kind and of their role.
const KIND: &str = "agent";
/// Number of names tried when the host's own name is taken.
const NAMES_TRIED: usize = 2;

/// Reason why an enrolment failed.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The token is unknown, used or expired. The error does not say which, so that guessing reveals nothing.
    #[error("invalid enrolment token: unknown, used, or expired")]
    Token,
    /// The CSR cannot be parsed, or is not signed by its key.
    #[error("invalid CSR: {0}")]
    Csr(String),
    /// Another failure of the directory of agents.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

impl From<StoreError> for EnrolError {
    fn from(error: StoreError) -> Self {
        Self::Agent(error.into())
    }
}

/// Labels and lifetime of an enrolment token to create.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Labels that the token's agent gets.
    pub labels: Labels,
    /// Lifetime in seconds, at most a month.
    pub seconds: i64,
}

/// A created enrolment token, with its secret.
#[derive(Debug)]
pub struct CreatedToken {
    /// The secret token, to be shown once.
    pub token: Zeroizing<String>,
    /// The stored row, without the secret.
    pub row: AgentTokenRow,
}

impl Agents {
    /// Creates a single-use enrolment token. Only the result contains the secret.
    ///
    /// # Errors
    /// [`AgentError::Invalid`]; database errors.
    #[crate::boxed]
    pub async fn create_token(&self, new: NewToken, actor: &str) -> Result<CreatedToken, AgentError> {
        check_labels(&new.labels)?;
        check_seconds(new.seconds).map_err(AgentError::Invalid)?;
        let Token { text: token, hash } = Token::make(TOKEN_PREFIX).map_err(AgentError::Invalid)?;
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
        let stored = row.clone();
        let details = json!({"labels": new.labels, "seconds": new.seconds});
        let event = self.event(actor, "agent_token.create", format!("agent-token/{}", row.id), details);
        self.store()
            .write("agent_token", move |tx| {
                async move {
                    tables::insert_agent_token(tx, &stored, &hash).await?;
                    store::audit(tx, vec![event]).await
                }
                .boxed()
            })
            .await?;
        Ok(CreatedToken { token, row })
    }

    /// Lists tokens, newest first.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn tokens(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AgentTokenRow>, AgentError> {
        Ok(tables::Agents::of(self.store()).tokens(after, limit).await?)
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// [`AgentError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn delete_token(&self, id: Uuid, actor: &str) -> Result<(), AgentError> {
        let event = self.event(actor, "agent_token.delete", format!("agent-token/{id}"), json!({}));
        let done = self
            .store()
            .write("agent_token_delete", move |tx| {
                async move {
                    let done = tables::delete_agent_token(tx, id).await?;
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if done { Ok(()) } else { Err(AgentError::NotFound("enrolment token")) }
    }

    /// Enrols a host as an agent. A repeated request with the same token and key, after a lost response, returns the same agent.
    ///
    /// # Errors
    /// [`EnrolError`].
    #[crate::boxed]
    pub async fn enroll(&self, request: &Enrolment) -> Result<Enrolled, EnrolError> {
        let key = ProvedKey::from_csr(&request.csr_pem).map_err(EnrolError::Csr)?;
        let hash = hash_of(&request.token);
        let agent = match self.enrolled_agent(&hash, &key.sha256).await? {
            Some(agent) => agent,
            None => self.enter(request, hash, key.sha256).await?,
        };
        let idempotency_key = key.idempotency_key(KIND, agent.id);
        self.certificate_for(&agent, key.spki, idempotency_key).await.map_err(EnrolError::from)
    }

    /// Issues the next certificate of an agent, for the same key.
    ///
    /// # Errors
    /// [`EnrolError`].
    #[crate::boxed]
    pub async fn renew(&self, agent: Uuid, csr_pem: &str) -> Result<Enrolled, EnrolError> {
        let key = ProvedKey::from_csr(csr_pem).map_err(EnrolError::Csr)?;
        let row = self.agent(agent).await?;
        if row.retired_at_us.is_some() {
            return Err(AgentError::Retired.into());
        }
        if row.spki_sha256 != key.sha256 {
            return Err(AgentError::OtherKey.into());
        }
        // The current certificate's expiry identifies this renewal: a repeated request gets the same certificate.
        let idempotency_key = format!("agent:{agent}:renew:{}", row.not_after_us);
        self.certificate_for(&row, key.spki, idempotency_key).await.map_err(EnrolError::from)
    }

    async fn certificate_for(
        &self,
        agent: &AgentRow,
        spki: Vec<u8>,
        idempotency_key: String,
    ) -> Result<Enrolled, AgentError> {
        let names = vec![GeneralName::Uri(agent_uri(agent.id))];
        let certified = self.parts().certify.certify(names, spki, idempotency_key).await?;
        let (id, key, until) = (agent.id, agent.spki_sha256, certified.not_after_us);
        self.store()
            .write("agent_certified", move |tx| {
                async move { tables::set_agent_certificate(tx, id, &key, until).await }.boxed()
            })
            .await?;
        Ok(Enrolled {
            agent: agent.id,
            name: agent.name.clone(),
            certificate_pem: certified.chain_pem,
            ca_pem: self.parts().ca_pem.pem(),
        })
    }

    /// Returns the agent that was already enrolled with this token and key.
    async fn enrolled_agent(
        &self,
        hash: &[u8; 32],
        spki_sha256: &[u8; 32],
    ) -> Result<Option<AgentRow>, StoreError> {
        let Some(agent) = tables::Agents::of(self.store()).of_key(spki_sha256).await? else {
            return Ok(None);
        };
        let made = tables::Agents::of(self.store()).of_token(hash, self.now_us()).await?;
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
        let requested_name = request.name.clone().unwrap_or_else(|| facts.hostname.clone());
        let requested_name =
            if check_name(&requested_name).is_ok() { requested_name } else { format!("agent-{id}") };
        let mut row = AgentRow {
            id,
            name: requested_name,
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
                identity: identity_of(KIND, id, &agent_uri(id), &self.parts().identity, now),
                event: self.event(&format!("agent:{id}"), "agent.enroll", format!("agent/{id}"), json!({})),
            };
            let entered = self.store().write("agent_enroll", move |tx| enter(tx, new).boxed()).await?;
            match entered {
                Entered::Done(labels) => return Ok(AgentRow { labels, ..row }),
                Entered::BadToken => return Err(EnrolError::Token),
                Entered::Taken => row.name = suffixed_name(&row.name, id),
            }
        }
        Err(AgentError::NameTaken(row.name).into())
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

/// Stores token, agent, identity and audit entry in one transaction. A taken name does not use up the token.
async fn enter(tx: &mut Tx, mut new: NewAgent) -> Result<Entered, StoreError> {
    let at = new.row.enrolled_at_us;
    if tables::is_agent_taken(tx, &new.row.name, &new.row.spki_sha256).await? {
        return Ok(Entered::Taken);
    }
    let Some(token) = tables::use_agent_token(tx, &new.token, at, new.row.id).await? else {
        return Ok(Entered::BadToken);
    };
    new.row.labels = token.labels;
    let labels: Vec<_> = labels_of(&new.row.labels).into_iter().collect();
    let entered = tables::insert_agent(tx, &new.row, &labels).await?;
    let known = store::insert_identity(tx, &new.identity).await?;
    if !entered || known != AccessChange::Done {
        return Err(StoreError::Corrupt(
            "another request enrolled the agent at the same time; try again".to_owned(),
        ));
    }
    new.event.details = json!({"name": new.row.name, "token": token.id, "token_by": token.created_by});
    store::audit(tx, vec![new.event]).await?;
    Ok(Entered::Done(new.row.labels))
}
