//! The command line of `bulla scan`.

use std::path::PathBuf;
use std::time::Duration;

use crate::output::ReportFormat;
use clap::{ArgAction, Args};
use cli::terminal::Colour;
use cli::units;

use crate::fail_on::FailOn;
use crate::settings::RevocationSetting;

/// Examples after the long help.
const EXAMPLES: &str = "\
Examples:
  bulla scan example.com                          one host, port 443
  bulla scan mail.example.com:587 ldap://dc1      STARTTLS, by port or by scheme
  bulla scan 10.0.0.0/24 --port 443,8443          a network, two ports
  bulla scan 192.0.2.1 --sni a.example,b.example  several names behind one address
  bulla scan @hosts.txt --output csv              a list, one target a line
  cut -f1 hosts.tsv | bulla scan -                standard input, scanned as it comes
  bulla scan /etc/ssl ./keystore.p12              certificates in files and folders
  bulla scan @prod.txt --fail-on high --quiet     in a pipeline: exit code 1 if it is bad
  bulla scan @prod.txt --output html --output-file report.html
  bulla scan --again                              everything the inventory knows
  bulla scan --demo                               a simulated estate, without a network";

/// Arguments of `bulla scan`.
#[derive(Args, Debug)]
#[command(after_help = "See --help for examples and exit codes.", after_long_help = [EXAMPLES, cli::exit::EXIT_CODES].join("\n\n"))]
pub struct ScanArgs {
    /// Hosts, addresses, networks, URLs, files and folders
    ///
    /// HOST, HOST:PORT, 192.0.2.1, [2001:db8::1]:443, 10.0.0.0/24, ADDRESS:PORT=NAME,NAME (server names to request), https://HOST,
    /// smtp://HOST, any path, @FILE (one target per line, # comments) or - (standard input).
    #[allow(
        rustdoc::broken_intra_doc_links,
        reason = "help text, in which brackets enclose an IPv6 address"
    )]
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<std::ffi::OsString>,

    /// Scan all endpoints of the inventory; those that did not respond last time come last
    #[arg(long, help_heading = "Targets", conflicts_with_all = ["resume", "demo"])]
    pub(crate) again: bool,
    /// Resume an interrupted or killed scan: the last one, or the given one
    ///
    /// Its targets and settings are stored; endpoints with stored results are not scanned again. If the targets came from standard
    /// input, provide them again.
    #[arg(long, help_heading = "Targets", value_name = "SCAN", num_args = 0..=1, require_equals = true, default_missing_value = "last", conflicts_with_all = ["demo", "no_store"])]
    pub(crate) resume: Option<String>,
    /// Start a simulated estate of a few hundred endpoints on loopback, and scan it
    #[arg(long, help_heading = "Targets", conflicts_with = "targets")]
    pub(crate) demo: bool,
    /// Also list the certificates in the clouds and clusters that FILE configures (docs/clouds.md)
    #[arg(long, help_heading = "Targets", value_name = "FILE", conflicts_with_all = ["resume", "demo", "liveness"])]
    pub(crate) clouds: Option<PathBuf>,
    /// Ports for targets without a port: 443,8443,9000-9010 [default: 443]
    #[arg(long, short, help_heading = "Targets", value_name = "PORTS")]
    pub(crate) port: Option<String>,
    /// Server names to request, one after the other, at targets without a name
    #[arg(long, help_heading = "Targets", value_name = "NAME", value_delimiter = ',')]
    pub(crate) sni: Vec<String>,
    /// Scan every address of a name as a separate endpoint
    #[arg(long, help_heading = "Targets")]
    pub(crate) all_addresses: bool,
    /// Use IPv4 only
    #[arg(short = '4', help_heading = "Targets", conflicts_with = "ipv6", id = "ipv4")]
    pub(crate) ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', help_heading = "Targets", id = "ipv6")]
    pub(crate) ipv6: bool,
    /// STARTTLS protocol of targets without a scheme [default: guessed from the port]
    ///
    /// One of smtp, lmtp, imap, pop3, sieve, ftp, ldap, postgres, mysql, mssql, xmpp, xmpp-server, nntp and rdp. Use tls for endpoints
    /// that start with TLS.
    #[arg(long, help_heading = "Targets", value_name = "PROTOCOL")]
    pub(crate) starttls: Option<String>,
    /// Maximum number of addresses of one network [default: 65536]
    #[arg(long, help_heading = "Targets", value_name = "COUNT")]
    pub(crate) max_addresses: Option<u64>,
    /// Passwords to try on PKCS#12 and Java key stores, one per line
    #[arg(long, help_heading = "Targets", value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// Trust the certificates in this file (PEM or DER), too; may be repeated
    #[arg(long, help_heading = "Judgement", value_name = "FILE", action = ArgAction::Append)]
    pub(crate) ca: Vec<PathBuf>,
    /// Trust only --ca, neither this system's roots nor the Mozilla root programme
    #[arg(long, help_heading = "Judgement")]
    pub(crate) no_system_roots: bool,
    /// Days before expiry from which a certificate is reported as expiring [default: 30]
    #[arg(long, help_heading = "Judgement", value_name = "DAYS")]
    pub(crate) expiring_days: Option<u32>,
    /// Check whether certificates are revoked [default: off]
    ///
    /// Stapled OCSP responses are used first, then CRLs; each CRL is fetched once for all certificates that name it. With ocsp,
    /// responders are queried last, and learn which certificates are scanned. The URLs are those in the certificates.
    #[arg(long, help_heading = "Judgement", value_enum, value_name = "SOURCE")]
    pub(crate) revocation: Option<RevocationSetting>,
    /// Do not test whether servers accept obsolete versions and weak cipher suites in addition to the negotiated ones
    #[arg(long, help_heading = "Judgement")]
    pub(crate) no_accepted: bool,
    /// Exit with code 1 if a finding has at least this severity: info, low, medium, high, critical; or no-answer
    ///
    /// A host that does not respond counts as high, and as no-answer. Unresponsive addresses of a network do not count. Separate
    /// several words with commas: critical,no-answer
    #[arg(long, help_heading = "Judgement", value_name = "SEVERITY", value_parser = parse_fail_on)]
    pub(crate) fail_on: Option<String>,

    /// Name server to use instead of the system's: ADDRESS or ADDRESS:PORT; may be repeated
    #[arg(long, help_heading = "Network", value_name = "ADDRESS", action = ArgAction::Append)]
    pub(crate) dns: Vec<String>,
    /// Maximum concurrent endpoints [default: as the limit of open files allows, at most 2048]
    #[arg(long, help_heading = "Network", value_name = "COUNT")]
    pub(crate) in_flight: Option<usize>,
    /// Maximum concurrent endpoints behind one address [default: 32]
    #[arg(long, help_heading = "Network", value_name = "COUNT")]
    pub(crate) per_address: Option<usize>,
    /// Maximum concurrent endpoints of a protocol, for servers that limit connections: smtp=16; may be repeated
    #[arg(long, help_heading = "Network", value_name = "PROTOCOL=COUNT", action = ArgAction::Append)]
    pub(crate) per_protocol: Vec<String>,
    /// Timeout of each phase (DNS, connect, handshake) at the first attempt [default: 2s]
    ///
    /// The scan adapts this timeout to the measured response times of other endpoints.
    #[arg(long, help_heading = "Network", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Timeout of each phase at the last attempt, which decides whether an endpoint is dead [default: 10s]
    #[arg(long, help_heading = "Network", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) retry_timeout: Option<Duration>,
    /// Stop the scan after this time; endpoints without a result are `cancelled` (exit code 3)
    #[arg(long, help_heading = "Network", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) deadline: Option<Duration>,
    /// Do not retry
    #[arg(long, help_heading = "Network")]
    pub(crate) no_retry: bool,
    /// Complete handshakes, so that servers log no aborted handshake and send their session tickets
    #[arg(long, help_heading = "Network")]
    pub(crate) finish: bool,
    /// Only check whether endpoints respond; sessions may be resumed, certificates are not evaluated and nothing is stored
    #[arg(long, help_heading = "Network", conflicts_with_all = ["again", "resume", "db", "fail_on", "output_file", "metrics_file"])]
    pub(crate) liveness: bool,

    /// Output format [default: table]
    #[arg(long, short, help_heading = "Output", value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<ReportFormat>,
    /// Write the results into this file instead of standard output
    #[arg(long, help_heading = "Output", value_name = "FILE")]
    pub(crate) output_file: Option<PathBuf>,
    /// Include each certificate of the chain as PEM in JSON and JSON lines
    #[arg(long, help_heading = "Output")]
    pub(crate) include_pem: bool,
    /// Maximum rows of the table, most urgent first; 0 for all [default: 50]
    #[arg(long, help_heading = "Output", value_name = "ROWS")]
    pub(crate) limit: Option<usize>,
    /// Print no progress bar and no summary
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// When to use colour
    #[arg(long, help_heading = "Output", value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Colour,
    /// Write the scan's counts into this file for Prometheus (textfile collector)
    #[arg(long, help_heading = "Output", value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,

    /// Inventory database: a file or postgres://USER@HOST/DATABASE [default: in the data folder]
    #[arg(long, help_heading = "Inventory", value_name = "URL")]
    pub(crate) db: Option<String>,
    /// Do not store results
    #[arg(long, help_heading = "Inventory", conflicts_with_all = ["db", "again"])]
    pub(crate) no_store: bool,
}

fn parse_fail_on(text: &str) -> Result<String, String> {
    text.parse::<FailOn>().map(|_| text.to_owned())
}
