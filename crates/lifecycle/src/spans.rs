//! Spans of managed certificates. The trace ID is the ID of the certificate, and the root span is the creation or the claim. Every
//! process derives the IDs of spans from the IDs of certificates and runs, so a trace continues after a restart, on another server,
//! and on agents.

use std::collections::HashMap;

use events::Event;
use store::states::{JobKind, JobState};
use telemetry::spans::{Span, TraceParent};
use uuid::Uuid;

use crate::job::{JobId, id_of, run_of, target_of};
use crate::tables::jobs::{JobChange, JobRow};
use crate::tables::managed::ManagedRow;

/// Returns the root span of a certificate's trace.
pub(crate) fn root(certificate: Uuid) -> TraceParent {
    TraceParent::of_object(certificate.as_u128())
}

/// Returns the span of a run, in the trace of its certificate.
pub(crate) fn run(certificate: Uuid, job: JobId) -> TraceParent {
    root(certificate).object_span(job.0.as_u128())
}

/// The ID and the name of a certificate, for the attributes of its spans.
struct SpanSubject {
    certificate: Uuid,
    name: String,
}

/// The spans of a transaction. They are created after its writes.
#[derive(Default)]
pub(crate) struct PendingSpans {
    known: HashMap<i64, SpanSubject>,
    /// Row id of the certificate, and its span. The parent is the run that the transaction ends; without such a run, the root.
    steps: Vec<(i64, Span)>,
    roots: Vec<Span>,
}

impl PendingSpans {
    /// Records the ID and the name of a certificate that the transaction may change.
    pub(crate) fn add_subject(&mut self, row: &ManagedRow) {
        if telemetry::spans::is_installed() {
            let subject = || SpanSubject { certificate: row.uuid, name: row.name.clone() };
            self.known.entry(row.id).or_insert_with(subject);
        }
    }

    /// Adds the span of a creation, of a claim, or of a change of the served version. Ignores other events.
    pub(crate) fn add(&mut self, row: &ManagedRow, event: &Event, at_us: i64) {
        if !telemetry::spans::is_installed() {
            return;
        }
        let root = root(row.uuid);
        let span =
            |at, parent, name| Span::new(at, parent, name, at_us, at_us).with("bulla.certificate", &row.name);
        match event {
            Event::CertificateCreated(created) => {
                self.roots.push(span(root, 0, "create").with("bulla.actor", &created.actor));
            }
            Event::CertificateClaimed(claimed) => {
                let found = TraceParent::of_hash(claimed.fingerprint.as_bytes());
                let claim = span(root, 0, "claim").linked(found);
                self.roots.push(claim.with("bulla.fingerprint", claimed.fingerprint.to_string()));
            }
            Event::CertificateServed(served) => {
                let fingerprint = served.fingerprint.map_or_else(String::new, |leaf| leaf.to_string());
                let at = root.child(telemetry::spans::random_id());
                let served = span(at, root.parent(), "served").with("bulla.fingerprint", fingerprint);
                self.steps.push((row.id, served));
            }
            _ => {}
        }
    }

    /// Exports the spans of a transaction. `changes` are the changes of runs that the transaction made.
    pub(crate) fn emit(self, changes: &[JobChange]) {
        if !telemetry::spans::is_installed() {
            return;
        }
        let Self { known, steps, roots: mut all } = self;
        let ended: Vec<&JobRow> =
            changes.iter().map(|change| &change.to).filter(|job| !job.state.is_open()).collect();
        for (certificate, mut span) in steps {
            let run_ended = ended.iter().find(|job| job.certificate == certificate);
            if let (Some(job), Some(of)) = (run_ended, known.get(&certificate)) {
                span.parent = run(of.certificate, id_of(job)).parent();
            }
            all.push(span);
        }
        all.extend(ended.iter().filter_map(|job| of_run(job, known.get(&job.certificate)?)));
        telemetry::spans::emit(all);
    }
}

/// Returns the span of a run that has ended, from its first attempt. `None` for an unsuccessful run without any attempt.
fn of_run(job: &JobRow, of: &SpanSubject) -> Option<Span> {
    let began_us = match (job.started_at_us, job.state) {
        (Some(at_us), _) => at_us,
        (None, JobState::Done) => job.created_at_us,
        (None, _) => return None,
    };
    let issued_by = job.detail.as_deref().and_then(run_of);
    let above = issued_by.map_or_else(|| root(of.certificate), |above| run(of.certificate, above));
    let ended_us = job.finished_at_us.unwrap_or(began_us);
    let at = run(of.certificate, id_of(job));
    let mut span = Span::new(at, above.parent(), name(job.kind), began_us, ended_us)
        .with("bulla.certificate", &of.name)
        .with("bulla.job", id_of(job).to_string())
        .with("bulla.issuer", &job.issuer)
        .with("bulla.reason", &job.reason)
        .with("bulla.actor", &job.requested_by)
        .with("bulla.attempts", job.attempts.to_string());
    if let Some(agent) = job.agent {
        span = span.with("bulla.agent", agent.to_string());
    }
    if let Some(target) = job.detail.as_deref().and_then(target_of) {
        span = span.with("bulla.target", target.to_string());
    }
    span.error = match job.state {
        JobState::Failed => Some(job.last_error.clone().unwrap_or_else(|| "failed".to_owned())),
        JobState::Cancelled => Some(job.last_error.clone().unwrap_or_else(|| "cancelled".to_owned())),
        _ => None,
    };
    Some(span)
}

fn name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Issuance => "issuance",
        JobKind::Renewal => "renewal",
        JobKind::Deployment => "deployment",
        JobKind::Revocation => "revocation",
    }
}
