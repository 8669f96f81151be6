//! Configuration of deployment targets, read from JSON or TOML and used by [`Deployer`](super::Deployer).

use std::fmt;
use std::path::PathBuf;

use keys::Secret;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum bytes of a path, an owner or a command's argument: Linux's PATH_MAX.
const TEXT_MAX: usize = 4_096;
/// Maximum characters of a command's name.
const COMMAND_NAME_MAX: usize = 64;
/// Maximum number of arguments of a hook's command.
const ARGUMENTS_MAX: usize = 64;
/// Maximum timeout of a hook in seconds. A graceful restart of the slowest server takes a minute.
pub const HOOK_SECONDS_MAX: u32 = 600;
/// Maximum seconds that a probe may keep trying.
pub const VERIFY_SECONDS_MAX: u32 = 600;

/// Reason why a deployment target is invalid. Nothing was changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("target: {0}")]
pub struct InvalidTarget(pub(crate) String);

/// A deployment target of a certificate. All kinds share one engine.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Target {
    /// nginx. Files: `fullchain` and `key`. Commands: `nginx -t`, `nginx -s reload`.
    Nginx(PemTarget),
    /// Apache. Files: `fullchain` and `key`, or `cert`, `chain` and `key`. Commands: `apachectl configtest`, `apachectl graceful`.
    Apache(PemTarget),
    /// HAProxy. File: `combined`. Commands: `haproxy -c -f /etc/haproxy/haproxy.cfg`, `systemctl reload haproxy`.
    Haproxy(PemTarget),
    /// Caddy. Files: `fullchain` and `key`. Commands: `caddy validate`, `caddy reload --force`.
    Caddy(PemTarget),
    /// Traefik. Files: `fullchain`, `key` and `config`, a dynamic configuration file that Traefik watches.
    Traefik(PemTarget),
    /// Envoy. File: `config`, a file-based SDS resource that Envoy watches. It contains the key unless `fullchain` and `key` are
    /// given.
    Envoy(PemTarget),
    /// Postfix. Files: `fullchain` and `key`, or `combined`. Commands: `postfix check`, `postfix reload`.
    Postfix(PemTarget),
    /// Dovecot. Files: `fullchain` and `key`. Commands: `doveconf -n`, `doveadm reload`.
    Dovecot(PemTarget),
    /// Any PEM files, without default hooks.
    Files(PemTarget),
    /// One PKCS#12 file.
    Pkcs12(KeystoreTarget),
    /// One Java key store: JKS, or PKCS#12, the default of Java 9 and later.
    Jks(KeystoreTarget),
    /// A command that gets the paths of the files.
    Exec(ExecTarget),
}

/// PEM files, hooks and a probe.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PemTarget {
    /// File with the leaf alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<FileSpec>,
    /// File with the chain without the leaf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<FileSpec>,
    /// File with leaf and chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullchain: Option<FileSpec>,
    /// File with the private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<FileSpec>,
    /// One file with leaf, chain and key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combined: Option<FileSpec>,
    /// Configuration file of the server, for Traefik and Envoy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<FileSpec>,
    /// Name of the secret in Envoy's resource. Default: "server_cert".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// Command that checks the server's configuration; `[]` for none. Default: the command of the target's kind, see [`Target`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validate: Option<HookCommand>,
    /// Command that reloads the server; `[]` for none. Default: the command of the target's kind, see [`Target`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload: Option<HookCommand>,
    /// Timeout of each hook in seconds. Default: 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_seconds: Option<u32>,
    /// Endpoint to verify after a deployment. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
}

/// A key store in one file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeystoreTarget {
    /// File of the key store.
    pub file: FileSpec,
    /// The password of the store and of the key in it. At least six characters, as keytool requires. Serialized in plain text,
    /// because the agent needs it.
    #[serde(serialize_with = "keys::secret::exposed")]
    pub password: Secret,
    /// The alias of the entry. Default: "server".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// The format of a `jks` target. `pkcs12` targets are always PKCS#12.
    #[serde(default)]
    pub format: KeystoreFormat,
    /// Command that checks the server's configuration, as in [`PemTarget::validate`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate: Option<HookCommand>,
    /// Command that reloads the server, as in [`PemTarget::reload`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload: Option<HookCommand>,
    /// Timeout of each hook in seconds. Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_seconds: Option<u32>,
    /// Endpoint to verify after a deployment. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
}

/// Format of a Java key store.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeystoreFormat {
    /// PKCS#12 (RFC 7292). Every Java since 8u60 reads it, with any file extension.
    #[default]
    Pkcs12,
    /// Sun's own format, for software that reads no other. Its encryption is weak (SHA-1, no iterations).
    Jks,
}

/// A command that deploys the files itself. The environment variables `BULLA_CERT`, `BULLA_CHAIN`, `BULLA_FULLCHAIN` and
/// `BULLA_KEY` contain the files' paths, and `BULLA_FINGERPRINT` contains the fingerprint. The standard input is JSON with the same
/// values, names and dates.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExecTarget {
    /// Command that gets the paths of the files.
    pub command: HookCommand,
    /// Timeout in seconds. Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_seconds: Option<u32>,
    /// Endpoint to verify after a deployment. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
}

/// A command of a target. The policy of the agent's host must allow it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(
    untagged,
    expecting = "the name of a command in the agent's policy, or a list of a program and its arguments"
)]
pub enum HookCommand {
    /// The name of a command that the policy of the agent's host defines.
    Named(String),
    /// A program and its arguments, run without a shell. The policy must contain exactly these. Empty: no command.
    Argv(Vec<String>),
}

impl HookCommand {
    /// Returns whether there is no command.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Argv(argv) if argv.is_empty())
    }
}

impl fmt::Display for HookCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Argv(argv) => f.write_str(&argv.join(" ")),
        }
    }
}

/// A file with its owner and mode. A bare path keeps the current owner and mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileSpec {
    /// Absolute path.
    pub path: PathBuf,
    /// Name or number of a user. Default: the owner of the current file, else the agent's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Name or number of a group. Default: as for `owner`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Octal mode such as "0640". Default: the mode of the current file, else 0600 with a private key and 0644 without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
}

impl<'de> Deserialize<'de> for FileSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct FileFields {
            path: PathBuf,
            owner: Option<String>,
            group: Option<String>,
            mode: Option<FileMode>,
        }
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a path, or a table with path, owner, group and mode")]
        enum PathOrFields {
            Path(PathBuf),
            FileFields(FileFields),
        }
        Ok(match PathOrFields::deserialize(deserializer)? {
            PathOrFields::Path(path) => Self { path, owner: None, group: None, mode: None },
            PathOrFields::FileFields(fields) => {
                Self { path: fields.path, owner: fields.owner, group: fields.group, mode: fields.mode }
            }
        })
    }
}

/// Permission bits of a file, written in octal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileMode(pub u32);

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:04o}", self.0))
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match u32::from_str_radix(&text, 8) {
            Ok(bits) if bits <= 0o777 => Ok(Self(bits)),
            _ => Err(serde::de::Error::custom(format!("{text:?} is not an octal mode such as \"0640\""))),
        }
    }
}

/// A TLS endpoint that must serve the certificate after the deployment.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// A host name or an address, resolved on the agent's host.
    #[serde(default = "localhost")]
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The server name to send (SNI). Default: `host`, if it is a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// The protocol spoken before TLS, with the values of `bulla scan --starttls`. Default: "tls".
    #[serde(default = "tls")]
    pub protocol: String,
    /// Seconds after which a wrong certificate counts as a failure. Default: 30.
    #[serde(default = "verify_seconds")]
    pub seconds: u32,
}

fn localhost() -> String {
    "127.0.0.1".to_owned()
}

fn tls() -> String {
    "tls".to_owned()
}

fn verify_seconds() -> u32 {
    30
}

/// Default alias of a key store's entry.
pub(crate) const ALIAS: &str = "server";

/// Replacement for a password in displayed targets.
const HIDDEN: &str = "(hidden)";

impl Target {
    /// Returns the stable name of the kind: `nginx`, `pkcs12`, …
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Nginx(_) => "nginx",
            Self::Apache(_) => "apache",
            Self::Haproxy(_) => "haproxy",
            Self::Caddy(_) => "caddy",
            Self::Traefik(_) => "traefik",
            Self::Envoy(_) => "envoy",
            Self::Postfix(_) => "postfix",
            Self::Dovecot(_) => "dovecot",
            Self::Files(_) => "files",
            Self::Pkcs12(_) => "pkcs12",
            Self::Jks(_) => "jks",
            Self::Exec(_) => "exec",
        }
    }

    /// Returns the endpoint to verify after a deployment.
    #[must_use]
    pub fn verify(&self) -> Option<&Verify> {
        match self {
            Self::Nginx(t) | Self::Apache(t) | Self::Haproxy(t) | Self::Caddy(t) | Self::Traefik(t) => {
                t.verify.as_ref()
            }
            Self::Envoy(t) | Self::Postfix(t) | Self::Dovecot(t) | Self::Files(t) => t.verify.as_ref(),
            Self::Pkcs12(t) | Self::Jks(t) => t.verify.as_ref(),
            Self::Exec(t) => t.verify.as_ref(),
        }
    }

    /// Returns whether the target contains a password. If so, the target must be sealed when stored and redacted when displayed.
    #[must_use]
    pub fn has_password(&self) -> bool {
        matches!(self, Self::Pkcs12(_) | Self::Jks(_))
    }

    /// Returns a copy with every password replaced, for display.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let mut shown = self.clone();
        shown.set_password(Secret::new(HIDDEN));
        shown
    }

    /// Returns whether the password is only the placeholder of a displayed target.
    #[must_use]
    pub fn is_password_redacted(&self) -> bool {
        self.password().is_some_and(|password| password.expose() == HIDDEN)
    }

    pub(crate) fn password(&self) -> Option<&Secret> {
        match self {
            Self::Pkcs12(store) | Self::Jks(store) => Some(&store.password),
            _ => None,
        }
    }

    /// Sets the password. Does nothing for a target without one.
    pub(crate) fn set_password(&mut self, password: Secret) {
        if let Self::Pkcs12(store) | Self::Jks(store) = self {
            store.password = password;
        }
    }
}

pub(crate) fn check_file(what: &str, file: &FileSpec) -> Result<(), InvalidTarget> {
    let path = &file.path;
    let text = path.to_string_lossy();
    let plain = path
        .components()
        .all(|part| matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)));
    if !path.is_absolute() || !plain || path.file_name().is_none() || text.len() > TEXT_MAX {
        return Err(InvalidTarget(format!("{what}: {text:?} is not an absolute path without \"..\"")));
    }
    // Server configurations are line-based. A path with a line break would inject more lines.
    if text.ends_with('/') || text.chars().any(|c| c.is_control() || matches!(c, '"' | '\\')) {
        return Err(InvalidTarget(format!(
            "{what}: {text:?} contains a character that is not allowed in paths"
        )));
    }
    Ok(())
}

/// Returns whether a policy can define a command with this name.
pub(crate) fn is_command_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    !name.is_empty() && name.len() <= COMMAND_NAME_MAX && name.chars().all(plain)
}

pub(crate) fn check_command(what: &str, command: &HookCommand) -> Result<(), InvalidTarget> {
    let argv = match command {
        HookCommand::Argv(argv) => argv,
        HookCommand::Named(name) if is_command_name(name) => return Ok(()),
        HookCommand::Named(name) => {
            return Err(InvalidTarget(format!(
                "{what}: {name:?} is not a command name: letters, digits, '-', '_', '.'; or give a list of arguments"
            )));
        }
    };
    let program = argv.first().map(String::as_str).unwrap_or_default();
    if program.is_empty() {
        return Err(InvalidTarget(format!("{what}: the command has no program")));
    }
    if argv.len() > ARGUMENTS_MAX || argv.iter().any(|text| text.len() > TEXT_MAX || text.contains('\0')) {
        return Err(InvalidTarget(format!(
            "{what}: more than {ARGUMENTS_MAX} arguments, or an argument of more than {TEXT_MAX} bytes"
        )));
    }
    Ok(())
}

pub(crate) fn check_seconds(seconds: Option<u32>) -> Result<(), InvalidTarget> {
    match seconds {
        Some(0) => Err(InvalidTarget("hook_seconds: at least 1 second".to_owned())),
        Some(n) if n > HOOK_SECONDS_MAX => {
            Err(InvalidTarget(format!("hook_seconds: {n} exceeds the maximum of {HOOK_SECONDS_MAX}")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_verify(verify: &Verify) -> Result<(), InvalidTarget> {
    let invalid = |what: String| Err(InvalidTarget(format!("verify: {what}")));
    if verify.port == 0 {
        return invalid("port 0 is not valid".to_owned());
    }
    if scan::target::Protocol::named(&verify.protocol).is_none() {
        return invalid(format!("unknown protocol {:?}", verify.protocol));
    }
    if verify.seconds == 0 || verify.seconds > VERIFY_SECONDS_MAX {
        return invalid(format!("seconds must be from 1 to {VERIFY_SECONDS_MAX}"));
    }
    let names = [Some(&verify.host), verify.server_name.as_ref()];
    for (at, name) in names.into_iter().flatten().enumerate() {
        let address = at == 0 && name.parse::<std::net::IpAddr>().is_ok();
        if !address && scan::target::host_name(name).is_err() {
            return invalid(format!("{name:?} is not a host name"));
        }
    }
    Ok(())
}
