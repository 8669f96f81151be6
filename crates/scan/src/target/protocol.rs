//! STARTTLS protocols and their ports.

use std::fmt;

use coded::named;

/// The protocol in which an endpoint negotiates TLS; [`Protocol::Tls`] if TLS starts with the first byte.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Protocol {
    /// TLS from the first byte, as in HTTPS, SMTPS and LDAPS.
    Tls,
    /// SMTP, RFC 3207.
    Smtp,
    /// LMTP, RFC 2033. STARTTLS works as in SMTP.
    Lmtp,
    /// IMAP, RFC 9051 section 6.2.1.
    Imap,
    /// POP3, RFC 2595 section 4.
    Pop3,
    /// ManageSieve, RFC 5804 section 2.2.
    Sieve,
    /// FTP, RFC 4217.
    Ftp,
    /// LDAP, RFC 4511 section 4.14.
    Ldap,
    /// PostgreSQL's SSLRequest.
    Postgres,
    /// MySQL's and MariaDB's SSLRequest.
    Mysql,
    /// Microsoft SQL Server: TLS inside TDS packets (MS-TDS section 2.2.6.5).
    Mssql,
    /// XMPP for clients, RFC 6120 section 5.
    Xmpp,
    /// XMPP between servers, RFC 6120 section 5.
    XmppServer,
    /// NNTP, RFC 4642.
    Nntp,
    /// Remote Desktop, MS-RDPBCGR section 2.2.1.
    Rdp,
    /// A file or folder instead of a network endpoint.
    File,
    /// A certificate in a cloud or cluster instead of a network endpoint.
    Cloud(CloudStore),
}

named! {
    /// A kind of certificate store in a cloud or cluster.
    pub enum CloudStore: "cloud store" {
        /// AWS Certificate Manager. Resource names are ARNs.
        AwsAcm => "aws-acm",
        /// Server certificates of AWS IAM. Resource names are ARNs.
        AwsIam => "aws-iam",
        /// Azure Key Vault. Resource names are certificate identifiers without version.
        AzureKeyVault => "azure-key-vault",
        /// Google Cloud Certificate Manager. Resource names are as in the API.
        GcpCertificateManager => "gcp-certificate-manager",
        /// SSL certificates of Google Compute Engine's load balancers. Resource names are as in the API.
        GcpCompute => "gcp-compute",
        /// Kubernetes secrets of type `kubernetes.io/tls`. Resource names are `CLUSTER/NAMESPACE/NAME`.
        KubernetesSecret => "kubernetes-secret",
    }
}

impl CloudStore {
    /// Returns whether the API returns the issuers of a leaf certificate. Key Vault stores them with the private key, in a secret that
    /// Bulla does not read.
    #[must_use]
    pub fn provides_chains(self) -> bool {
        self != Self::AzureKeyVault
    }
}

named! {
    /// Origin of a target's protocol: given by the user, guessed from the port, or the default.
    pub enum ProtocolSource: "source of a protocol" {
        /// Given by the user, as a scheme or by `--starttls`.
        Given => "given",
        /// Guessed from the port.
        GuessedFromPort => "guessed-from-port",
        /// The default: TLS from the first byte.
        Default => "default",
    }
}

/// Default port of [`Protocol::Tls`]: HTTPS.
pub const HTTPS_PORT: u16 = 443;

impl Protocol {
    /// All STARTTLS protocols, for help texts and `--starttls`.
    pub const UPGRADED: [Self; 14] = [
        Self::Smtp,
        Self::Lmtp,
        Self::Imap,
        Self::Pop3,
        Self::Sieve,
        Self::Ftp,
        Self::Ldap,
        Self::Postgres,
        Self::Mysql,
        Self::Mssql,
        Self::Xmpp,
        Self::XmppServer,
        Self::Nntp,
        Self::Rdp,
    ];

    /// Returns the stable name for outputs, which is also the URL scheme.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Smtp => "smtp",
            Self::Lmtp => "lmtp",
            Self::Imap => "imap",
            Self::Pop3 => "pop3",
            Self::Sieve => "sieve",
            Self::Ftp => "ftp",
            Self::Ldap => "ldap",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Mssql => "mssql",
            Self::Xmpp => "xmpp",
            Self::XmppServer => "xmpp-server",
            Self::Nntp => "nntp",
            Self::Rdp => "rdp",
            Self::File => "file",
            Self::Cloud(store) => store.name(),
        }
    }

    /// Returns the protocol with this [name](Protocol::name), for `--starttls`. `None` for unknown names, for `file` and for cloud stores.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("tls") {
            return Some(Self::Tls);
        }
        Self::UPGRADED.into_iter().find(|protocol| name.eq_ignore_ascii_case(protocol.name()))
    }

    /// Returns the default TCP port; 0 for files and cloud stores.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Tls => HTTPS_PORT,
            Self::Smtp => 25,
            Self::Lmtp => 24,
            Self::Imap => 143,
            Self::Pop3 => 110,
            Self::Sieve => 4_190,
            Self::Ftp => 21,
            Self::Ldap => 389,
            Self::Postgres => 5_432,
            Self::Mysql => 3_306,
            Self::Mssql => 1_433,
            Self::Xmpp => 5_222,
            Self::XmppServer => 5_269,
            Self::Nntp => 119,
            Self::Rdp => 3_389,
            Self::File | Self::Cloud(_) => 0,
        }
    }

    /// Returns the STARTTLS protocol that usually runs on this port. `None` for other ports.
    #[must_use]
    pub fn from_port(port: u16) -> Option<Self> {
        match port {
            // 587 is submission (RFC 6409); 2525 is a common alternative where port 25 is blocked.
            587 | 2_525 => Some(Self::Smtp),
            _ => Self::UPGRADED.into_iter().find(|protocol| protocol.default_port() == port),
        }
    }

    /// Returns the ALPN protocol names to offer (RFC 7301), most preferred first. Empty if the extension is not sent, because some
    /// servers of this protocol reject extensions that they do not know.
    #[must_use]
    pub fn alpn(self) -> &'static [&'static str] {
        match self {
            Self::Tls => &["h2", "http/1.1"],
            Self::Postgres => &["postgresql"],
            // TDS 8.0 starts with TLS and uses the ALPN name "tds/8.0". This dialogue leads to TLS inside TDS 7 packets, which has
            // no ALPN.
            _ => &[],
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the STARTTLS protocol and the default port of a URL scheme. Schemes with TLS from the first byte differ only in the port.
pub(super) fn from_scheme(scheme: &str) -> Option<(Protocol, u16)> {
    let own = |protocol: Protocol| (protocol, protocol.default_port());
    let tls = |port| (Protocol::Tls, port);
    Some(match scheme {
        "https" | "wss" | "tls" | "ssl" => tls(HTTPS_PORT),
        "smtps" | "submissions" => tls(465),
        "imaps" => tls(993),
        "pop3s" | "pops" => tls(995),
        "ftps" => tls(990),
        "ldaps" => tls(636),
        "nntps" | "snews" => tls(563),
        "xmpps" => tls(5_223),
        "amqps" => tls(5_671),
        "mqtts" => tls(8_883),
        "rediss" => tls(6_379),
        "sips" => tls(5_061),
        "ircs" => tls(6_697),
        "submission" => (Protocol::Smtp, 587),
        "postgresql" => own(Protocol::Postgres),
        "mariadb" => own(Protocol::Mysql),
        "sqlserver" => own(Protocol::Mssql),
        "managesieve" => own(Protocol::Sieve),
        "pop" => own(Protocol::Pop3),
        _ => own(Protocol::UPGRADED.into_iter().find(|protocol| protocol.name() == scheme)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_found_by_name_scheme_and_port() {
        for protocol in Protocol::UPGRADED {
            assert_eq!(Protocol::named(protocol.name()), Some(protocol));
            assert_eq!(from_scheme(protocol.name()), Some((protocol, protocol.default_port())));
            assert_eq!(Protocol::from_port(protocol.default_port()), Some(protocol));
        }
        assert_eq!(Protocol::named("TLS"), Some(Protocol::Tls));
        assert_eq!(Protocol::named("file"), None);
        for store in CloudStore::ALL {
            assert_eq!(Protocol::named(store.name()), None, "nobody can speak it");
            assert_eq!(store.name().parse(), Ok(store));
        }
        assert_eq!(Protocol::from_port(587), Some(Protocol::Smtp));
    }

    #[test]
    fn implicit_tls_ports_are_not_guessed_as_starttls() {
        for port in [443, 465, 563, 636, 853, 990, 993, 995, 5_223, 8_443] {
            assert_eq!(Protocol::from_port(port), None, "port {port}");
        }
    }
}
