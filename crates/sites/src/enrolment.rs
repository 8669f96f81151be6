//! Enrolment of a host as a node: a single-use token, keys generated on the host, a certificate and a statement from the server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use enrollment::{ProvedKey, Token, check_seconds, hash_of, identity_of, suffixed_name};
use futures_util::FutureExt;
use keyless::places::{Attributes, BadAttribute, SignedStatement};
use keys::sealed::KemPublic;
use serde_json::json;
use store::{AccessChange, AuditEvent, Cursor, NewIdentity, Page, StoreError, Tx};
use uuid::Uuid;
use x509::{GeneralName, KeyAlgorithm};
use zeroize::Zeroizing;

use super::{node_domain, node_uri};
use crate::directory::{NODES_MAX, Sites, check_site_name, stored_attributes, to_store};
use crate::error::SiteError;
use crate::nodes::check_address;
use crate::tables;
use crate::tables::{NodeRow, NodeTokenRow};
use crate::work::{EnrolledNode, NodeEnrolment};

/// Prefix of every token, so that secret scanners recognize a leaked one.
const TOKEN_PREFIX: &str = "bulla-node-";
/// Kind of the identities of nodes. Their role has the same name.
const KIND: &str = "node";
/// Number of names tried when the requested one is taken.
const NAMES_TRIED: usize = 2;

/// Parameters of a new join token: site, attributes and lifetime.
#[derive(Clone, Debug)]
pub struct NewNodeToken {
    /// Name or id of the site.
    pub site: String,
    /// The node's own attributes, in addition to its site's.
    pub attributes: Attributes,
    /// Lifetime in seconds, at most a month.
    pub seconds: i64,
}

/// A new join token for one node, with its secret.
#[derive(Debug)]
pub struct CreatedNodeToken {
    /// The secret token, to be shown once.
    pub token: Zeroizing<String>,
    /// The stored row, without the secret.
    pub row: NodeTokenRow,
}

impl Sites {
    /// Creates a token that enrols one host as a node at a site.
    ///
    /// # Errors
    /// [`SiteError`].
    #[crate::boxed]
    pub async fn create_token(&self, new: NewNodeToken, actor: &str) -> Result<CreatedNodeToken, SiteError> {
        check_seconds(new.seconds).map_err(SiteError::Invalid)?;
        let site = self.site(&new.site).await?;
        stored_attributes(&site.attributes).with(&new.attributes)?;
        let made = Token::make(TOKEN_PREFIX).map_err(SiteError::Invalid)?;
        let now = self.now_us();
        let row = NodeTokenRow {
            id: Uuid::now_v7(),
            site: site.id,
            site_name: site.name,
            attributes: to_store(&new.attributes),
            created_by: actor.to_owned(),
            created_at_us: now,
            expires_at_us: now.saturating_add(new.seconds * 1_000_000),
            used_at_us: None,
            node: None,
        };
        let details = json!({"site": row.site_name, "attributes": new.attributes, "seconds": new.seconds});
        let event = self.event(actor, "key_node_token.create", format!("key-node-token/{}", row.id), details);
        let (stored, hash) = (row.clone(), made.hash);
        let done = self
            .store()
            .write("key_node_token", move |tx| {
                async move {
                    // The site may be deleted meanwhile, together with its tokens.
                    if tables::lock_site(tx, stored.site).await?.is_none() {
                        return Ok(false);
                    }
                    tables::insert_node_token(tx, &stored, &hash).await?;
                    store::audit_if(tx, true, event).await
                }
                .boxed()
            })
            .await?;
        if done { Ok(CreatedNodeToken { token: made.text, row }) } else { Err(SiteError::NotFound("site")) }
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
    ) -> Result<Page<NodeTokenRow>, SiteError> {
        Ok(tables::SiteTables::of(self.store()).node_tokens(after, limit).await?)
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// [`SiteError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn delete_token(&self, id: Uuid, actor: &str) -> Result<(), SiteError> {
        let event = self.event(actor, "key_node_token.delete", format!("key-node-token/{id}"), json!({}));
        let done = self
            .store()
            .write("key_node_token_delete", move |tx| {
                async move {
                    let done = tables::delete_node_token(tx, id).await?;
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if done { Ok(()) } else { Err(SiteError::NotFound("node token")) }
    }

    /// Enrols a host as a node. A repeated request with the same token and keys, after a lost response, returns the same node.
    ///
    /// # Errors
    /// [`SiteError`].
    #[crate::boxed]
    pub async fn enroll(&self, request: &NodeEnrolment) -> Result<EnrolledNode, SiteError> {
        let key = ProvedKey::from_csr(&request.csr_pem).map_err(SiteError::Csr)?;
        // Checked before the token is used: the CA would reject the key afterwards.
        if key.algorithm != KeyAlgorithm::EcP256 {
            return Err(SiteError::Csr(format!(
                "a node needs a P-256 key, but this key is {}",
                key.algorithm
            )));
        }
        let kem =
            KemPublic::from_text(&request.kem).map_err(|error| SiteError::Invalid(error.to_string()))?;
        check_address(&request.address)?;
        let hash = hash_of(&request.token);
        let node = match self.enrolled_before(&hash, &key.sha256, &kem).await? {
            Some(node) => node,
            None => self.enter(request, hash, key.sha256, &kem).await?,
        };
        let idempotency_key = key.idempotency_key(KIND, node.id);
        let enrolled = self.certificate_for(&node, key.spki, idempotency_key).await?;
        self.update_view().await?;
        Ok(enrolled)
    }

    /// Issues the next certificate of a node, for the same key.
    ///
    /// # Errors
    /// [`SiteError`].
    #[crate::boxed]
    pub async fn renew(&self, node: Uuid, csr_pem: &str) -> Result<EnrolledNode, SiteError> {
        let key = ProvedKey::from_csr(csr_pem).map_err(SiteError::Csr)?;
        let row = self.node(node).await?;
        if row.retired_at_us.is_some() {
            return Err(SiteError::Retired);
        }
        if row.spki_sha256 != key.sha256 {
            return Err(SiteError::OtherKey);
        }
        // The current certificate's expiry identifies this renewal: a repeated request gets the same certificate.
        let idempotency_key = format!("node:{node}:renew:{}", row.not_after_us);
        self.certificate_for(&row, key.spki, idempotency_key).await
    }

    async fn certificate_for(
        &self,
        node: &NodeRow,
        spki: Vec<u8>,
        idempotency_key: String,
    ) -> Result<EnrolledNode, SiteError> {
        let names = vec![GeneralName::Uri(node_uri(node.id)), GeneralName::Dns(node_domain(node.id))];
        let certified = self.parts().certify.certify(names, spki, idempotency_key).await?;
        let (id, key, until) = (node.id, node.spki_sha256, certified.not_after_us);
        self.store()
            .write("key_node_certified", move |tx| {
                async move { tables::node_certified(tx, id, &key, until).await }.boxed()
            })
            .await?;
        let signer = self.statement_signer().await?;
        Ok(EnrolledNode {
            node: node.id,
            name: node.name.clone(),
            site: node.site_name.clone(),
            certificate_pem: certified.chain_pem,
            ca_pem: self.parts().ca_pem.pem(),
            statement: self.statement_about(node).await?,
            statement_key: STANDARD.encode(signer.spki()),
        })
    }

    /// Returns the current statement about a node.
    async fn statement_about(&self, node: &NodeRow) -> Result<SignedStatement, SiteError> {
        if node.sign_at_us > self.now_us()
            && let Ok(statement) = serde_json::from_str(&node.statement)
        {
            return Ok(statement);
        }
        let signed = self.sign(std::slice::from_ref(node)).await?;
        signed.into_iter().next().ok_or(SiteError::NotFound("node"))
    }

    /// Returns the node that was already enrolled with this token and these keys.
    async fn enrolled_before(
        &self,
        hash: &[u8; 32],
        spki_sha256: &[u8; 32],
        kem: &KemPublic,
    ) -> Result<Option<NodeRow>, SiteError> {
        let Some(node) = tables::SiteTables::of(self.store()).node_of_key(spki_sha256).await? else {
            return Ok(None);
        };
        let made = tables::SiteTables::of(self.store()).node_of_token(hash, self.now_us()).await?;
        if made != Some(node.id) || node.retired_at_us.is_some() {
            return Ok(None);
        }
        if node.kem != kem.as_bytes() {
            return Err(SiteError::OtherKey);
        }
        Ok(Some(node))
    }

    async fn enter(
        &self,
        request: &NodeEnrolment,
        hash: [u8; 32],
        spki_sha256: [u8; 32],
        kem: &KemPublic,
    ) -> Result<NodeRow, SiteError> {
        let (now, id) = (self.now_us(), Uuid::now_v7());
        let mut name = request.name.clone().unwrap_or_else(|| format!("node-{id}"));
        check_site_name(&name)?;
        for _ in 0..NAMES_TRIED {
            let row = NodeRow {
                id,
                name: name.clone(),
                site: Uuid::nil(),
                site_name: String::new(),
                site_attributes: "{}".to_owned(),
                attributes: "{}".to_owned(),
                address: request.address.clone(),
                kem: kem.as_bytes().to_vec(),
                spki_sha256,
                not_after_us: now,
                statement: String::new(),
                sign_at_us: 0,
                revision: 1,
                changed: 0,
                enrolled_at_us: now,
                retired_at_us: None,
                hostile: false,
                lease_until_us: 0,
                present: false,
            };
            let new = NewNode {
                row,
                token: hash,
                identity: identity_of(KIND, id, &node_uri(id), &self.parts().identity, now),
                event: self.event(
                    &format!("node:{id}"),
                    "key_node.enroll",
                    format!("key-node/{id}"),
                    json!({}),
                ),
            };
            match self.store().write("key_node_enroll", move |tx| enter(tx, new).boxed()).await? {
                EnrollOutcome::Done(row) => return Ok(*row),
                EnrollOutcome::BadToken => return Err(SiteError::Token),
                EnrollOutcome::Full => return Err(SiteError::Full { what: "nodes", max: NODES_MAX }),
                EnrollOutcome::Misfit(error) => {
                    return Err(SiteError::Invalid(format!(
                        "the site has changed since the token was created (combined attributes: {error}): create a new token"
                    )));
                }
                EnrollOutcome::Taken => name = suffixed_name(&name, id),
            }
        }
        let holder = tables::SiteTables::of(self.store()).node_of_key(&spki_sha256).await?;
        Err(if holder.is_some() { SiteError::KeyTaken } else { SiteError::NameTaken(name) })
    }
}

struct NewNode {
    row: NodeRow,
    token: [u8; 32],
    identity: NewIdentity,
    event: AuditEvent,
}

enum EnrollOutcome {
    Done(Box<NodeRow>),
    BadToken,
    Taken,
    Full,
    /// The attributes of the site and of the token cannot be combined.
    Misfit(BadAttribute),
}

/// Stores token, node, identity and audit entry in one transaction. A taken name does not use up the token.
async fn enter(tx: &mut Tx, mut new: NewNode) -> Result<EnrollOutcome, StoreError> {
    use crate::tables as places;
    let (at, row) = (new.row.enrolled_at_us, &mut new.row);
    if places::is_node_taken(tx, &row.name, &row.spki_sha256).await? {
        return Ok(EnrollOutcome::Taken);
    }
    if places::live_nodes(tx, None).await? >= NODES_MAX {
        return Ok(EnrollOutcome::Full);
    }
    let Some(token) = places::node_token(tx, &new.token, at).await? else {
        return Ok(EnrollOutcome::BadToken);
    };
    // Locks the site until the commit. Locked before the token is written, in the same order as a deletion of the site.
    let Some(site) = places::lock_site(tx, token.site).await? else { return Ok(EnrollOutcome::BadToken) };
    if let Err(error) = stored_attributes(&site.attributes).with(&stored_attributes(&token.attributes)) {
        return Ok(EnrollOutcome::Misfit(error));
    }
    let Some(token) = places::use_node_token(tx, &new.token, at, row.id).await? else {
        return Ok(EnrollOutcome::BadToken);
    };
    (row.site, row.site_name, row.site_attributes) = (site.id, site.name, site.attributes);
    row.attributes = token.attributes;
    row.changed = places::take_changes(tx, 1).await?;
    let inserted = places::insert_node(tx, row).await?;
    let known = store::insert_identity(tx, &new.identity).await?;
    if !inserted || known != AccessChange::Done {
        return Err(StoreError::Corrupt(
            "another request enrolled the node at the same time; try again".to_owned(),
        ));
    }
    new.event.details = json!({
        "name": row.name, "site": row.site_name, "address": row.address, "token": token.id, "token_by": token.created_by,
    });
    store::audit(tx, vec![new.event]).await?;
    Ok(EnrollOutcome::Done(Box::new(new.row)))
}
