//! Actions of a job that the policy does not allow, and the policy lines that would allow these actions.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::accounts;
use crate::deploy::target::{HookCommand, Verify};

/// Maximum characters of a suggested command name.
const NAME_MAX: usize = 40;

/// An action that the policy does not allow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DeniedAction {
    /// Writing a file.
    File {
        /// Path with links resolved.
        path: PathBuf,
        /// Requested owner, unless it is the agent's user or the current owner.
        owner: Option<u32>,
        /// Requested group, unless it is the agent's group or the current group.
        group: Option<u32>,
        /// Requested mode, once it is known.
        mode: Option<u32>,
    },
    /// Running a program with these arguments.
    Command(Vec<String>),
    /// Running a command that the server knows only by this name.
    Name(String),
    /// Connecting to an endpoint, in the notation of the policy.
    Address(String),
    /// An action that no policy line can allow.
    Never {
        /// The refused object.
        what: String,
        /// Reason why no policy line can allow the action.
        why: &'static str,
    },
}

impl DeniedAction {
    pub(super) fn file(path: &Path) -> Self {
        Self::File { path: path.to_owned(), owner: None, group: None, mode: None }
    }

    pub(super) fn command(command: &HookCommand) -> Self {
        match command {
            HookCommand::Named(name) => Self::Name(name.clone()),
            HookCommand::Argv(argv) => Self::Command(argv.clone()),
        }
    }

    pub(crate) fn address(verify: &Verify) -> Self {
        let host = &verify.host;
        Self::Address(match host.contains(':') {
            true => format!("[{host}]:{}", verify.port),
            false => format!("{host}:{}", verify.port),
        })
    }
}

impl fmt::Display for DeniedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, owner, group, mode } => {
                write!(f, "the file {}", path.display())?;
                owner.map_or(Ok(()), |uid| write!(f, " with owner {uid}"))?;
                group.map_or(Ok(()), |gid| write!(f, " with group {gid}"))?;
                mode.map_or(Ok(()), |mode| write!(f, " with mode {mode:04o}"))
            }
            Self::Command(argv) => write!(f, "the command {:?}", argv.join(" ")),
            Self::Name(name) => write!(f, "the command named {name:?}"),
            Self::Address(address) => write!(f, "connections to {address}"),
            Self::Never { what, why } => write!(f, "{what}, which {why}"),
        }
    }
}

/// Refusal of a job that the policy does not allow. Contains the error message.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl Refusal {
    pub(super) fn new(policy: &Path, found: bool, denied: &[DeniedAction], lines: &str) -> Self {
        let path = policy.display();
        let wanted: Vec<String> = denied.iter().map(ToString::to_string).collect();
        let what = format!("the policy of this host does not allow {}", wanted.join("; "));
        let state = if found { "" } else { ", which does not exist: nothing is allowed without it" };
        Self(match lines.is_empty() {
            true => format!("{what}. Policy: {path}{state}"),
            false => format!("{what}. Policy: {path}{state}. Lines that allow it:\n{lines}"),
        })
    }
}

/// Returns the policy lines for each distinct denied action. Names for new commands avoid the names for which `taken` returns true.
pub(super) fn lines(denied: &[DeniedAction], taken: impl Fn(&str) -> bool) -> String {
    let (mut text, mut blocks, mut names) = (String::new(), HashSet::new(), HashSet::new());
    for want in denied {
        let key = format!("{want:?}");
        if !blocks.insert(key) {
            continue;
        }
        match want {
            DeniedAction::File { path, owner, group, mode } => {
                text += &format!("\n[[files]]\npath = {}\n", quoted(&path.to_string_lossy()));
                text += &owner.map_or_else(String::new, |uid| format!("owners = [\"{uid}\"]\n"));
                text += &group.map_or_else(String::new, |gid| format!("groups = [\"{gid}\"]\n"));
                text += &mode.map_or_else(String::new, |mode| format!("mode = \"{mode:04o}\"\n"));
            }
            DeniedAction::Command(argv) => {
                let free = |name: &String| !taken(name) && !names.contains(name);
                let name = unique_name(&slug(argv), free);
                let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
                text += &command(&name, &words.join(", "));
                names.insert(name);
            }
            DeniedAction::Name(name) => {
                text += &command(name, "\"/path/to/program\"");
                names.insert(name.clone());
            }
            DeniedAction::Address(address) => {
                text += &format!("\n[[verify]]\naddress = {}\n", quoted(address))
            }
            DeniedAction::Never { .. } => {}
        }
    }
    text
}

fn command(name: &str, words: &str) -> String {
    format!("\n[commands.{}]\nargv = [{words}]\nuser = {}\n", key(name), quoted(&accounts::own_name()))
}

/// Formats a key, bare where TOML allows it.
fn key(name: &str) -> String {
    let bare = name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'));
    if bare { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn unique_name(base: &str, free: impl Fn(&String) -> bool) -> String {
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    std::iter::once(base.to_owned()).chain(numbered).find(free).unwrap_or_default()
}

/// Turns a command into a name: `nginx -s reload` becomes "nginx-s-reload".
fn slug(argv: &[String]) -> String {
    let program = argv.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default();
    let words = std::iter::once(program).chain(argv.iter().skip(1).map(String::as_str));
    let text: String = words
        .flat_map(|word| word.chars().chain(['-']))
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect();
    let parts: Vec<&str> = text.split('-').filter(|part| !part.is_empty()).collect();
    let name: String = parts.join("-").chars().take(NAME_MAX).collect();
    if name.is_empty() { "command".to_owned() } else { name.trim_end_matches('-').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::rules::Rules;
    use super::*;

    #[test]
    fn suggested_policy_lines_parse_and_name_each_command_once() {
        let argv =
            |words: &[&str]| DeniedAction::Command(words.iter().map(|&word| word.to_owned()).collect());
        let denied = [
            DeniedAction::File {
                path: "/etc/tls/a \"b\".pem".into(),
                owner: Some(0),
                group: None,
                mode: Some(0o640),
            },
            argv(&["/usr/sbin/nginx", "-s", "reload"]),
            argv(&["nginx", "-s", "reload"]),
            argv(&["nginx", "-s", "reload"]),
            argv(&["sh", "-c", "echo $'\n'"]),
            DeniedAction::Name("other.name".to_owned()),
            DeniedAction::Address("[::1]:443".to_owned()),
        ];
        let text = lines(&denied, |name| name == "nginx-s-reload");
        for expected in [
            "[commands.nginx-s-reload-2]\nargv = [\"/usr/sbin/nginx\"",
            "[commands.nginx-s-reload-3]\n",
            "[commands.\"other.name\"]\n",
            "[[verify]]\naddress = \"[::1]:443\"\n",
            "owners = [\"0\"]\nmode = \"0640\"\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("reload-4"), "{text}");
        Rules::parse(&text).unwrap();
    }
}
