//! Rewriting of requests to another host or path.

use hyper::Uri;
use hyper::http::uri::Authority;
use x509::HostOrIp;

use super::rule::RewriteText;
use super::setting::{InvalidSetting, check_path, invalid};

/// New destination of a request: host, path or both.
#[derive(Debug)]
pub(super) struct Rewrite {
    pub(super) path: Option<(String, String)>,
    pub(super) host: Option<(HostOrIp, Option<u16>)>,
}

impl Rewrite {
    pub(super) fn read(text: &RewriteText) -> Result<Self, InvalidSetting> {
        let path = match (&text.path, &text.to) {
            (None, None) => None,
            (Some(from), Some(to)) => {
                for path in [from, to] {
                    let is_path = path.starts_with('/')
                        && path.parse::<Uri>().is_ok()
                        && !path.contains(['?', '*', '#']);
                    if !is_path {
                        let hint = "give a path prefix such as /old/";
                        return Err(invalid("rewrite", format!("{path:?} is not a path prefix"), hint));
                    }
                    check_path("rewrite", path)?;
                }
                Some((from.clone(), to.clone()))
            }
            _ => {
                return Err(invalid(
                    "rewrite",
                    "`path` and `to` must be given together",
                    "{ path = \"/old/\", to = \"/new/\" }",
                ));
            }
        };
        let host = text.host.as_deref().map(host_and_port).transpose()?;
        if path.is_none() && host.is_none() {
            return Err(invalid(
                "rewrite",
                "the rewrite changes nothing",
                "{ path = \"/old/\", to = \"/new/\" } or { host = \"b.example\" }",
            ));
        }
        Ok(Self { path, host })
    }
}

fn host_and_port(text: &str) -> Result<(HostOrIp, Option<u16>), InvalidSetting> {
    let bad = || {
        invalid("rewrite", format!("{text:?} is not a host"), "host = \"b.example\", or \"b.example:8443\"")
    };
    let authority: Authority = text.parse().map_err(|_| bad())?;
    let name = HostOrIp::parse(authority.host()).map_err(|_| bad())?;
    let port =
        authority.port().map(|port| port.as_str().parse().ok().filter(|port| *port > 0).ok_or_else(bad));
    if text.contains('@') {
        return Err(bad());
    }
    Ok((name, port.transpose()?))
}
