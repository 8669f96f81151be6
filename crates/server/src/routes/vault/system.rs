//! System endpoints that clients call before they read secrets: the mounts, and whether the store is unsealed.

use axum::extract::Path;
use credentials::PermissionPath;
use serde_json::{Value as Json, json};

use super::super::credhub::context::Context;
use super::answer::{Answer, Refused, data};
use super::mount::{DATABASES, MOUNT};
use super::principal::Principal;

/// The implemented version of Vault; clients compare it with their requirements.
const VERSION: &str = "1.18.0+bulla";

const CLUSTER: &str = "bulla";

/// Returns the description of the mount of dynamic credentials.
fn databases() -> Json {
    let mut mount = mount();
    mount["accessor"] = "database_bulla".into();
    mount["description"] = "dynamic credentials".into();
    mount["options"] = Json::Null;
    mount["path"] = DATABASES.into();
    mount["type"] = "database".into();
    mount
}

/// Returns the description of the mount of credentials.
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

/// Returns the mount that a path belongs to. Clients use it to detect KV version 2.
pub(super) async fn mount_of(_: Principal, Path(path): Path<String>) -> Result<Answer, Refused> {
    // Same as Vault: the response does not reveal whether another mount exists.
    match format!("{path}/") {
        path if path.starts_with(MOUNT) => Ok(data(mount())),
        path if path.starts_with(DATABASES) => Ok(data(databases())),
        _ => Err(Refused::denied()),
    }
}

pub(super) async fn visible_mounts(_: Principal) -> Answer {
    data(json!({ "auth": {}, "secret": { MOUNT: mount(), DATABASES: databases() } }))
}

pub(super) async fn mounts(_: Principal) -> Answer {
    data(json!({ MOUNT: mount(), DATABASES: databases() }))
}

/// Returns the default settings of all names.
pub(super) async fn config(context: Context, _: Principal) -> Result<Answer, Refused> {
    let options = context.hub().credentials().options();
    let everywhere = PermissionPath::parse("/*")?;
    let retention = options.retention.iter().find(|retention| retention.path == everywhere);
    let versions = retention.and_then(|retention| retention.versions).unwrap_or(0);
    Ok(data(json!({ "cas_required": false, "delete_version_after": "0s", "max_versions": versions })))
}

/// Reports that the process is alive, without a database request.
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

/// Reports this node as its own leader, because every node can serve all requests.
pub(super) async fn leader() -> axum::Json<Json> {
    axum::Json(json!({
        "ha_enabled": false,
        "is_self": true,
        "leader_address": "",
        "leader_cluster_address": "",
        "performance_standby": false,
    }))
}
