//! Outcomes of probes, as events, the database and the scanner name them.

use coded::named;

named! {
    /// How the probe of one endpoint ended. The names are in the database and in JSON.
    pub enum ProbeOutcome: "outcome of a probe" {
        /// The endpoint sent a certificate (or the file held one).
        Answered => "answered",
        /// The name does not exist (RFC 8020).
        NxDomain => "nxdomain",
        /// The name exists and has no address of the requested families (RFC 2308 section 2.2).
        NoAddress => "no-address",
        /// Every name server failed (RFC 2308 section 7.1).
        ServFail => "servfail",
        /// The name servers refused to answer.
        DnsRefused => "dns-refused",
        /// No name server answered in time.
        DnsTimeout => "dns-timeout",
        /// The aliases (CNAME) of the name form a loop or a chain that is too long.
        CnameLoop => "cname-loop",
        /// The answer of the name servers is malformed.
        DnsMalformed => "dns-malformed",
        /// Nothing listens: the connection was refused.
        Refused => "refused",
        /// The peer reset the connection before it sent a certificate.
        Reset => "reset",
        /// No route to the host or network.
        Unreachable => "unreachable",
        /// The connection timed out: nothing answered the SYN.
        BlackHole => "black-hole",
        /// This machine refused the connection: policy, or no free descriptors or ports.
        LocalLimit => "local-limit",
        /// The server speaks the protocol but does not offer TLS on it.
        StartTlsNotOffered => "starttls-not-offered",
        /// The server offered TLS and then refused it.
        StartTlsRefused => "starttls-refused",
        /// The server speaks another protocol than the one expected before TLS.
        OtherProtocol => "other-protocol",
        /// The connection opened, but no byte arrived.
        Stall => "stall",
        /// Bytes arrived, but the handshake did not end before the deadline.
        Slow => "slow",
        /// The reply is not TLS.
        NotTls => "not-tls",
        /// A fatal TLS alert before any certificate; the detail names it.
        Alert => "alert",
        /// The peer closed the connection before any certificate.
        ClosedEarly => "closed-early",
        /// TLS that breaks its own encoding.
        Malformed => "malformed",
        /// The peer sent more than a named limit allows.
        LimitExceeded => "limit-exceeded",
        /// The handshake needs no certificate (anonymous, pre-shared key).
        NoCertificate => "no-certificate",
        /// A file could not be read.
        Unreadable => "unreadable",
        /// A file needs a password that was not given.
        PasswordNeeded => "password-needed",
        /// A file, named explicitly, that holds no certificate.
        NoCertificateInFile => "no-certificate-in-file",
        /// A cloud or cluster lists it without a certificate that can be read; the detail says why.
        NotIssued => "not-issued",
        /// A cloud or cluster listed it before and no longer does.
        Gone => "gone",
        /// The probe was cancelled before it ended.
        Cancelled => "cancelled",
        /// None of the above; the detail says what is known.
        Unknown => "unknown",
    }
}

impl ProbeOutcome {
    /// Whether the endpoint sent nothing. Silent endpoints are probed once more, last, with longer timeouts.
    #[must_use]
    pub fn silent(self) -> bool {
        matches!(self, Self::DnsTimeout | Self::BlackHole | Self::Stall | Self::Slow)
    }

    /// Whether no server answers: the name does not resolve, nothing listens, or nothing comes back.
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

    /// Whether a retry a moment later may succeed.
    #[must_use]
    pub fn can_heal(self) -> bool {
        self.silent() || matches!(self, Self::ServFail | Self::Reset | Self::LocalLimit)
    }
}
