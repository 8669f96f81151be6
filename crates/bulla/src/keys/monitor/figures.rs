//! The figures of `bulla key top`.

use serde::Serialize;

use super::exposition::Rates;
use super::services::UnreachableService;

/// The figures that `bulla key top` shows for one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct View {
    /// Services that responded to both samples.
    pub(super) services: usize,
    /// Services that did not respond.
    pub(super) away: Vec<UnreachableService>,
    /// Length of the interval in seconds.
    pub(super) seconds: f64,
    pub(super) requests_per_s: f64,
    pub(super) errors_per_s: f64,
    pub(super) refused_per_s: f64,
    pub(super) in_flight: f64,
    pub(super) connections: f64,
    pub(super) connections_max: f64,
    pub(super) elsewhere: f64,
    pub(super) elsewhere_max: f64,
    pub(super) keys: f64,
    pub(super) broken_key_files: f64,
    pub(super) retried_per_s: f64,
    pub(super) hedged_per_s: f64,
    /// Retries per second that the retry budget did not allow. The budget is a tenth of all requests.
    pub(super) out_of_budget_per_s: f64,
    /// Operations with activity, the busiest first.
    pub(super) opcodes: Vec<OpcodeRates>,
    pub(super) classes: Vec<CostClassRates>,
    /// Tenants, the busiest first.
    pub(super) tenants: Vec<Tenant>,
    pub(super) sites: Vec<Site>,
    pub(super) destinations: Vec<Destination>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct OpcodeRates {
    pub(super) opcode: String,
    pub(super) requests_per_s: f64,
    pub(super) errors_per_s: f64,
    pub(super) refused_per_s: f64,
    pub(super) in_flight: f64,
    /// Requests with this opcode that wait in the queue.
    pub(super) queued: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

/// Figures of one cost class of the signing stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CostClassRates {
    pub(super) cost: String,
    /// Utilisation: time spent signing divided by the available time of all workers; 1 is full load.
    pub(super) busy: f64,
    /// Signatures in progress. A worker may have eight, as one batch.
    pub(super) running: f64,
    /// Workers with signatures in progress.
    pub(super) working: f64,
    /// Number of workers.
    pub(super) running_max: f64,
    pub(super) waiting: f64,
    pub(super) waiting_max: f64,
    pub(super) done_per_s: f64,
    pub(super) refused_per_s: f64,
    pub(super) late_per_s: f64,
    /// Mean duration of a signature, in milliseconds.
    pub(super) sign_ms: Option<f64>,
    pub(super) wait_ms: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Tenant {
    pub(super) tenant: String,
    /// Arrival rate of requests (λ in Little's law L = λW).
    pub(super) requests_per_s: f64,
    pub(super) refused_per_s: f64,
    /// Requests in progress now (L).
    pub(super) in_flight: f64,
    pub(super) in_flight_max: f64,
    /// Mean duration of finished requests, in milliseconds (W in Little's law L = λW).
    pub(super) mean_ms: Option<f64>,
    /// λW: the expected number of requests in progress.
    pub(super) expected_in_flight: f64,
    /// L divided by λW over the last minute, as computed by the service. Of several services, the worst value.
    pub(super) littles_law_ratio: Option<f64>,
}

/// Figures of the requests to other nodes, for one site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Site {
    pub(super) site: String,
    pub(super) nodes_up: f64,
    pub(super) round_trip_ms: Option<f64>,
    pub(super) requests_per_s: f64,
    pub(super) errors_per_s: f64,
    pub(super) in_flight: f64,
    pub(super) in_flight_max: f64,
    pub(super) retried_per_s: f64,
    pub(super) hedged_per_s: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    /// L divided by λW, as for a tenant.
    pub(super) littles_law_ratio: Option<f64>,
}

/// Figures of the calls to a security module or a cloud key service.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Destination {
    pub(super) destination: String,
    pub(super) requests_per_s: f64,
    pub(super) errors_per_s: f64,
    pub(super) refused_per_s: f64,
    pub(super) in_flight: f64,
    pub(super) in_flight_max: f64,
    /// Maximum number of concurrent calls. Further requests wait.
    pub(super) calls_max: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    /// L divided by λW, as for a tenant.
    pub(super) littles_law_ratio: Option<f64>,
}

impl View {
    pub(super) fn of(rates: &Rates, services: usize, away: Vec<UnreachableService>, seconds: f64) -> Self {
        let all = |name: &str| rounded(rates.sum(name, &[]));
        let second = |kind: &str| rounded(rates.sum("bulla_keyless_second_tries_total", &[("kind", kind)]));
        Self {
            services,
            away,
            seconds: rounded(seconds),
            requests_per_s: all("bulla_keyless_request_duration_seconds_count"),
            errors_per_s: all("bulla_keyless_errors_total"),
            refused_per_s: all("bulla_keyless_refusals_total"),
            in_flight: all("bulla_keyless_requests_in_flight"),
            connections: all("bulla_keyless_connections"),
            connections_max: all("bulla_keyless_connections_max"),
            elsewhere: all("bulla_keyless_elsewhere_in_flight"),
            elsewhere_max: all("bulla_keyless_elsewhere_in_flight_max"),
            keys: all("bulla_keyless_keys"),
            broken_key_files: all("bulla_keyless_broken_key_files"),
            retried_per_s: second("retried"),
            hedged_per_s: second("hedged"),
            out_of_budget_per_s: second("out-of-budget"),
            opcodes: opcodes(rates),
            classes: ["light", "medium", "heavy"].iter().map(|cost| class(rates, cost)).collect(),
            tenants: tenants(rates),
            sites: sites(rates),
            destinations: destinations(rates),
        }
    }
}

fn opcodes(rates: &Rates) -> Vec<OpcodeRates> {
    const TOOK: &str = "bulla_keyless_request_duration_seconds";
    let count = format!("{TOOK}_count");
    // A label that names no operation has only a count of errors, no durations.
    let mut names = rates.values(&count, "opcode");
    names.extend(rates.values("bulla_keyless_errors_total", "opcode"));
    let one = |opcode: &str| {
        let of = [("opcode", opcode)];
        OpcodeRates {
            requests_per_s: rounded(rates.sum(&count, &of)),
            errors_per_s: rounded(rates.sum("bulla_keyless_errors_total", &of)),
            refused_per_s: rounded(rates.sum("bulla_keyless_opcode_refusals_total", &of)),
            in_flight: rates.sum("bulla_keyless_requests_in_flight", &of),
            queued: rates.sum("bulla_keyless_requests_queued", &of),
            p50_ms: rates.quantile(TOOK, &of, 0.5).map(ms),
            p99_ms: rates.quantile(TOOK, &of, 0.99).map(ms),
            opcode: opcode.to_owned(),
        }
    };
    let mut all: Vec<OpcodeRates> = names.into_iter().map(one).collect();
    all.retain(|one| one.requests_per_s > 0.0 || one.errors_per_s > 0.0 || one.in_flight > 0.0);
    all.sort_by(|a, b| b.requests_per_s.total_cmp(&a.requests_per_s));
    all
}

fn class(rates: &Rates, cost: &str) -> CostClassRates {
    let sum = |name: &str| rates.sum(name, &[("cost", cost)]);
    let jobs =
        |outcome: &str| rates.sum("bulla_keyless_stage_jobs_total", &[("cost", cost), ("outcome", outcome)]);
    let (busy, done) = (sum("bulla_keyless_stage_busy_seconds_total"), jobs("done"));
    let workers = sum("bulla_keyless_stage_running_max");
    // A refused request did not wait.
    let waited = done + jobs("late") + jobs("unwanted");
    CostClassRates {
        cost: cost.to_owned(),
        busy: if workers > 0.0 { rounded(busy / workers) } else { 0.0 },
        running: sum("bulla_keyless_stage_running"),
        working: sum("bulla_keyless_stage_working"),
        running_max: workers,
        waiting: sum("bulla_keyless_stage_waiting"),
        waiting_max: sum("bulla_keyless_stage_waiting_max"),
        done_per_s: rounded(done),
        refused_per_s: rounded(jobs("refused")),
        late_per_s: rounded(jobs("late")),
        sign_ms: ratio(busy, done).map(ms),
        wait_ms: ratio(sum("bulla_keyless_stage_queue_seconds_total"), waited).map(ms),
    }
}

fn tenants(rates: &Rates) -> Vec<Tenant> {
    let one = |tenant: &str| {
        let of = [("tenant", tenant)];
        let requests = rates.sum("bulla_keyless_tenant_requests_total", &of);
        let took = rates.sum("bulla_keyless_tenant_request_seconds_total", &of);
        Tenant {
            tenant: tenant.to_owned(),
            requests_per_s: rounded(requests),
            refused_per_s: rounded(rates.sum("bulla_keyless_tenant_refusals_total", &of)),
            in_flight: rates.sum("bulla_keyless_tenant_requests_in_flight", &of),
            in_flight_max: rates.sum("bulla_keyless_tenant_requests_in_flight_max", &of),
            mean_ms: ratio(took, requests).map(ms),
            expected_in_flight: rounded(took),
            littles_law_ratio: rates.worst("bulla_keyless_littles_law_ratio", &of).map(rounded),
        }
    };
    let names = rates.values("bulla_keyless_tenant_requests_total", "tenant");
    let mut all: Vec<Tenant> = names.into_iter().map(one).collect();
    all.sort_by(|a, b| b.requests_per_s.total_cmp(&a.requests_per_s));
    all
}

fn sites(rates: &Rates) -> Vec<Site> {
    const TOOK: &str = "bulla_keyless_site_request_duration_seconds";
    let one = |site: &str| {
        let of = [("site", site)];
        let second = |kind: &str| {
            rounded(rates.sum("bulla_keyless_site_second_tries_total", &[("site", site), ("kind", kind)]))
        };
        let nodes_up = rates.sum("bulla_keyless_site_nodes_up", &of);
        let round_trip = rates.worst("bulla_keyless_site_round_trip_seconds", &of);
        Site {
            site: site.to_owned(),
            nodes_up,
            // The last measurement of an unreachable site is out of date.
            round_trip_ms: round_trip.filter(|trip| nodes_up > 0.0 && *trip > 0.0).map(ms),
            requests_per_s: rounded(rates.sum(&format!("{TOOK}_count"), &of)),
            errors_per_s: rounded(rates.sum("bulla_keyless_site_errors_total", &of)),
            in_flight: rates.sum("bulla_keyless_site_requests_in_flight", &of),
            in_flight_max: rates.sum("bulla_keyless_site_requests_in_flight_max", &of),
            retried_per_s: second("retried"),
            hedged_per_s: second("hedged"),
            p50_ms: rates.quantile(TOOK, &of, 0.5).map(ms),
            p99_ms: rates.quantile(TOOK, &of, 0.99).map(ms),
            littles_law_ratio: rates.worst("bulla_keyless_site_littles_law_ratio", &of).map(rounded),
        }
    };
    rates.values("bulla_keyless_site_nodes_up", "site").into_iter().map(one).collect()
}

fn destinations(rates: &Rates) -> Vec<Destination> {
    const TOOK: &str = "bulla_keyless_destination_request_duration_seconds";
    let count = format!("{TOOK}_count");
    let one = |destination: &str| {
        let of = [("destination", destination)];
        let sum = |name: &str| rates.sum(name, &of);
        Destination {
            destination: destination.to_owned(),
            requests_per_s: rounded(sum(&count)),
            errors_per_s: rounded(sum("bulla_keyless_destination_errors_total")),
            refused_per_s: rounded(sum("bulla_keyless_destination_refusals_total")),
            in_flight: sum("bulla_keyless_destination_requests_in_flight"),
            in_flight_max: sum("bulla_keyless_destination_requests_in_flight_max"),
            calls_max: sum("bulla_keyless_destination_calls_max"),
            p50_ms: rates.quantile(TOOK, &of, 0.5).map(ms),
            p99_ms: rates.quantile(TOOK, &of, 0.99).map(ms),
            littles_law_ratio: rates.worst("bulla_keyless_destination_littles_law_ratio", &of).map(rounded),
        }
    };
    rates.values(&count, "destination").into_iter().map(one).collect()
}

fn ratio(sum: f64, count: f64) -> Option<f64> {
    (count > 0.0).then(|| sum / count)
}

fn ms(seconds: f64) -> f64 {
    rounded(seconds * 1_000.0)
}

/// Rounds to three decimal places. Further digits are noise.
fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::super::exposition::Exposition;
    use super::*;

    /// Two shortened samples of a service's metrics, two seconds apart.
    const BEFORE: &str = include_str!("testdata/before.txt");
    const AFTER: &str = include_str!("testdata/after.txt");

    fn view() -> View {
        let (before, after) = (Exposition::parse(BEFORE).unwrap(), Exposition::parse(AFTER).unwrap());
        View::of(&Rates::between(&before, &after, 2.0), 1, Vec::new(), 2.0)
    }

    #[test]
    fn rates_and_quantiles_cover_the_interval_between_scrapes() {
        let view = view();
        assert_eq!((view.requests_per_s, view.errors_per_s, view.refused_per_s), (200.0, 6.0, 2.0));
        assert_eq!((view.connections, view.connections_max, view.keys), (3.0, 8192.0, 2.0));
        let opcodes: Vec<&str> = view.opcodes.iter().map(|one| one.opcode.as_str()).collect();
        assert_eq!(opcodes, ["ecdsa-sha256", "rsa-sha256"], "pings were none");
        let ecdsa = &view.opcodes[0];
        assert_eq!((ecdsa.requests_per_s, ecdsa.errors_per_s, ecdsa.refused_per_s), (150.0, 1.0, 2.0));
        assert_eq!((ecdsa.in_flight, ecdsa.queued), (12.0, 9.0));
        // 300 more requests: 150 within 32 µs, 294 within 64 µs, all within 128 µs.
        assert_eq!((ecdsa.p50_ms, ecdsa.p99_ms), (Some(0.032), Some(0.096)));
    }

    #[test]
    fn class_busy_share_and_tenant_littles_law_are_computed() {
        let view = view();
        let medium = &view.classes[1];
        // One second of work in two seconds by two workers.
        assert_eq!((medium.cost.as_str(), medium.busy), ("medium", 0.25));
        assert_eq!((medium.done_per_s, medium.sign_ms, medium.wait_ms), (45.0, Some(11.111), Some(2.0)));
        assert_eq!((medium.waiting, medium.waiting_max), (5.0, 2048.0));
        // One of two workers has a batch.
        assert_eq!((medium.working, medium.running_max, medium.running), (1.0, 2.0, 8.0));
        let shop = &view.tenants[0];
        assert_eq!((shop.tenant.as_str(), shop.requests_per_s, shop.in_flight), ("shop", 190.0, 12.0));
        // 19 s of requests in 2 s: 9.5 in progress on average, 50 ms each.
        assert_eq!((shop.expected_in_flight, shop.mean_ms), (9.5, Some(50.0)));
        assert_eq!(shop.littles_law_ratio, Some(1.263));
        assert_eq!((view.tenants[1].tenant.as_str(), view.tenants[1].mean_ms), ("default", None));
    }

    #[test]
    fn unreachable_site_has_no_round_trip_and_destinations_are_listed() {
        let view = view();
        let sites: Vec<_> =
            view.sites.iter().map(|one| (one.site.as_str(), one.nodes_up, one.round_trip_ms)).collect();
        assert_eq!(sites, [("frankfurt", 3.0, Some(12.5)), ("paris", 0.0, None)]);
        let frankfurt = &view.sites[0];
        assert_eq!(
            (frankfurt.requests_per_s, frankfurt.hedged_per_s, frankfurt.retried_per_s),
            (10.0, 0.5, 0.0)
        );
        assert_eq!((frankfurt.in_flight, frankfurt.in_flight_max), (2.0, 12288.0));
        assert_eq!((frankfurt.littles_law_ratio, view.sites[1].littles_law_ratio), (Some(3.5), None));
        let [token] = view.destinations.as_slice() else { panic!("{:?}", view.destinations) };
        assert_eq!((token.destination.as_str(), token.requests_per_s), ("pkcs11:web", 5.0));
        assert_eq!((token.errors_per_s, token.refused_per_s, token.in_flight), (0.5, 1.0, 20.0));
        assert_eq!((token.in_flight_max, token.calls_max), (4096.0, 8.0));
        // Ten more observations, all between 8 and 16 ms.
        assert_eq!((token.p50_ms, token.littles_law_ratio), (Some(12.0), Some(1.0)));
        assert_eq!((view.hedged_per_s, view.retried_per_s, view.out_of_budget_per_s), (0.5, 0.0, 1.0));
    }
}
