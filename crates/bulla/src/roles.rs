//! The roles of one process of `bulla up` or `bulla serve`: from flags, from the configuration, or the default roles of the command.

use std::collections::BTreeSet;

use cli::exit::{Outcome, Problem};

use crate::config::{Role, Settings};

/// The roles of a process for which neither flags nor configuration name any.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DefaultRoles {
    /// `bulla serve`: the control plane.
    Server,
    /// `bulla up`: every role that the configuration allows.
    Everything,
}

/// The roles of one process, and the reasons why other roles are left out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Roles {
    chosen: BTreeSet<Role>,
    /// Roles that `bulla up` leaves out, each with the reason.
    left_out: Vec<(Role, String)>,
    /// Whether the roles are the default roles of the command.
    are_default: bool,
}

impl Roles {
    /// Returns whether the process has this role.
    pub(crate) fn has(&self, role: Role) -> bool {
        self.chosen.contains(&role)
    }

    /// Returns whether the roles are the command's defaults: neither flags nor configuration named any.
    pub(crate) fn are_default(&self) -> bool {
        self.are_default
    }

    /// Removes a role, for the reason given.
    pub(crate) fn leave_out(&mut self, role: Role, why: String) {
        if self.chosen.remove(&role) {
            self.left_out.push((role, why));
        }
    }

    /// Returns whether the signer is the only role.
    pub(crate) fn is_signer_only(&self) -> bool {
        self.has(Role::Signer) && !self.has(Role::Server)
    }

    /// Returns all roles, in start order.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = Role> + '_ {
        self.chosen.iter().copied()
    }

    /// Returns the roles that `bulla up` leaves out, each with the reason.
    pub(crate) fn left_out(&self) -> &[(Role, String)] {
        &self.left_out
    }

    /// Returns the number of roles that listen, which share the limit of open files.
    pub(crate) fn listening(&self) -> usize {
        let listens = |role: &Role| !matches!(role, Role::Signer | Role::Agent);
        self.chosen().filter(listens).count().max(1)
    }
}

impl Settings {
    /// Returns the roles of this process: from `flags`, else from the configuration, else the default roles of the command.
    pub(crate) fn roles(&self, flags: &[Role], usual: DefaultRoles) -> Outcome<Roles> {
        let given = if flags.is_empty() { &self.roles } else { flags };
        let (mut chosen, left_out) = match (given, usual) {
            ([], DefaultRoles::Server) => (BTreeSet::from([Role::Server]), Vec::new()),
            ([], DefaultRoles::Everything) => self.everything(),
            (given, _) => (given.iter().copied().collect(), Vec::new()),
        };
        let is_apart = self.signer.is_apart();
        if chosen.contains(&Role::Server) && !is_apart {
            chosen.insert(Role::Signer);
        }
        if chosen.contains(&Role::Signer) && !chosen.contains(&Role::Server) {
            if chosen.len() > 1 {
                return Err(Problem::usage("the signer can share a process only with the server")
                    .hint("start it alone: --roles signer; or add the role server"));
            }
            if !is_apart {
                return Err(Problem::usage("signer.socket is empty").hint(
                    "set the socket between signer and server: signer.socket = \"/run/bulla-signer/socket\"",
                ));
            }
        }
        Ok(Roles { chosen, left_out, are_default: given.is_empty() })
    }

    fn everything(&self) -> (BTreeSet<Role>, Vec<(Role, String)>) {
        let mut chosen = BTreeSet::from([Role::Server, Role::Keys, Role::Proxy]);
        let mut left_out = Vec::new();
        if self.signer.is_apart() {
            left_out.push((Role::Signer, format!("at {}", self.signer.socket.display())));
        }
        if self.edge.has_upstream() {
            chosen.insert(Role::Edge);
        } else {
            left_out.push((Role::Edge, "set edge.upstream or edge.routes to enable it".to_owned()));
        }
        // Without a policy an agent deploys nothing. Without the agent, the sandbox can forbid this process to start programs.
        if self.agent.policy().exists() {
            chosen.insert(Role::Agent);
        } else {
            let policy = self.agent.policy().display().to_string();
            left_out.push((
                Role::Agent,
                format!("create a policy to enable it: `bulla agent policy init` writes {policy}"),
            ));
        }
        (chosen, left_out)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::config::SignerSettings;

    fn of(given: &[Role], settings: &Settings) -> Option<Vec<Role>> {
        settings.roles(given, DefaultRoles::Server).ok().map(|roles| roles.chosen().collect())
    }

    #[test]
    fn signer_runs_in_the_server_unless_a_socket_is_set() {
        let socket = SignerSettings { socket: "/run/s".into(), ..SignerSettings::default() };
        let (apart, in_process) = (Settings { signer: socket, ..Settings::default() }, Settings::default());
        let (server, both) = (Some(vec![Role::Server]), Some(vec![Role::Server, Role::Signer]));
        assert_eq!(of(&[], &in_process), both);
        assert_eq!(of(&[Role::Server], &in_process), both);
        assert_eq!(of(&[], &apart), server);
        assert_eq!(of(&[Role::Server], &apart), server);
        assert_eq!(of(&[Role::Server, Role::Signer], &apart), both);
        assert_eq!(of(&[Role::Signer], &apart), Some(vec![Role::Signer]));
        assert_eq!(of(&[Role::Signer], &in_process), None);
        assert_eq!(of(&[Role::Signer, Role::Proxy], &apart), None);
    }

    #[test]
    fn role_flags_override_the_file_and_the_file_overrides_defaults() {
        let settings = Settings { roles: vec![Role::Proxy], ..Settings::default() };
        assert_eq!(of(&[], &settings), Some(vec![Role::Proxy]));
        assert_eq!(of(&[Role::Agent, Role::Keys], &settings), Some(vec![Role::Keys, Role::Agent]));
    }

    #[test]
    fn up_starts_every_configured_role_and_lists_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("agent.toml");
        let mut settings = Settings::default();
        settings.agent.policy.clone_from(&policy);
        let bare = settings.roles(&[], DefaultRoles::Everything).unwrap();
        assert!(bare.has(Role::Keys) && bare.has(Role::Proxy) && !bare.has(Role::Edge));
        let hints: Vec<Role> = bare.left_out().iter().map(|(role, _)| *role).collect();
        assert_eq!(hints, [Role::Edge, Role::Agent]);
        std::fs::write(&policy, "").unwrap();
        settings.edge.upstream = "127.0.0.1:80".to_owned();
        let whole = settings.roles(&[], DefaultRoles::Everything).unwrap();
        assert_eq!(whole.chosen().collect::<Vec<_>>(), Role::value_variants());
        assert_eq!(whole.left_out(), []);
    }
}
