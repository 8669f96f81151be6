//! How the scanner fares beside its last seven days.

use inventory::history::{Figures, History, SeriesStatus};
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::Permission;
use crate::api::{Api, routes};
use crate::extract::Json;
use crate::paging::Listing;
use crate::problem::Problem;
use crate::state::Component;
use crate::time::maybe_shown;

pub(crate) fn routes() -> Api {
    Api::area("history").route(Permission::InventoryRead, routes!(list))
}

/// What is measured, now and before.
#[derive(Debug, Serialize, ToSchema)]
struct SeriesView {
    /// Its name.
    #[schema(example = "scan.duration/1000-9999")]
    series: &'static str,
    /// `seconds`, `share` (0 to 1), `rows` or `tasks`.
    unit: &'static str,
    /// `steady`, `drifting` (people are told), `learning` (too little was measured), or `shown` (there is no rule).
    verdict: &'static str,
    /// Since when people are told.
    since: Option<String>,
    /// What is judged: the median, of a node where each is judged; of `provider.errors` the part that failed.
    value: Option<f64>,
    /// The same of the seven days before.
    baseline_value: Option<f64>,
    /// One beside the other.
    ratio: Option<f64>,
    /// Of the last hour; of scans, errors and the pool as docs/watch.md says.
    last: Option<FiguresView>,
    /// Of the seven days before.
    baseline: Option<FiguresView>,
}

/// Values in figures, each within 0.25 %.
#[derive(Debug, Serialize, ToSchema)]
struct FiguresView {
    /// How many there are.
    count: u64,
    /// Their mean.
    mean: f64,
    /// The median.
    p50: f64,
    /// 95 % are at most this.
    p95: f64,
    /// 99 % are at most this.
    p99: f64,
}

impl From<Figures> for FiguresView {
    fn from(figures: Figures) -> Self {
        let Figures { count, mean, p50, p95, p99 } = figures;
        let [mean, p50, p95, p99] = [mean, p50, p95, p99].map(rounded);
        Self { count, mean, p50, p95, p99 }
    }
}

/// Figures are known to a quarter of a percent: three digits, and no noise behind them.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

impl SeriesView {
    fn of(seen: SeriesStatus) -> Self {
        let judgement = seen.judgement;
        Self {
            series: judgement.series.name(),
            unit: judgement.series.unit(),
            verdict: judgement.verdict.name(),
            since: maybe_shown(seen.since_us),
            value: judgement.value.map(rounded),
            baseline_value: judgement.base_value.map(rounded),
            ratio: judgement.ratio().map(rounded),
            last: judgement.last.map(FiguresView::from),
            baseline: judgement.base.map(FiguresView::from),
        }
    }
}

/// Shows what is measured of the scanner, now and over the last seven days, as of the last look: at most a minute ago.
#[utoipa::path(get, path = "/api/v1/history", operation_id = "listHistory",
    responses((status = 200, body = Listing<SeriesView>)))]
async fn list(Component(history): Component<History>) -> Result<Json<Listing<SeriesView>>, Problem> {
    let seen = history.seen();
    Ok(Json(Listing::whole(seen.into_iter().map(SeriesView::of).collect())))
}
