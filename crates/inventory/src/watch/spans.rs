//! Spans of watch runs. The trace of a run has the ID of its scan. The trace of a discovered certificate has the first half of its
//! SHA-256 as its ID; its root links to the run that found it.

use telemetry::spans::{Span, TraceParent, emit, is_installed};
use uuid::Uuid;

use super::news::EndpointEvent;
use crate::tables::watches::WatchEnd;

fn of_scan(scan: Uuid) -> TraceParent {
    TraceParent::of_object(scan.as_u128())
}

/// Exports the span of a run that has ended.
pub(super) fn watch_ended(watch: &str, end: &WatchEnd) {
    let Some(scan) = end.scan.filter(|_| is_installed()) else { return };
    // The ID of a scan is a UUIDv7, which begins with its creation time in ms.
    let began_us = i64::try_from(scan.as_u128() >> 80).unwrap_or_default() * 1_000;
    let at = of_scan(scan);
    let mut span = Span::new(at, 0, "watch run", began_us, end.ended_at_us).with("bulla.watch", watch);
    span.error.clone_from(&end.error);
    emit(vec![span]);
}

/// Exports the spans of discovered certificates that `scan` of `watch` found.
pub(super) fn certificates_found(scan: Uuid, watch: &str, found: &[EndpointEvent]) {
    if !is_installed() {
        return;
    }
    let span = |found: &EndpointEvent| {
        let leaf = found.leaf()?;
        let at = TraceParent::of_hash(leaf.as_bytes());
        let span = Span::new(at, 0, "found", found.at_us, found.at_us).linked(of_scan(scan));
        Some(span.with("bulla.watch", watch).with("bulla.fingerprint", leaf.to_string()))
    };
    emit(found.iter().filter_map(span).collect());
}
