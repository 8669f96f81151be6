//! Tests with Traefik and Envoy. Both watch their files, so no reload command is needed.

use std::time::Duration;

use agent::deploy::{Outcome, Target};
use enrollment::Material;
use fleet::free_port;
use serde_json::json;

use super::daemon::{Daemon, Visitor, undisturbed};
use super::world::{Host, HostDeployer, target};

const INSTALL: &str = "run .ci/interop, which installs it";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traefik_serves_the_new_certificate_without_dropped_requests() {
    let (host, port, admin) = (Host::new(), free_port(), free_port());
    let folder = host.root().display();
    let described = target(
        json!({"type": "traefik", "fullchain": host.etc("full.pem"), "key": host.etc("key.pem"),
        "config": host.root().join("watched/tls.yaml"), "verify": {"port": port, "server_name": "a.example"}}),
    );
    std::fs::create_dir(host.root().join("watched")).unwrap();
    let route = "http:\n  routers:\n    all:\n      rule: PathPrefix(`/`)\n      service: ping@internal\n      tls: {}\n";
    std::fs::write(host.root().join("watched/route.yaml"), route).unwrap();
    let config = format!(
        "entryPoints:\n  web:\n    address: 127.0.0.1:{port}\n  admin:\n    address: 127.0.0.1:{admin}\n\
         providers:\n  file:\n    directory: {folder}/watched\nping:\n  manualRouting: true\nlog:\n  level: ERROR\n\
         global:\n  checkNewVersion: false\n  sendAnonymousUsage: false\n"
    );
    let file = host.root().join("traefik.yaml");
    std::fs::write(&file, config).unwrap();
    let _daemon = Daemon::start("traefik", &[&format!("--configFile={}", file.display())], INSTALL, port);
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let deployer = host.deployer();
    // Traefik serves a self-made certificate until it has ours.
    let report = deployer.deploy(host.target, &described, &old).await;
    assert_eq!((report.outcome, report.error), (Outcome::Deployed, None));
    undisturbed(&host, &deployer, &described, &Visitor::new(&host, port), &new).await;
    is_taken_back(&host, &deployer, &described, port, &new).await;
}

/// Tests a deployment whose command fails once. The files contain `before` again, and the server serves it once its watcher sees
/// the change.
async fn is_taken_back(
    host: &Host,
    deployer: &HostDeployer,
    described: &Target,
    port: u16,
    before: &Material,
) {
    let mut broken = serde_json::to_value(described).unwrap();
    let marker = host.root().join("failed").display().to_string();
    let command = "test -e $0 && exit 0; touch $0; echo no such server >&2; exit 3";
    broken["reload"] = json!(["sh", "-c", command, marker]);
    let report = deployer.deploy(host.target, &target(broken), &host.issuer.material("a.example")).await;
    assert_eq!((report.outcome, report.rollback_error), (Outcome::RolledBack, None));
    assert!(report.error.unwrap().contains("no such server"));
    let visitor = Visitor::new(host, port);
    let served = async {
        while visitor.visit().await.unwrap() != before.fingerprint() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), served).await.expect("the files of before are not served");
}

/// A listener whose certificate comes from the secrets file at `{secrets}`.
const ENVOY: &str = r#"
node: { id: test, cluster: test }
static_resources:
  listeners:
    - address: { socket_address: { address: 127.0.0.1, port_value: {port} } }
      filter_chains:
        - transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
              common_tls_context:
                tls_certificate_sds_secret_configs:
                  - name: server_cert
                    sds_config: { path_config_source: { path: "{secrets}" }, resource_api_version: V3 }
          filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: web
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes: [{ match: { prefix: / }, direct_response: { status: 200, body: { inline_string: well } } }]
"#;

/// Runs Envoy with its secrets in `sds.yaml`, deployed to the target `described`.
async fn envoy(described: serde_json::Value) {
    let (host, port) = (Host::new(), free_port());
    let mut described = described;
    described["verify"] = json!({"port": port, "server_name": "a.example"});
    for member in ["fullchain", "key", "config"] {
        if let Some(name) = described[member].as_str() {
            described[member] = json!(host.etc(name));
        }
    }
    let described = target(described);
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let deployer = host.deployer();
    let mut unseen = serde_json::to_value(&described).unwrap();
    unseen.as_object_mut().unwrap().remove("verify");
    assert_eq!(deployer.deploy(host.target, &target(unseen), &old).await.outcome, Outcome::Deployed);
    let config = ENVOY
        .replace("{port}", &port.to_string())
        .replace("{secrets}", host.etc("sds.yaml").to_str().unwrap());
    let file = host.root().join("envoy.yaml");
    std::fs::write(&file, config).unwrap();
    let arguments =
        ["-c", file.to_str().unwrap(), "--use-dynamic-base-id", "--concurrency", "1", "-l", "error"];
    let _daemon = Daemon::start("envoy", &arguments, INSTALL, port);
    assert_eq!(Visitor::new(&host, port).visit().await.unwrap(), old.fingerprint());
    undisturbed(&host, &deployer, &described, &Visitor::new(&host, port), &new).await;
    is_taken_back(&host, &deployer, &described, port, &new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_serves_a_secret_with_the_key_inline() {
    envoy(json!({"type": "envoy", "config": "sds.yaml"})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_serves_a_secret_that_names_separate_files() {
    envoy(json!({"type": "envoy", "config": "sds.yaml", "fullchain": "full.pem", "key": "key.pem"})).await;
}
