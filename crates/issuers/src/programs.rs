//! Programs that issuers, dns-01 hooks and the master key may run. Only the server's configuration file defines them. The API uses
//! their names and can never specify a command.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Uid, geteuid};
use serde::{Deserialize, Serialize};

use crate::command::{Command, RunAs};
use crate::error::IssuerError;
use crate::program_name::ProgramName;

/// Maximum timeout of a program in seconds: one hour.
const TIMEOUT_S_MAX: u64 = 3_600;
/// Prefix of the variables that describe a run. Reserved for Bulla.
const RESERVED_PREFIX: &str = "BULLA_";
/// Path of the user database.
const PASSWD_FILE: &str = "/etc/passwd";
/// Path of the group database.
const GROUP_FILE: &str = "/etc/group";

/// A section `[programs.NAME]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramConfig {
    /// Absolute path of the program, and its first arguments. Not interpreted by a shell.
    pub argv: Vec<String>,
    /// User to run as, with that user's groups. Empty: the server's user.
    #[serde(default)]
    pub user: String,
    /// Environment variables in addition to `PATH`, `HOME`, `USER`, `LANG`, `TZ` and `TMPDIR`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Timeout of a run in seconds, 1 to 3,600. After the timeout, the program's process group is killed.
    #[serde(default = "two_minutes")]
    pub timeout_s: u64,
}

fn two_minutes() -> u64 {
    120
}

/// An error in a section `[programs.NAME]`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("[programs.{name}]: {reason}")]
pub struct ProgramError {
    name: String,
    reason: String,
}

/// The programs of the server's configuration. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Programs(Arc<BTreeMap<String, Command>>);

impl Programs {
    /// Checks the programs and looks up their users. Runs nothing.
    ///
    /// # Errors
    /// [`ProgramError`] names the program and what to correct. This includes a program for another user when this process is not
    /// root and so cannot change its user.
    pub fn new(configs: &BTreeMap<String, ProgramConfig>) -> Result<Self, ProgramError> {
        // Without this file, the system has no users.
        let users = std::fs::read_to_string(PASSWD_FILE).unwrap_or_default();
        let each = configs.iter().map(|(name, config)| {
            let command = command(name, config, &users, geteuid());
            let command = command.map_err(|reason| ProgramError { name: name.clone(), reason });
            Ok((name.clone(), command?))
        });
        Ok(Self(Arc::new(each.collect::<Result<_, _>>()?)))
    }

    /// Returns the program with this name.
    ///
    /// # Errors
    /// [`IssuerError::Misconfigured`] when no such program is configured.
    pub(crate) fn get(&self, name: &ProgramName) -> Result<Command, IssuerError> {
        self.0.get(name.as_str()).cloned().ok_or_else(|| {
            IssuerError::misconfigured(format!(
                "unknown program {:?}: add [programs.{name}] with argv to the server's configuration file",
                name.as_str()
            ))
        })
    }
}

impl ProgramConfig {
    /// Checks that the section is valid. [`Programs::new`] looks up the user, in the process that runs programs.
    ///
    /// # Errors
    /// [`ProgramError`] names the program and what to correct.
    pub fn check(&self, name: &str) -> Result<(), ProgramError> {
        check(name, self).map_err(|reason| ProgramError { name: name.to_owned(), reason })
    }
}

fn check(name: &str, config: &ProgramConfig) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(plain) {
        return Err("a name consists of letters a-z, digits, '-', '_' and '.'".to_owned());
    }
    let Some(program) = config.argv.first().filter(|program| program.starts_with('/')) else {
        return Err(
            "argv must begin with the full path of the program, such as \"/usr/local/bin/issue\"".to_owned()
        );
    };
    if config.argv.iter().any(|part| part.contains('\0')) {
        return Err(format!("argv of {program} contains a NUL byte"));
    }
    if !(1..=TIMEOUT_S_MAX).contains(&config.timeout_s) {
        return Err(format!("timeout_s must be from 1 to {TIMEOUT_S_MAX}"));
    }
    for (variable, value) in &config.environment {
        let good = !variable.is_empty() && !variable.contains(['=', '\0']) && !value.contains('\0');
        if !good || variable.starts_with(RESERVED_PREFIX) {
            return Err(format!(
                "environment: {variable:?} cannot be set; names must not be empty, contain '=' or begin with {RESERVED_PREFIX}"
            ));
        }
    }
    Ok(())
}

/// Builds the command of one program, or returns the error in its configuration.
fn command(name: &str, config: &ProgramConfig, users: &str, own: Uid) -> Result<Command, String> {
    check(name, config)?;
    let run_as = match config.user.as_str() {
        "" => None,
        user => run_as(user, users, own)?,
    };
    let command = Command::new(&config.argv, Duration::from_secs(config.timeout_s));
    let command = command.map_err(|error| error.to_string())?;
    let groups = std::fs::read_to_string(GROUP_FILE).unwrap_or_default();
    let run_as = run_as.map(|user| user.with_groups(&groups));
    Ok(command.with_environment(&config.environment).with_user(run_as))
}

/// Returns the user to change to. `None` for the server's own user.
fn run_as(user: &str, users: &str, own: Uid) -> Result<Option<RunAs>, String> {
    let found = users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, _] = fields[..] else { return None };
        (name == user).then(|| Some(RunAs::new(name, uid.parse().ok()?, gid.parse().ok()?, home)))?
    });
    let found = found.ok_or_else(|| format!("unknown user {user:?} in {PASSWD_FILE}"))?;
    if found.uid() == own.as_raw() {
        return Ok(None);
    }
    if !own.is_root() {
        return Err(format!(
            "the server runs as user {} and cannot run a program as {user:?}: run the server as root or as that user, \
             or leave `user` out",
            own.as_raw()
        ));
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nissuer:x:901:902::/var/lib/issuer:/usr/sbin/nologin\n";

    fn config() -> ProgramConfig {
        ProgramConfig {
            argv: vec!["/bin/true".to_owned()],
            user: String::new(),
            environment: BTreeMap::new(),
            timeout_s: 60,
        }
    }

    fn judged(config: &ProgramConfig, own: u32) -> Result<Command, String> {
        command("name", config, PASSWD, Uid::from_raw(own))
    }

    #[test]
    fn program_needs_a_full_path_a_limit_and_valid_variables() {
        assert!(judged(&config(), 1_000).is_ok());
        let with = |change: fn(&mut ProgramConfig)| {
            let mut config = config();
            change(&mut config);
            judged(&config, 1_000)
        };
        assert!(
            with(|config| config.argv = vec!["true".to_owned()])
                .unwrap_err()
                .contains("argv must begin with the full path of the")
        );
        assert!(
            with(|config| config.argv.clear())
                .unwrap_err()
                .contains("argv must begin with the full path of the")
        );
        assert!(with(|config| config.argv.push("a\0".to_owned())).is_err());
        assert!(with(|config| config.timeout_s = 0).unwrap_err().contains("timeout_s"));
        assert!(with(|config| config.timeout_s = 3_601).is_err());
        for name in ["", "A=B", "BULLA_ORDER", "A\0"] {
            let mut config = config();
            config.environment.insert(name.to_owned(), "x".to_owned());
            assert!(judged(&config, 1_000).is_err(), "{name:?}");
        }
        for name in ["", "a b", "a]"] {
            assert!(command(name, &config(), PASSWD, Uid::ROOT).is_err(), "{name:?}");
        }
    }

    #[test]
    fn only_root_can_run_programs_as_another_user() {
        let mut config = config();
        config.user = "issuer".to_owned();
        let user = |own| run_as("issuer", PASSWD, Uid::from_raw(own));
        assert_eq!(user(0), Ok(Some(RunAs::new("issuer", 901, 902, "/var/lib/issuer"))));
        assert_eq!(user(901), Ok(None), "it is the server's own");
        let error = judged(&config, 1_000).unwrap_err();
        assert!(error.contains("1000") && error.contains("\"issuer\""), "{error}");
        config.user = "nobody-here".to_owned();
        assert!(judged(&config, 0).unwrap_err().contains("nobody-here"));
    }

    #[test]
    fn unknown_program_error_names_the_config_section() {
        let error = Programs::default().get(&ProgramName::new("sign")).unwrap_err();
        assert!(error.to_string().contains("[programs.sign]"), "{error}");
    }
}
