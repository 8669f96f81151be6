//! Retention: moves old events from the rows into sealed segments, and deletes the lines of older segments. Their heads stay.
//!
//! Each step is one transaction. A crash between two steps leaves rows of events that are already sealed. The next step deletes
//! them.

use api::audit::SegmentHead;
use audit_proof::event::{Event, genesis};
use audit_proof::segment::{self, SegmentBuilder, SegmentError};
use flate2::write::DeflateEncoder;
use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, AuditRow, DAY_US, StoreError, Tx, new_event};
use uuid::Uuid;
use x509::Fingerprint;

use crate::body;
use crate::error::AuditError;
use crate::log::AuditLog;
use crate::signing;
use crate::tables::{self, NewSegment, Segments};

/// Number of events deleted by one statement, which takes about 100 ms.
const TRIM_ROWS: usize = 5_000;
/// Number of events read at a time: a few MiB.
const READ_ROWS: usize = 4_096;
/// Maximum days for which due events wait for a full segment. Then a partial segment is sealed, so that a chain gets at least one
/// segment a week.
const SPAN_DAYS: i64 = 7;

/// Result of one step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// No work is due.
    Nothing,
    /// Rows of sealed events were deleted; contains the number of rows.
    Trimmed(u64),
    /// A segment was sealed; contains the number of the segment.
    Sealed(u64),
    /// The lines of a segment were deleted; contains the number of the segment.
    Pruned(u64),
}

impl AuditLog {
    /// Runs one step of the retention policy: seals or prunes at most one segment, or deletes 5,000 rows.
    ///
    /// # Errors
    /// [`AuditError`]. A broken chain is not sealed and raises an alert.
    #[crate::boxed]
    pub async fn retain(&self) -> Result<Step, AuditError> {
        let now_us = self.parts.clock.now_us();
        let retention = self.parts.options.retention;
        let days_before = |days: u32| now_us.saturating_sub(i64::from(days).saturating_mul(DAY_US));
        let mut broken = None;
        for head in self.parts.store.audit_heads().await? {
            let end = Segments::of(&self.parts.store).end(head.shard).await?;
            let first = self.parts.store.audit_chain_page(head.shard, 0, 1).await?;
            let Some(first) = first.first() else { continue };
            if first.sequence <= end.0 {
                let deleted = self.parts.store.audit_trim(head.shard, end.0, TRIM_ROWS).await?;
                return Ok(Step::Trimmed(deleted));
            }
            let Some(days) = retention.seal_after_days else { continue };
            let before_us = days_before(days);
            match self.seal(head.shard, end, before_us, first.at_us).await {
                Ok(Some(number)) => return Ok(Step::Sealed(number)),
                Ok(None) => {}
                // A broken chain does not stop the sealing of other chains.
                Err(error @ AuditError::Segment(SegmentError::Broken { .. })) => broken = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let Some(days) = retention.prune_after_days
            && let Some(number) =
                Segments::of(&self.parts.store).next_prunable_segment(days_before(days)).await?
        {
            return self.prune(number, now_us).await;
        }
        match broken {
            Some(error) => {
                self.emit_audit_broken(&error).await?;
                Err(error)
            }
            None => Ok(Step::Nothing),
        }
    }

    /// Seals the events of a chain after `end` that are older than `before_us`, if they fill a segment or are overdue
    /// ([`SPAN_DAYS`]).
    async fn seal(
        &self,
        shard: i64,
        end: (i64, [u8; 32]),
        before_us: i64,
        first_us: i64,
    ) -> Result<Option<u64>, AuditError> {
        // An event from a clock that was once wrong must not block sealing.
        let latest_us = self.parts.clock.now_us().saturating_add(DAY_US);
        let is_young = |at_us: i64| (before_us..=latest_us).contains(&at_us);
        if is_young(first_us) {
            return Ok(None);
        }
        let options = self.parts.options.retention;
        let days = i64::from(options.seal_after_days.unwrap_or(0));
        let is_due = first_us < before_us.saturating_sub(SPAN_DAYS.min(days) * DAY_US);
        if !is_due && !self.is_full(shard, end.0, before_us).await? {
            return Ok(None);
        }
        let signed = self.signed_points(shard, end.0).await?;
        let before = Fingerprint::from_bytes(end.1);
        let mut builder = SegmentBuilder::new(body::compressor(), options.reads, shard, end.0, before);
        'pages: loop {
            let page = self.parts.store.audit_chain_page(shard, builder.end().0, READ_ROWS).await?;
            let is_last = page.len() < READ_ROWS;
            for row in page {
                if is_young(row.at_us) || builder.records() >= options.records_max as u64 {
                    break 'pages;
                }
                let point = signed.get(&(shard, row.sequence));
                builder.push(event_of(row), point)?;
            }
            if is_last {
                break;
            }
        }
        if builder.records() == 0 {
            return Ok(None);
        }
        self.store_segment(builder).await.map(Some)
    }

    /// Returns whether a chain has a full segment of events after `last` that are older than `before_us`. Reads only the segment's
    /// last event.
    async fn is_full(&self, shard: i64, last: i64, before_us: i64) -> Result<bool, StoreError> {
        let records = i64::try_from(self.parts.options.retention.records_max).unwrap_or(i64::MAX);
        let end = self.parts.store.audit_chain_page(shard, last.saturating_add(records - 1), 1).await?;
        Ok(end.first().is_some_and(|row| row.at_us < before_us))
    }

    async fn store_segment(
        &self,
        builder: SegmentBuilder<DeflateEncoder<Vec<u8>>>,
    ) -> Result<u64, AuditError> {
        let newest = Segments::of(&self.parts.store).newest().await?;
        let number = newest.as_ref().map_or(1, |row| row.number.unsigned_abs() + 1);
        let previous = newest.map_or_else(genesis, |row| Fingerprint::of(row.head.as_bytes()));
        let (records, ends_at_us, (last, hash)) = (builder.records(), builder.ends_at_us(), builder.end());
        let (head, compressed) = builder.finish(number, &previous.to_string())?;
        let head = self.sign_segment(head).await?;
        let compressed = compressed.finish().map_err(SegmentError::Write)?;
        let (id, line) = (Uuid::now_v7(), segment::line(&head));
        let (data_key, body) = body::seal(&self.parts.keystore, id, &line, &compressed)?;
        let event = AuditEvent {
            at_us: self.parts.clock.now_us(),
            actor: "system:audit".to_owned(),
            action: "audit.seal",
            resource: format!("audit_segment/{number}"),
            details: json!({ "chain": head.shard, "first": head.first, "last": head.last, "events": records }),
        };
        let row = NewSegment {
            number: number.cast_signed(),
            id,
            shard: head.shard,
            last,
            hash: *hash.as_bytes(),
            ends_at_us,
            head: line,
            data_key,
            body,
        };
        let stored = self
            .parts
            .store
            .write("audit_seal", move |tx| async move { store(tx, row, event).await }.boxed());
        stored.await?;
        Ok(number)
    }

    /// Returns the hashes that signed heads contain for the chain `shard`, after the position `after`.
    async fn signed_points(
        &self,
        shard: i64,
        after: i64,
    ) -> Result<std::collections::BTreeMap<(i64, i64), Fingerprint>, AuditError> {
        let (mut points, mut number) = (std::collections::BTreeMap::new(), 0);
        loop {
            let heads = self.heads_after(number).await?;
            let Some(last) = heads.last() else { return Ok(points) };
            number = last.sequence;
            let mut found = signing::chain_points(&heads)?;
            found.retain(|(of, sequence), _| *of == shard && *sequence > after);
            points.append(&mut found);
        }
    }

    async fn prune(&self, number: i64, now_us: i64) -> Result<Step, AuditError> {
        let event = AuditEvent {
            at_us: now_us,
            actor: "system:audit".to_owned(),
            action: "audit.prune",
            resource: format!("audit_segment/{number}"),
            details: json!({}),
        };
        let pruned = self.parts.store.write("audit_prune", move |tx| {
            async move {
                let done = tables::prune_segment(tx, number, now_us).await?;
                store::audit_if(tx, done, event).await
            }
            .boxed()
        });
        pruned.await?;
        Ok(Step::Pruned(number.unsigned_abs()))
    }

    async fn emit_audit_broken(&self, error: &AuditError) -> Result<(), StoreError> {
        let broken = events::Event::AuditBroken(events::AuditBroken { detail: error.to_string() });
        let event = new_event(self.parts.clock.now_us(), "audit/log".to_owned(), &broken);
        let written = self
            .parts
            .store
            .write("audit_broken", move |tx| async move { store::emit(tx, vec![event]).await }.boxed());
        written.await
    }

    /// Returns the head of a segment, and its lines.
    ///
    /// # Errors
    /// [`AuditError::NoSegment`], [`AuditError::Pruned`]; other variants of [`AuditError`].
    #[crate::boxed]
    pub async fn segment(&self, number: u64) -> Result<(SegmentHead, String), AuditError> {
        let stored = Segments::of(&self.parts.store).body(number.cast_signed()).await?;
        let stored = stored.ok_or(AuditError::NoSegment(number))?;
        let head = read_head(number.cast_signed(), &stored.head)?;
        let keystore = self.parts.keystore.clone();
        let opened = tokio::task::spawn_blocking(move || body::open(&keystore, number, stored)).await;
        let opened =
            opened.map_err(|_| AuditError::Damaged(format!("segment {number} could not be read")))?;
        Ok((head, opened?))
    }
}

pub(crate) fn read_head(number: i64, text: &str) -> Result<SegmentHead, AuditError> {
    serde_json::from_str(text).map_err(|error| {
        AuditError::Damaged(format!("the head of segment {number} cannot be parsed: {error}"))
    })
}

/// Stores a segment and its audit row in one transaction.
async fn store(tx: &mut Tx, row: NewSegment, event: AuditEvent) -> Result<(), StoreError> {
    if !tables::insert_segment(tx, row).await? {
        return Err(StoreError::Stale("another node sealed a segment".to_owned()));
    }
    store::audit(tx, vec![event]).await
}

fn event_of(row: AuditRow) -> Event {
    Event {
        shard: row.shard,
        sequence: row.sequence,
        at_us: row.at_us,
        actor: row.actor,
        action: row.action,
        resource: row.resource,
        details: row.details,
        hash: Fingerprint::from_bytes(row.hash),
    }
}
