//! Host settings that prevent users from creating namespaces.

use std::fmt;
use std::fs;
use std::path::Path;

/// A kernel setting that prevents users from creating namespaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Obstacle {
    /// Name of the setting in sysctl(8).
    pub setting: &'static str,
    value: u64,
    /// Command or change that allows namespaces again.
    pub remedy: &'static str,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.setting, self.value)
    }
}

const NO_MORE: &str = "run as root: sysctl -w user.max_user_namespaces=15000; the other user.max_*_namespaces must not be 0 either";
/// Settings, each with the value that prevents namespaces.
const SETTINGS: &[Obstacle] = &[
    Obstacle { setting: "user.max_user_namespaces", value: 0, remedy: NO_MORE },
    Obstacle { setting: "user.max_net_namespaces", value: 0, remedy: NO_MORE },
    Obstacle { setting: "user.max_pid_namespaces", value: 0, remedy: NO_MORE },
    Obstacle { setting: "user.max_mnt_namespaces", value: 0, remedy: NO_MORE },
    Obstacle { setting: "user.max_ipc_namespaces", value: 0, remedy: NO_MORE },
    Obstacle {
        setting: "kernel.unprivileged_userns_clone",
        value: 0,
        remedy: "run as root: sysctl -w kernel.unprivileged_userns_clone=1",
    },
    Obstacle {
        setting: "kernel.apparmor_restrict_unprivileged_userns",
        value: 1,
        remedy: "allow it for this program with an AppArmor profile with `userns,` (docs/run.md shows one), or for all \
         programs, as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    },
];

/// Returns the first setting of this host that prevents its users from creating namespaces, if there is one.
#[must_use]
pub fn obstacle() -> Option<Obstacle> {
    find_obstacle(Path::new("/proc/sys"))
}

fn find_obstacle(settings: &Path) -> Option<Obstacle> {
    let forbids = |obstacle: &&Obstacle| {
        let file = settings.join(obstacle.setting.replace('.', "/"));
        let value = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
        value == Some(obstacle.value)
    };
    SETTINGS.iter().find(forbids).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocking_kernel_setting_is_reported_with_its_remedy() {
        let settings = tempfile::tempdir().unwrap();
        for folder in ["user", "kernel"] {
            fs::create_dir(settings.path().join(folder)).unwrap();
        }
        let set = |name: &str, value: &str| fs::write(settings.path().join(name), value).unwrap();
        set("user/max_user_namespaces", "96365\n");
        set("kernel/apparmor_restrict_unprivileged_userns", "0\n");
        assert_eq!(find_obstacle(settings.path()), None);
        set("kernel/apparmor_restrict_unprivileged_userns", "1\n");
        let found = find_obstacle(settings.path()).unwrap();
        assert_eq!(found.to_string(), "kernel.apparmor_restrict_unprivileged_userns is 1");
        assert!(found.remedy.contains("AppArmor profile"));
        set("user/max_user_namespaces", "0\n");
        assert_eq!(find_obstacle(settings.path()).unwrap().to_string(), "user.max_user_namespaces is 0");
    }
}
