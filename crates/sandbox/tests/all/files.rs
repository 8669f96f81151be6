//! Access to files.

use std::fs;
use std::io::ErrorKind;

use sandbox::{Files, Mode, Plan, Programs, State};

use crate::{plan, restricted};

#[test]
fn files_outside_the_plan_cannot_be_read_or_written() {
    // Not in /dev/shm, which every sandboxed program may use.
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let [data, settings, other] = ["data", "settings", "other"].map(|name| home.path().join(name));
    for folder in [&data, &settings, &other] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("file"), "before").unwrap();
    }
    let files = Files::Only { readable: vec![settings.clone()], writable: vec![data.clone()] };
    restricted(Plan { files, ..plan(Programs::None) }, move |report| {
        match &report.files {
            State::Enforced | State::Partial => {}
            // This kernel has no Landlock, and the report says so. There is nothing to test.
            State::Missing(why) if why.contains("no Landlock") => return,
            state => panic!("{state}"),
        }
        let denied = |what: std::io::Result<()>| {
            assert_eq!(what.unwrap_err().kind(), ErrorKind::PermissionDenied);
        };
        denied(fs::read(other.join("file")).map(drop));
        denied(fs::read_dir(&other).map(drop));
        denied(fs::write(other.join("file"), "after"));
        denied(fs::write(other.join("new"), "after"));
        denied(fs::remove_file(other.join("file")));
        denied(fs::write(settings.join("file"), "after"));
        denied(fs::write(settings.join("new"), "after"));
        // A symbolic link gives no access to other files.
        std::os::unix::fs::symlink(other.join("file"), data.join("link")).unwrap();
        denied(fs::read(data.join("link")).map(drop));

        assert_eq!(fs::read(settings.join("file")).unwrap(), b"before");
        fs::write(data.join("file"), "after").unwrap();
        fs::create_dir(data.join("folder")).unwrap();
        fs::write(data.join("folder/new"), "new").unwrap();
        fs::rename(data.join("folder/new"), data.join("new")).unwrap();
        fs::read("/etc/hosts").unwrap();
        fs::read("/proc/self/status").unwrap();
        fs::write("/dev/null", "nothing").unwrap();
    });
}

#[test]
fn read_only_plan_allows_writes_only_in_its_folders() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let [data, other] = ["data", "other"].map(|name| home.path().join(name));
    for folder in [&data, &other] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("file"), "before").unwrap();
    }
    let files = Files::ReadOnly { writable: vec![data.clone()] };
    restricted(Plan { files, ..plan(Programs::Started) }, move |report| {
        match &report.files {
            State::Enforced => {}
            State::Missing(_) => return,
            state => panic!("{state}"),
        }
        let denied = |what: std::io::Result<()>| {
            assert_eq!(what.unwrap_err().kind(), ErrorKind::PermissionDenied);
        };
        denied(fs::write(other.join("file"), "after"));
        denied(fs::File::options().append(true).open(other.join("file")).map(drop));
        denied(fs::write(other.join("new"), "after"));
        denied(fs::create_dir(other.join("folder")));
        denied(fs::remove_file(other.join("file")));
        denied(fs::write(home.path().join("new"), "after"));
        std::os::unix::fs::symlink(other.join("file"), data.join("link")).unwrap();
        denied(fs::write(data.join("link"), "after"));

        assert_eq!(fs::read(other.join("file")).unwrap(), b"before");
        assert!(crate::run("/bin/cat", &[other.join("file").to_str().unwrap()]).status.success());
        fs::write(data.join("file"), "after").unwrap();
        fs::create_dir(data.join("folder")).unwrap();
        fs::rename(data.join("file"), data.join("folder/file")).unwrap();
        fs::write("/dev/null", "nothing").unwrap();
    });
}

#[test]
fn mode_off_restricts_nothing_and_is_reported() {
    let plan = Plan { mode: Mode::Off, ..plan(Programs::None) };
    restricted(plan, |report| {
        assert!(report.states().iter().all(|(_, state)| state.to_string() == "off: sandbox.mode is off"));
        assert!(!report.is_degraded());
        assert!(std::process::Command::new("/bin/true").status().unwrap().success());
    });
}
