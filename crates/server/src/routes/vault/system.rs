//! What clients ask before they ask for secrets: which mounts there are, and whether the store is unsealed.

use axum::extract::Path;
use credentials::PermissionPath;
use serde_json::{Value as Json, json};

use super::super::credhub::context::Context;
use super::answer::{Refused, data};
use super::mount::MOUNT;
use super::principal::Principal;

/// The version of Vault whose API is spoken; clients compare it with what they need.
const VERSION: &str = "1.18.0+bulla";

const CLUSTER: &str = "bulla";

/// The mount, as every answer describes it.
fn mount() -> Json {
    json!({
        "accessor": "kv_bulla",
        "config": { "default_lease_ttl": 0, "force_no_cache": false, "max_lease_ttl": 0 },
        "description": "credentials",
        "external_entropy_access": false,
        "local": false,
        "options": { "version": "2" },
        "path": MOUNT,
        "running_plugin_version": "",
        "seal_wrap": false,
        "type": "kv",
        "uuid": "",
    })
}

/// Which mount a path lies below; clients learn from it that the store is of version 2.
pub(super) async fn mount_of(_: Principal, Path(path): Path<String>) -> Result<axum::Json<Json>, Refused> {
    // As Vault: anyone who asks for another mount may not know whether it is there.
    if !format!("{path}/").starts_with(MOUNT) { Err(Refused::denied()) } else { Ok(data(mount())) }
}

pub(super) async fn visible_mounts(_: Principal) -> axum::Json<Json> {
    data(json!({ "auth": {}, "secret": { MOUNT: mount() } }))
}

pub(super) async fn mounts(_: Principal) -> axum::Json<Json> {
    data(json!({ MOUNT: mount() }))
}

/// What holds for every name that nothing else is said of.
pub(super) async fn config(context: Context, _: Principal) -> Result<axum::Json<Json>, Refused> {
    let options = context.hub().credentials().options();
    let everywhere = PermissionPath::parse("/*")?;
    let retention = options.retention.iter().find(|retention| retention.path == everywhere);
    let versions = retention.and_then(|retention| retention.versions).unwrap_or(0);
    Ok(data(json!({ "cas_required": false, "delete_version_after": "0s", "max_versions": versions })))
}

/// The process lives; the database is not asked.
pub(super) async fn health(context: Context) -> axum::Json<Json> {
    axum::Json(json!({
        "initialized": true,
        "sealed": false,
        "standby": false,
        "performance_standby": false,
        "replication_performance_mode": "disabled",
        "replication_dr_mode": "disabled",
        "server_time_utc": context.server().clock().now_seconds(),
        "version": VERSION,
        "cluster_name": CLUSTER,
    }))
}

pub(super) async fn seal_status() -> axum::Json<Json> {
    axum::Json(json!({
        "type": "bulla",
        "initialized": true,
        "sealed": false,
        "t": 1,
        "n": 1,
        "progress": 0,
        "nonce": "",
        "version": VERSION,
        "migration": false,
        "cluster_name": CLUSTER,
        "recovery_seal": false,
        "storage_type": "bulla",
    }))
}

/// Every node answers for itself.
pub(super) async fn leader() -> axum::Json<Json> {
    axum::Json(json!({
        "ha_enabled": false,
        "is_self": true,
        "leader_address": "",
        "leader_cluster_address": "",
        "performance_standby": false,
    }))
}
