//! Planning of rotations, and resolution of alerts about past failures.

use events::CredentialName;
use store::{NewEvent, StoreError, Tx};

use crate::Kind;
use crate::tables::{PlannedNames, plan_rotations};

/// Types of credentials that can be regenerated.
pub(super) const KINDS: &[Kind] = &[Kind::Password, Kind::User, Kind::Rsa, Kind::Ssh, Kind::Certificate];
/// Actor of automatic rotations in the audit log.
pub(super) const ROTATOR: &str = "system:rotation";

/// Plans rotations of names, and resolves the alerts about failures that ended.
pub(super) async fn plan(
    tx: &mut Tx,
    names: &[String],
    planned: PlannedNames,
    at_us: i64,
) -> Result<(), StoreError> {
    let recovered = plan_rotations(tx, names, KINDS, planned).await?;
    store::emit(tx, resolution_events(&recovered, at_us)).await
}

/// Returns the events that resolve the alerts about these names' failures.
pub(crate) fn resolution_events(names: &[String], at_us: i64) -> Vec<NewEvent> {
    let event = |name: &String| {
        let body = CredentialName { name: name.clone() };
        store::new_event(at_us, subject_of(name), &events::Event::CredentialRotationRecovered(body))
    };
    names.iter().map(event).collect()
}

/// Returns the subject of alerts about a name's rotation.
pub(super) fn subject_of(name: &str) -> String {
    format!("credential{name}")
}
