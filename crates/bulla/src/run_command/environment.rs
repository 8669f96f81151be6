//! The environment of the command: variables of the proxy, and trust stores with its CA in a folder of this run.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cli::exit::Outcome;
use p12_keystore::{Certificate, KeyStore, KeyStoreEntry};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::process::Command;

use super::arguments::{Login, RunArgs};
use super::folder::{RunFolder, write_error};

/// The password of Java's default trust store. The store contains nothing secret.
const STORE_PASSWORD: &str = "changeit";
/// Characters that are percent-encoded in the user part of a URL: all but the unreserved ones.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Variables with the proxy's URL.
const PROXY: [&str; 12] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "WS_PROXY",
    "WSS_PROXY",
    "grpc_proxy",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "YARN_HTTPS_PROXY",
];
/// Variables with hosts that clients reach without the proxy.
const EXCEPTIONS: [&str; 4] = ["NO_PROXY", "no_proxy", "no_grpc_proxy", "npm_config_noproxy"];
/// Variables that name the file of all roots: the system's and the proxy's.
const ROOTS: [&str; 10] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "DENO_CERT",
    "npm_config_cafile",
];
/// Variables with the paths of Unix sockets of the host, which the command cannot use.
const SOCKETS: [&str; 4] = ["SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "GPG_AGENT_INFO"];

/// The proxy's URL for the command.
#[derive(Clone, Debug)]
pub(super) struct ProxyUrl {
    pub(super) address: SocketAddr,
    pub(super) login: Option<Login>,
}

impl ProxyUrl {
    /// Creates a URL without a password.
    pub(super) fn open(address: SocketAddr) -> Self {
        Self { address, login: None }
    }

    fn text(&self) -> String {
        match &self.login {
            None => format!("http://{}", self.address),
            Some(Login { name, password }) => {
                let (name, password) =
                    (utf8_percent_encode(name, ESCAPED), utf8_percent_encode(password.expose(), ESCAPED));
                format!("http://{name}:{password}@{}", self.address)
            }
        }
    }
}

/// The environment variables and trust stores of the command.
pub(super) struct Environment {
    folder: RunFolder,
    url: ProxyUrl,
    sets_java_options: bool,
}

const BUNDLE: &str = "roots.pem";
const PROXY_ROOT: &str = "proxy-ca.pem";
const JAVA_STORE: &str = "roots.p12";
const NODE_PROXY: &str = "node-proxy.cjs";
/// Preload script for releases of Node that do not read the proxy variables.
const NODE_PROXY_TEXT: &str = include_str!("node_proxy.cjs");

impl Environment {
    /// Creates the environment, and writes the trust stores with the roots of the system and of the proxy.
    pub(super) fn new(url: ProxyUrl, root: &[Vec<u8>]) -> Outcome<Self> {
        let folder = RunFolder::make(&std::env::temp_dir())?;
        let file = |name: &str| folder.path().join(name);
        let mut all = outbound::tls::system_roots();
        all.extend_from_slice(root);
        let pem = |ders: &[Vec<u8>]| -> String {
            ders.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect::<Vec<_>>().join("\n")
        };
        write(&file(BUNDLE), pem(&all).as_bytes())?;
        write(&file(PROXY_ROOT), pem(root).as_bytes())?;
        write(&file(NODE_PROXY), NODE_PROXY_TEXT.as_bytes())?;
        let java = java_trust_store(&all);
        if let Some(store) = &java {
            write(&file(JAVA_STORE), store)?;
        }
        Ok(Self { folder, url, sets_java_options: java.is_some() })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sets the environment variables for a command that is started with these arguments.
    pub(super) fn set(&self, command: &mut Command, args: &RunArgs) {
        let url = self.url.text();
        command.envs(PROXY.map(|name| (name, &url)));
        command.envs(EXCEPTIONS.map(|name| (name, "")));
        command.envs(ROOTS.map(|name| (name, self.file(BUNDLE))));
        // Node adds the certificates in this file to its own roots. It reads the proxy variables only with NODE_USE_ENV_PROXY.
        command.env("NODE_EXTRA_CA_CERTS", self.file(PROXY_ROOT)).env("NODE_USE_ENV_PROXY", "1");
        let preload = format!("--require \"{}\"", self.file(NODE_PROXY).display());
        command.env("NODE_OPTIONS", appended("NODE_OPTIONS", &preload));
        let address = self.url.address;
        command.env("CLOUDSDK_PROXY_TYPE", "http");
        command.env("CLOUDSDK_PROXY_ADDRESS", address.ip().to_string());
        command.env("CLOUDSDK_PROXY_PORT", address.port().to_string());
        command.env("JAVA_TOOL_OPTIONS", self.java_options());
        if !args.no_sandbox && !args.allow_unix_sockets {
            for name in SOCKETS {
                command.env_remove(name);
            }
        }
    }

    fn java_options(&self) -> String {
        let (host, port) = (self.url.address.ip(), self.url.address.port());
        let mut options = String::new();
        for scheme in ["http", "https"] {
            options.push_str(&format!(" -D{scheme}.proxyHost={host} -D{scheme}.proxyPort={port}"));
        }
        // By default Java connects to loopback names directly, which the namespace does not allow.
        options.push_str(" -Dhttp.nonProxyHosts=");
        if self.sets_java_options {
            let store = self.file(JAVA_STORE);
            options.push_str(&format!(
                " -Djavax.net.ssl.trustStore={} -Djavax.net.ssl.trustStoreType=PKCS12 \
                 -Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}",
                store.display()
            ));
        }
        appended("JAVA_TOOL_OPTIONS", options.trim_start())
    }
}

/// Returns the existing value of a variable, followed by `options`. If an option occurs twice, Java and Node use the last one.
fn appended(variable: &str, options: &str) -> String {
    match std::env::var(variable) {
        Ok(before) if !before.is_empty() => format!("{before} {options}"),
        _ => options.to_owned(),
    }
}

/// Builds a trust store for Java. Roots that its format does not support are left out.
fn java_trust_store(roots: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut store = KeyStore::new();
    for (number, root) in roots.iter().enumerate() {
        if let Ok(root) = Certificate::from_der(root) {
            store.add_entry(&format!("root-{number}"), KeyStoreEntry::Certificate(root));
        }
    }
    store
        .writer(STORE_PASSWORD)
        .write()
        .inspect_err(|error| tracing::warn!(%error, "cannot create a trust store for Java"))
        .ok()
}

fn write(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let file = fs::File::options().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(bytes)).map_err(|error| write_error(path, &error))
}
