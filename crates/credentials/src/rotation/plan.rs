//! Rotations planned, and failures that have ended.

use serde_json::json;
use store::credentials::plan_rotations;
use store::{Event, StoreError, Tx};

/// What can be made anew.
pub(super) const KINDS: &[&str] = &["password", "user", "rsa", "ssh", "certificate"];
/// Who makes it.
pub(super) const ROTATOR: &str = "system:rotation";

/// Plans names, and tells of failures that are over.
pub(super) async fn plan(tx: &mut Tx, names: &[String], again: bool, at_us: i64) -> Result<(), StoreError> {
    let healed = plan_rotations(tx, names, KINDS, again).await?;
    store::emit(tx, over(&healed, at_us)).await
}

/// What tells that these names' failures are over.
pub(crate) fn over(names: &[String], at_us: i64) -> Vec<Event> {
    let event = |name: &String| Event {
        at_us,
        kind: "credential.rotation_recovered",
        subject: subject_of(name),
        body: json!({ "name": name }),
    };
    names.iter().map(event).collect()
}

/// What alerts about a name's rotation are about.
pub(super) fn subject_of(name: &str) -> String {
    format!("credential{name}")
}
