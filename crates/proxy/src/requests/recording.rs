//! Records exchanges in progress, and queues the completed recordings to be written.

use std::sync::Arc;

use http_relay::access_log::{CapturedBody, Entry, Recording, Spool, Timings};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Request, StatusCode};
use inbound::ServiceTasks;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::har::{Exchange, HarFolder, RecordOptions, Recorded};
use super::metrics::RequestMetrics;
use super::needles::{REDACTED, RedactionTexts};

/// Maximum recordings in progress or waiting to be written. Each has two bodies up to the configured limit in memory.
const RECORDINGS_MAX: usize = 256;

/// Recorder of exchanges, limited by a number of slots.
pub(super) struct Recorder {
    spool: Spool<Recorded>,
    slots: Arc<Semaphore>,
    body_bytes_max: usize,
    metrics: RequestMetrics,
}

impl Recorder {
    /// Starts the task that writes recordings. The task ends when the recorder is dropped.
    pub(super) fn start(
        options: &RecordOptions,
        metrics: &RequestMetrics,
        tasks: &ServiceTasks,
        reopen: &Arc<Notify>,
    ) -> Self {
        let dropped = metrics.recordings_dropped.clone();
        let (spool, work) =
            Spool::new(HarFolder::new(options.clone()), RECORDINGS_MAX, dropped, Arc::clone(reopen));
        tasks.spawn(work);
        Self {
            spool,
            slots: Arc::new(Semaphore::new(RECORDINGS_MAX)),
            body_bytes_max: options.body_bytes_max,
            metrics: metrics.clone(),
        }
    }

    /// Records the exchange of `entry` from now on, unless [`RECORDINGS_MAX`] recordings are in progress or waiting to be written.
    pub(super) fn record<B>(self: &Arc<Self>, entry: &mut Entry, request: &Request<B>, url: String) {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            self.metrics.recordings_dropped.inc();
            return;
        };
        let exchange = Exchange {
            began: entry.time(),
            wait_ms: 0.0,
            receive_ms: 0.0,
            method: entry.method().to_owned(),
            url,
            version: request.version(),
            request: request.headers().clone(),
            request_body: CapturedBody::default(),
            status: None,
            response: HeaderMap::new(),
            answered: CapturedBody::default(),
            needles: RedactionTexts::default(),
            rules: Vec::new(),
        };
        let recording = HarRecording { exchange, slot, recorder: Arc::clone(self) };
        entry.record(Box::new(recording), self.body_bytes_max);
    }
}

struct HarRecording {
    exchange: Exchange,
    slot: OwnedSemaphorePermit,
    recorder: Arc<Recorder>,
}

impl Recording for HarRecording {
    fn hide(&mut self, header: &HeaderName, secrets: &mut dyn Iterator<Item = &[u8]>) {
        self.exchange.request.insert(header.clone(), HeaderValue::from_static(REDACTED));
        secrets.for_each(|secret| self.exchange.needles.inject(secret));
    }

    fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.exchange.status = Some(status);
        self.exchange.response = headers.clone();
    }

    fn finish(
        self: Box<Self>,
        timings: Timings,
        request: CapturedBody,
        answer: CapturedBody,
        rules: &[Arc<str>],
    ) {
        let Self { mut exchange, slot, recorder } = *self;
        (exchange.wait_ms, exchange.receive_ms) = (timings.wait_ms, timings.receive_ms);
        (exchange.request_body, exchange.answered) = (request, answer);
        exchange.rules = rules.to_vec();
        recorder.metrics.recorded.inc();
        recorder.spool.put(Recorded::new(exchange, slot));
    }
}
