//! Combines flags, configuration and an earlier scan into the targets and options of a scan.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cli::exit::{Exit, Outcome, Problem, chain};
use outbound::guard::Guard;
use outbound::resolve::{Families, Resolver};
use scan::files::Passwords;
use scan::revocation::{RevocationChecker, RevocationOptions};
use scan::target::{Ports, Protocol, TargetOptions, host_name};
use scan::{Limits, ScanOptions, Trusted};
use serde::{Deserialize, Serialize};

use super::args::ScanArgs;
use crate::settings::{FamilySetting, RevocationSetting, ScanSettings, ScannerSettings};

const DNS_PORT: u16 = 53;
/// Timeout of each phase at the last attempt of a demo.
const DEMO_RETRY_TIMEOUT: Duration = Duration::from_millis(2_500);

/// The targets and options of a scan. They are stored with the scan in the inventory, so that it can be resumed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Spec {
    /// Targets as given, with absolute paths.
    pub targets: Vec<String>,
    /// Clouds and clusters of a watch by name, or `@` with the absolute path of the file of `--clouds`.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Scan all endpoints of the inventory.
    pub again: bool,
    /// Server names to request from targets given by address.
    pub server_names: Vec<String>,
    /// STARTTLS protocol of targets without a scheme.
    pub starttls: Option<String>,
    /// Maximum concurrent probes by protocol: `smtp=16`.
    #[serde(default)]
    pub per_protocol: Vec<String>,
    /// File with the passwords of key stores.
    pub password_file: Option<PathBuf>,
    /// Configuration section `[scan]`, with the flags.
    pub settings: ScanSettings,
}

impl Spec {
    /// Returns the spec that the command line requests.
    pub(crate) fn of(args: &ScanArgs, settings: &ScannerSettings) -> Self {
        let mut settings = settings.scan.clone();
        settings.ca_files = settings.ca_files.iter().map(|path| absolute(path)).collect();
        Self {
            targets: args.targets.iter().map(absolute_target).collect(),
            sources: args.clouds.iter().map(|file| format!("@{}", absolute(file).display())).collect(),
            again: args.again,
            server_names: args.sni.clone(),
            starttls: args.starttls.clone(),
            per_protocol: args.per_protocol.clone(),
            password_file: args.password_file.as_deref().map(absolute),
            settings,
        }
    }

    /// Returns the options with which the scan engine parses targets.
    pub fn target_options(&self) -> Outcome<TargetOptions> {
        let ports = match self.settings.ports.as_str() {
            "" => None,
            text => Some(text.parse::<Ports>().map_err(|error| {
                Problem::usage(format_args!("--port {text}: {error}"))
                    .hint("for example --port 443,8443,9000-9010")
            })?),
        };
        let name = |text: &String| {
            host_name(text).map_err(|error| {
                Problem::usage(format_args!("--sni {text}: {error}"))
                    .hint("give host names, without a port or wildcard")
            })
        };
        let protocol = match &self.starttls {
            None => None,
            Some(text) => Some(Protocol::named(text).ok_or_else(|| unknown_protocol("--starttls", text))?),
        };
        Ok(TargetOptions {
            ports,
            server_names: self.server_names.iter().map(name).collect::<Outcome<_>>()?,
            protocol,
            addresses_max: self.settings.max_addresses,
        })
    }

    /// Returns the options with which the scan engine probes targets.
    pub fn scan_options(&self) -> Outcome<ScanOptions> {
        let settings = &self.settings;
        let families = match settings.families {
            FamilySetting::Any => Families::usable(),
            FamilySetting::Ipv4 => Families::V4,
            FamilySetting::Ipv6 => Families::V6,
        };
        let passwords = match &self.password_file {
            None => Passwords::default(),
            Some(path) => Passwords::read(path).map_err(|error| {
                Problem::usage(format_args!("--password-file {}: {}", path.display(), chain(&error)))
                    .hint("give a text file with one password per line")
            })?,
        };
        Ok(ScanOptions {
            in_flight: (settings.in_flight > 0).then_some(settings.in_flight),
            per_address: settings.per_address,
            class_limits: self.per_protocol.iter().map(|text| per_protocol(text)).collect::<Outcome<_>>()?,
            families,
            all_addresses: settings.all_addresses,
            first: Limits::each(Duration::from_millis(settings.timeout_ms)),
            second: Limits::each(Duration::from_millis(settings.retry_timeout_ms)),
            second_pass: settings.retry,
            deadline: None,
            accepted: settings.accepted,
            finish_handshake: settings.finish_handshakes,
            expiring_within_days: settings.expiring_within_days,
            expiring_fraction: settings.expiring_fraction,
            passwords: Arc::new(passwords),
            revocation: None,
            // Users of `bulla scan` can connect from this host without Bulla, too. Therefore targets are not restricted.
            guard: None,
        })
    }

    /// Returns the checker of revocation, if revocation checks are enabled.
    pub fn revocation(&self, resolver: &Resolver, guard: Guard) -> Outcome<Option<RevocationChecker>> {
        let ocsp = match self.settings.revocation {
            RevocationSetting::Off => return Ok(None),
            RevocationSetting::Crl => false,
            RevocationSetting::Ocsp => true,
        };
        let http = outbound::http::Client::new(resolver, &outbound::http::Options { roots: None, guard })
            .map_err(|error| Problem::new(Exit::Machine, chain(&error)))?;
        let options = RevocationOptions { ocsp, ..RevocationOptions::default() };
        Ok(Some(RevocationChecker::new(http, options)))
    }

    /// Returns the trust anchors: the system's roots if enabled, and the certificates in `ca_files`.
    pub fn trust(&self) -> Outcome<Trusted> {
        let mut trusted =
            if self.settings.system_roots { Trusted::system() } else { Trusted::trusting_none() };
        for path in &self.settings.ca_files {
            trusted.add_file(path).map_err(|error| {
                Problem::usage(chain(&error)).hint("--ca needs a file of certificates, PEM or DER")
            })?;
        }
        if trusted.is_empty() {
            tracing::warn!("no trust anchors are configured: every chain will be reported as untrusted");
        }
        Ok(trusted)
    }

    /// Returns the DNS resolver: the configured name servers, else the system's.
    pub fn resolver(&self) -> Outcome<Resolver> {
        let servers = self.settings.dns.iter().map(|text| name_server(text)).collect::<Outcome<Vec<_>>>()?;
        if !servers.is_empty() {
            return Ok(Resolver::with_upstreams(servers));
        }
        Resolver::system().map_err(|error| {
            Problem::new(Exit::Machine, format_args!("cannot create a DNS resolver: {}", chain(&error)))
                .hint("check /etc/resolv.conf, or name a server with --dns ADDRESS")
        })
    }

    /// Returns the spec as JSON, for the inventory.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the spec of a stored scan.
    pub(crate) fn from_json(text: &str) -> Outcome<Self> {
        serde_json::from_str(text).map_err(|error| {
            Problem::usage(format_args!("the stored scan cannot be read: {error}"))
                .hint("another version of bulla created it: start a new scan")
        })
    }
}

/// Applies the flags, which override the configuration.
pub(crate) fn apply(args: &ScanArgs, settings: &mut ScannerSettings) -> Outcome<()> {
    let scan = &mut settings.scan;
    if let Some(ports) = &args.port {
        scan.ports.clone_from(ports);
    }
    if args.ipv4 {
        scan.families = FamilySetting::Ipv4;
    }
    if args.ipv6 {
        scan.families = FamilySetting::Ipv6;
    }
    scan.all_addresses |= args.all_addresses;
    scan.ca_files.extend(args.ca.iter().cloned());
    scan.system_roots &= !args.no_system_roots;
    scan.retry &= !args.no_retry;
    scan.finish_handshakes |= args.finish;
    if !args.dns.is_empty() {
        scan.dns.clone_from(&args.dns);
    }
    set(&mut scan.max_addresses, args.max_addresses);
    set(&mut scan.expiring_within_days, args.expiring_days);
    set(&mut scan.revocation, args.revocation);
    set(&mut scan.in_flight, args.in_flight);
    set(&mut scan.per_address, args.per_address);
    set(&mut scan.timeout_ms, args.timeout.map(milliseconds));
    // The simulated estate has hosts that never respond, so a demo uses a shorter timeout than a real scan.
    let retry_timeout = args.retry_timeout.or(args.demo.then_some(DEMO_RETRY_TIMEOUT));
    set(&mut scan.retry_timeout_ms, retry_timeout.map(milliseconds));
    set(&mut scan.output, args.output);
    set(&mut scan.table_rows, args.limit);
    set(&mut scan.fail_on, args.fail_on.clone());
    scan.accepted &= !args.no_accepted;
    settings.store.enabled &= !args.no_store;
    // A first timeout longer than the second one would make the second attempt pointless.
    if args.retry_timeout.is_none() {
        settings.scan.retry_timeout_ms = settings.scan.retry_timeout_ms.max(settings.scan.timeout_ms);
    }
    settings.check()
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn name_server(text: &str) -> Outcome<SocketAddr> {
    let bare = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
    text.parse::<SocketAddr>().or_else(|_| bare()).map_err(|_| {
        Problem::usage(format_args!("--dns: {text:?} is not an address"))
            .hint("give an IP address, with or without a port: 192.0.2.53 or [2001:db8::53]:5353")
    })
}

/// Parses `smtp=16`.
fn per_protocol(text: &str) -> Outcome<(Protocol, usize)> {
    let (name, count) = text.split_once('=').unwrap_or((text, ""));
    let protocol = Protocol::named(name).ok_or_else(|| unknown_protocol("--per-protocol", name))?;
    match count.parse() {
        Ok(count @ 1..) => Ok((protocol, count)),
        _ => Err(Problem::usage(format_args!("--per-protocol {text}: the number must be at least 1"))
            .hint("for example --per-protocol smtp=16")),
    }
}

fn unknown_protocol(flag: &str, text: &str) -> Problem {
    let known: Vec<_> = Protocol::UPGRADED.iter().map(|protocol| protocol.name()).collect();
    Problem::usage(format_args!("{flag}: unknown protocol {text:?}"))
        .hint(format!("use one of: {}, or tls for none", known.join(", ")))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns a target in a form that does not depend on the working directory.
fn absolute_target(target: &OsString) -> String {
    let text = target.to_string_lossy();
    if let Some(list) = text.strip_prefix('@') {
        return format!("@{}", absolute(Path::new(list)).display());
    }
    if text != "-" && Path::new(target).symlink_metadata().is_ok() {
        return absolute(Path::new(target)).display().to_string();
    }
    text.into_owned()
}
