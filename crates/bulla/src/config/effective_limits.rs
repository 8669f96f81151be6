//! The limits, timeouts and retention periods in effect, with the source of each value.

use api::limits::LimitView;
use cli::configuration::{Kind, Origin, lookup, variable_of};
use serde_json::Value;

use super::Configuration;
use super::table::KEYS;

/// Keys of retention periods and of other retention limits.
const RETENTION: &[&str] = &[
    "credentials.undelete_days",
    "credentials.retention",
    "audit.seal_after_days",
    "audit.prune_after_days",
    "audit.witness.s3_retention_days",
    "acme.keep_ended_seconds",
    "inventory.observations_days",
    "proxy.requests.record_octets_max",
];

/// Suffixes of the keys that are limits.
const LIMITS: &[&str] = &[
    "_max",
    "_per_s",
    "_per_minute",
    "_burst",
    "_mb",
    ".connections",
    ".concurrency",
    ".max_addresses",
    ".in_flight",
    ".per_address",
];

/// Suffixes of the keys that are timeouts.
const TIMEOUTS: &[&str] = &[
    "timeout_ms",
    "timeout_s",
    "deadline_ms",
    "try_milliseconds",
    "idle_s",
    "keep_alive_s",
    "patience_s",
    "replica_alone_s",
    ".stop_s",
];

/// Suffixes of numeric keys, with their units. The first matching suffix applies.
const UNITS: &[(&str, &str)] = &[
    ("_per_s", "per second"),
    ("_per_minute", "per minute"),
    ("octets_max", "bytes"),
    ("_mb", "MiB"),
    ("_days", "days"),
    ("_milliseconds", "milliseconds"),
    ("_ms", "milliseconds"),
    ("_seconds", "seconds"),
    ("_s", "seconds"),
];

impl Configuration {
    /// Returns the limits, timeouts and retention periods in effect, in the order of their keys.
    pub(crate) fn limits(&self) -> Vec<LimitView> {
        let values = toml::Table::try_from(&self.settings).unwrap_or_default();
        let configured = KEYS.iter().filter_map(|(key, kind, meaning)| {
            let value = serde_json::to_value(lookup(&values, key)?).ok()?;
            Some(self.view(key, class_of(key, *kind)?, value, meaning))
        });
        configured.collect()
    }

    fn view(&self, key: &str, class: &str, value: Value, meaning: &str) -> LimitView {
        let (source, origin) = match self.layers.origin(key) {
            Origin::Default => ("default", None),
            Origin::File(path) => ("file", Some(path.display().to_string())),
            Origin::Variable(name) => ("environment", Some(name.clone())),
        };
        LimitView {
            name: key.to_owned(),
            kind: class.to_owned(),
            unit: value.is_number().then(|| unit_of(key)).flatten().map(str::to_owned),
            value,
            source: source.to_owned(),
            origin,
            variable: Some(variable_of(key)),
            meaning: meaning.to_owned(),
        }
    }
}

/// Returns whether a key is a limit, a timeout or retention; `None` for other keys.
fn class_of(key: &str, kind: Kind) -> Option<&'static str> {
    let ends = |ends: &[&str]| ends.iter().any(|end| key.ends_with(end));
    match kind {
        _ if RETENTION.contains(&key) => Some("retention"),
        _ if key.starts_with("limits.") => Some("limit"),
        Kind::Number if ends(TIMEOUTS) => Some("timeout"),
        Kind::Number if ends(LIMITS) => Some("limit"),
        _ => None,
    }
}

fn unit_of(key: &str) -> Option<&'static str> {
    UNITS.iter().find(|(end, _)| key.ends_with(end)).map(|(_, unit)| *unit)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Numeric keys that are no limit, no timeout and no retention period.
    const OTHERS: &[&str] = &[
        "scan.expiring_within_days",
        "scan.expiring_fraction",
        "scan.table_rows",
        "credentials.ca_minimum_days",
        "credentials.leaf_minimum_days",
        "audit.head_every_s",
        "authority.crl_hours",
        "authority.crl_shards",
        "authority.ocsp_hours",
        "acme.validation.http_port",
        "acme.validation.https_port",
        "acme.validation.pause_milliseconds",
        "ct.poll_s",
        "ct.grace_s",
        "ct.behind_s",
        "ct.checkpoint_s",
        "keys.reload_s",
        "keys.ticket_key_s",
        "keys.node.shared_from",
        "edge.ticket_key_s",
        "edge.reload_s",
        "proxy.leaf_validity_s",
        "proxy.leaf_key_s",
        "proxy.auto_tunnel_s",
        "proxy.authority.intermediate_s",
        "proxy.ask.yes_s",
        "proxy.ask.no_s",
        "telemetry.otlp_share",
    ];

    #[test]
    fn every_number_of_the_configuration_is_classified() {
        let numbers = KEYS.iter().filter(|(_, kind, _)| *kind == Kind::Number);
        let unknown = numbers.filter(|(key, kind, _)| class_of(key, *kind).is_none()).map(|(key, ..)| *key);
        assert_eq!(
            unknown.collect::<Vec<_>>(),
            OTHERS,
            "add the key to RETENTION, to the ends of names, or to OTHERS"
        );
        let known = |key: &&&str| KEYS.iter().any(|(one, ..)| one == *key);
        assert_eq!(RETENTION.iter().filter(|key| !known(key)).collect::<Vec<_>>(), Vec::<&&str>::new());
    }

    #[test]
    fn limits_have_the_value_in_effect_its_unit_and_its_source() {
        let text = "[limits]\ncaller_per_s = 7\n[audit]\nseal_after_days = 30\n".to_owned();
        let variables = [("BULLA_SERVER_HEAD_TIMEOUT_S".to_owned(), "9".to_owned())];
        let file = Some((PathBuf::from("/etc/bulla.toml"), text));
        let all = Configuration::from_parts(file, variables.into_iter()).unwrap().limits();
        let of = |name: &str| {
            let one = all.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no {name}"));
            let LimitView { kind, value, unit, source, origin, .. } = one.clone();
            (kind, value.to_string(), unit.unwrap_or_default(), source, origin.unwrap_or_default())
        };
        let row = |all: [&str; 5]| {
            let [kind, value, unit, source, origin] = all.map(str::to_owned);
            (kind, value, unit, source, origin)
        };
        assert_eq!(of("limits.caller_per_s"), row(["limit", "7", "per second", "file", "/etc/bulla.toml"]));
        assert_eq!(of("audit.seal_after_days"), row(["retention", "30", "days", "file", "/etc/bulla.toml"]));
        let variable = "BULLA_SERVER_HEAD_TIMEOUT_S";
        assert_eq!(of("server.head_timeout_s"), row(["timeout", "9", "seconds", "environment", variable]));
        assert_eq!(of("limits.tokens"), row(["limit", "[]", "", "default", ""]));
    }
}
