//! `bulla serve` and `bulla up`: the control plane in one process.

pub(crate) mod certificate;
mod estate;
pub(crate) mod files;
mod first_start;
mod login;
pub(crate) mod master_keys;
pub(crate) mod memory;
mod metrics;
mod rooms;
mod transparency;
mod watch;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use secrecy::{ExposeSecret, SecretString};
use server::listen::{Running, Server, ServerOptions};
use store::{Clock, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cli::Global;
use crate::config::{Configuration, ServerSettings, Settings};
use crate::exit::{Exit, Outcome, Problem, chain};
use rooms::Rooms;

/// `bulla serve`
#[derive(Args, Debug, Default)]
pub(crate) struct ServeArgs {
    /// Database: a file or postgres://USER@HOST/DATABASE [default: in the data folder]
    #[arg(long, value_name = "URL")]
    db: Option<String>,
    /// Where to serve the API and the protocols over TLS [default: 127.0.0.1:8443]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where to serve credentials over TLS, with CredHub's API [default: 127.0.0.1:8844]
    #[arg(long, value_name = "ADDRESS")]
    credential_listen: Option<String>,
    /// Where to serve CRLs and OCSP in plain HTTP [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    public_listen: Option<String>,
}

/// Whether the first token is kept for the commands on this machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Manner {
    /// `serve`: printed once, kept nowhere.
    Serve,
    /// `up`: kept in the data folder, so that the commands work at once.
    Up,
}

/// `bulla serve`
pub(crate) async fn serve(args: &ServeArgs, global: &Global) -> Outcome<Exit> {
    Box::pin(run(args, global, Manner::Serve)).await
}

/// `bulla up`
pub(crate) async fn up(args: &ServeArgs, global: &Global) -> Outcome<Exit> {
    Box::pin(run(args, global, Manner::Up)).await
}

async fn run(args: &ServeArgs, global: &Global, manner: Manner) -> Outcome<Exit> {
    let began = Instant::now();
    let mut settings = Configuration::load(global.config.as_deref())?.settings;
    memory::keep(settings.server.core_dumps)?;
    settings.server.take(args);
    if let Some(listen) = &args.credential_listen {
        settings.credentials.listen.clone_from(listen);
    }
    let stop = crate::stop::on_signal_within(Duration::from_secs(settings.server.stop_s) + STOP_MARGIN)?;
    let url = crate::data::inventory_url(args.db.as_deref(), &settings.store)?;
    let store = crate::scan_command::open(&url, &settings.store).await?;
    let running = start(&settings, store, manner, stop.clone()).await?;
    announce(&running, began.elapsed());
    stop.cancelled().await;
    eprintln!("stopping: requests under way have {} s to finish", settings.server.stop_s);
    let drained = running.stop().await;
    if !drained {
        eprintln!("some requests had not finished and were cut off");
    }
    Ok(Exit::Ok)
}

/// Beyond the time for requests: background work ends, the database is closed.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// A control plane that runs.
struct Up {
    running: Arc<Running>,
    background: tokio::task::JoinSet<()>,
    url: String,
}

impl Up {
    /// False when requests were cut off.
    async fn stop(mut self) -> bool {
        // First the tasks that hold the server: they have been told to stop.
        while self.background.join_next().await.is_some() {}
        match Arc::into_inner(self.running) {
            Some(running) => running.stop().await,
            None => false,
        }
    }
}

async fn start(settings: &Settings, store: Store, manner: Manner, stop: CancellationToken) -> Outcome<Up> {
    let clock = Clock::system();
    let addresses = Addresses::of(&settings.server)?;
    let rooms = Rooms::open(settings, &addresses, &store, &clock).await?;
    let root = first_start::root_pem(&rooms.authority).await?;
    first_token(&store, &clock, manner).await?;
    let own = certificate::Own::of(&settings.server, &rooms.authority, &addresses.names).await?;
    let mut options = ServerOptions::new(addresses.listen, own.current());
    options.public = addresses.public;
    options.credentials = match settings.credentials.listen.as_str() {
        "" => None,
        text => Some(socket("credentials.listen", text)?),
    };
    options.connections_max = settings.server.connections_max;
    options.drain_timeout = Duration::from_secs(settings.server.stop_s);
    options.trusted_proxies = rooms::networks("server.trusted_proxies", &settings.server.trusted_proxies)?;
    options.client_roots = rooms.client_roots(&settings.server).await?;
    let running = Arc::new(Server::start(options, rooms.state.clone()).await.map_err(|error| {
        Problem::new(Exit::Machine, chain(&error)).hint(
            "choose another address: --listen, --public-listen and --credential-listen, or server.listen and \
             credentials.listen in the configuration",
        )
    })?);
    let url = addresses.url_at(running.address);
    files::write(&url, &root)?;
    let credential_url = match running.credential_address {
        Some(_) if !settings.credentials.url.is_empty() => settings.credentials.url.clone(),
        Some(address) => addresses.url_of(address),
        None => String::new(),
    };
    files::write_credential_url(&credential_url)?;
    let background = rooms.run(own, &running, &stop);
    Ok(Up { running, background, url })
}

/// Makes the first token where nobody can enter yet. It is handed over before it counts: whatever fails, a token that
/// counts is never lost.
async fn first_token(store: &Store, clock: &Clock, manner: Manner) -> Outcome<()> {
    let hand_over = move |token: &SecretString| match manner {
        Manner::Up => {
            files::write_token(token).map_err(|problem| problem.message)?;
            eprintln!("the admin token is kept for the commands on this machine: try `bulla cert list`");
            Ok(())
        }
        Manner::Serve => {
            eprintln!("the first admin token, shown this once: {}", token.expose_secret());
            Ok(())
        }
    };
    let made = server::access::bootstrap_into(store, clock, hand_over).await;
    made.map(drop).map_err(|error| {
        Problem::new(Exit::Inventory, chain(&error))
            .hint("check the database and the data folder, then start again")
    })
}

/// Where things are served, and under which names.
pub(crate) struct Addresses {
    listen: SocketAddr,
    public: Option<SocketAddr>,
    /// As clients reach the API, without a slash at the end; empty to take the bound address.
    url: String,
    /// As clients reach CRLs and OCSP.
    pub(crate) public_url: String,
    /// Names of the server's own certificate.
    names: Vec<String>,
}

impl Addresses {
    fn of(settings: &ServerSettings) -> Outcome<Self> {
        let listen = socket("server.listen", &settings.listen)?;
        let public = match settings.public_listen.as_str() {
            "" => None,
            text => Some(socket("server.public_listen", text)?),
        };
        let host = host_name(&settings.listen);
        let url = settings.url.trim_end_matches('/').to_owned();
        let public_url = match (settings.public_url.trim_end_matches('/'), public) {
            ("", Some(public)) => format!("http://{}", at(&host, public.port(), 80)),
            ("", None) => format!("http://{host}"),
            (given, _) => given.to_owned(),
        };
        let mut names = vec![host, "localhost".to_owned()];
        names.extend(host_of(&url));
        if !listen.ip().is_unspecified() {
            names.push(listen.ip().to_string());
        } else {
            names.push("127.0.0.1".to_owned());
        }
        names.sort();
        names.dedup();
        Ok(Self { listen, public, url, public_url, names })
    }

    /// As clients reach the API, once the port is known.
    pub(crate) fn url(&self) -> String {
        self.url_at(self.listen)
    }

    fn url_at(&self, address: SocketAddr) -> String {
        if self.url.is_empty() { self.url_of(address) } else { self.url.clone() }
    }

    /// Of whatever listens there.
    fn url_of(&self, address: SocketAddr) -> String {
        let host = if address.ip().is_loopback() {
            "localhost".to_owned()
        } else {
            self.names.iter().find(|name| *name != "localhost").cloned().unwrap_or_default()
        };
        format!("https://{}", at(&host, address.port(), 443))
    }
}

fn at(host: &str, port: u16, usual: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == usual { host } else { format!("{host}:{port}") }
}

/// The host of `HOST:PORT`, or this machine's name for a wildcard address.
fn host_name(listen: &str) -> String {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host).trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>().ok();
    if address.is_some_and(|address| address.is_loopback()) {
        return "localhost".to_owned();
    }
    if host.is_empty() || address.is_some_and(|address| address.is_unspecified()) {
        let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        return if name.is_empty() { "localhost".to_owned() } else { name };
    }
    host.to_owned()
}

fn host_of(url: &str) -> Option<String> {
    reqwest::Url::parse(url).ok()?.host_str().map(|host| host.trim_matches(['[', ']']).to_owned())
}

/// The address that `key` names.
pub(crate) fn socket(key: &str, text: &str) -> Outcome<SocketAddr> {
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| {
        Problem::usage(format_args!("{key} is {text:?}, which is no address to listen on"))
            .hint("give HOST:PORT, for example 0.0.0.0:8443")
    })
}

/// As many connections as there may be files open for: `most`.
pub(crate) fn bound_connections(key: &str, connections_max: &mut usize, most: usize) {
    let most = most.max(1);
    if *connections_max > most {
        eprintln!(
            "warning: {most} connections at once, not the {connections_max} of {key}: the limit of open files is too low\n\
             hint: raise it (ulimit -n, LimitNOFILE)"
        );
        *connections_max = most;
    }
}

/// Where `SECTION.metrics_listen` has figures served; `None` for nowhere.
pub(crate) fn figures_listener(section: &str, listen: &str) -> Outcome<Option<TcpListener>> {
    if listen.is_empty() {
        return Ok(None);
    }
    let address = socket(&format!("{section}.metrics_listen"), listen)?;
    let listener = inbound::listen(address).map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot listen on {address}: {error}")).hint(format!(
            "choose another address: --metrics-listen, or {section}.metrics_listen in the configuration"
        ))
    })?;
    eprintln!("figures at http://{}/metrics", listener.local_addr().unwrap_or(address));
    Ok(Some(listener))
}

fn announce(up: &Up, took: Duration) {
    eprintln!("bulla is up at {} after {} ms", up.url, took.as_millis());
    if let Some(address) = up.running.public_address {
        eprintln!("CRLs and OCSP at http://{address}");
    }
    if let Some(address) = up.running.credential_address {
        eprintln!("credentials (CredHub's API) at https://{address}");
    }
}

impl ServerSettings {
    fn take(&mut self, args: &ServeArgs) {
        if let Some(listen) = &args.listen {
            self.listen.clone_from(listen);
        }
        if let Some(listen) = &args.public_listen {
            self.public_listen.clone_from(listen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_as_clients_reach_them() {
        let of = |listen: &str, url: &str| {
            let settings =
                ServerSettings { listen: listen.into(), url: url.into(), ..ServerSettings::default() };
            Addresses::of(&settings).unwrap()
        };
        assert_eq!(of("127.0.0.1:8443", "").url(), "https://localhost:8443");
        assert_eq!(of("127.0.0.1:443", "").url(), "https://localhost");
        let named = of("0.0.0.0:8443", "https://pki.example/");
        assert_eq!(named.url(), "https://pki.example");
        assert!(named.names.contains(&"pki.example".to_owned()), "{:?}", named.names);
        assert!(of("[::1]:8443", "").names.contains(&"::1".to_owned()));
        assert!(
            Addresses::of(&ServerSettings { listen: "nonsense".into(), ..ServerSettings::default() })
                .is_err()
        );
    }
}
