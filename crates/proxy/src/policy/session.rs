//! Sessions with databases, about which a policy decides.

/// A protocol of sessions with database servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionProtocol {
    /// PostgreSQL, version 3 of its protocol.
    Postgresql,
    /// Redis and servers with its protocol (RESP2 and RESP3), such as Valkey.
    Redis,
}

/// A session with a database of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DatabaseSession<'a> {
    /// Protocol of the session.
    pub protocol: SessionProtocol,
    /// Name of the database. A database of Redis has a number instead.
    pub database: &'a str,
}

impl SessionProtocol {
    const ALL: [Self; 2] = [Self::Postgresql, Self::Redis];

    /// Returns the protocol whose [`method`](Self::method) this is.
    #[must_use]
    pub fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.method() == method)
    }

    /// Returns the protocol of URLs with this scheme.
    #[must_use]
    pub fn of_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "postgresql" | "postgres" => Some(Self::Postgresql),
            "redis" | "rediss" => Some(Self::Redis),
            _ => None,
        }
    }

    /// Returns the name of the protocol in the configuration: `as` of `inject`, and the list of listeners.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgresql => "postgresql",
            Self::Redis => "redis",
        }
    }

    /// Returns the text in place of the HTTP method in logs.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Postgresql => "POSTGRESQL",
            Self::Redis => "REDIS",
        }
    }

    /// Returns the default TCP port of servers.
    #[must_use]
    pub const fn usual_port(self) -> u16 {
        match self {
            Self::Postgresql => 5_432,
            Self::Redis => 6_379,
        }
    }
}
