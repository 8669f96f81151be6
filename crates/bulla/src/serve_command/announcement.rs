//! The output of `bulla up` and `bulla serve` after startup.

use std::fmt::Write as _;
use std::time::Duration;

use cli::connection::local;

use super::running::StartMode;
use crate::component::Description;
use crate::config::Role;
use crate::roles::Roles;

/// Commands to try next, for a new user.
const NEXT: &str = "\
next, in another terminal:
  bulla scan example.com                   find certificates, and what is wrong with them
  bulla cert create www.example.net        issue a certificate, and keep it renewed
  bulla doctor                             check this machine and the server
";

/// Prints the roles with their addresses and, for `up`, the next steps.
pub(super) fn print(
    url: Option<&str>,
    console: &[String],
    described: &[(Role, Description)],
    roles: &Roles,
    mode: StartMode,
    took: Duration,
) {
    let at = url.map(|url| format!(" at {url}")).unwrap_or_default();
    eprintln!("bulla is up{at} after {} ms", took.as_millis());
    eprint!("{}", table(described, roles));
    if mode == StartMode::Up && url.is_some() {
        let root = cli::data::folder().map(|folder| folder.join(local::ROOT));
        root.iter().for_each(|root| eprintln!("trust anchor: {}", root.display()));
        console.iter().for_each(|line| eprintln!("{line}"));
        eprint!("{NEXT}");
    }
}

/// Formats the table of roles with their states and addresses, one address per line.
fn table(described: &[(Role, Description)], roles: &Roles) -> String {
    let mut text = String::new();
    let mut row = |role: &str, state: &str, what: &str| {
        let _ = writeln!(text, "  {role:<7} {state:<8} {what}");
    };
    row("role", "state", "address");
    for (role, Description { places, notes }) in described {
        let (mut name, mut state) = (role.name(), "running");
        for line in places.iter().chain(notes) {
            row(name, state, line);
            (name, state) = ("", "");
        }
        if *role == Role::Server && roles.has(Role::Signer) {
            row(Role::Signer.name(), "running", "in the server");
        }
    }
    for (role, why) in roles.left_out() {
        row(role.name(), "off", why);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::roles::DefaultRoles;

    #[test]
    fn role_table_shows_addresses_and_how_to_enable_disabled_roles() {
        let mut settings = Settings::default();
        settings.agent.policy = "/no/such/policy.toml".into();
        let roles = settings.roles(&[], DefaultRoles::Everything).unwrap();
        let of = |places: &[&str], notes: &[&str]| Description {
            places: places.iter().map(|text| (*text).to_owned()).collect(),
            notes: notes.iter().map(|text| (*text).to_owned()).collect(),
        };
        let described = [
            (Role::Server, of(&["https://localhost:8443"], &[])),
            (Role::Proxy, of(&["http://127.0.0.1:3128"], &["clients trust /d/proxy-ca.pem"])),
        ];
        assert_eq!(
            table(&described, &roles),
            "  role    state    address\n\
             \x20 server  running  https://localhost:8443\n\
             \x20 signer  running  in the server\n\
             \x20 proxy   running  http://127.0.0.1:3128\n\
             \x20                  clients trust /d/proxy-ca.pem\n\
             \x20 edge    off      set edge.upstream or edge.routes to enable it\n\
             \x20 agent   off      create a policy to enable it: `bulla agent policy init` writes /no/such/policy.toml\n"
        );
    }
}
