//! The pages. Each module has the pages of one noun; a page's path is that of the API with `/console` in place of `/api/v1`.

mod alerts;
mod approvals;
mod access;
mod account;
mod agents;
mod audit;
mod certificates;
mod history;
mod jobs;
mod endpoints;
mod overview;
mod people;
mod acme;
mod authorities;
mod blocked_keys;
mod certificates;
mod client_certificates;
mod issued;
mod issuers;
mod overview;
mod policies;
mod profiles;
mod credentials;
mod key_node_tokens;
mod key_nodes;
mod key_policies;
mod key_sites;
mod keys;
mod overview;
mod sealed_keys;
mod search;
mod settings;
mod sign_in;
mod targets;
mod transparency;
mod watches;
mod traffic;

use axum::Router;

use crate::api::Api;

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .merge(overview::routes())
        .merge(alerts::routes())
        .merge(approvals::routes())
        .merge(access::routes())
        .merge(account::routes())
        .merge(agents::routes())
        .merge(audit::routes())
        .merge(certificates::routes())
        .merge(jobs::routes())
        .merge(endpoints::routes())
        .merge(people::routes())
        .merge(acme::routes())
        .merge(authorities::routes())
        .merge(blocked_keys::routes())
        .merge(certificates::routes())
        .merge(client_certificates::routes())
        .merge(issued::routes())
        .merge(issuers::routes())
        .merge(overview::routes())
        .merge(policies::routes())
        .merge(profiles::routes())
        .merge(credentials::routes())
        .merge(key_node_tokens::routes())
        .merge(key_nodes::routes())
        .merge(key_policies::routes())
        .merge(key_sites::routes())
        .merge(keys::routes())
        .merge(sealed_keys::routes())
        .merge(search::routes())
        .merge(settings::routes())
        .merge(sign_in::routes())
        .merge(targets::routes())
        .merge(transparency::routes())
        .merge(watches::routes())
        .merge(traffic::routes())
}
