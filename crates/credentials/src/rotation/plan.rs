//! Rotations planned, and failures that have ended.

use events::CredentialName;
use store::{NewEvent, StoreError, Tx};

use crate::Kind;
use crate::tables::{PlannedNames, plan_rotations};

/// What can be made again.
pub(super) const KINDS: &[Kind] = &[Kind::Password, Kind::User, Kind::Rsa, Kind::Ssh, Kind::Certificate];
/// Actor that creates it.
pub(super) const ROTATOR: &str = "system:rotation";

/// Plans names, and tells of failures that are over.
pub(super) async fn plan(
    tx: &mut Tx,
    names: &[String],
    planned: PlannedNames,
    at_us: i64,
) -> Result<(), StoreError> {
    let healed = plan_rotations(tx, names, KINDS, planned).await?;
    store::emit(tx, over(&healed, at_us)).await
}

/// Events that end the alerts about these names' failures.
pub(crate) fn over(names: &[String], at_us: i64) -> Vec<NewEvent> {
    let event = |name: &String| {
        let body = CredentialName { name: name.clone() };
        store::new_event(at_us, subject_of(name), &events::Event::CredentialRotationRecovered(body))
    };
    names.iter().map(event).collect()
}

/// What alerts about a name's rotation are about.
pub(super) fn subject_of(name: &str) -> String {
    format!("credential{name}")
}
