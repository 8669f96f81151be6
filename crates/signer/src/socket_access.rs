//! Access to the socket: its directory, its mode, and the user of each client.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use coded::named;

named! {
    /// The users that the socket's mode admits. Each client's user is checked as well.
    pub enum SocketAccess: "signer.access" {
        /// The signer's own user: the socket has mode 0600, and only the owner may enter its directory.
        Owner => "owner",
        /// The signer's own user, and the group of the socket: the socket has mode 0660, and the group may enter the directory.
        Group => "group",
    }
}

const OTHERS: u32 = 0o007;
const GROUP: u32 = 0o070;
const GROUP_WRITES: u32 = 0o020;

impl SocketAccess {
    pub(crate) fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group => 0o660,
        }
    }

    /// Returns the reason why the socket must not be created in this directory; `None` if the directory is suitable.
    pub(crate) fn refusal(self, folder: &Path) -> Option<String> {
        let found = match std::fs::metadata(folder) {
            Ok(found) => found,
            Err(error) => return Some(format!("the folder cannot be read: {error}")),
        };
        let (owner, own) = (found.uid(), rustix::process::geteuid().as_raw());
        if owner != own && owner != 0 {
            return Some(format!("the folder belongs to user {owner}, but the signer runs as user {own}"));
        }
        let mode = found.permissions().mode() & 0o777;
        let forbidden = match self {
            Self::Owner => OTHERS | GROUP,
            Self::Group => OTHERS | GROUP_WRITES,
        };
        let wanted = if self == Self::Owner { "700" } else { "710" };
        (mode & forbidden != 0).then(|| {
            format!("other users can enter or change the folder (mode {mode:04o}): run chmod {wanted}")
        })
    }
}

/// Error for a user that does not exist.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown user {0:?} on this host; a numeric ID works too")]
pub struct UnknownUser(String);

/// Returns the id of a user, given by name or id.
///
/// # Errors
/// [`UnknownUser`]
pub fn uid_of(user: &str) -> Result<u32, UnknownUser> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    // Fields of passwd(5): name, password, number.
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = users.lines().find_map(|line| {
        let mut columns = line.split(':');
        (columns.next() == Some(user)).then(|| columns.nth(1)?.parse().ok()).flatten()
    });
    found.ok_or_else(|| UnknownUser(user.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_folder_with_open_permissions_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let table = [
            (0o700, true, true),
            (0o710, false, true),
            (0o750, false, true),
            (0o770, false, false),
            (0o701, false, false),
            (0o755, false, false),
            (0o777, false, false),
        ];
        for (mode, owner, group) in table {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let allowed = |access: SocketAccess| access.refusal(folder.path()).is_none();
            assert_eq!(allowed(SocketAccess::Owner), owner, "{mode:o}");
            assert_eq!(allowed(SocketAccess::Group), group, "{mode:o}");
        }
    }

    #[test]
    fn users_are_resolved_by_name_and_number() {
        assert_eq!(uid_of("root"), Ok(0));
        assert_eq!(uid_of("901"), Ok(901));
        assert!(uid_of("no such user").is_err());
    }
}
