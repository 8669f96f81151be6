//! Time series: issued, renewed, failed, revoked and deployed certificates, by hour or by day.

use api::series::{SeriesCountsView, SeriesOfView, SeriesQuery};
use axum::extract::State as With;
use store::series::{Series, SeriesTable, Step};
use store::{Clock, Store};

use crate::access::{Caller, Permission, Reach, Scope};
use crate::extract::{Json, Query};
use crate::problem::Problem;
use crate::routing::{Access, Api, routes};
use crate::time;

/// Maximum intervals in a response: the number of hours that are stored.
const INTERVALS_MAX: i64 = 2_400;

pub(crate) fn routes() -> Api {
    Api::area("series").route(Access::needs(Permission::CertificateRead).scoped(), routes!(list))
}

/// A range of intervals, µs since 1970-01-01 UTC.
struct Range {
    step: Step,
    from_us: i64,
    /// The end of the last interval.
    to_us: i64,
}

impl Range {
    fn of(query: &SeriesQuery, now_us: i64) -> Result<Self, Problem> {
        let step = query.step.as_deref().map_or(Ok(Step::Hour), str::parse).map_err(Problem::bad_request)?;
        let length = step.length_us();
        let default = match step {
            Step::Hour => 48,
            Step::Day => 90,
        };
        let time = |text: Option<&str>| text.map(time::parsed).transpose();
        let to_us = time(query.to.as_deref())?.unwrap_or(now_us);
        let to_us = (to_us - to_us.rem_euclid(length)).saturating_add(length);
        let from_us = time(query.from.as_deref())?.unwrap_or(to_us.saturating_sub(default * length));
        let from_us = from_us - from_us.rem_euclid(length);
        match to_us.saturating_sub(from_us) / length {
            1..=INTERVALS_MAX => Ok(Self { step, from_us, to_us }),
            intervals => Err(Problem::bad_request(format_args!(
                "the range must have 1 to {INTERVALS_MAX} intervals, not {intervals}: choose another from, to or step"
            ))),
        }
    }

    fn intervals(&self) -> usize {
        usize::try_from((self.to_us - self.from_us) / self.step.length_us()).unwrap_or(0)
    }
}

/// Returns the teams whose counts the caller may see: `None` for all.
fn teams(caller: &Caller, wanted: Option<String>) -> Result<Option<Vec<String>>, Problem> {
    let reached = match caller.reach(Permission::CertificateRead) {
        Reach::Everything => return Ok(wanted.map(|team| vec![team])),
        Reach::Only(scopes) => scopes,
    };
    let own = reached.into_iter().filter_map(|scope| match scope {
        Scope::Team(team) => Some(team),
        _ => None,
    });
    let own: Vec<String> = own.filter(|team| wanted.as_ref().is_none_or(|wanted| wanted == team)).collect();
    if own.is_empty() {
        return Err(Problem::forbidden(
            "you may read only the certificates of some profiles, names or teams",
        )
        .hint("series are counted by team: request one of your teams with ?team=NAME"));
    }
    Ok(Some(own))
}

/// Counts certificates that were issued, renewed, revoked and deployed, and failed runs, by hour or by day.
///
/// `issued` counts certificates of the own CA over any protocol, and managed certificates of any issuer. `renewed` counts those
/// that are new versions of managed certificates. Certificates that are not managed belong to no team.
#[utoipa::path(get, path = "/api/v1/series", operation_id = "getSeries", params(SeriesQuery),
    responses((status = 200, body = SeriesCountsView)))]
async fn list(
    With(store): With<Store>,
    With(clock): With<Clock>,
    caller: Caller,
    Query(query): Query<SeriesQuery>,
) -> Result<Json<SeriesCountsView>, Problem> {
    let range = Range::of(&query, clock.now_us())?;
    let names = query.names.as_deref().unwrap_or_default().split(',').filter(|name| !name.is_empty());
    let mut names: Vec<Series> =
        names.map(|name| name.trim().parse().map_err(Problem::bad_request)).collect::<Result<_, _>>()?;
    if names.is_empty() {
        names = Series::ALL.to_vec();
    }
    names.sort_unstable();
    names.dedup();
    let teams = teams(&caller, query.team)?;
    let mut series = Vec::with_capacity(names.len());
    for name in names {
        series.push(counts(&store, &range, name, teams.as_deref()).await?);
    }
    Ok(Json(SeriesCountsView {
        step: range.step.name().to_owned(),
        step_seconds: range.step.length_us() / 1_000_000,
        from: time::shown(range.from_us),
        to: time::shown(range.to_us),
        series,
    }))
}

async fn counts(
    store: &Store,
    range: &Range,
    series: Series,
    teams: Option<&[String]>,
) -> Result<SeriesOfView, Problem> {
    let mut counts = vec![0; range.intervals()];
    let of: Vec<Option<&str>> =
        teams.map_or_else(|| vec![None], |teams| teams.iter().map(|team| Some(team.as_str())).collect());
    for team in of {
        let bounds = (range.from_us, range.to_us);
        for point in SeriesTable::of(store).range(range.step, series, bounds, team).await? {
            let index = usize::try_from((point.from_us - range.from_us) / range.step.length_us());
            if let Some(count) = index.ok().and_then(|index| counts.get_mut(index)) {
                *count += point.count;
            }
        }
    }
    Ok(SeriesOfView { name: series.name().to_owned(), total: counts.iter().sum(), counts })
}
