//! Outcomes of probes, as named in events, the database and the scanner.

use coded::named;

named! {
    /// Outcome of the probe of one endpoint. The names are stored in the database and in JSON.
    pub enum ProbeOutcome: "outcome of a probe" {
        /// The endpoint sent a certificate, or the file contained one.
        Answered => "answered",
        /// The name does not exist (RFC 8020).
        NxDomain => "nxdomain",
        /// The name exists but has no address of the requested families (RFC 2308 section 2.2).
        NoAddress => "no-address",
        /// All name servers failed (RFC 2308 section 7.1).
        ServFail => "servfail",
        /// The name servers refused the query.
        DnsRefused => "dns-refused",
        /// No name server responded in time.
        DnsTimeout => "dns-timeout",
        /// The aliases (CNAME) of the name form a loop or a chain that is too long.
        CnameLoop => "cname-loop",
        /// The response of the name servers is malformed.
        DnsMalformed => "dns-malformed",
        /// The connection was refused: no service listens on the port.
        Refused => "refused",
        /// The peer reset the connection before it sent a certificate.
        Reset => "reset",
        /// No route to the host or network.
        Unreachable => "unreachable",
        /// The connection timed out: there was no reply to the SYN.
        BlackHole => "black-hole",
        /// This machine prevented the connection: by policy, or without free descriptors or ports.
        LocalLimit => "local-limit",
        /// The server speaks the expected protocol but does not offer TLS on it.
        StartTlsNotOffered => "starttls-not-offered",
        /// The server offered TLS and then refused it.
        StartTlsRefused => "starttls-refused",
        /// The server speaks another protocol than the one expected before TLS.
        OtherProtocol => "other-protocol",
        /// The TCP connection opened, but the server sent no byte.
        Stall => "stall",
        /// The handshake made progress but did not finish before the deadline.
        Slow => "slow",
        /// The server's reply is not TLS.
        NotTls => "not-tls",
        /// The peer sent a fatal TLS alert before any certificate. The detail names the alert.
        Alert => "alert",
        /// The peer closed the connection before it sent a certificate.
        ClosedEarly => "closed-early",
        /// The peer's TLS messages are malformed.
        Malformed => "malformed",
        /// The peer exceeded a limit, which the detail names.
        LimitExceeded => "limit-exceeded",
        /// The handshake uses no certificate (anonymous, pre-shared key).
        NoCertificate => "no-certificate",
        /// A file could not be read.
        Unreadable => "unreadable",
        /// A file needs a password that was not given.
        PasswordNeeded => "password-needed",
        /// An explicitly given file contains no certificate.
        NoCertificateInFile => "no-certificate-in-file",
        /// A cloud or cluster lists the resource without a readable certificate. The detail says why.
        NotIssued => "not-issued",
        /// A cloud or cluster no longer lists the resource.
        Gone => "gone",
        /// The probe was cancelled.
        Cancelled => "cancelled",
        /// None of the other outcomes. The detail contains the known facts.
        Unknown => "unknown",
    }
}

impl ProbeOutcome {
    /// Returns whether the endpoint sent nothing. Such endpoints are probed once more, last, with longer timeouts.
    #[must_use]
    pub fn silent(self) -> bool {
        matches!(self, Self::DnsTimeout | Self::BlackHole | Self::Stall | Self::Slow)
    }

    /// Returns whether no server responds: the name does not resolve, the port is closed, or there is no reply.
    #[must_use]
    pub fn no_answer(self) -> bool {
        self.silent()
            || matches!(
                self,
                Self::NxDomain
                    | Self::NoAddress
                    | Self::ServFail
                    | Self::DnsRefused
                    | Self::DnsMalformed
                    | Self::CnameLoop
                    | Self::Refused
                    | Self::Reset
                    | Self::Unreachable
            )
    }

    /// Returns whether an immediate retry may succeed.
    #[must_use]
    pub fn is_transient(self) -> bool {
        self.silent() || matches!(self, Self::ServFail | Self::Reset | Self::LocalLimit)
    }
}
