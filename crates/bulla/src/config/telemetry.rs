//! `[telemetry]`: the collector of traces.

use std::path::PathBuf;

use cli::exit::{Outcome, Problem};
use serde::{Deserialize, Serialize};

/// OpenTelemetry's standard variable for the collector.
const OTEL_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Value that disables the collector in place of an address.
const NO_COLLECTOR: &str = "none";
/// Path below the endpoint (OTLP 1.x, "OTLP/HTTP Request").
const PATH: &str = "/v1/traces";

/// Configuration section `[telemetry]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TelemetrySettings {
    pub(crate) otlp_endpoint: String,
    pub(crate) otlp_ca_file: PathBuf,
    pub(crate) otlp_share: f64,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self { otlp_endpoint: String::new(), otlp_ca_file: PathBuf::new(), otlp_share: 0.01 }
    }
}

impl TelemetrySettings {
    /// Returns the URL for spans; `None` without a collector.
    pub(crate) fn url(&self) -> Outcome<Option<String>> {
        let of_others = || std::env::var(OTEL_ENDPOINT).unwrap_or_default();
        let endpoint = if self.otlp_endpoint.is_empty() { of_others() } else { self.otlp_endpoint.clone() };
        url_of(&endpoint)
    }

    pub(super) fn check(&self) -> Outcome<()> {
        if !(0.0..=1.0).contains(&self.otlp_share) {
            return Err(
                Problem::usage("telemetry.otlp_share must be from 0 to 1").hint("see `bulla config show`")
            );
        }
        url_of(&self.otlp_endpoint).map(drop)
    }
}

fn url_of(endpoint: &str) -> Outcome<Option<String>> {
    if [NO_COLLECTOR, ""].contains(&endpoint) {
        return Ok(None);
    }
    let parsed = reqwest::Url::parse(endpoint).ok();
    let is_one = |url: &reqwest::Url| ["http", "https"].contains(&url.scheme()) && url.host().is_some();
    if !parsed.as_ref().is_some_and(is_one) {
        return Err(Problem::usage(format_args!("{endpoint:?} is not a URL of a collector")).hint(format!(
            "set http://HOST:4318 or https://… in telemetry.otlp_endpoint or {OTEL_ENDPOINT}, or `{NO_COLLECTOR}`"
        )));
    }
    Ok(Some(format!("{}{PATH}", endpoint.trim_end_matches('/'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn otlp_endpoint_and_sampling_share_are_validated() {
        for (endpoint, url) in [
            ("", None),
            ("none", None),
            ("http://127.0.0.1:4318", Some("http://127.0.0.1:4318/v1/traces")),
            ("https://tempo.example/otlp/", Some("https://tempo.example/otlp/v1/traces")),
        ] {
            assert_eq!(url_of(endpoint).unwrap().as_deref(), url, "{endpoint}");
        }
        for none in ["127.0.0.1:4318", "grpc://host:4317", "collector", "http://"] {
            assert!(url_of(none).is_err(), "{none}");
        }
        for (share, is_one) in [(0.0, true), (1.0, true), (-0.1, false), (1.1, false), (f64::NAN, false)] {
            let settings = TelemetrySettings { otlp_share: share, ..TelemetrySettings::default() };
            assert_eq!(settings.check().is_ok(), is_one, "{share}");
        }
    }
}
