//! Checks whether the policy of this host allows the files, commands and endpoint of a target.

use super::file::{Attributes, FileError, TargetFile};
use super::plan::{DirectoryOwner, NeededFile, TargetRequirements};
use super::policy::{DeniedAction, Policy, RequestedFile};
use super::target::Verify;
use super::verify;
use crate::accounts;

/// Default mode of a new file with a private key.
const PRIVATE: u32 = 0o600;
/// Default mode of a new file without a private key.
const PUBLIC: u32 = 0o644;
/// Permission bits of other users. Removed from the previous mode of a key file, unless the target sets a mode.
const OTHERS: u32 = 0o007;

/// Returns all actions of a target that the policy does not allow, so that the owner of the host sees the full list.
///
/// # Errors
/// [`FileError`] for a file that the policy allows.
pub(crate) fn find_missing_permissions(
    needs: &TargetRequirements,
    policy: &Policy,
) -> Result<Vec<DeniedAction>, FileError> {
    let mut denied = Vec::new();
    for needed in needs.files.iter().filter(|needed| needed.place == DirectoryOwner::Host) {
        denied.extend(missing_file_permission(needed, policy)?);
    }
    for hook in [&needs.validate, &needs.reload].into_iter().flatten() {
        denied.extend(hook.program(policy).err());
    }
    Ok(denied)
}

/// Checks the path before resolving links. So the server learns nothing about a path that is not allowed, not even whether it
/// exists.
fn missing_file_permission(needed: &NeededFile, policy: &Policy) -> Result<Option<DeniedAction>, FileError> {
    if let Err(want) = policy.path(&needed.spec.path) {
        return Ok(Some(want));
    }
    let place = TargetFile::of(&needed.spec.path)?;
    if let Err(want) = policy.path(place.path()) {
        return Ok(Some(want));
    }
    let before = place.read()?.map(|found| found.attributes);
    let wanted = wanted(needed, before)?;
    Ok(judge_file(&place, needed, wanted, before, policy).err())
}

/// Checks whether a file may be written, at its resolved path.
pub(crate) fn judge_file(
    place: &TargetFile,
    needed: &NeededFile,
    wanted: Attributes,
    before: Option<Attributes>,
    policy: &Policy,
) -> Result<(), DeniedAction> {
    match needed.place {
        DirectoryOwner::Agent => Ok(()),
        DirectoryOwner::Host => {
            policy.file(&RequestedFile { path: place.path(), private: needed.private, wanted, before })
        }
    }
}

/// Checks whether the agent may connect to the endpoint. Resolves the host name only if no rule names the host, but some rule has
/// the endpoint's port.
pub(crate) async fn denied_endpoint(endpoint: &Verify, policy: &Policy) -> Option<DeniedAction> {
    if policy.names(endpoint) {
        return None;
    }
    if !policy.has_port(endpoint.port) {
        return Some(DeniedAction::address(endpoint));
    }
    let addresses = verify::resolve(endpoint).await.unwrap_or_default();
    policy.addresses(endpoint, &addresses).err()
}

/// Returns the configured attributes, else the previous file's, else the agent's own. Without a configured mode, other users get no
/// access to a key file.
pub(crate) fn wanted(needed: &NeededFile, before: Option<Attributes>) -> Result<Attributes, FileError> {
    let spec = &needed.spec;
    let (own_uid, own_gid) = accounts::own();
    let uid = match &spec.owner {
        Some(name) => accounts::uid_of(name)?,
        None => before.map_or(own_uid, |before| before.uid),
    };
    let gid = match &spec.group {
        Some(name) => accounts::gid_of(name)?,
        None => before.map_or(own_gid, |before| before.gid),
    };
    let closed = if needed.private { OTHERS } else { 0 };
    let mode = match (spec.mode, before) {
        (Some(mode), _) => mode.0,
        (None, Some(before)) => before.mode & !closed,
        (None, None) if needed.private => PRIVATE,
        (None, None) => PUBLIC,
    };
    Ok(Attributes { uid, gid, mode })
}
