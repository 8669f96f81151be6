//! Delivery of signed heads to witnesses.
//!
//! Each witness gets every head in order, starting with the newest at the time it was configured. The database stores the position
//! of each witness: a head is sent again until the witness accepts it.

use events::{AuditWitness, Event};
use futures_util::FutureExt;
use store::{StoreError, new_event};

use crate::error::AuditError;
use crate::log::AuditLog;
use crate::signing;
use crate::tables::{self, Heads, WitnessRow};
use crate::witness::Witness;

/// Maximum number of heads sent to a witness before the other witnesses get their turn.
const SENT_AT_ONCE: usize = 100;

impl AuditLog {
    /// Sends each witness the heads that it lacks. A failing witness raises an alert and is retried later.
    ///
    /// # Errors
    /// Database errors. A failing witness is not an error.
    #[crate::boxed]
    pub async fn send_to_witnesses(&self) -> Result<(), AuditError> {
        for witness in &self.witnesses.all {
            if self.witnesses.is_due(witness.name(), self.parts.clock.now_us()).await {
                self.send_to(witness.as_ref()).await?;
            }
        }
        Ok(())
    }

    async fn send_to(&self, witness: &dyn Witness) -> Result<(), AuditError> {
        let name = witness.name();
        let Some((newest, _)) = Heads::of(&self.parts.store).newest().await? else { return Ok(()) };
        let known = Heads::of(&self.parts.store).witness(name).await?;
        let mut row = known.unwrap_or_else(|| WitnessRow {
            name: name.to_owned(),
            sequence: newest - 1,
            failing_since_us: None,
            error: None,
        });
        if newest < row.sequence {
            let has = row.sequence;
            let error = format!(
                "the witness has signed head {has}, but the database has only heads up to {newest}: heads were deleted, or \
                 an older backup was restored in part"
            );
            return self.failed(name, row, error).await;
        }
        for (number, document) in Heads::of(&self.parts.store).after(row.sequence, SENT_AT_ONCE).await? {
            // Send only documents that parse.
            signing::read(number, &document)?;
            match witness.send(&document).await {
                Ok(()) => {
                    self.witnesses.clear_retry(name).await;
                    let recovered = row.failing_since_us.take().is_some();
                    (row.sequence, row.error) = (number, None);
                    self.store_row(
                        row.clone(),
                        recovered.then(|| Event::AuditWitnessRecovered(build_audit_witness(name, None))),
                    )
                    .await?;
                }
                Err(error) => return self.failed(name, row, error).await,
            }
        }
        Ok(())
    }

    async fn failed(&self, name: &'static str, mut row: WitnessRow, error: String) -> Result<(), AuditError> {
        tracing::warn!(witness = name, %error, "a witness of the audit log did not accept a signed head");
        let now_us = self.parts.clock.now_us();
        self.witnesses.failed(name, now_us).await;
        let is_new = row.failing_since_us.is_none();
        row.failing_since_us.get_or_insert(now_us);
        row.error = Some(error.clone());
        let event = Event::AuditWitnessFailing(build_audit_witness(name, Some(error)));
        Ok(self.store_row(row, is_new.then_some(event)).await?)
    }

    /// Stores the position of a witness and its event in one transaction.
    async fn store_row(&self, row: WitnessRow, event: Option<Event>) -> Result<(), StoreError> {
        let subject = format!("audit_witness/{}", row.name);
        let now_us = self.parts.clock.now_us();
        let outbox_events: Vec<_> =
            event.iter().map(|event| new_event(now_us, subject.clone(), event)).collect();
        let written = self.parts.store.write("audit_witness", move |tx| {
            async move {
                tables::put_witness(tx, row).await?;
                store::emit(tx, outbox_events).await
            }
            .boxed()
        });
        written.await
    }
}

fn build_audit_witness(name: &str, error: Option<String>) -> AuditWitness {
    AuditWitness { name: name.to_owned(), error }
}
