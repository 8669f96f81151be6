//! A collector of traces: OTLP over HTTP. And the OpenTelemetry Collector, which passes on what it receives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use fleet::free_port;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tempfile::TempDir;

/// A received span, with attributes of its resource.
#[derive(Clone, Debug)]
pub(super) struct Received {
    /// `service.name`
    pub(super) service: String,
    /// `bulla.node`; empty without one.
    pub(super) node: String,
    pub(super) span: Span,
}

/// A collector that runs as long as the test.
pub(super) struct Collector {
    pub(super) url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Collector {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let into = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let into = Arc::clone(&into);
                std::thread::spawn(
                    move || {
                        while take_batch(&mut BufReader::new(stream.as_ref().unwrap()), &into) {}
                    },
                );
            }
        });
        Self { url, received }
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

/// The OpenTelemetry Collector, which exports all spans to a [`Collector`].
pub(super) struct OpenTelemetryCollector {
    pub(super) url: String,
    process: Child,
    _folder: TempDir,
}

impl OpenTelemetryCollector {
    /// Starts it, and waits until it receives.
    pub(super) fn before(receiver: &Collector) -> Self {
        let (folder, address) = (tempfile::tempdir().unwrap(), format!("127.0.0.1:{}", free_port()));
        let configuration = folder.path().join("collector.yaml");
        let text = format!(
            "receivers:\n  otlp:\n    protocols:\n      http:\n        endpoint: {address}\n\
             exporters:\n  otlp_http:\n    endpoint: {}\n    compression: none\n\
             service:\n  pipelines:\n    traces:\n      receivers: [otlp]\n      exporters: [otlp_http]\n",
            receiver.url
        );
        std::fs::write(&configuration, text).unwrap();
        let process = Command::new("otel-collector").arg("--config").arg(&configuration).spawn();
        let process = process
            .unwrap_or_else(|error| panic!("this test needs otel-collector: .ci/interop traces ({error})"));
        let collector = Self { url: format!("http://{address}"), process, _folder: folder };
        testbed::until_blocking("the OpenTelemetry Collector listens", || {
            TcpStream::connect(&address).is_ok()
        });
        collector
    }

    /// Stops it: it exports its queue, and ends.
    pub(super) fn stop(mut self) {
        let stopped = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(stopped.success() && self.process.wait().unwrap().success());
    }
}

impl Drop for OpenTelemetryCollector {
    fn drop(&mut self) {
        // Ended already after [`Self::stop`].
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads one batch. Returns false at the end of the connection.
fn take_batch(stream: &mut BufReader<&TcpStream>, into: &Mutex<Vec<Received>>) -> bool {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap_or_default() == 0 {
            return false;
        }
        if line == "\r\n" {
            break;
        }
        head.push(line.trim_end().to_ascii_lowercase());
    }
    assert_eq!(head[0], "post /v1/traces http/1.1");
    assert!(head.contains(&"content-type: application/x-protobuf".to_owned()), "{head:?}");
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap()];
    stream.read_exact(&mut body).unwrap();
    let batch = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
    for of_resource in batch.resource_spans {
        let resource = of_resource.resource.unwrap().attributes;
        let service = text(&resource, "service.name");
        let node = find_text(&resource, "bulla.node").unwrap_or_default();
        let spans = of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans);
        let received = spans.map(|span| Received { service: service.clone(), node: node.clone(), span });
        into.lock().unwrap().extend(received);
    }
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
    stream.get_mut().write_all(answer.as_bytes()).is_ok()
}

/// Returns an attribute that must exist.
pub(super) fn text(all: &[KeyValue], key: &str) -> String {
    find_text(all, key).unwrap_or_else(|| panic!("no text {key} in {all:?}"))
}

fn find_text(all: &[KeyValue], key: &str) -> Option<String> {
    match all.iter().find(|one| one.key == key)?.value.clone()?.value {
        Some(Value::StringValue(text)) => Some(text),
        _ => None,
    }
}
