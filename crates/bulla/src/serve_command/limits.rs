//! The limits and the retention of this process: configured values and built-in values.

use std::sync::Arc;

use api::limits::LimitView;

use super::watch::EVENTS_KEPT_DAYS;
use crate::config::Configuration;

/// A value that is built in: name, kind, value, unit, meaning.
type BuiltIn = (&'static str, &'static str, u64, Option<&'static str>, &'static str);

/// Retention limits (periods and numbers) that no configuration key changes.
const BUILT_IN: &[BuiltIn] = &[
    (
        "events",
        "retention",
        EVENTS_KEPT_DAYS,
        Some("days"),
        "days for which events are stored for the event stream, alerts and webhooks",
    ),
    (
        "recent requests of the proxy",
        "retention",
        proxy::recent::RECENT_MAX as u64,
        None,
        "requests of the proxy in this process that are kept in memory; without server.console: none",
    ),
    (
        "hourly counts",
        "retention",
        (store::series::HOURS_KEPT_US / store::series::DAY_US) as u64,
        Some("days"),
        "days for which counts of issued, renewed and failed certificates are stored by hour",
    ),
    (
        "daily counts",
        "retention",
        (store::series::DAYS_KEPT_US / store::series::DAY_US) as u64,
        Some("days"),
        "days for which these counts are stored by day",
    ),
];

/// Returns the limits, timeouts and retention periods in effect: first the configured values, then the built-in values.
pub(super) fn in_effect(configuration: &Configuration) -> Arc<[LimitView]> {
    configuration.limits().into_iter().chain(BUILT_IN.iter().map(built_in)).collect()
}

fn built_in(&(name, kind, value, unit, meaning): &BuiltIn) -> LimitView {
    LimitView {
        name: name.to_owned(),
        kind: kind.to_owned(),
        value: value.into(),
        unit: unit.map(str::to_owned),
        source: "built-in".to_owned(),
        origin: None,
        variable: None,
        meaning: meaning.to_owned(),
    }
}
