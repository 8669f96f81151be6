//! The exporter that all parts of this process share, and the span of the current task.

use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Kind, Span, SpanSender, TraceParent};

/// Maximum number of spans in one entry of the queue.
const ENTRY_MAX: usize = 8;

static EXPORTER: OnceLock<SpanSender> = OnceLock::new();

tokio::task_local! {
    static CURRENT: Option<TraceParent>;
}

/// Sends the spans of this process to `spans`. Only the first call has an effect.
pub fn install(spans: &SpanSender) {
    let _ = EXPORTER.set(spans.clone());
}

/// Returns whether this process exports spans. Without an exporter, no span needs to be created.
#[must_use]
pub fn is_installed() -> bool {
    EXPORTER.get().is_some()
}

/// Returns whether to sample a trace that begins here: the configured share of them, and none without an exporter.
#[must_use]
pub fn samples_new_trace() -> bool {
    EXPORTER.get().is_some_and(|spans| spans.samples(random_id()))
}

/// Queues spans. Drops them without an exporter.
pub fn emit(spans: Vec<Span>) {
    let Some(exporter) = EXPORTER.get() else { return };
    // The queue's limit counts entries, so the spans of a large transaction are split into several entries.
    let mut spans = spans.into_iter().peekable();
    while spans.peek().is_some() {
        exporter.put(spans.by_ref().take(ENTRY_MAX).collect());
    }
}

/// Runs a future with `span` as the current span of its task.
pub async fn within<F: Future>(span: Option<TraceParent>, work: F) -> F::Output {
    CURRENT.scope(span, work).await
}

/// Returns the current span of this task. `None` outside of a trace.
#[must_use]
pub fn current() -> Option<TraceParent> {
    CURRENT.try_with(|current| *current).ok().flatten()
}

/// Runs `work` within a child span of the current span, and exports the child span. `describe` adds attributes. Without a current
/// span or an exporter, only runs `work`.
pub async fn part<T, E: Display>(
    name: &'static str,
    kind: Kind,
    describe: impl FnOnce(Span) -> Span,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let Some(above) = current().filter(|_| is_installed()) else { return work.await };
    let (own, began_us) = (above.child(random_id()), now_us());
    let outcome = within(Some(own), work).await;
    let mut span = describe(Span::new(own, above.parent(), name, began_us, now_us()));
    span.kind = kind;
    span.error = outcome.as_ref().err().map(ToString::to_string);
    emit(vec![span]);
    outcome
}

/// Returns the time in µs since 1970.
#[must_use]
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Returns a random number for IDs of spans and traces: unique, but not secret.
#[must_use]
pub fn random_id() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn part_is_a_child_of_the_current_span() {
        let (spans, mut waiting) = super::super::queue(1.0);
        let run =
            || part("step", Kind::Client, |span| span.with("name", "x"), async { Err::<(), _>("late") });
        let root = TraceParent::of_object(7);
        assert!(within(Some(root), run()).await.is_err());
        assert!(waiting.queue.try_recv().is_err(), "there is no exporter yet");
        install(&spans);
        assert!(run().await.is_err());
        assert!(waiting.queue.try_recv().is_err(), "outside of a trace");
        let inner = within(Some(root), part("outer", Kind::Internal, |span| span, run())).await;
        assert_eq!(inner, Err("late"));
        let (step, outer) = (waiting.queue.try_recv().unwrap(), waiting.queue.try_recv().unwrap());
        let ([step], [outer]) = (step.as_slice(), outer.as_slice()) else { panic!("{step:?} {outer:?}") };
        assert_eq!((outer.name, outer.trace, outer.parent), ("outer", 7, root.parent()));
        assert_eq!((step.name, step.trace, step.parent, step.kind), ("step", 7, outer.id, Kind::Client));
        assert_eq!(
            (step.attributes.as_slice(), step.error.as_deref()),
            (&[("name", "x".to_owned())][..], Some("late"))
        );
        assert!(step.began_ns >= outer.began_ns && step.ended_ns <= outer.ended_ns);
    }
}
