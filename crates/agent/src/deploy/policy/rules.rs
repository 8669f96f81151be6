//! The rules of a policy, and their evaluation.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::pattern::PathPattern;
use super::want::{DeniedAction, Refusal};
use crate::accounts::{self, Account};
use crate::deploy::file::Attributes;
use crate::deploy::target::{FileMode, HOOK_SECONDS_MAX, HookCommand, Verify, is_command_name};

/// Timeout of a command in seconds when neither the policy nor the target sets one.
const TIMEOUT: u32 = 60;
/// Most permissive mode of a file under a rule without `mode`.
const MODE: u32 = 0o644;
/// Most permissive mode of a file with a private key under a rule without `mode`.
const KEY_MODE: u32 = 0o640;

/// The parsed policy file.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rules {
    /// Folders in which commands write. If given, the process and its commands may write only in these folders and the folders of
    /// `files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    writable_folders: Option<Vec<PathBuf>>,
    files: Vec<FileRule>,
    commands: BTreeMap<String, CommandRule>,
    verify: Vec<VerifyRule>,
}

/// A rule for files that may be written.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    path: PathPattern,
    /// Allowed owners, in addition to the agent's user and the current owner.
    #[serde(default)]
    owners: Vec<String>,
    /// Allowed groups, in addition to the agent's group and the current group.
    #[serde(default)]
    groups: Vec<String>,
    /// Most permissive mode allowed for the file.
    mode: Option<FileMode>,
}

/// A rule for a command that may be run.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct CommandRule {
    argv: Vec<String>,
    user: String,
    #[serde(default = "timeout")]
    timeout_s: u32,
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

fn timeout() -> u32 {
    TIMEOUT
}

/// A rule for an endpoint that may be connected to.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct VerifyRule {
    address: AddressRule,
}

/// Address of a rule, `HOST:PORT`. The host is a name, an address or a network; the port may be `*`.
#[derive(Debug)]
struct AddressRule {
    text: String,
    host: HostRule,
    port: Option<u16>,
}

#[derive(Debug)]
enum HostRule {
    Name(String),
    Network(IpNet),
}

impl AddressRule {
    fn parse(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "address {text:?} is not HOST:PORT such as \"127.0.0.1:443\", \"[::1]:*\" or \"10.0.0.0/8:443\""
            )
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let port = match port {
            "*" => None,
            port => Some(port.parse().ok().filter(|&port| port != 0).ok_or_else(invalid)?),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let host = if let Ok(address) = bare.parse::<IpAddr>() {
            HostRule::Network(address.into())
        } else if let Ok(network) = bare.parse::<IpNet>() {
            HostRule::Network(network)
        } else if scan::target::host_name(bare).is_ok() {
            HostRule::Name(bare.to_ascii_lowercase())
        } else {
            return Err(invalid());
        };
        Ok(Self { text: text.to_owned(), host, port })
    }

    fn has_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }

    fn names(&self, host: &str, port: u16) -> bool {
        let same = matches!(&self.host, HostRule::Name(name) if name.eq_ignore_ascii_case(host));
        same && self.has_port(port)
    }

    fn holds(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let inside = matches!(&self.host, HostRule::Network(network) if network.contains(&ip));
        inside && self.has_port(address.port())
    }
}

impl Serialize for AddressRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for AddressRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Rules {
    /// Parses the file's text, and checks the constraints that the types do not express.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let rules: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut folders = rules.writable_folders.iter().flatten();
        if let Some(folder) = folders.find(|folder| !folder.is_absolute()) {
            return Err(format!("writable_folders: {} is not an absolute path", folder.display()));
        }
        for (name, command) in &rules.commands {
            command.check(name)?;
        }
        for name in rules.files.iter().flat_map(|rule| &rule.owners) {
            accounts::uid_of(name).map_err(|error| format!("files: owners: {error}"))?;
        }
        for name in rules.files.iter().flat_map(|rule| &rule.groups) {
            accounts::gid_of(name).map_err(|error| format!("files: groups: {error}"))?;
        }
        Ok(rules)
    }
}

impl CommandRule {
    fn check(&self, name: &str) -> Result<(), String> {
        let invalid = |why: String| Err(format!("commands.{name}: {why}"));
        if !is_command_name(name) {
            return invalid("a name consists of letters, digits, '-', '_' and '.'".to_owned());
        }
        if self.argv.first().is_none_or(String::is_empty) {
            return invalid("argv has no program".to_owned());
        }
        if self.timeout_s == 0 || self.timeout_s > HOOK_SECONDS_MAX {
            return invalid(format!("timeout_s must be from 1 to {HOOK_SECONDS_MAX}"));
        }
        if let Some(name) = self.environment.keys().find(|name| name.is_empty() || name.contains(['=', '\0']))
        {
            return invalid(format!("{name:?} is not a valid variable name"));
        }
        accounts::user(&self.user).map(drop).or_else(|error| invalid(format!("user: {error}")))
    }
}

/// An allowed command with all its settings.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    pub(crate) account: Account,
    pub(crate) seconds: u32,
    pub(crate) environment: BTreeMap<String, String>,
}

/// A file that a job wants to write, with links resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestedFile<'f> {
    /// Path with links resolved.
    pub(crate) path: &'f Path,
    /// Whether the file contains a private key.
    pub(crate) private: bool,
    pub(crate) wanted: Attributes,
    /// Attributes of the replaced file. `None` for a new file.
    pub(crate) before: Option<Attributes>,
}

/// The policy of this host at the time it was read.
#[derive(Debug, Serialize)]
pub struct Policy {
    path: PathBuf,
    /// Whether the file exists. Without the file, all actions are rejected.
    found: bool,
    #[serde(flatten)]
    rules: Rules,
    /// The agent's own directories and files, links resolved. No job may write to them.
    #[serde(skip)]
    own: Vec<PathBuf>,
}

impl Policy {
    pub(super) fn new(path: PathBuf, rules: Option<Rules>, own: Vec<PathBuf>) -> Self {
        Self { path, found: rules.is_some(), rules: rules.unwrap_or_default(), own }
    }

    /// Checks whether any rule names the path, independent of the file's owner.
    pub(crate) fn path(&self, path: &Path) -> Result<(), DeniedAction> {
        if self.own.iter().any(|own| path.starts_with(own)) {
            let why = "belongs to the agent or to its policy";
            return Err(DeniedAction::Never { what: format!("the file {}", path.display()), why });
        }
        if self.programs().any(|program| program == path) {
            let why = "is the program of a command";
            return Err(DeniedAction::Never { what: format!("the file {}", path.display()), why });
        }
        let named = self.rules.files.iter().any(|rule| rule.path.names(path));
        if named { Ok(()) } else { Err(DeniedAction::file(path)) }
    }

    fn programs(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let named = self.rules.commands.values().filter_map(|command| command.argv.first());
        named
            .map(Path::new)
            .filter(|path| path.is_absolute())
            .map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()))
    }

    /// Checks whether a rule names the file and allows its owner, group and mode.
    pub(crate) fn file(&self, file: &RequestedFile<'_>) -> Result<(), DeniedAction> {
        self.path(file.path)?;
        let rules = self.rules.files.iter().filter(|rule| rule.path.names(file.path));
        if rules.into_iter().any(|rule| rule.allows(file)) {
            return Ok(());
        }
        let (uid, gid) = accounts::own();
        let before = |own: fn(&Attributes) -> u32| file.before.as_ref().map(own);
        let owner = ![Some(uid), before(|a| a.uid)].contains(&Some(file.wanted.uid));
        let group = ![Some(gid), before(|a| a.gid)].contains(&Some(file.wanted.gid));
        Err(DeniedAction::File {
            path: file.path.to_owned(),
            owner: owner.then_some(file.wanted.uid),
            group: group.then_some(file.wanted.gid),
            mode: Some(file.wanted.mode),
        })
    }

    /// Returns the command, if the policy allows it.
    pub(crate) fn program(&self, command: &HookCommand, seconds: u32) -> Result<Program, DeniedAction> {
        let rule = match command {
            HookCommand::Named(name) => self.rules.commands.get_key_value(name),
            HookCommand::Argv(argv) => self.rules.commands.iter().find(|(_, rule)| rule.argv == *argv),
        };
        let Some((name, rule)) = rule else { return Err(DeniedAction::command(command)) };
        let never = |why| DeniedAction::Never { what: format!("the command {name}"), why };
        let account =
            accounts::user(&rule.user).map_err(|_| never("names a user that this host does not have"))?;
        let own = accounts::own().0;
        if own != 0 && own != account.uid {
            return Err(never("runs as another user, which requires the agent to run as root"));
        }
        let (argv, environment) = (rule.argv.clone(), rule.environment.clone());
        Ok(Program { argv, account, seconds: rule.timeout_s.min(seconds), environment })
    }

    /// Returns whether a rule names the endpoint's host name, independent of its addresses.
    pub(crate) fn names(&self, verify: &Verify) -> bool {
        self.rules.verify.iter().any(|rule| rule.address.names(&verify.host, verify.port))
    }

    /// Returns whether any rule could allow an address with this port.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.rules.verify.iter().any(|rule| rule.address.has_port(port))
    }

    /// Checks whether the agent may connect to each address of the endpoint.
    pub(crate) fn addresses(&self, verify: &Verify, addresses: &[SocketAddr]) -> Result<(), DeniedAction> {
        let allowed =
            |address: &SocketAddr| self.rules.verify.iter().any(|rule| rule.address.holds(*address));
        let all = !addresses.is_empty() && addresses.iter().all(allowed);
        if all || self.names(verify) { Ok(()) } else { Err(DeniedAction::address(verify)) }
    }

    /// Builds the refusal of a job.
    pub(crate) fn refusal(&self, denied: Vec<DeniedAction>) -> Refusal {
        let lines = self.policy_lines_for(&denied);
        Refusal::new(&self.path, self.found, &denied, &lines)
    }

    /// Returns the policy lines that would allow all of `denied`, to be added to the file.
    #[must_use]
    pub fn policy_lines_for(&self, denied: &[DeniedAction]) -> String {
        super::want::lines(denied, |name| self.rules.commands.contains_key(name))
    }

    /// Returns the folders in which the agent and its commands may write: the folders of the policy's files, and `writable_folders`. `None`
    /// if the policy has no `writable_folders`, so that the commands may write everywhere.
    #[must_use]
    pub fn writable_folders(&self) -> Option<Vec<PathBuf>> {
        let of_commands = self.rules.writable_folders.as_ref()?;
        let of_files = self.rules.files.iter().map(|rule| rule.path.folder().to_owned());
        Some(of_files.chain(of_commands.iter().cloned()).collect())
    }

    /// Returns the path of the policy file.
    #[must_use]
    pub fn file_path(&self) -> &Path {
        &self.path
    }
}

impl FileRule {
    fn allows(&self, file: &RequestedFile<'_>) -> bool {
        let (uid, gid) = accounts::own();
        let wanted = file.wanted;
        let owner = wanted.uid == uid
            || file.before.is_some_and(|before| before.uid == wanted.uid)
            || self.owners.iter().any(|name| accounts::uid_of(name) == Ok(wanted.uid));
        let group = wanted.gid == gid
            || file.before.is_some_and(|before| before.gid == wanted.gid)
            || self.groups.iter().any(|name| accounts::gid_of(name) == Ok(wanted.gid));
        let usual = if file.private { KEY_MODE } else { MODE };
        let most = self.mode.map_or(usual, |mode| mode.0);
        let mode_unchanged = file.before.is_some_and(|before| before.mode == wanted.mode);
        owner && group && (mode_unchanged || wanted.mode & !most == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        Policy::new(PathBuf::from("/etc/bulla/agent.toml"), Some(Rules::parse(text).unwrap()), vec![])
    }

    #[test]
    fn writable_folders_are_those_of_files_and_commands_and_only_if_the_policy_has_them() {
        let files = "[[files]]\npath = \"/etc/tls/*/x.pem\"\n[[files]]\npath = \"/srv/app/\"\n";
        assert_eq!(policy(files).writable_folders(), None);
        let of = |folders: &str| {
            policy(&format!("writable_folders = {folders}\n{files}")).writable_folders().unwrap()
        };
        assert_eq!(of("[]"), ["/etc/tls", "/srv/app"].map(PathBuf::from));
        assert_eq!(of("[\"/run\"]"), ["/etc/tls", "/srv/app", "/run"].map(PathBuf::from));
    }

    fn verify(host: &str, port: u16) -> Verify {
        serde_json::from_value(serde_json::json!({"host": host, "port": port})).unwrap()
    }

    #[test]
    fn verify_addresses_match_host_names_addresses_and_networks() {
        let policy = policy(
            "[[verify]]\naddress = \"10.0.0.0/8:443\"\n[[verify]]\naddress = \"[::1]:*\"\n\
             [[verify]]\naddress = \"web.internal:8443\"\n",
        );
        let allowed = |host: &str, port: u16, addresses: &[&str]| {
            let addresses: Vec<_> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            policy.addresses(&verify(host, port), &addresses).is_ok()
        };
        assert!(allowed("10.1.2.3", 443, &["10.1.2.3:443"]));
        assert!(allowed("other.internal", 443, &["[::ffff:10.1.2.3]:443"]), "an IPv4 address in IPv6");
        assert!(allowed("::1", 25, &["[::1]:25"]));
        assert!(allowed("WEB.internal", 8443, &["192.0.2.1:8443"]), "the host's owner trusts the name");
        assert!(!allowed("web.internal", 443, &["192.0.2.1:443"]));
        assert!(!allowed("10.1.2.3", 444, &["10.1.2.3:444"]));
        assert!(!allowed("both.internal", 443, &["10.1.2.3:443", "192.0.2.1:443"]), "each address counts");
        assert!(!allowed("none.internal", 443, &[]));
    }

    #[test]
    fn invalid_policy_is_rejected_with_the_location_of_the_error() {
        let table = [
            ("writable_folders = [\"run\"]\n", "writable_folders: run is not an absolute path"),
            ("[[files]]\npath = \"tls/a\"\n", "is not an absolute path without \".\" and"),
            (
                "[[files]]\npath = \"/etc/tls/a\"\nowners = [\"no-such-user\"]\n",
                "unknown user \"no-such-user\"",
            ),
            ("[[files]]\npath = \"/etc/tls/a\"\nowner = \"root\"\n", "unknown field `owner`"),
            ("[[files]]\npath = \"/etc/tls/a\"\nmode = \"999\"\n", "is not an octal mode such as \"0640\""),
            ("[commands.x]\nargv = [\"true\"]\n", "missing field `user`"),
            ("[commands.x]\nargv = []\nuser = \"root\"\n", "commands.x: argv"),
            ("[commands.x]\nargv = \"true\"\nuser = \"root\"\n", "argv"),
            ("[commands.x]\nargv = [\"true\"]\nuser = \"no-such-user\"\n", "commands.x: user: unknown user"),
            ("[commands.x]\nargv = [\"true\"]\nuser = \"root\"\ntimeout_s = 601\n", "timeout_s"),
            (
                "[commands.\"x y\"]\nargv = [\"true\"]\nuser = \"root\"\n",
                "a name consists of letters, digits, '-', '_'",
            ),
            ("[[verify]]\naddress = \"127.0.0.1\"\n", "is not HOST:PORT such as \"127.0.0.1:443\","),
            ("[[verify]]\naddress = \"127.0.0.1:0\"\n", "is not HOST:PORT such as \"127.0.0.1:443\","),
            ("allow = true\n", "unknown field `allow`"),
        ];
        for (text, expected) in table {
            let error = Rules::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn command_is_allowed_by_name_or_exact_arguments() {
        let own = accounts::own_name();
        let policy =
            policy(&format!("[commands.reload]\nargv = [\"true\", \"x\"]\nuser = {own:?}\ntimeout_s = 5\n"));
        let argv = |words: &[&str]| HookCommand::Argv(words.iter().map(|&word| word.to_owned()).collect());
        assert_eq!(policy.program(&HookCommand::Named("reload".to_owned()), 60).unwrap().seconds, 5);
        assert_eq!(policy.program(&argv(&["true", "x"]), 3).unwrap().seconds, 3);
        for refused in [&["true"][..], &["true", "x", "y"], &["/bin/true", "x"], &["reload"]] {
            assert!(policy.program(&argv(refused), 60).is_err(), "{refused:?}");
        }
        assert!(policy.program(&HookCommand::Named("true".to_owned()), 60).is_err());
    }
}
