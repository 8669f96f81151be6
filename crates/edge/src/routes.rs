//! Routes from server names to upstreams.

use std::collections::HashMap;
use std::sync::Arc;

use http_relay::target::{Origin, Target};
use parking_lot::RwLock;
use x509::{HostName, HostOrIp};

use super::bad_route::{ALPN_BYTES_MAX, ALPN_MAX, BadRoute, HTTP_1, HTTP_2, NAMES_MAX};
use super::group::Group;

/// What a route forwards: the bytes of a connection, or single HTTP requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// Forwards the bytes of connections unchanged.
    #[default]
    Tcp,
    /// Forwards single HTTP requests.
    Http,
}

/// A route: an upstream, and the protocol to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// The servers of the upstream.
    pub(super) group: Arc<Group>,
    /// ALPN protocols of the upstream (RFC 7301), most preferred first. If empty, no protocol is negotiated.
    pub alpn: Vec<String>,
    /// Whether the upstream gets the client's address in a PROXY protocol header, version 2.
    pub proxy_protocol: bool,
    /// Set if the route forwards HTTP requests.
    pub(super) http: Option<HttpRoute>,
}

/// Origins for HTTP requests: one for each server, in the order of the group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct HttpRoute(Vec<ServerOrigin>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct ServerOrigin {
    origin: Arc<Origin>,
    /// The same origin over HTTP/1.1, used for protocol upgrades. `None` unless the upstream supports both versions and prefers
    /// HTTP/2.
    by_http1: Option<Arc<Origin>>,
}

impl HttpRoute {
    /// Returns the origin of the server with index `server`.
    pub(super) fn origin(&self, server: usize, is_upgrade: bool) -> &Arc<Origin> {
        let ServerOrigin { origin, by_http1 } = &self.0[server];
        by_http1.as_ref().filter(|_| is_upgrade).unwrap_or(origin)
    }
}

impl Route {
    /// Creates a route to one server, `HOST:PORT`.
    ///
    /// # Errors
    /// [`BadRoute`]
    pub fn new(upstream: &str, alpn: &[String]) -> Result<Self, BadRoute> {
        Self::to(Arc::new(Group::single(upstream)?), alpn)
    }

    /// Creates a route to the servers of a group.
    ///
    /// # Errors
    /// [`BadRoute`]
    pub fn to(group: Arc<Group>, alpn: &[String]) -> Result<Self, BadRoute> {
        let fits = |name: &String| (1..=ALPN_BYTES_MAX).contains(&name.len());
        if alpn.len() > ALPN_MAX || !alpn.iter().all(fits) {
            return Err(BadRoute::Alpn);
        }
        Ok(Self { group, alpn: alpn.to_vec(), proxy_protocol: false, http: None })
    }

    /// Returns the route, changed to send a PROXY protocol header before the bytes of each client.
    #[must_use]
    pub fn with_proxy_protocol(self) -> Self {
        Self { proxy_protocol: true, ..self }
    }

    /// Sets the mode. In HTTP mode, requests use the first of the upstream's ALPN protocols.
    ///
    /// # Errors
    /// [`BadRoute`]
    pub fn with_mode(self, mode: Mode) -> Result<Self, BadRoute> {
        if mode == Mode::Tcp {
            return Ok(self);
        }
        if self.proxy_protocol {
            return Err(BadRoute::ProxyProtocol);
        }
        let speaks = |protocol: &str| self.alpn.iter().any(|one| one == protocol);
        if self.alpn.is_empty() || self.alpn.iter().any(|one| one != HTTP_1 && one != HTTP_2) {
            return Err(BadRoute::Http(self.alpn));
        }
        let is_http2 = self.alpn.first().is_some_and(|first| first == HTTP_2);
        let mut servers = Vec::with_capacity(self.group.servers().len());
        for at in 0..self.group.servers().len() {
            let by_http1 =
                (is_http2 && speaks(HTTP_1)).then(|| origin(&self.group, at, false)).transpose()?;
            servers.push(ServerOrigin { origin: origin(&self.group, at, is_http2)?, by_http1 });
        }
        Ok(Self { http: Some(HttpRoute(servers)), ..self })
    }

    /// Returns the ALPN protocols that clients are offered.
    pub(super) fn offered(&self) -> Vec<&str> {
        match self.http {
            Some(_) => vec![HTTP_2, HTTP_1],
            None => self.alpn.iter().map(String::as_str).collect(),
        }
    }
}

/// Returns the origin for HTTP requests to one server of a group.
///
/// # Errors
/// [`BadRoute::Host`]
pub(super) fn origin(group: &Group, at: usize, http2: bool) -> Result<Arc<Origin>, BadRoute> {
    let server = &group.servers()[at];
    let name = HostOrIp::parse(&server.host).map_err(|_| BadRoute::Host(server.host.clone()))?;
    let tls = group.tls().cloned();
    Ok(Arc::new(Origin {
        target: Target { name, port: server.port, redirected: false },
        server: tls.as_ref().map(|tls| tls.server().clone()),
        tls,
        http2,
        absolute_form: false,
        // The operator configures the destination, so this machine is permitted.
        may_be_local: true,
    }))
}

/// Routes of a terminator from server names to upstreams, with an optional default route.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Routes {
    exact: HashMap<String, Arc<Route>>,
    /// Routes of `*.NAME` patterns, by NAME.
    wildcard: HashMap<String, Arc<Route>>,
    default: Option<Arc<Route>>,
    /// Groups with health checks or ejection.
    groups: Vec<Arc<Group>>,
}

impl Routes {
    /// Creates routes. `default` gets the connections that no other route matches; without it they are closed.
    #[must_use]
    pub fn new(default: Option<Route>) -> Self {
        let mut routes = Self { default: default.map(Arc::new), ..Self::default() };
        if let Some(group) = routes.default.as_ref().map(|route| Arc::clone(&route.group)) {
            routes.add_group(&group);
        }
        routes
    }

    fn add_group(&mut self, group: &Arc<Group>) {
        let is_watched = group.health().interval.is_some() || group.health().eject_after > 0;
        if is_watched && !self.groups.iter().any(|other| Arc::ptr_eq(other, group)) {
            self.groups.push(Arc::clone(group));
        }
    }

    /// Returns the upstreams with health checks or ejection.
    pub(super) fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Takes over the health and counters of unchanged servers.
    fn take_over(&self, before: &Self) {
        for group in &self.groups {
            if let Some(before) = before.groups.iter().find(|before| *before == group) {
                group.take_over(before);
            }
        }
    }

    /// Adds a route for these names.
    ///
    /// # Errors
    /// [`BadRoute`]
    pub fn add(&mut self, names: &[String], route: Route) -> Result<(), BadRoute> {
        let route = Arc::new(route);
        self.add_group(&route.group);
        for name in names {
            if self.exact.len() + self.wildcard.len() >= NAMES_MAX {
                return Err(BadRoute::TooMany);
            }
            let (routes, rest) = match name.strip_prefix("*.") {
                Some(rest) => (&mut self.wildcard, rest),
                None => (&mut self.exact, name.as_str()),
            };
            let rest = HostName::parse(rest).map_err(|_| BadRoute::Name(name.clone()))?;
            if routes.insert(rest.as_str().to_owned(), Arc::clone(&route)).is_some() {
                return Err(BadRoute::Twice(name.clone()));
            }
        }
        Ok(())
    }

    /// Returns whether there is no route and no default.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.default.is_none()
    }

    /// Returns whether requests go to more than one upstream.
    pub(super) fn has_several_upstreams(&self) -> bool {
        let all = self.exact.values().chain(self.wildcard.values()).chain(&self.default);
        let over_http = all.filter(|route| route.http.is_some());
        let mut servers = over_http.flat_map(|route| route.group.servers()).map(|server| &server.label);
        let Some(first) = servers.next() else { return false };
        servers.any(|other| other != first)
    }

    /// Returns the route for a server name: an exact match, a wildcard match, or the default.
    #[must_use]
    pub fn find(&self, name: Option<&str>) -> Option<&Arc<Route>> {
        let named = name.and_then(|name| {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            let below = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(&name).or_else(below)
        });
        named.or(self.default.as_ref())
    }
}

/// The current routes. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct LiveRoutes(Arc<RwLock<Arc<Routes>>>);

impl LiveRoutes {
    pub(super) fn new(routes: Routes) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(routes))))
    }

    pub(super) fn now(&self) -> Arc<Routes> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the routes. Returns whether the new routes differ from the old ones.
    pub(super) fn change(&self, routes: Routes) -> bool {
        let before = self.now();
        if *before == routes {
            return false;
        }
        routes.take_over(&before);
        let old = std::mem::replace(&mut *self.0.write(), Arc::new(routes));
        // Drop the old routes outside of the lock.
        drop(old);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;

    fn route(upstream: &str) -> Route {
        Route::new(upstream, &[]).unwrap()
    }

    #[test]
    fn upstream_is_parsed_as_host_and_port() {
        for (text, wanted) in [
            ("127.0.0.1:80", Some(("127.0.0.1", 80))),
            ("[::1]:80", Some(("::1", 80))),
            ("app.internal:8080", Some(("app.internal", 8080))),
            ("::1:80", None),
            ("app", None),
            ("app:0", None),
            ("app:70000", None),
            (":80", None),
            ("[]:80", None),
        ] {
            let read = Route::new(text, &[]).ok();
            let read = read.as_ref().map(|route| &route.group.servers()[0]);
            assert_eq!(read.map(|server| (server.host.as_str(), server.port)), wanted, "{text}");
        }
        assert_eq!(Route::new("a:1", &[String::new()]), Err(BadRoute::Alpn));
    }

    #[test]
    fn http_mode_requires_known_alpn_valid_host_and_no_proxy_protocol() {
        let route_of = |alpn: &[&str]| {
            let alpn: Vec<String> = alpn.iter().map(ToString::to_string).collect();
            Route::new("app:1", &alpn).unwrap()
        };
        let by = |alpn: &[&str]| route_of(alpn).with_mode(Mode::Http);
        for (alpn, http2, upgrades_by_http2) in [
            (&["http/1.1"][..], false, false),
            (&["h2"], true, true),
            (&["h2", "http/1.1"], true, false),
            (&["http/1.1", "h2"], false, false),
        ] {
            let route = by(alpn).unwrap();
            assert_eq!(route.offered(), ["h2", "http/1.1"], "whatever the upstream speaks");
            let http = route.http.unwrap();
            assert_eq!((http.origin(0, false).http2, http.origin(0, true).http2), (http2, upgrades_by_http2));
        }
        assert_eq!(by(&[]), Err(BadRoute::Http(Vec::new())));
        assert_eq!(by(&["h2", "h3"]), Err(BadRoute::Http(vec!["h2".into(), "h3".into()])));
        let proxied = route_of(&["h2"]).with_proxy_protocol();
        assert_eq!(proxied.with_mode(Mode::Http), Err(BadRoute::ProxyProtocol));
        let nobody = Route::new("a b:1", &["h2".into()]).unwrap();
        assert_eq!(nobody.with_mode(Mode::Http), Err(BadRoute::Host("a b".into())));
    }

    #[test]
    fn per_upstream_limit_is_half_when_there_are_several_upstreams() {
        let over_http =
            |upstream: &str| Route::new(upstream, &["h2".into()]).unwrap().with_mode(Mode::Http).unwrap();
        let options =
            |own| Options { upstream_connections_max: 9, upstream_per_host_max: own, ..Options::default() };
        let mut routes = Routes::new(Some(over_http("one:1")));
        routes.add(&["a.example".into()], over_http("one:1")).unwrap();
        routes.add(&["b.example".into()], route("two:1")).unwrap();
        assert_eq!(options(None).connections_per_upstream(&routes), 9, "all requests go to one");
        routes.add(&["*.c.example".into()], over_http("one:2")).unwrap();
        assert_eq!(options(None).connections_per_upstream(&routes), 4);
        assert_eq!(options(Some(7)).connections_per_upstream(&routes), 7);
        let few = Options { upstream_connections_max: 1, ..Options::default() };
        assert_eq!(few.connections_per_upstream(&routes), 1);
    }

    #[test]
    fn exact_names_precede_wildcards_and_the_default() {
        let mut routes = Routes::new(Some(route("default:1")));
        routes.add(&["a.example".into(), "*.example".into()], route("one:1")).unwrap();
        routes.add(&["b.example".into()], route("two:1")).unwrap();
        for (name, wanted) in [
            (Some("a.example"), "one"),
            (Some("B.Example."), "two"),
            (Some("c.example"), "one"),
            (Some("d.c.example"), "default"),
            (Some("example"), "default"),
            (None, "default"),
        ] {
            let found = routes.find(name).map(|route| route.group.servers()[0].host.as_str());
            assert_eq!(found, Some(wanted), "{name:?}");
        }
        assert!(Routes::default().find(Some("a")).is_none());
        assert_eq!(routes.add(&["b.example".into()], route("x:1")), Err(BadRoute::Twice("b.example".into())));
        assert_eq!(routes.add(&["a_b c".into()], route("x:1")), Err(BadRoute::Name("a_b c".into())));
    }
}
