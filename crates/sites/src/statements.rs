//! Signed statements about nodes.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use keyless::places::{SignedStatement, Statement};
use keys::sealed::KemPublic;
use keys::{KeyRef, KeyType};
use serde_json::json;
use uuid::Uuid;
use x509::SpkiHash;

use crate::directory::Sites;
use crate::error::SiteError;
use crate::nodes::attributes_of;
use crate::tables;
use crate::tables::{NewStatement, NodeRow};

/// Lifetime of a statement in µs. Short, so that outdated statements expire soon.
const LIFE_US: i64 = 3_600 * 1_000_000;
/// A statement is renewed at the earliest after its lifetime divided by this number.
const RENEW_AFTER: i64 = 2;
/// Renewals are spread over the lifetime divided by this number, so that not all are in the same round.
const SPREAD: i64 = 8;
/// Maximum number of statements signed in a round, at 20 µs each.
const ROUND_MAX: usize = 1_000;
/// Timeout of one signature. A key in a security module may take this long.
const SIGN_WITHIN: Duration = Duration::from_secs(5);
/// Actor in the audit log.
const ACTOR: &str = "system:nodes";

impl Sites {
    /// Signs new statements about the nodes for which one is due. Returns their number.
    pub(super) async fn sign_due(&self) -> Result<usize, SiteError> {
        let rows = tables::SiteTables::of(self.store()).nodes_to_sign(self.now_us(), ROUND_MAX).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        self.sign(&rows).await.map(|statements| statements.len())
    }

    /// Signs and stores the next statements of these nodes.
    pub(super) async fn sign(&self, rows: &[NodeRow]) -> Result<Vec<SignedStatement>, SiteError> {
        let signer = self.statement_signer().await?;
        let now = self.now_us();
        let (mut signed, mut new) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        for row in rows {
            let Some(mut statement) = statement_of(row, now) else { continue };
            if let Some(end) = last_statement_end(row).filter(|_| !row.present) {
                // The other nodes use a silent node until its statement expires. A new statement must not extend that time.
                statement.not_after_s = end;
            }
            let one = statement.sign(&*signer, Instant::now() + SIGN_WITHIN).await?;
            new.push(NewStatement {
                node: row.id,
                statement: json!(one).to_string(),
                made_from: (row.sign_at_us, row.changed),
                sign_at_us: next_at(row.id, now),
            });
            signed.push(one);
        }
        self.store().write("key_node_statements", move |tx| tables::put_statements(tx, new).boxed()).await?;
        Ok(signed)
    }

    /// Returns the key that signs statements. It is generated on first use, by one of the servers.
    pub(super) async fn statement_signer(&self) -> Result<KeyRef, SiteError> {
        let id = self.0.signer.get_or_try_init(|| self.signer_id()).await?;
        Ok(self.parts().keystore.signer(*id).await?)
    }

    async fn signer_id(&self) -> Result<Uuid, SiteError> {
        if let Some(id) = tables::SiteTables::of(self.store()).statement_signer().await? {
            return Ok(id);
        }
        let new = self.parts().keystore.prepare(KeyType::Ed25519, "statements about nodes").await?;
        let (id, row) = (new.row.id, new.row);
        let event = self.event(ACTOR, "key.generate", format!("key/{id}"), json!({"label": row.label}));
        self.store()
            .write("key_statement_signer", move |tx| {
                async move {
                    if tables::claim_statement_signer(tx, id).await? {
                        store::insert_key(tx, &row).await?;
                        store::audit(tx, vec![event]).await?;
                    }
                    Ok(())
                }
                .boxed()
            })
            .await?;
        let claimed = tables::SiteTables::of(self.store()).statement_signer().await?;
        claimed.ok_or(SiteError::NotFound("statement signing key"))
    }
}

/// Builds the next statement about a node. Returns `None` and logs a warning if the stored data is malformed.
fn statement_of(row: &NodeRow, now_us: i64) -> Option<Statement> {
    let kem = KemPublic::parse(&row.kem);
    let kem = kem.inspect_err(
        |error| tracing::error!(node = row.name, %error, "the stored KEM public key is invalid"),
    );
    Some(Statement {
        node: row.id,
        name: row.name.clone(),
        site: row.site_name.clone(),
        address: row.address.clone(),
        kem: kem.ok()?,
        tls_spki_sha256: SpkiHash::from_bytes(row.spki_sha256),
        attributes: attributes_of(row),
        issued_at_s: now_us / 1_000_000,
        not_after_s: now_us.saturating_add(LIFE_US) / 1_000_000,
    })
}

/// Returns the end of the node's last statement, in seconds since 1970-01-01 UTC. `None` if there is none yet.
fn last_statement_end(row: &NodeRow) -> Option<i64> {
    serde_json::from_str::<SignedStatement>(&row.statement).ok()?.end_s()
}

fn next_at(node: Uuid, now_us: i64) -> i64 {
    let spread = i64::from(node.as_bytes()[15]) * (LIFE_US / SPREAD) / 256;
    now_us.saturating_add(LIFE_US / RENEW_AFTER + spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_is_renewed_after_half_to_three_quarters_of_its_lifetime() {
        for last in [0, 128, 255] {
            let next = next_at(Uuid::from_u128(last), 0);
            assert!((LIFE_US / 2..LIFE_US * 3 / 4).contains(&next), "{last}: {next}");
        }
    }
}
