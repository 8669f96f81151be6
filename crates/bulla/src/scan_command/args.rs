//! The command line of `bulla scan`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use cli::format::Format;
use cli::terminal::Colour;
use cli::units;

use super::fail_on::FailOn;
use crate::config::RevocationSetting;

/// Shown after the long help.
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

/// `bulla scan`
#[derive(Args, Debug)]
#[command(after_help = "See --help for examples and exit codes.", after_long_help = [EXAMPLES, cli::exit::EXIT_CODES].join("\n\n"))]
pub(crate) struct ScanArgs {
    /// Hosts, addresses, networks, URLs, files and folders
    ///
    /// HOST, HOST:PORT, 192.0.2.1, [2001:db8::1]:443, 10.0.0.0/24, ADDRESS:PORT=NAME,NAME (server
    /// names to ask for), https://HOST, smtp://HOST, any path, @FILE (a target a line, # comments)
    /// or - (standard input).
    #[allow(
        rustdoc::broken_intra_doc_links,
        reason = "help for people, where brackets are an IPv6 address's"
    )]
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<std::ffi::OsString>,

    /// Scan everything the inventory knows, those silent last time at the end
    #[arg(long, help_heading = "Targets", conflicts_with_all = ["resume", "demo"])]
    pub(crate) again: bool,
    /// Go on with a scan that was interrupted or killed: the last one, or the one given
    ///
    /// Its targets and settings are remembered; endpoints already stored are not looked at again. When
    /// targets came from standard input, give them again.
    #[arg(long, help_heading = "Targets", value_name = "SCAN", num_args = 0..=1, require_equals = true, default_missing_value = "last", conflicts_with_all = ["demo", "no_store"])]
    pub(crate) resume: Option<String>,
    /// Start a simulated estate of a few hundred endpoints on loopback and scan that
    #[arg(long, help_heading = "Targets", conflicts_with = "targets")]
    pub(crate) demo: bool,
    /// List what clouds and clusters keep too, as FILE says (docs/clouds.md)
    #[arg(long, help_heading = "Targets", value_name = "FILE", conflicts_with_all = ["resume", "demo", "liveness"])]
    pub(crate) clouds: Option<PathBuf>,
    /// Ports for targets that name none: 443,8443,9000-9010 [default: 443]
    #[arg(long, short, help_heading = "Targets", value_name = "PORTS")]
    pub(crate) port: Option<String>,
    /// Server names to ask for, each in turn, at targets that name none
    #[arg(long, help_heading = "Targets", value_name = "NAME", value_delimiter = ',')]
    pub(crate) sni: Vec<String>,
    /// Look at every address of a name, each as an endpoint of its own
    #[arg(long, help_heading = "Targets")]
    pub(crate) all_addresses: bool,
    /// IPv4 only
    #[arg(short = '4', help_heading = "Targets", conflicts_with = "ipv6", id = "ipv4")]
    pub(crate) ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', help_heading = "Targets", id = "ipv6")]
    pub(crate) ipv6: bool,
    /// Protocol spoken before TLS at targets without a scheme [default: guessed from the port]
    ///
    /// smtp, lmtp, imap, pop3, sieve, ftp, ldap, postgres, mysql, mssql, xmpp, xmpp-server, nntp, rdp,
    /// or tls for none.
    #[arg(long, help_heading = "Targets", value_name = "PROTOCOL")]
    pub(crate) starttls: Option<String>,
    /// Addresses one network may have [default: 65536]
    #[arg(long, help_heading = "Targets", value_name = "COUNT")]
    pub(crate) max_addresses: Option<u64>,
    /// Passwords to try on PKCS#12 and Java key stores, one a line
    #[arg(long, help_heading = "Targets", value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// Trust the certificates in this file (PEM or DER) too; may be repeated
    #[arg(long, help_heading = "Judgement", value_name = "FILE", action = ArgAction::Append)]
    pub(crate) ca: Vec<PathBuf>,
    /// Trust neither this system's roots nor the Mozilla root programme, only --ca
    #[arg(long, help_heading = "Judgement")]
    pub(crate) no_system_roots: bool,
    /// Days before its end from which on a certificate is about to expire [default: 30]
    #[arg(long, help_heading = "Judgement", value_name = "DAYS")]
    pub(crate) expiring_days: Option<u32>,
    /// Ask whether certificates were revoked, beside the looks [default: off]
    ///
    /// Staples count first, then CRLs, each asked for once for all certificates that name it, and with ocsp the
    /// responders, which learn what is looked at. The URLs are those in the certificates.
    #[arg(long, help_heading = "Judgement", value_enum, value_name = "WHOM")]
    pub(crate) revocation: Option<RevocationSetting>,
    /// Do not try whether servers accept obsolete versions and weak cipher suites besides what they choose
    #[arg(long, help_heading = "Judgement")]
    pub(crate) no_accepted: bool,
    /// Exit with code 1 when a finding is at least this bad: info, low, medium, high, critical; or no-answer
    ///
    /// A host that does not answer counts as high, and is no-answer. Silent addresses of a network do not count. Several words
    /// are separated by commas: critical,no-answer
    #[arg(long, help_heading = "Judgement", value_name = "SEVERITY", value_parser = fail_on_words)]
    pub(crate) fail_on: Option<String>,

    /// Name server to ask, instead of the system's: ADDRESS or ADDRESS:PORT; may be repeated
    #[arg(long, help_heading = "Network", value_name = "ADDRESS", action = ArgAction::Append)]
    pub(crate) dns: Vec<String>,
    /// Endpoints looked at at once [default: what the limit of open files allows, at most 2048]
    #[arg(long, help_heading = "Network", value_name = "COUNT")]
    pub(crate) in_flight: Option<usize>,
    /// Endpoints looked at at once behind one address [default: 32]
    #[arg(long, help_heading = "Network", value_name = "COUNT")]
    pub(crate) per_address: Option<usize>,
    /// Endpoints of a protocol looked at at once, for servers that count connections: smtp=16; may be repeated
    #[arg(long, help_heading = "Network", value_name = "PROTOCOL=COUNT", action = ArgAction::Append)]
    pub(crate) per_protocol: Vec<String>,
    /// How long each phase (DNS, connect, handshake) may take at the first try [default: 2s]
    ///
    /// It holds until the answers of others show how long an answer takes.
    #[arg(long, help_heading = "Network", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) timeout: Option<Duration>,
    /// The same at the last try, which decides whether a silent endpoint is dead [default: 10s]
    #[arg(long, help_heading = "Network", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) retry_timeout: Option<Duration>,
    /// End the scan after this time; endpoints that have not answered by then are `cancelled` (exit code 3)
    #[arg(long, help_heading = "Network", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) deadline: Option<Duration>,
    /// No second try
    #[arg(long, help_heading = "Network")]
    pub(crate) no_retry: bool,
    /// Complete handshakes, so that servers log no abort and show their session tickets
    #[arg(long, help_heading = "Network")]
    pub(crate) finish: bool,
    /// Only ask whether endpoints are alive; sessions may be resumed, no certificate is judged and
    /// nothing is stored
    #[arg(long, help_heading = "Network", conflicts_with_all = ["again", "resume", "db", "fail_on", "output_file", "metrics_file"])]
    pub(crate) liveness: bool,

    /// How to write the results [default: table]
    #[arg(long, short, help_heading = "Output", value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// Write the results into this file instead of standard output
    #[arg(long, help_heading = "Output", value_name = "FILE")]
    pub(crate) output_file: Option<PathBuf>,
    /// Put each certificate of the chain into JSON and JSON lines, as PEM
    #[arg(long, help_heading = "Output")]
    pub(crate) include_pem: bool,
    /// Rows of the table, the most urgent first; 0 for all [default: 50]
    #[arg(long, help_heading = "Output", value_name = "ROWS")]
    pub(crate) limit: Option<usize>,
    /// No progress bar, no summary
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// When to colour
    #[arg(long, help_heading = "Output", value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Colour,
    /// Write the scan's counts into this file for Prometheus (textfile collector)
    #[arg(long, help_heading = "Output", value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,

    /// Inventory database: a file or postgres://USER@HOST/DATABASE [default: in the data folder]
    #[arg(long, help_heading = "Inventory", value_name = "URL")]
    pub(crate) db: Option<String>,
    /// Store nothing
    #[arg(long, help_heading = "Inventory", conflicts_with_all = ["db", "again"])]
    pub(crate) no_store: bool,
}

fn fail_on_words(text: &str) -> Result<String, String> {
    text.parse::<FailOn>().map(|_| text.to_owned())
}
