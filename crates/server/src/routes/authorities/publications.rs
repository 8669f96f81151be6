//! Publications of the CAs: the state of their CRLs and OCSP responders.

use api::authorities::{CrlStatusView, PublicationView, ResponderStatusView};
use authority::Authority;
use authority::tables::{CrlStatus, ResponderStatus, Revocations};
use axum::extract::State as With;
use store::{Clock, Store};

use crate::access::Permission;
use crate::extract::Json;
use crate::paging::Listing;
use crate::problem::Problem;
use crate::routing::{Api, routes};
use crate::state::Component;
use crate::time;

pub(super) fn routes() -> Api {
    Api::area("publications").route(Permission::CaRead, routes!(list))
}

fn crl_view(crl: CrlStatus, now_us: i64) -> CrlStatusView {
    let made = crl.number > 0;
    let shown = |at_us: i64| made.then(|| time::shown(at_us));
    let state = match () {
        () if made && crl.next_update_us <= now_us => "expired",
        () if crl.failures > 0 => "failing",
        () if !made || crl.pending => "pending",
        () => "current",
    };
    CrlStatusView {
        part: match crl.shard {
            0 => "full".to_owned(),
            -1 => "delta".to_owned(),
            shard => shard.to_string(),
        },
        state: state.to_owned(),
        number: made.then_some(crl.number),
        this_update: shown(crl.this_update_us),
        next_update: shown(crl.next_update_us),
        refresh_at: shown(crl.refresh_at_us),
        age_seconds: made.then(|| now_us.saturating_sub(crl.this_update_us).div_euclid(1_000_000)),
        entries: crl.entries,
        failures: crl.failures,
        failed_at: time::maybe_shown(crl.failed_at_us),
        last_error: crl.last_error,
    }
}

fn responder_view(responder: &ResponderStatus, now_us: i64) -> ResponderStatusView {
    let state = if responder.not_after_us <= now_us { "expired" } else { "current" };
    ResponderStatusView {
        state: state.to_owned(),
        not_before: time::shown(responder.not_before_us),
        not_after: time::shown(responder.not_after_us),
    }
}

/// Lists the publications of each CA: age, expiry and entries of its CRLs, failed attempts, and its OCSP responder.
#[utoipa::path(get, path = "/api/v1/publications", operation_id = "listPublications",
    responses((status = 200, body = Listing<PublicationView>)))]
async fn list(
    Component(authority): Component<Authority>,
    With(store): With<Store>,
    With(clock): With<Clock>,
) -> Result<Json<Listing<PublicationView>>, Problem> {
    let now_us = clock.now_us();
    let mut crls = Revocations::of(&store).crl_statuses().await?;
    let responders = Revocations::of(&store).responder_statuses().await?;
    let cas = authority.all_cas().await?;
    let mut all = Vec::with_capacity(cas.len());
    for ca in cas.iter().filter(|ca| ca.publishes()) {
        let (own, others) = crls.into_iter().partition::<Vec<_>, _>(|crl| crl.ca == ca.id);
        crls = others;
        let responder = responders.iter().find(|responder| responder.ca == ca.id);
        all.push(PublicationView {
            ca: ca.id,
            name: ca.name.clone(),
            crls: own.into_iter().map(|crl| crl_view(crl, now_us)).collect(),
            ocsp: responder.map(|responder| responder_view(responder, now_us)),
        });
    }
    Ok(Json(Listing::whole(all)))
}
