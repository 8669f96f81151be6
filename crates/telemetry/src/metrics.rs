//! Metrics in the OpenMetrics text format, for a textfile collector.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

/// Metrics collected for one export. Names follow `bulla_<crate>_<noun>_<unit>`.
#[derive(Default)]
pub struct Metrics {
    registry: Registry,
}

type Labels = Vec<(String, String)>;

impl Metrics {
    /// Adds a gauge with one value.
    pub fn figure(&mut self, name: &str, help: &str, value: f64) {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        self.registry.register(name, help, gauge);
    }

    /// Adds a gauge with one value for each value of a label. The number of label values must stay small.
    pub fn figures<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (value, figure) in values {
            family.get_or_create(&vec![(label.to_owned(), value.to_owned())]).set(figure);
        }
        self.registry.register(name, help, family);
    }

    /// Returns the OpenMetrics text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_encoded_with_help_and_labels() {
        let mut metrics = Metrics::default();
        metrics.figure("bulla_scan_duration_seconds", "How long the scan took", 1.5);
        metrics.figures("bulla_scan_endpoints", "By outcome", "outcome", [("answered", 3.0)]);
        let text = metrics.encode();
        assert!(text.contains("bulla_scan_duration_seconds 1.5"), "{text}");
        assert!(text.contains("bulla_scan_endpoints{outcome=\"answered\"} 3"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
