//! The arguments of `bulla run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use cli::exit::{Outcome, Problem};
use keys::Secret;

/// The maximum length of a name and of a password that a proxy accepts, in bytes (RFC 1929).
const LOGIN_MAX: usize = 255;

/// Arguments of `bulla run`, which starts a command whose connections go through the proxy.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  bulla run -- curl https://example.com
  bulla run --as ci -- npm ci
  bulla run --read-only --write ~/.npm -- npm test
  bulla run --as ci --proxy https://proxy.example:3128 --password-file ci.password -- git fetch

The exit status is the command's: 128 and the signal's number where a signal ended it, 127 where the command was not found.")]
pub(crate) struct RunArgs {
    /// The identity of the command: the user in rules and logs of the proxy
    #[arg(long = "as", value_name = "NAME", default_value = "run")]
    pub(super) name: String,
    /// A running proxy, http://HOST:PORT or https://HOST:PORT [default: one in this process, from [proxy] of the configuration]
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    /// File with the password of NAME at that proxy, on one line
    #[arg(long, value_name = "FILE", requires = "proxy")]
    password_file: Option<PathBuf>,
    /// The CA of that proxy (PEM) [default: proxy.ca_certificate_file, or the CA in the data folder]
    #[arg(long, value_name = "FILE", requires = "proxy")]
    pub(super) ca: Option<PathBuf>,
    /// Trust anchors (PEM) for the certificate of an https:// proxy, in addition to the system's [default: same as --ca]
    #[arg(long, value_name = "FILE", requires = "proxy")]
    pub(super) proxy_ca: Option<PathBuf>,
    /// Set only the environment, without restrictions
    #[arg(long)]
    pub(super) no_sandbox: bool,
    /// Allow writing only in the working directory and in TMPDIR
    #[arg(long, conflicts_with = "no_sandbox")]
    pub(super) read_only: bool,
    /// With --read-only: also allow writing this file, or files in this folder; may be repeated
    #[arg(long, value_name = "PATH", requires = "read_only")]
    pub(super) write: Vec<PathBuf>,
    /// Allow the command to use Unix sockets of the host (Docker, ssh-agent)
    #[arg(long, conflicts_with = "no_sandbox")]
    pub(super) allow_unix_sockets: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
    /// The stage of this process in the run
    #[arg(long, hide = true, value_enum)]
    pub(super) stage: Option<Stage>,
    /// The process id of the parent
    #[arg(long, hide = true)]
    pub(super) parent: Option<u32>,
    /// The socket path of the first process
    #[arg(long, hide = true)]
    pub(super) control: Option<PathBuf>,
    /// A file or folder that is hidden from the command
    #[arg(long, hide = true)]
    pub(super) hide: Vec<PathBuf>,
}

/// Stages of a run, each in its own process.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Stage {
    /// Creates the namespaces.
    Separate,
    /// The init process in the namespaces.
    Init,
    /// Without namespaces: execs the command.
    Bare,
}

impl Stage {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Separate => "separate",
            Self::Init => "init",
            Self::Bare => "bare",
        }
    }
}

/// The running proxy that `--proxy` names.
#[derive(Debug)]
pub(super) struct RemoteProxy {
    /// Address of the proxy, HOST:PORT.
    pub(super) address: String,
    /// Whether clients use TLS to the proxy.
    pub(super) is_tls: bool,
    pub(super) login: Option<Login>,
}

/// The user name and password for a proxy.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) name: String,
    pub(super) password: Secret,
}

impl RunArgs {
    pub(super) fn check(&self) -> Outcome<()> {
        let name = &self.name;
        if name.is_empty() || name.len() > LOGIN_MAX || name.contains(|c: char| c == ':' || c.is_control()) {
            return Err(Problem::usage(format_args!("{name:?} is not a valid name of an identity")).hint(
                format!("--as must have 1 to {LOGIN_MAX} bytes, without a colon and control characters"),
            ));
        }
        Ok(())
    }

    /// Returns the proxy that `--proxy` names.
    pub(super) fn remote(&self) -> Outcome<Option<RemoteProxy>> {
        let Some(url) = &self.proxy else { return Ok(None) };
        const SHAPE: &str = "it is not http://HOST:PORT or https://HOST:PORT";
        let wrong = |why: &str| {
            Problem::usage(format_args!("--proxy {url}: {why}"))
                .hint("for example --proxy http://127.0.0.1:3128")
        };
        let (rest, is_tls) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(wrong(SHAPE)),
        };
        let address = rest.trim_end_matches('/');
        if address.contains('@') {
            return Err(wrong("a password in the command line is visible to other users")
                .hint("give the name with --as and the password with --password-file"));
        }
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if address.contains('/')
            || !port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
        {
            return Err(wrong(SHAPE));
        }
        let login = match &self.password_file {
            None => None,
            Some(file) => {
                let read_error = |why: &dyn std::fmt::Display| {
                    Problem::usage(format_args!("--password-file {}: {why}", file.display()))
                        .hint("the file must contain only the password, in one line")
                };
                let text = std::fs::read_to_string(file).map_err(|error| read_error(&error))?;
                let password = text.trim_end_matches(['\r', '\n']);
                if password.is_empty() || password.len() > LOGIN_MAX || password.contains(char::is_control) {
                    return Err(read_error(&"the file does not contain one line of 1 to 255 bytes"));
                }
                Some(Login { name: self.name.clone(), password: Secret::new(password) })
            }
        };
        Ok(Some(RemoteProxy { address: address.to_owned(), is_tls, login }))
    }
}
