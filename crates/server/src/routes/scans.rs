//! Scans, and the differences between two of them.

use api::inventory::{ChangeView, DiffListing, DiffQuery, ScanSpecView, ScanView};
use axum::extract::State as With;
use serde::Deserialize;
use store::{ChangeRow, Inventory, ScanRow, Scans, Store};
use x509::{Fingerprint, Severity};

use super::inventory::endpoint_body;
use crate::access::Permission;
use crate::extract::{Json, Query};
use crate::paging::{Listing, PageQuery, Paging, listing};
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::time;

/// Maximum targets and server names of a scan in a response. A watch may have 10,000.
const NAMES_MAX: usize = 20;
/// Maximum characters of a target in a response: enough for any host name with port and server name.
const NAME_CHARS_MAX: usize = 600;

/// The settings of a stored scan that describe what was scanned. Other settings contain names of files on the host, and are not
/// shown.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredSpec {
    targets: Vec<String>,
    sources: Vec<String>,
    server_names: Vec<String>,
    starttls: Option<String>,
    again: bool,
    settings: StoredSettings,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredSettings {
    ports: String,
    all_addresses: bool,
}

pub(crate) fn routes() -> Api {
    Api::area("inventory")
        .route(Permission::InventoryRead, routes!(list))
        .route(Permission::InventoryRead, routes!(diff))
}

fn scan_view(row: ScanRow) -> ScanView {
    // A scan by another version may have other settings.
    let spec: StoredSpec = serde_json::from_str(&row.spec).unwrap_or_default();
    ScanView {
        targets: spec.targets.len() as u64,
        scope: row.scope(),
        id: row.id,
        state: row.state.name().to_owned(),
        started_at: time::shown(row.started_at_us),
        finished_at: time::maybe_shown(row.finished_at_us),
        spec: spec_view(spec),
        endpoints: row.observations,
        answered: row.answered,
        changes: row.changes,
        new_certificates: row.new_certificates,
        pruned_at: time::maybe_shown(row.pruned_at_us),
    }
}

fn spec_view(spec: StoredSpec) -> ScanSpecView {
    ScanSpecView {
        targets: shortened(&spec.targets),
        sources: shortened(&spec.sources),
        ports: Some(spec.settings.ports).filter(|ports| !ports.is_empty()),
        server_names: shortened(&spec.server_names),
        starttls: spec.starttls,
        all_addresses: spec.settings.all_addresses,
        again: spec.again,
    }
}

/// Returns the first [`NAMES_MAX`] names, truncated to [`NAME_CHARS_MAX`] characters. File names have no folder.
fn shortened(names: &[String]) -> Vec<String> {
    let cut = |name: &String| {
        let name = without_folder(name);
        match name.char_indices().nth(NAME_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &name[..end]),
            None => name,
        }
    };
    names.iter().take(NAMES_MAX).map(cut).collect()
}

/// Returns the name of a file without its folder: stored targets have absolute paths, `@` precedes the path of a list.
fn without_folder(name: &str) -> String {
    let (mark, path) = name.strip_prefix('@').map_or(("", name), |path| ("@", path));
    match path.rsplit_once('/') {
        Some((_, file)) if path.starts_with('/') => format!("{mark}{file}"),
        _ => name.to_owned(),
    }
}

fn change_view(row: ChangeRow) -> ChangeView {
    let fingerprint = |sha256: [u8; 32]| Fingerprint::from_bytes(sha256).to_string();
    ChangeView {
        change: row.kind.name().to_owned(),
        endpoint: endpoint_body(row.endpoint),
        observed_at: time::shown(row.observed_at_us),
        old_fingerprint: row.old_sha256.map(fingerprint),
        new_fingerprint: row.new_sha256.map(fingerprint),
        old_outcome: row.old_outcome.map(|outcome| outcome.to_string()),
        new_outcome: row.new_outcome.map(|outcome| outcome.to_string()),
        severity: row.severity.map(|severity| Severity::name(severity).to_owned()),
    }
}

/// Lists the scans, newest first.
#[utoipa::path(get, path = "/api/v1/scans", operation_id = "listScans", params(PageQuery),
    responses((status = 200, body = Listing<ScanView>)))]
async fn list(With(store): With<Store>, paging: Paging) -> Result<Json<Listing<ScanView>>, Problem> {
    let (mut items, mut next) = (Vec::new(), paging.after);
    loop {
        let limit = Scans::PAGE_ROWS.min(paging.limit - items.len());
        let page = Scans::of(&store).page(next.as_ref(), limit).await?;
        items.extend(page.rows.into_iter().map(scan_view));
        next = page.next;
        if next.is_none() || items.len() >= paging.limit {
            let next = next.map(|next| next.to_string());
            return Ok(Json(Listing { items, next, total: None }));
        }
    }
}

/// Lists the differences between two scans, or all changes since a time.
///
/// Endpoints that only the earlier scan probed come last, as `not-scanned`. A page compares at most 50,000 endpoints. A page may
/// therefore have fewer items than requested, or none, although `next` is set.
///
/// Responds 410 (`pruned`) if the retention has removed observations that the response needs.
#[utoipa::path(get, path = "/api/v1/inventory/diff", operation_id = "diffInventory", params(PageQuery, DiffQuery),
    responses((status = 200, body = DiffListing)))]
async fn diff(
    With(store): With<Store>,
    paging: Paging,
    Query(query): Query<DiffQuery>,
) -> Result<Json<DiffListing>, Problem> {
    let (inventory, after, limit) = (Inventory::of(&store), paging.after.as_ref(), paging.limit);
    let scans = match (&query.since, query.from, query.to, after) {
        (Some(_), None, None, _) => None,
        (None, Some(from), Some(to), _) => Some((from, to)),
        // A scan may have finished since the first page.
        (None, None, None, Some(after)) => Some(Inventory::compared_scans(after)?),
        (None, None, None, None) => {
            Some(Scans::of(&store).last_comparable_scans().await?.ok_or_else(|| {
                Problem::not_found("pair of finished scans of the same targets")
                    .hint("scan once more, name two scans with `from` and `to`, or a time with `since`")
            })?)
        }
        _ => {
            return Err(Problem::bad_request("name two scans with `from` and `to`, or a time with `since`")
                .hint("GET /api/v1/scans lists the scans"));
        }
    };
    let page = match (scans, query.since) {
        (Some((from, to)), _) => inventory.diff_scans(from, to, after, limit).await?,
        (None, since) => inventory.diff(time::parsed(&since.unwrap_or_default())?, after, limit).await?,
    };
    let Listing { items, next, .. } = listing(page, change_view);
    let (from, to) = scans.unzip();
    Ok(Json(DiffListing { items, next, from, to }))
}
