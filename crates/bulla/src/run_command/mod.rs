//! `bulla run`: runs a command whose only way to the network is a proxy.
//!
//! A run has three processes:
//!
//! 1. The first process stays in the host's namespaces. It runs the proxy, or the connection to a remote one.
//! 2. The second process creates namespaces and starts the third one in them.
//! 3. The third process is the init process of the namespaces. It binds the proxy's address there, passes the socket to the first
//!    process, confines itself and starts the command.
//!
//! The first process accepts connections from the namespaces on that socket.

mod arguments;
mod control;
mod environment;
mod files;
mod folder;
mod inherited;
mod own_proxy;
mod processes;
mod relay;
mod secrets;
mod signals;
mod stages;

use std::path::Path;

use cli::GlobalArgs;
use cli::exit::{Exit, Outcome, Problem};
use tokio::process::{Child, Command};

pub(crate) use self::arguments::RunArgs;
use self::arguments::{RemoteProxy, Stage};
use self::control::ControlSocket;
use self::environment::{Environment, ProxyUrl};
use self::files::CommandFiles;
use self::own_proxy::PreparedProxy;
use self::processes::{INSIDE, status_of, wait_error};
use self::relay::Target;
use self::signals::Signals;
use crate::config::Configuration;

/// Runs `bulla run`. Exits with the status of the command.
pub(crate) fn run(args: &RunArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let status = match &args.stage {
        Some(Stage::Separate) => stages::separate(args)?,
        Some(Stage::Init) => stages::init(args)?,
        Some(Stage::Bare) => return Err(stages::bare(args)),
        None => {
            let mut status = 0;
            let outer = async {
                status = outer(args, global).await?;
                Ok(Exit::Ok)
            };
            cli::block_on(Box::pin(outer))?;
            status
        }
    };
    std::process::exit(status)
}

/// Runs the first process.
async fn outer(args: &RunArgs, global: &GlobalArgs) -> Outcome<i32> {
    args.check()?;
    let configuration = Configuration::load(global.config.as_deref())?;
    match args.no_sandbox {
        true => run_unconfined(args, &configuration).await,
        false => confined(args, &configuration).await,
    }
}

/// The proxy that the command uses.
enum Proxy {
    Own(Box<PreparedProxy>),
    Remote(RemoteProxy),
}

impl Proxy {
    /// Returns the proxy that `--proxy` names, else one in this process.
    async fn of(args: &RunArgs, configuration: &Configuration) -> Outcome<Self> {
        match args.remote()? {
            Some(remote) => Ok(Self::Remote(remote)),
            None => Ok(Self::Own(Box::new(PreparedProxy::load(configuration).await?))),
        }
    }

    fn root(&self, args: &RunArgs, configuration: &Configuration) -> Outcome<Vec<Vec<u8>>> {
        match self {
            Self::Own(own) => own.root(),
            Self::Remote(_) => own_proxy::remote_proxy_roots(args.ca.as_deref(), configuration),
        }
    }
}

/// Returns a remote proxy and the trust anchors of its certificate: the system's, and the certificates of `--proxy-ca`, else of `--ca`.
fn target(args: &RunArgs, remote: &RemoteProxy, root: &[Vec<u8>]) -> Outcome<Target> {
    let mut roots = outbound::tls::system_roots();
    match &args.proxy_ca {
        Some(file) => roots.extend(crate::files::certificates("--proxy-ca", file)?),
        None => roots.extend_from_slice(root),
    }
    Target::new(remote, roots)
}

/// Runs the command in namespaces.
async fn confined(args: &RunArgs, configuration: &Configuration) -> Outcome<i32> {
    inherited::refuse()?;
    let hidden = secrets::files(configuration)?;
    let files = CommandFiles::new(args, hidden)?;
    if rustix::process::geteuid().is_root() && !args.read_only {
        eprintln!(
            "warning: the command runs as root: it can change files that programs outside the sandbox run or read"
        );
        eprintln!("hint: start it as a separate user, or with --read-only");
    }
    if args.allow_unix_sockets {
        eprintln!(
            "warning: Unix sockets are reachable: a server of this host, such as Docker or ssh-agent, can act for the command"
        );
    }
    let proxy = Proxy::of(args, configuration).await?;
    let root = proxy.root(args, configuration)?;
    let url = match &proxy {
        Proxy::Own(_) => ProxyUrl::open(INSIDE),
        Proxy::Remote(remote) => ProxyUrl { address: INSIDE, login: remote.login.clone() },
    };
    let environment = Environment::new(url, &root)?;
    let door = ControlSocket::open(environment.folder())?;
    let mut signals = Signals::listen()?;
    let mut command = stages::command(args, Stage::Separate, door.path());
    files.pass(&mut command);
    for name in secrets::variables(configuration) {
        command.env_remove(name);
    }
    let mut child = start(&mut command, args, &environment)?;
    let link = tokio::select! {
        link = door.link() => link?,
        // The child process has printed its own error.
        status = child.wait() => return status.map(status_of).map_err(|error| wait_error(&error)),
    };
    let (mut link, socket) = link;
    let serving = match proxy {
        Proxy::Own(own) => Serving::Own(own.serve_confined(socket, &args.name).await?),
        Proxy::Remote(remote) => Serving::Relay(relay::start(socket, target(args, &remote, &root)?)?),
    };
    link.start_command()?;
    let status = until_end(&mut child, &mut signals, |signal| link.forward(signal)).await;
    serving.stop().await;
    status
}

/// Runs the command without namespaces. Sets only the environment.
async fn run_unconfined(args: &RunArgs, configuration: &Configuration) -> Outcome<i32> {
    eprintln!("warning: without a sandbox only programs that read the proxy variables use the proxy");
    eprintln!(
        "hint: direct connections (TCP, UDP, DNS, QUIC, Unix sockets) are not blocked, and a program can unset the \
         variables; leave out --no-sandbox if that matters"
    );
    let proxy = Proxy::of(args, configuration).await?;
    let root = proxy.root(args, configuration)?;
    let (url, serving) = match proxy {
        Proxy::Own(own) => {
            let (url, running) = own.serve_with_password(&args.name).await?;
            (url, Serving::Own(running))
        }
        Proxy::Remote(remote) => {
            let (address, relay) = relay::start_local(target(args, &remote, &root)?).await?;
            (ProxyUrl { address, login: remote.login }, Serving::Relay(relay))
        }
    };
    let environment = Environment::new(url, &root)?;
    let mut signals = Signals::listen()?;
    let mut child = start(&mut stages::command(args, Stage::Bare, Path::new("-")), args, &environment)?;
    let id = child.id();
    let status = until_end(&mut child, &mut signals, |signal| signals::send(id, signal)).await;
    serving.stop().await;
    status
}

/// The proxy, or the relay to a remote proxy, while the command runs.
enum Serving {
    Own(own_proxy::Serving),
    Relay(relay::Relay),
}

impl Serving {
    async fn stop(self) {
        match self {
            Self::Own(own) => own.stop().await,
            Self::Relay(relay) => relay.stop().await,
        }
    }
}

fn start(command: &mut Command, args: &RunArgs, environment: &Environment) -> Outcome<Child> {
    environment.set(command, args);
    command.arg("--").args(&args.command);
    command.spawn().map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot start a process: {error}"))
            .hint("check the limits on processes (ulimit -u)")
    })
}

/// Forwards signals until the process ends.
async fn until_end(child: &mut Child, signals: &mut Signals, mut forward: impl FnMut(i32)) -> Outcome<i32> {
    loop {
        tokio::select! {
            status = child.wait() => return status.map(status_of).map_err(|error| wait_error(&error)),
            signal = signals.next() => forward(signal),
        }
    }
}
