//! Default roles of `bulla up` whose default ports are in use by another process.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use super::own_members;
use crate::config::{NodeSettings, Role, Settings};
use crate::roles::Roles;

/// Leaves out each default role whose default address is in use, with a warning. A configured address or a configured role that
/// fails is an error when the role starts.
pub(super) fn leave_out(roles: &mut Roles, settings: &Settings) {
    if !roles.are_default() {
        return;
    }
    for role in [Role::Keys, Role::Proxy] {
        let mut addresses = default_addresses(role, settings).into_iter();
        let Some((key, address)) = addresses.find(|(_, address)| roles.has(role) && is_port_in_use(*address))
        else {
            continue;
        };
        let name = role.name();
        eprintln!("warning: {address} is in use: this process starts without the role {name}");
        eprintln!("hint: set {key} to another address, or stop the process that listens there");
        roles.leave_out(role, format!("{address} is in use; set {key} to another address"));
    }
}

/// Returns those addresses of a role that have their default values, each with its configuration key.
fn default_addresses(role: Role, settings: &Settings) -> Vec<(&'static str, SocketAddr)> {
    let usual = Settings::default();
    let (keys, proxy) = (&settings.keys, &settings.proxy);
    let all = match role {
        Role::Keys => {
            let node = (keys.node.listen == NodeSettings::default().listen && !keys.node.is_configured())
                .then_some(own_members::LISTEN);
            let metrics = Some(&*keys.metrics_listen).filter(|at| *at == usual.keys.metrics_listen);
            [("keys.node.listen", node), ("keys.metrics_listen", metrics)]
        }
        Role::Proxy => [
            ("proxy.listen", Some(&*proxy.listen).filter(|at| *at == usual.proxy.listen)),
            (
                "proxy.metrics_listen",
                Some(&*proxy.metrics_listen).filter(|at| *at == usual.proxy.metrics_listen),
            ),
        ],
        _ => return Vec::new(),
    };
    all.into_iter().filter_map(|(key, address)| Some((key, address?.parse().ok()?))).collect()
}

fn is_port_in_use(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}
