//! Tests with real servers from Debian, with their own directories and ports.

use std::path::PathBuf;
use std::sync::Arc;

use agent::deploy::{Outcome, Target};
use enrollment::Material;
use fleet::free_port;
use keys::KeyType;
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::daemon::{Daemon, Visitor, first, undisturbed};
use super::world::{Host, target};

fn nginx(host: &Host, port: u16) -> (Daemon, Target) {
    let folder = host.root().to_owned();
    let config = format!(
        "daemon off; user root; worker_processes 2; pid {0}/nginx.pid; error_log {0}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;\n\
         uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
         server {{ listen 127.0.0.1:{port} ssl; server_name a.example;\n\
         ssl_certificate {0}/etc/fullchain.pem; ssl_certificate_key {0}/etc/key.pem;\n\
         location / {{ return 200 \"well\"; }} }} }}\n",
        folder.display()
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config).unwrap();
    let (file, log) = (file.display().to_string(), folder.join("error.log").display().to_string());
    let daemon = Daemon::start("nginx", &["-c", &file, "-e", &log], "apt-get install -y nginx-light", port);
    let described =
        target(json!({"type": "nginx", "fullchain": host.etc("fullchain.pem"), "key": host.etc("key.pem"),
        "validate": ["nginx", "-t", "-q", "-c", file, "-e", log],
        "reload": ["nginx", "-s", "reload", "-c", file, "-e", log],
        "verify": {"port": port, "server_name": "a.example", "seconds": 20}}));
    (daemon, described)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_serves_the_new_certificate_without_dropped_requests() {
    let (host, port) = (Host::new(), free_port());
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let deployer = first(&host, &["fullchain", "key"], &old).await;
    let (_daemon, target) = nginx(&host, port);
    assert_eq!(Visitor::new(&host, port).visit().await.unwrap(), old.fingerprint());
    undisturbed(&host, &deployer, &target, &Visitor::new(&host, port), &new).await;
    assert_eq!(deployer.deploy(host.target, &target, &new).await.outcome, Outcome::Unchanged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_keeps_the_old_certificate_if_validation_fails() {
    let (host, port) = (Host::new(), free_port());
    let old = host.issuer.material("a.example");
    let deployer = first(&host, &["fullchain", "key"], &old).await;
    let (_daemon, target) = nginx(&host, port);
    // A key type that Debian's OpenSSL cannot read.
    let unreadable = host.issuer.material_with("a.example", KeyType::MlDsa44);
    let report = deployer.deploy(host.target, &target, &unreadable).await;
    assert_eq!((report.outcome, report.rollback_error), (Outcome::RolledBack, None));
    let error = report.error.unwrap();
    assert!(error.contains("validation failed") && error.contains("nginx"), "{error}");
    assert_eq!(host.read("fullchain.pem"), old.fullchain_pem());
    assert_eq!(Visitor::new(&host, port).visit().await.unwrap(), old.fingerprint());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployment_is_rolled_back_if_the_new_certificate_is_not_served() {
    let (host, port) = (Host::new(), free_port());
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let deployer = first(&host, &["fullchain", "key"], &old).await;
    let (_daemon, _) = nginx(&host, port);
    // These are not the files that nginx reads.
    let other_target = target(
        json!({"type": "nginx", "fullchain": host.etc("f2.pem"), "key": host.etc("k2.pem"),
        "validate": [], "reload": ["true"], "verify": {"port": port, "server_name": "a.example", "seconds": 5}}),
    );
    let report = deployer.deploy(uuid::Uuid::now_v7(), &other_target, &new).await;
    assert_eq!((report.outcome, report.served), (Outcome::RolledBack, Some(old.fingerprint())));
    let error = report.error.unwrap();
    assert!(error.contains(&old.fingerprint().to_string()), "{error}");
    assert!(!host.etc("f2.pem").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_is_reloaded_if_up_to_date_files_are_not_served() {
    let (host, port) = (Host::new(), free_port());
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    first(&host, &["fullchain", "key"], &old).await;
    let (_daemon, target) = nginx(&host, port);
    // The files were replaced without a reload.
    let deployer = first(&host, &["fullchain", "key"], &new).await;
    assert_eq!(Visitor::new(&host, port).visit().await.unwrap(), old.fingerprint());
    let report = deployer.deploy(host.target, &target, &new).await;
    assert_eq!((report.outcome, report.written.len()), (Outcome::Deployed, 0));
    assert_eq!(Visitor::new(&host, port).visit().await.unwrap(), new.fingerprint());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_server_fails_the_deployment_and_its_rollback() {
    let (host, port) = (Host::new(), free_port());
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let deployer = first(&host, &["fullchain", "key"], &old).await;
    let (daemon, target) = nginx(&host, port);
    drop(daemon);
    let report = deployer.deploy(host.target, &target, &new).await;
    assert_eq!((report.outcome, report.served), (Outcome::Broken, None));
    assert!(report.error.unwrap().contains("reload failed"));
    assert!(report.rollback_error.unwrap().contains("reload failed"));
    assert_eq!(host.read("fullchain.pem"), old.fullchain_pem());
    // Once the server runs again, the deployment succeeds.
    let (_daemon, target) = nginx(&host, port);
    assert_eq!(deployer.deploy(host.target, &target, &new).await.outcome, Outcome::Deployed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn haproxy_serves_a_certificate_from_one_combined_file() {
    let (host, port) = (Host::new(), free_port());
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let deployer = first(&host, &["combined"], &old).await;
    let file = host.root().join("haproxy.cfg");
    let config = format!(
        "global\n  maxconn 100\ndefaults\n  mode http\n  timeout client 5s\n  timeout connect 5s\n  timeout server 5s\n\
         frontend f\n  bind 127.0.0.1:{port} ssl crt {}\n  http-request return status 200\n",
        host.etc("combined.pem").display()
    );
    std::fs::write(&file, config).unwrap();
    let file = file.display().to_string();
    let daemon = Daemon::start("haproxy", &["-W", "-q", "-f", &file], "apt-get install -y haproxy", port);
    let described = target(json!({"type": "haproxy", "combined": host.etc("combined.pem"),
        "validate": ["haproxy", "-c", "-q", "-f", file], "reload": ["kill", "-USR2", daemon.pid().to_string()],
        "verify": {"port": port, "server_name": "a.example"}}));
    let report = deployer.deploy(host.target, &described, &new).await;
    assert_eq!(
        (report.outcome, report.error, report.served),
        (Outcome::Deployed, None, Some(new.fingerprint()))
    );
    let unreadable = host.issuer.material_with("a.example", KeyType::MlDsa44);
    let report = deployer.deploy(host.target, &described, &unreadable).await;
    assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
    assert_eq!(Visitor::new(&host, port).visit().await.unwrap(), new.fingerprint());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apache_serves_certificate_chain_and_key_from_separate_files() {
    let (host, port) = (Host::new(), free_port());
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let deployer = first(&host, &["cert", "chain", "key"], &old).await;
    let folder = host.root().display().to_string();
    let modules = "/usr/lib/apache2/modules";
    let config = format!(
        "ServerRoot {folder}\nServerName a.example\nPidFile {folder}/apache.pid\nErrorLog {folder}/error.log\n\
         DefaultRuntimeDir {folder}\nMutex file:{folder} default\n\
         LoadModule mpm_event_module {modules}/mod_mpm_event.so\nLoadModule ssl_module {modules}/mod_ssl.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\nUser root\nGroup root\n\
         Listen 127.0.0.1:{port}\nDocumentRoot {folder}/www\nSSLEngine on\nSSLCertificateFile {folder}/etc/cert.pem\n\
         SSLCertificateChainFile {folder}/etc/chain.pem\nSSLCertificateKeyFile {folder}/etc/key.pem\n"
    );
    // Apache refuses to run as root. Its workers read none of our files.
    let config = config.replace("User root\nGroup root", "User nobody\nGroup nogroup");
    let file: PathBuf = host.root().join("apache.conf");
    std::fs::write(&file, config).unwrap();
    std::fs::create_dir(host.root().join("www")).unwrap();
    let file = file.display().to_string();
    let _daemon =
        Daemon::start("apache2", &["-f", &file, "-DFOREGROUND"], "apt-get install -y apache2", port);
    let described = target(
        json!({"type": "apache", "cert": host.etc("cert.pem"), "chain": host.etc("chain.pem"),
        "key": host.etc("key.pem"), "validate": ["apache2", "-t", "-f", file],
        "reload": ["apache2", "-f", file, "-k", "graceful"], "verify": {"port": port, "server_name": "a.example"}}),
    );
    let report = deployer.deploy(host.target, &described, &new).await;
    assert_eq!(
        (report.outcome, report.error, report.served),
        (Outcome::Deployed, None, Some(new.fingerprint()))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caddy_answers_requests_across_a_reload_and_rejects_an_unreadable_key() {
    let (host, port, admin) = (Host::new(), free_port(), free_port());
    let (old, new) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let deployer = first(&host, &["fullchain", "key"], &old).await;
    let config = json!({
        "admin": {"listen": format!("127.0.0.1:{admin}"), "config": {"persist": false}},
        "storage": {"module": "file_system", "root": host.root().join("caddy")},
        "logging": {"logs": {"default": {"writer": {"output": "discard"}}}},
        "apps": {
            "tls": {"certificates": {"load_files":
                [{"certificate": host.etc("fullchain.pem"), "key": host.etc("key.pem")}]}},
            "http": {"servers": {"web": {
                "listen": [format!("127.0.0.1:{port}")],
                "tls_connection_policies": [{}],
                "automatic_https": {"disable": true},
                "routes": [{"handle": [{"handler": "static_response", "status_code": 200, "body": "well"}]}],
            }}},
        },
    });
    let file = host.root().join("caddy.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let given = ["--config", file.to_str().unwrap()];
    let _daemon = Daemon::start("caddy", &[&["run"], &given[..]].concat(), "apt-get install -y caddy", port);
    let (validate, reload) = (["caddy", "validate"], ["caddy", "reload", "--force"]);
    let (validate, reload) = ([&validate[..], &given].concat(), [&reload[..], &given].concat());
    let described =
        target(json!({"type": "caddy", "fullchain": host.etc("fullchain.pem"), "key": host.etc("key.pem"),
        "validate": validate, "reload": reload, "verify": {"port": port, "server_name": "a.example"}}));
    // Caddy's reload closes its listening socket. Linux then resets the connections that Caddy has not accepted yet.
    let visitor = Visitor::new(&host, port).with_second_attempt();
    undisturbed(&host, &deployer, &described, &visitor, &new).await;
    let unreadable = host.issuer.material_with("a.example", KeyType::MlDsa44);
    let report = deployer.deploy(host.target, &described, &unreadable).await;
    assert_eq!((report.outcome, report.rollback_error), (Outcome::RolledBack, None));
    assert!(report.error.unwrap().contains("validation failed"));
    // Without validation the reload fails, and Caddy continues with the old certificate.
    let mut blind = serde_json::to_value(&described).unwrap();
    blind["validate"] = json!([]);
    let report = deployer.deploy(host.target, &target(blind), &unreadable).await;
    assert_eq!((report.outcome, report.rollback_error), (Outcome::RolledBack, None));
    assert!(report.error.unwrap().contains("reload failed"));
    assert_eq!(Visitor::new(&host, port).visit().await.unwrap(), new.fingerprint());
}

/// Starts a mail server with STARTTLS (RFC 3207) that never changes its certificate.
async fn smtp_server(port: u16, material: &Material) -> tokio::task::JoinSet<()> {
    let chain = material.chain().iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = keys::PrivateKey::from_pem(&material.key_pem()).unwrap().to_pkcs8_der().to_vec();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, rustls::pki_types::PrivatePkcs8KeyDer::from(key).into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 512];
            for answer in ["220 mail ESMTP\r\n", "250-mail\r\n250 STARTTLS\r\n", "220 go ahead\r\n"] {
                stream.write_all(answer.as_bytes()).await.unwrap();
                if !answer.starts_with("220 go") {
                    let _ = stream.read(&mut buffer).await;
                }
            }
            // The probe disconnects once it has the certificate.
            let _ = acceptor.accept(stream).await;
        }
    });
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_server_certificate_is_verified_by_starttls() {
    let (host, port) = (Host::new(), free_port());
    let (served, other) = (host.issuer.material("a.example"), host.issuer.material("a.example"));
    let deployer = first(&host, &["fullchain", "key"], &served).await;
    let _server = smtp_server(port, &served).await;
    let described = |seconds: u32| {
        target(json!({"type": "postfix", "fullchain": host.etc("fullchain.pem"), "key": host.etc("key.pem"),
            "validate": [], "reload": [],
            "verify": {"port": port, "server_name": "a.example", "protocol": "smtp", "seconds": seconds}}))
    };
    let report = deployer.deploy(host.target, &described(20), &served).await;
    assert_eq!((report.outcome, report.served), (Outcome::Unchanged, Some(served.fingerprint())));
    // The server never reads its files again, so it never serves another certificate.
    let report = deployer.deploy(host.target, &described(5), &other).await;
    assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
    assert!(report.error.unwrap().contains(&served.fingerprint().to_string()));
    assert_eq!(host.read("fullchain.pem"), served.fullchain_pem());
}
