//! The supplementary groups of programs that run as another user.

use std::io;

use rustix::process::Gid;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid};

/// Maximum number of groups of a process (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// Returns the groups of a user, as from `initgroups`: its primary group, then the groups in the text of `/etc/group` (group(5)) that list
/// the user as a member.
#[must_use]
pub fn groups_of(user: &str, own: u32, text: &str) -> Vec<u32> {
    let member = |line: &str| {
        let columns: Vec<&str> = line.split(':').collect();
        let [_, _, group, members] = columns[..] else { return None };
        members.split(',').any(|member| member.trim() == user).then(|| group.parse().ok())?
    };
    let mut groups = vec![own];
    for group in text.lines().filter_map(member) {
        if !groups.contains(&group) && groups.len() < GROUPS_MAX {
            groups.push(group);
        }
    }
    groups
}

/// Starts a program with these groups; `own` is its primary group. `spawn` runs in a separate thread. Its command sets the user
/// ([`std::os::unix::process::CommandExt::uid`]) but no group. The caller needs the right to change users and groups, as root has.
///
/// The standard library removes all groups of a program that changes its user, if it is permitted to do so. Therefore the thread
/// sets the groups and then drops `CAP_SETGID`. The thread's user does not change, so that the program's user cannot send signals
/// to the thread.
///
/// # Errors
/// An error of `spawn`, or the groups cannot be set.
pub fn spawn_in_groups<T: Send>(
    own: u32,
    groups: &[u32],
    spawn: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let in_thread = move || {
        // The groups apply only to this thread, which ends with this function.
        set_thread_groups(&groups)?;
        let own = Gid::from_raw(own);
        set_thread_res_gid(own, own, own)?;
        let mut sets = capabilities(None)?;
        for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
            set.remove(CapabilitySet::SETGID);
        }
        set_capabilities(None, sets)?;
        spawn()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("spawn".to_owned()).spawn_scoped(scope, in_thread)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts programs panicked")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_the_primary_group_and_the_memberships() {
        let text = "root:x:0:\nweb:x:33:caddy,www\ntls:x:103: www ,caddy\nold:x:33:www\nbad:x:y:www\n# www\nown:x:900:www\nshort:x:5\n";
        assert_eq!(groups_of("www", 900, text), [900, 33, 103]);
        assert_eq!(groups_of("caddy", 994, text), [994, 33, 103]);
        assert_eq!(groups_of("ww", 7, text), [7]);
    }
}
