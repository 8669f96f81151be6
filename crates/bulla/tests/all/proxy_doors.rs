//! Access to `bulla proxy`: curl with passwords, tokens and certificates, over TLS and SOCKS5.

use std::process::{Command, Output};

use crate::proxy::{Proxy, World};
use crate::world::{bulla, describe, run, stdout};

/// Runs curl through the proxy to the upstream.
fn curl(world: &World, arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command
        .current_dir(world.fixture.folder.path())
        .args(["-sS", "--max-time", "60", "--noproxy", "", "--cacert"])
        .arg(world.authority())
        .args(arguments)
        .arg(format!("https://localhost:{}/", world.port));
    command.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"))
}

fn configured(world: &World, text: &str) -> Proxy {
    std::fs::write(world.fixture.path("bulla.toml"), text).unwrap();
    world.proxy(&["--config", "bulla.toml"])
}

fn is_let_in(world: &World, arguments: &[&str]) {
    let output = curl(world, arguments);
    assert!(
        output.status.success() && stdout(&output).contains("s_server"),
        "{arguments:?}: {}",
        describe(&output)
    );
}

/// Checks that access is denied. `status`: the proxy's response to CONNECT, `000` for none.
fn is_denied(world: &World, arguments: &[&str], status: &str) {
    let arguments = [arguments, &["-o", "/dev/null", "-w", "%{http_connect}"]].concat();
    let output = curl(world, &arguments);
    assert!(!output.status.success() && stdout(&output) == status, "{arguments:?}: {}", describe(&output));
}

/// Returns a line of `openssl passwd`, for `secret`.
fn hash(world: &World) -> String {
    let output = Command::new("openssl")
        .current_dir(world.fixture.folder.path())
        .args(["passwd", "-6", "secret"])
        .output()
        .unwrap_or_else(|error| panic!("apt-get install -y openssl ({error})"));
    stdout(&output).trim().to_owned()
}

#[test]
fn password_and_token_are_accepted_over_http_and_socks() {
    let world = World::new();
    let hash = hash(&world);
    std::fs::write(world.fixture.path("users"), format!("# people\nalice:{hash}\n")).unwrap();
    // `printf token-of-ci | sha256sum`
    let digest = x509::Fingerprint::of(b"token-of-ci");
    let proxy = configured(
        &world,
        &format!(
            "[proxy.access]\nusers_file = \"users\"\ntokens = [{{ name = \"ci\", sha256 = \"{digest}\" }}]\n"
        ),
    );
    let http = ["--proxy", proxy.address.as_str()];
    is_let_in(&world, &[&http[..], &["--proxy-user", "alice:secret"]].concat());
    is_let_in(&world, &[&http[..], &["--proxy-header", "Proxy-Authorization: Bearer token-of-ci"]].concat());
    // curl learns the supported methods from the proxy, and uses one.
    is_let_in(&world, &[&http[..], &["--proxy-anyauth", "--proxy-user", "alice:secret"]].concat());
    is_denied(&world, &http, "407");
    is_denied(&world, &[&http[..], &["--proxy-user", "alice:Secret"]].concat(), "407");
    let address = proxy.address.strip_prefix("http://").unwrap();
    is_let_in(&world, &["--proxy", &format!("socks5h://alice:secret@{address}")]);
    is_denied(&world, &["--proxy", &format!("socks5h://alice:Secret@{address}")], "000");
    is_denied(&world, &["--proxy", &format!("socks5h://{address}")], "000");
    let figures = stdout(&Command::new("curl").args(["-sS", &proxy.figures]).output().unwrap());
    assert!(figures.contains("bulla_intercept_proxy_denied_total{why=\"wrong\"} 2"), "{figures}");
    // One for each attempt without credentials, and the first request of curl with --proxy-anyauth.
    assert!(figures.contains("bulla_intercept_proxy_denied_total{why=\"missing\"} 3"), "{figures}");
}

#[test]
fn client_certificate_and_password_are_accepted_over_proxy_tls() {
    let world = World::new();
    let leaf = |file: &str, name: &str| {
        world.fixture.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {file}.key -out {file}.pem -subj /CN={name} \
             -CA ca.pem -CAkey ca.key -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE"
        ));
    };
    leaf("own", "proxy");
    leaf("alice", "alice");
    world.fixture.openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout eve.key -out eve.pem -subj /CN=alice",
    );
    std::fs::write(world.fixture.path("users"), format!("bob:{}\n", hash(&world))).unwrap();
    let text = "[proxy.access]\ncertificate_file = \"own.pem\"\nkey_file = \"own.key\"\n\
                client_ca_files = [\"ca.pem\"]\nusers_file = \"users\"\ntls_only = true\n";
    let proxy = configured(&world, text);
    let port = proxy.address.rsplit(':').next().unwrap().to_owned();
    assert_eq!(proxy.address, format!("https://127.0.0.1:{port}"), "where it is reached at all");
    let address = format!("https://localhost:{port}");
    let https = ["--proxy", address.as_str(), "--proxy-cacert", "ca.pem"];
    is_let_in(&world, &[&https[..], &["--proxy-cert", "alice.pem", "--proxy-key", "alice.key"]].concat());
    is_let_in(&world, &[&https[..], &["--proxy-user", "bob:secret"]].concat());
    is_denied(&world, &https, "407");
    is_denied(&world, &[&https[..], &["--proxy-cert", "eve.pem", "--proxy-key", "eve.key"]].concat(), "000");
    let in_the_clear = format!("http://127.0.0.1:{port}");
    is_denied(&world, &["--proxy", &in_the_clear, "--proxy-user", "bob:secret"], "000");
    // The proxy's pages, with the name of the request in them.
    for version in ["--http2", "--http1.1"] {
        for (path, wanted) in
            [("proxy.pac", format!("HTTPS localhost:{port}")), ("ca.pem", "BEGIN CERT".into())]
        {
            let mut command = Command::new("curl");
            command.current_dir(world.fixture.folder.path()).args([
                "-sS",
                "--noproxy",
                "*",
                "--cacert",
                "ca.pem",
            ]);
            let output = command.arg(version).arg(format!("{address}/{path}")).output().unwrap();
            assert!(stdout(&output).contains(&wanted), "{version} {path}: {}", describe(&output));
        }
    }
}

#[test]
fn invalid_access_settings_are_rejected_with_a_hint() {
    let world = World::new();
    std::fs::write(world.fixture.path("plain"), "alice:secret\n").unwrap();
    for (text, wanted) in [
        ("users_file = \"plain\"", "line 1: the hash is neither"),
        ("users_file = \"nowhere\"", "nowhere"),
        (
            "tokens = [{ name = \"ci\", sha256 = \"token-of-ci\" }]",
            "in proxy.access.tokens has no name or no",
        ),
        ("certificate_file = \"up.pem\"", "must be set together"),
        ("tls_only = true", "need TLS"),
    ] {
        std::fs::write(world.fixture.path("bulla.toml"), format!("[proxy.access]\n{text}\n")).unwrap();
        let output = run(&mut world.command(&["--config", "bulla.toml"]));
        let printed = describe(&output);
        assert!(
            output.status.code() == Some(2) && printed.contains(wanted) && printed.contains("hint:"),
            "{printed}"
        );
        assert!(!printed.contains("token-of-ci"), "what may be a secret is not said: {printed}");
    }
}

#[test]
fn upstream_requiring_a_certificate_is_reached_through_a_parent_proxy() {
    let world = World::with(&["-Verify", "1", "-verify_return_error", "-CAfile", "ca.pem"]);
    world.fixture.openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout own.key -out own.pem -subj /CN=own \
         -CA ca.pem -CAkey ca.key -addext basicConstraints=critical,CA:FALSE",
    );
    std::fs::write(world.fixture.path("users"), format!("alice:{}\n", hash(&world))).unwrap();
    std::fs::write(world.fixture.path("credentials"), "alice:secret\n").unwrap();
    let parent = configured(&world, "[proxy]\nothers = \"tunnel\"\n[proxy.access]\nusers_file = \"users\"\n");
    let text = format!(
        "[proxy.parent]\nurl = \"{}\"\ncredentials_file = \"credentials\"\n[[proxy.upstreams]]\nnames = [\"localhost\"]\n\
         client_certificate_file = \"own.pem\"\nclient_key_file = \"own.key\"\n",
        parent.address
    );
    let proxy = configured(&world, &text);
    is_let_in(&world, &["--proxy", &proxy.address]);
    let figures = stdout(&Command::new("curl").args(["-sS", &parent.figures]).output().unwrap());
    assert!(figures.contains("bulla_intercept_proxy_tunnels_total 1"), "{figures}");
    // Without the client certificate the upstream rejects the connection.
    let proxy = configured(&world, "[proxy]\n");
    let output = curl(&world, &["--proxy", &proxy.address]);
    assert!(!stdout(&output).contains("s_server"), "{}", describe(&output));
}

#[test]
fn invalid_upstream_settings_are_rejected_with_a_hint() {
    let world = World::new();
    std::fs::write(world.fixture.path("credentials"), "alice\n").unwrap();
    for (text, wanted) in [
        ("[proxy.parent]\nurl = \"proxy.example\"", "is not http://HOST:PORT"),
        ("[proxy.parent]\ncredentials_file = \"credentials\"", "but no parent proxy"),
        ("[proxy.parent]\nurl = \"http://p:1\"\ncredentials_file = \"credentials\"", "USER:PASSWORD"),
        ("[[proxy.upstreams]]\nnames = []", "the entry has no names"),
        ("[[proxy.upstreams]]\nnames = [\"a*\"]", "is not a host name or address"),
        ("[[proxy.upstreams]]\nnames = [\"a\"]\nverify = false\nca_files = [\"ca.pem\"]", "have no effect"),
        ("[[proxy.upstreams]]\nnames = [\"a\"]\nclient_key_file = \"up.key\"", "must be set together"),
    ] {
        std::fs::write(world.fixture.path("bulla.toml"), format!("{text}\n")).unwrap();
        let output = run(&mut world.command(&["--config", "bulla.toml"]));
        let printed = describe(&output);
        assert!(
            output.status.code() == Some(2) && printed.contains(wanted) && printed.contains("hint:"),
            "{printed}"
        );
        // `config check` finds the error too, except for errors inside other files.
        if wanted != "USER:PASSWORD" {
            let output =
                run(bulla().args(["config", "check", "--config"]).arg(world.fixture.path("bulla.toml")));
            let printed = describe(&output);
            assert!(output.status.code() == Some(2) && printed.contains(wanted), "{printed}");
        }
    }
}

/// Services on this machine that trust every local connection.
#[test]
fn proxy_rejects_requests_to_proxy_listeners() {
    let world = World::new();
    let mut command = world.command(&[]);
    command.env("BULLA_PROXY_MINTING_LISTEN", "127.0.0.1:0").env("BULLA_PROXY_MINTING_NAMES", "*.example");
    let proxy = World::start(&mut command);
    let minting = proxy.minting.as_deref().unwrap().rsplit(':').next().unwrap().to_owned();
    let figures = proxy.figures.split([':', '/']).nth(4).unwrap().to_owned();
    let by = |more: &[&str], url: &str| {
        let mut command = Command::new("curl");
        command
            .args(["-sS", "--max-time", "60", "--noproxy", "", "--proxy", &proxy.address])
            .args(more)
            .arg(url);
        stdout(&command.output().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})")))
    };
    let hosts = ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"];
    for (port, path) in [(&minting, "certificate?server_name=a.example"), (&figures, "metrics")] {
        for url in hosts.map(|host| format!("http://{host}:{port}/{path}")) {
            for mode in [&[][..], &["--proxytunnel"]] {
                let printed = by(mode, &url);
                assert!(printed.contains("the address is this proxy itself"), "{url} {mode:?}: {printed}");
            }
        }
    }
}
