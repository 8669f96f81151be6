//! Metrics of records, read at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::recorder::Recorder;
use crate::metrics::Metrics;

#[derive(Debug)]
struct Figures(Recorder);

/// Registers the metrics of a recorder with `metrics`.
pub(crate) fn register(metrics: &Metrics, recorder: &Recorder) {
    let recorder = recorder.clone();
    metrics
        .add_registration(move |registry| registry.register_collector(Box::new(Figures(recorder.clone()))));
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counters = [
            ("bulla_keyless_records", "Signature records written to disk", self.0.written()),
            ("bulla_keyless_records_lost", "Signatures made without a record", self.0.lost()),
            ("bulla_keyless_records_write_failures", "Failed writes of signature records", self.0.failures()),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        let (waiting, most) = self.0.waiting();
        let gauges = [
            ("bulla_keyless_records_waiting", "Signature records not yet written to disk", waiting),
            ("bulla_keyless_records_waiting_max", "Maximum signature records not yet written to disk", most),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as f64);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}
