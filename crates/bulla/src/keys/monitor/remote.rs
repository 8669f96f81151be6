//! The load and the traces of key services, for the API and its console.

use std::time::{Duration, Instant};

use cli::control::segment;
use cli::exit::Outcome;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use server::KeyServices;
use tokio::sync::{Mutex, Semaphore};

use super::services::Services;
use super::top::{Samples, sample, view};
use super::trace::read;
use crate::config::KeyServiceSettings;

/// Minimum time between two samples. Requests before the next sample get the figures of the last interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum age of the previous sample. Rates over a longer interval would hide the current load.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(60);

/// Maximum number of concurrent requests that read traces. Each buffers up to 1 MiB of every service.
const TRACES_AT_ONCE: usize = 2;

/// The key services of the configuration, whose metrics and traces are read.
pub(crate) struct Monitor {
    services: Services,
    reading_traces: Semaphore,
    last: Mutex<Option<LastSample>>,
}

/// The last sample, and the figures of the interval before it.
struct LastSample {
    at: Instant,
    samples: Samples,
    figures: Value,
}

impl Monitor {
    /// Opens the monitor of the services in `keys.monitor_urls`. If that setting is empty, opens the monitor of this process's own
    /// key service (`own`), provided that its metrics address is known. Otherwise returns `None`.
    ///
    /// # Errors
    /// An invalid address in `keys.monitor_urls`.
    pub(crate) fn open(settings: &KeyServiceSettings, own: bool) -> Outcome<Option<Self>> {
        let own_is_known = !settings.metrics_listen.is_empty() && !settings.metrics_listen.ends_with(":0");
        if settings.monitor_urls.is_empty() && !(own && own_is_known) {
            return Ok(None);
        }
        let services = Services::configured(&settings.monitor_urls, &settings.metrics_listen)?;
        Ok(Some(Self { services, reading_traces: Semaphore::new(TRACES_AT_ONCE), last: Mutex::default() }))
    }

    async fn figures(&self) -> Value {
        // Concurrent requests wait for the same sample.
        let mut last = self.last.lock().await;
        let age = last.as_ref().map(|last| last.at.elapsed());
        let before = match (last.take(), age) {
            (Some(known), Some(age)) if age < INTERVAL => {
                let figures = known.figures.clone();
                *last = Some(known);
                return figures;
            }
            (Some(known), Some(age)) if age <= SAMPLE_AGE_MAX => known.samples,
            _ => {
                let samples = sample(&self.services).await;
                // If no service responds, there is nothing to wait for.
                if samples.iter().any(Result::is_ok) {
                    tokio::time::sleep(INTERVAL).await;
                }
                samples
            }
        };
        let samples = sample(&self.services).await;
        let figures = serde_json::to_value(view(&before, &samples)).unwrap_or_default();
        *last = Some(LastSample { at: Instant::now(), samples, figures: figures.clone() });
        figures
    }
}

impl KeyServices for Monitor {
    fn load(&self) -> BoxFuture<'_, Value> {
        self.figures().boxed()
    }

    fn traces(&self, id: Option<String>) -> BoxFuture<'_, Value> {
        async move {
            // The semaphore is never closed.
            let _permit = self.reading_traces.acquire().await;
            let path = id.map_or_else(|| "/traces".to_owned(), |id| format!("/traces/{}", segment(&id)));
            serde_json::to_value(read(&self.services, &path).await).unwrap_or_default()
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::*;

    /// Starts a fake key service that answers `answers` requests with the same text. Returns its address.
    fn service(answers: usize, text: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(answers) {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 2048]);
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
                stream.write_all(format!("{head}{text}").as_bytes()).unwrap();
            }
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn unreachable_services_are_listed_with_the_metrics_of_the_others() {
        let up = service(2, "bulla_keyless_keys 3\nbulla_keyless_requests_in_flight{opcode=\"sign\"} 2\n");
        let settings = KeyServiceSettings {
            monitor_urls: vec![up, "http://127.0.0.1:1".to_owned()],
            ..KeyServiceSettings::default()
        };
        let monitor = Monitor::open(&settings, false).unwrap().unwrap();
        let figures = monitor.load().await;
        assert_eq!((&figures["services"], &figures["keys"]), (&1.into(), &3.0.into()), "{figures}");
        assert_eq!(figures["away"][0]["url"], "http://127.0.0.1:1", "{figures}");
        assert_eq!(monitor.load().await, figures, "within a second it is the same interval");
    }

    #[test]
    fn without_addresses_only_the_key_service_of_this_process_is_read() {
        let open = |metrics_listen: &str, own: bool| {
            let settings = KeyServiceSettings {
                metrics_listen: metrics_listen.to_owned(),
                ..KeyServiceSettings::default()
            };
            Monitor::open(&settings, own).unwrap().is_some()
        };
        let usual = KeyServiceSettings::default().metrics_listen;
        assert!(open(&usual, true));
        assert!(!open(&usual, false), "no key service runs here");
        assert!(!open("127.0.0.1:0", true));
        assert!(!open("", true));
    }

    #[tokio::test]
    async fn trace_is_fetched_from_a_monitored_service() {
        let request = r#"{"node":"a","site":"s","requests":[{"trace_id":"t","span_id":"1","at_us":1,"tenant":"x","opcode":"sign","outcome":"done","took_us":5,"stages":{},"asked":[]}]}"#;
        let settings =
            KeyServiceSettings { monitor_urls: vec![service(1, request)], ..KeyServiceSettings::default() };
        let traces = Monitor::open(&settings, false).unwrap().unwrap().traces(Some("t".to_owned())).await;
        assert_eq!(
            (&traces["services"], &traces["requests"][0]["node"]),
            (&1.into(), &"a".into()),
            "{traces}"
        );
    }
    #[tokio::test]
    async fn a_request_for_traces_waits_while_as_many_as_allowed_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let settings = KeyServiceSettings { monitor_urls: vec![url], ..KeyServiceSettings::default() };
        let monitor = Arc::new(Monitor::open(&settings, false).unwrap().unwrap());
        let others =
            monitor.reading_traces.acquire_many(u32::try_from(TRACES_AT_ONCE).unwrap()).await.unwrap();
        let waiting = tokio::spawn({
            let monitor = Arc::clone(&monitor);
            async move { monitor.traces(None).await }
        });
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        let early = listener.accept().map(|(_, peer)| peer);
        assert_eq!(
            early.unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "it connects before the others are done"
        );
        drop(others);
        // The service closes the connection without a response.
        listener.set_nonblocking(false).unwrap();
        let closed = tokio::task::spawn_blocking(move || drop(listener.accept().unwrap()));
        closed.await.unwrap();
        let traces = waiting.await.unwrap();
        assert_eq!(traces["away"].as_array().map(Vec::len), Some(1), "{traces}");
    }

    #[tokio::test]
    async fn traces_of_more_than_a_megabyte_are_refused() {
        let large: &'static str = Box::leak(" ".repeat((1 << 20) + 1).into_boxed_str());
        let settings =
            KeyServiceSettings { monitor_urls: vec![service(1, large)], ..KeyServiceSettings::default() };
        let traces = Monitor::open(&settings, false).unwrap().unwrap().traces(None).await;
        assert!(traces["away"][0]["why"].as_str().unwrap().contains("larger than 1048576 bytes"), "{traces}");
    }
}
