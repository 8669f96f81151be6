//! Performance of the scanner, compared with the last seven days.

use api::history::{FiguresView, SeriesView};
use inventory::history::{History, SeriesStatus, SketchSummary};

use crate::access::Permission;
use crate::extract::Json;
use crate::paging::Listing;
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time::maybe_shown;

pub(crate) fn routes() -> Api {
    Api::area("history").route(Permission::InventoryRead, routes!(list))
}

fn figures_view(figures: SketchSummary) -> FiguresView {
    let SketchSummary { count, mean, p50, p95, p99 } = figures;
    let [mean, p50, p95, p99] = [mean, p50, p95, p99].map(rounded);
    FiguresView { count, mean, p50, p95, p99 }
}

/// Rounds a measured value to three significant digits. The measurement is accurate to about a quarter of a percent.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

fn series_view(seen: SeriesStatus) -> SeriesView {
    let judgement = seen.judgement;
    SeriesView {
        series: judgement.series.name().to_owned(),
        unit: judgement.series.unit().to_owned(),
        verdict: judgement.verdict.name().to_owned(),
        since: maybe_shown(seen.since_us),
        value: judgement.value.map(rounded),
        baseline_value: judgement.base_value.map(rounded),
        ratio: judgement.ratio().map(rounded),
        last: judgement.last.map(figures_view),
        baseline: judgement.base.map(figures_view),
    }
}

/// Shows the performance of the scanner, now and over the last seven days. The values are from the last measurement, at most a
/// minute ago.
#[utoipa::path(get, path = "/api/v1/history", operation_id = "listHistory",
    responses((status = 200, body = Listing<SeriesView>)))]
async fn list(Component(history): Component<History>) -> Result<Json<Listing<SeriesView>>, Problem> {
    let seen = history.seen();
    Ok(Json(Listing::whole(seen.into_iter().map(series_view).collect())))
}
