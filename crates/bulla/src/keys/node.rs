//! `bulla key serve --join`: the key service as a node of a control plane.

use std::path::PathBuf;

use clap::Args;
use cli::exit::{Exit, Outcome, Problem, chain};
use enrollment::client::JoinOptions;
use keyless::KeySet;
use keyless::routing::{RouterOptions, RoutingMetrics};
use keyless::server::{NodesOptions, Running};
use keyless::traces::Traces;
use keys::{Keyring, Secret};
use prometheus_client::registry::Registry;
use sites::node::{KeyNode, NodeError, NodeMetrics, NodeTls};
use store::Clock;
use tokio_util::sync::CancellationToken;
use x509::Fingerprint;

use crate::config::NodeSettings;
use crate::data_folder;
use crate::joining::{not_joined, read};
use crate::listening::socket;

/// Environment variable with a node token, so that the token is not in the process list.
pub(crate) const TOKEN_VARIABLE: &str = "BULLA_NODE_TOKEN";
/// The node's folder in the data folder.
const FOLDER: &str = "key-node";

/// Arguments that make the service a node.
#[derive(Args, Debug)]
pub(crate) struct NodeArgs {
    /// Be a node of this control plane: sign with the keys sealed to policies that this node satisfies, and forward other requests
    /// to other nodes
    #[arg(long, value_name = "URL")]
    join: Option<String>,
    /// The node token, for the first start (`bulla key node token`)
    #[arg(long, value_name = "TOKEN", env = TOKEN_VARIABLE, hide_env_values = true)]
    pub(super) token: Option<String>,
    /// File of certificates to trust for the control plane (PEM) [default: this host's roots]
    #[arg(long, value_name = "FILE", conflicts_with = "ca_sha256")]
    ca: Option<PathBuf>,
    /// SHA-256 of the control plane's certificate, or of a CA certificate in the chain that it sends
    #[arg(long, value_name = "FINGERPRINT")]
    ca_sha256: Option<Fingerprint>,
    /// The node's name [default: chosen by the control plane]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Folder of the node's keys and of its last state from the control plane [default: key-node in the data folder]
    #[arg(long, value_name = "DIR")]
    node_folder: Option<PathBuf>,
    /// Listen address for other nodes [default: 0.0.0.0:2410]
    #[arg(long, value_name = "ADDRESS")]
    nodes_listen: Option<String>,
    /// Host and port at which other nodes reach this one [default: this host's name, and the port of --nodes-listen]
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
}

impl NodeSettings {
    /// Applies the flags, which override the file.
    pub(crate) fn take(&mut self, args: &NodeArgs) {
        let text = |into: &mut String, given: Option<String>| {
            if let Some(given) = given {
                *into = given;
            }
        };
        text(&mut self.server, args.join.clone());
        text(&mut self.name, args.node_name.clone());
        text(&mut self.listen, args.nodes_listen.clone());
        text(&mut self.advertise, args.advertise.clone());
        text(&mut self.ca_sha256, args.ca_sha256.map(|fingerprint| fingerprint.to_string()));
        for (into, given) in [(&mut self.folder, &args.node_folder), (&mut self.ca_file, &args.ca)] {
            if let Some(given) = given {
                into.clone_from(given);
            }
        }
    }

    /// Returns the folder with keys, certificate, and the last state from the server.
    pub(crate) fn folder(&self) -> Outcome<PathBuf> {
        if self.folder.as_os_str().is_empty() {
            Ok(data_folder::folder()?.join(FOLDER))
        } else {
            Ok(self.folder.clone())
        }
    }

    /// Returns the address at which other nodes reach this one.
    fn advertised_address(&self) -> Outcome<String> {
        if !self.advertise.is_empty() {
            return Ok(self.advertise.clone());
        }
        let listen = socket("keys.node.listen", &self.listen)?;
        if !listen.ip().is_unspecified() {
            return Ok(listen.to_string());
        }
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        match name.trim() {
            "" | "localhost" => {
                Err(Problem::usage("this host has no name by which other nodes can reach it")
                    .hint("give --advertise HOST:PORT, or keys.node.advertise"))
            }
            name => Ok(format!("{name}:{}", listen.port())),
        }
    }

    fn join_options(&self, token: &str) -> Outcome<JoinOptions> {
        let ca_pem = if self.ca_file.as_os_str().is_empty() { None } else { Some(read(&self.ca_file)?) };
        let ca_sha256 = match self.ca_sha256.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|_| {
                Problem::usage(format_args!("keys.node.ca_sha256: {text:?} is not a SHA-256 digest"))
                    .hint("give 64 hexadecimal digits, as shown by `openssl x509 -fingerprint -sha256`")
            })?),
        };
        Ok(JoinOptions {
            server: self.server.clone(),
            token: Secret::new(token.trim()),
            ca_pem,
            ca_sha256,
            name: Some(self.name.clone()).filter(|name| !name.is_empty()),
            state: self.folder()?,
        })
    }
}

/// The key service as a node of a cluster, with the metrics of the node.
pub(crate) struct Node {
    node: KeyNode,
    metrics: NodeMetrics,
    routing: RoutingMetrics,
}

impl Node {
    /// Opens the node of the folder. If there is none, joins the control plane first.
    pub(crate) async fn open(
        settings: &NodeSettings,
        token: Option<&str>,
        set: &KeySet,
        custody: Option<&Keyring>,
    ) -> Outcome<Self> {
        let (folder, advertised_address) = (settings.folder()?, settings.advertised_address()?);
        match KeyNode::status(&folder).map_err(|error| failed(&error))? {
            None => {
                let token = token.ok_or_else(|| {
                    Problem::usage(format_args!("{} contains no node yet, and no token is given", folder.display()))
                        .hint("create a token on the server: `bulla key node token --site NAME`; give it as --token or in \
                         BULLA_NODE_TOKEN")
                })?;
                let joined =
                    KeyNode::join(&settings.join_options(token)?, &advertised_address, custody).await;
                let joined = joined.map_err(|error| failed(&error))?;
                eprintln!("joined {} as the node {} of the site {}", joined.server, joined.name, joined.site);
            }
            Some(known) if known.server != settings.server.trim_end_matches('/') => {
                let message = format!(
                    "this is the node {} of {}, not of {}",
                    known.name, known.server, settings.server
                );
                return Err(Problem::usage(message)
                    .hint(format!("remove {} to join another control plane", folder.display())));
            }
            Some(_) => {}
        }
        let (metrics, routing) = (NodeMetrics::default(), RoutingMetrics::default());
        let counted = (metrics.clone(), routing.clone());
        let options = RouterOptions { shared_from: settings.shared_from, ..RouterOptions::default() };
        let node = KeyNode::open(
            &folder,
            &advertised_address,
            set.clone(),
            counted,
            (options, custody),
            Clock::system(),
        )
        .await;
        Ok(Self { node: node.map_err(|error| failed(&error))?, metrics, routing })
    }

    /// Returns the options of the listener for other nodes.
    pub(crate) fn options(&self, settings: &NodeSettings) -> Outcome<NodesOptions> {
        let tls = self.node.tls().map_err(|error| failed(&error))?.server();
        let address = socket("keys.node.listen", &settings.listen)?;
        Ok(NodesOptions { address, tls, router: self.node.router().clone() })
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
        self.routing.register(registry);
    }

    /// Sets the node's name on recorded traces.
    pub(crate) fn set_node_on_traces(&self, traces: &Traces) {
        traces.is_node(self.node.name(), self.node.site());
    }

    /// Returns the node's name and its site.
    pub(crate) fn name_and_site(&self) -> (String, String) {
        (self.node.name().to_owned(), self.node.site().to_owned())
    }

    /// Returns the name and site of the node, as text.
    pub(crate) fn described(&self) -> String {
        format!("node {} of the site {}", self.node.name(), self.node.site())
    }

    /// Returns the reason why the node has no keys, if it has none.
    pub(crate) fn missing_keys_reason(&self) -> String {
        format!("node {}: {}", self.node.name(), self.node.no_usable_key_reason())
    }

    /// Runs the node until `stop`.
    pub(crate) async fn run(self, running: &Running, stop: &CancellationToken) {
        let on_tls = |tls: &NodeTls| {
            if let Err(error) = running.change_nodes_tls(&tls.server()) {
                tracing::error!(
                    error = chain(&error),
                    "the renewed certificate cannot be presented to other nodes"
                );
            }
        };
        self.node.run(on_tls, stop).await;
    }
}

/// Returns the problem for an error of the node, with exit code and hint.
fn failed(error: &NodeError) -> Problem {
    match error {
        NodeError::Join(error) => not_joined(error, "bulla key node token --site NAME"),
        NodeError::NotJoined(_) | NodeError::Joined { .. } => {
            Problem::new(Exit::Usage, chain(error)).hint("see `bulla key serve --help`, --join and --token")
        }
    }
}
