//! The pages. Each module contains the pages of one kind of object. A page's path is the API path with `/console` in place of
//! `/api/v1`.

mod access;
mod account;
mod acme;
mod agents;
mod alerts;
mod approvals;
mod audit;
mod authorities;
mod authority_certificates;
mod blocked_keys;
mod certificates;
mod client_certificates;
mod confirm;
mod credentials;
mod document_forms;
mod document_kinds;
mod documents;
mod endpoints;
mod first_steps;
mod held_requests;
mod issued;
mod issuers;
mod jobs;
mod key_load;
mod key_node_tokens;
mod key_nodes;
mod key_policies;
mod key_sites;
mod keys;
mod limits;
mod notifications;
mod overview;
mod people;
mod policies;
mod profiles;
mod proxy;
mod recent_requests;
mod scans;
mod sealed_keys;
mod search;
mod security_keys;
mod settings;
mod sign_in;
mod targets;
mod traffic;
mod transparency;
mod watches;

use axum::Router;

use crate::api::Api;

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .merge(access::routes())
        .merge(account::routes())
        .merge(acme::routes())
        .merge(agents::routes())
        .merge(alerts::routes())
        .merge(approvals::routes())
        .merge(audit::routes())
        .merge(authorities::routes())
        .merge(authority_certificates::routes())
        .merge(blocked_keys::routes())
        .merge(certificates::routes())
        .merge(client_certificates::routes())
        .merge(confirm::routes())
        .merge(credentials::routes())
        .merge(documents::routes())
        .merge(endpoints::routes())
        .merge(held_requests::routes())
        .merge(issued::routes())
        .merge(issuers::routes())
        .merge(jobs::routes())
        .merge(key_load::routes())
        .merge(key_node_tokens::routes())
        .merge(key_nodes::routes())
        .merge(key_policies::routes())
        .merge(key_sites::routes())
        .merge(keys::routes())
        .merge(limits::routes())
        .merge(notifications::routes())
        .merge(overview::routes())
        .merge(people::routes())
        .merge(policies::routes())
        .merge(profiles::routes())
        .merge(proxy::routes())
        .merge(recent_requests::routes())
        .merge(scans::routes())
        .merge(sealed_keys::routes())
        .merge(search::routes())
        .merge(security_keys::routes())
        .merge(settings::routes())
        .merge(sign_in::routes())
        .merge(targets::routes())
        .merge(traffic::routes())
        .merge(transparency::routes())
        .merge(watches::routes())
}
