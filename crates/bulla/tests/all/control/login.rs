//! Users who log in with a real OpenID provider, from the configuration file to the end of the session.

use std::process::{Child, Command, Stdio};

use fleet::free_port;
use serde_json::Value;

use super::House;
use crate::world::describe;

const CLIENT: &str = "bulla";
const SECRET: &str = "a secret of the client's & more";
/// Address of a trusted reverse proxy. Loopback has many addresses.
const PROXY: &str = "127.0.0.2";
/// Client address in the forwarded header (RFC 5737).
const VISITOR: &str = "203.0.113.9";

/// A provider process that ends with the test.
struct Provider {
    child: Child,
    url: String,
}

impl Drop for Provider {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server with login, and its OpenID provider.
fn house_with_provider() -> (House, Provider) {
    let mut house = House::up();
    assert_eq!(house.stop(), Some(0));
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let child = Command::new("oidc-provider")
        .args([&port.to_string(), CLIENT, SECRET, &format!("{}/api/v1/auth/callback", house.url())])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("oidc-provider: {error}; run .ci/interop, which installs it"));
    let provider = Provider { child, url };
    house.until("the provider", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    std::fs::write(house.path("secret"), format!("{SECRET}\n")).unwrap();
    house.configure(&format!(
        "[oidc]\nissuer = \"{}\"\nclient_id = \"{CLIENT}\"\nclient_secret_file = {:?}\n\
         groups = [\"pki-admins=admin\", \"staff=viewer\"]\n",
        provider.url,
        house.path("secret")
    ));
    house.environment("BULLA_SERVER_TRUSTED_PROXIES", PROXY);
    house.start();
    (house, provider)
}

/// A response: status, redirect location, body.
struct Page {
    status: u16,
    location: String,
    body: String,
}

/// Sends a request with a cookie jar, as a browser does. Redirects are not followed.
fn send_request(house: &House, url: &str, more: &[&str]) -> Page {
    let root = house.root().display().to_string();
    let how = [
        "-sS",
        "--cacert",
        &root,
        "-c",
        "jar",
        "-b",
        "jar",
        "-o",
        "page",
        "-w",
        "%{http_code} %{redirect_url}",
    ];
    let output = house.program("curl", "apt-get install -y curl", &[&how[..], more, &[url]].concat());
    assert!(output.status.success(), "{url}: {}", describe(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    let (status, location) = printed.split_once(' ').unwrap();
    let body = std::fs::read_to_string(house.path("page")).unwrap();
    Page { status: status.parse().unwrap(), location: location.to_owned(), body }
}

/// Follows the login from its first redirect to the callback URL, through the provider's forms.
fn consent(house: &House, provider: &Provider, person: &str) -> String {
    let begun =
        send_request(house, &format!("{}/api/v1/auth/login?return_to=/certificates", house.url()), &[]);
    assert_eq!(begun.status, 303, "{}", begun.body);
    assert!(
        begun.location.starts_with(&provider.url) && begun.location.contains("code_challenge_method=S256")
    );
    let mut next_url = begun.location;
    // Login and consent: a redirect to each form, and one from it.
    for _ in 0..12 {
        if next_url.starts_with(&house.url()) {
            return next_url;
        }
        let page = send_request(house, &next_url, &[]);
        next_url = if page.status == 200 {
            let prompt = if page.body.contains("name=\"login\"") { "prompt=login" } else { "prompt=consent" };
            let login = format!("login={person}");
            send_request(house, &next_url, &["--data", prompt, "--data", &login, "--data", "password=any"])
                .location
        } else {
            page.location
        };
    }
    panic!("the provider leads nowhere: {next_url}");
}

fn me(house: &House) -> Page {
    send_request(house, &format!("{}/api/v1/auth/me", house.url()), &[])
}

#[test]
#[ignore = "run by .ci/interop, which gets the other program"]
fn user_logs_in_with_pkce_and_logs_out() {
    let (house, provider) = house_with_provider();
    let callback = consent(&house, &provider, "alice");
    let forwarded = format!("X-Forwarded-For: {VISITOR}");
    let done = send_request(&house, &callback, &["--interface", PROXY, "-H", &forwarded]);
    assert_eq!(
        (done.status, done.location.as_str()),
        (303, format!("{}/certificates", house.url()).as_str()),
        "{}",
        done.body
    );
    let repeated = send_request(&house, &callback, &[]);
    // Rejected because the login cookie was deleted, or because the provider's code was used.
    assert!(matches!(repeated.status, 400 | 401), "an answer is good once: {}", repeated.body);

    let page = me(&house);
    let who: Value = serde_json::from_str(&page.body).unwrap();
    assert_eq!((page.status, &who["actor"]), (200, &Value::from("user:alice")), "{who}");
    assert!(who["granted"].to_string().contains("key.rotate"), "the admins' group: {who}");
    let csrf = format!("X-CSRF-Token: {}", who["csrf_token"].as_str().unwrap());

    // Without the session's CSRF token nothing can be changed, not even the session ended.
    let logout = format!("{}/api/v1/auth/logout", house.url());
    for refused in [&["-X", "POST"][..], &["-X", "POST", "-H", "X-CSRF-Token: another"]] {
        assert_eq!(send_request(&house, &logout, refused).status, 403);
    }
    assert_eq!(me(&house).status, 200);
    let left = send_request(&house, &logout, &["-X", "POST", "-H", &csrf]);
    let left_body: Value = serde_json::from_str(&left.body).unwrap();
    assert_eq!(left.status, 200, "{left_body}");
    assert!(left_body["end_session_url"].as_str().unwrap().starts_with(&provider.url), "{left_body}");
    assert_eq!(me(&house).status, 401);

    let begun = house.json(&["audit", "list", "--action", "session.begin"]);
    assert_eq!(begun["rows"][0]["details"]["address"], VISITOR, "the trusted proxy's word: {begun}");
}

#[test]
#[ignore = "run by .ci/interop, which gets the other program"]
fn user_without_group_is_rejected_and_untrusted_proxy_header_ignored() {
    let (house, provider) = house_with_provider();
    let callback = consent(&house, &provider, "bob");
    let refused = send_request(&house, &callback, &[]);
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(refused.body.contains("you have no role on this server"), "{}", refused.body);
    assert_eq!(me(&house).status, 401);

    std::fs::remove_file(house.path("jar")).unwrap();
    let callback = consent(&house, &provider, "alice");
    let forwarded = format!("X-Forwarded-For: {VISITOR}");
    assert_eq!(send_request(&house, &callback, &["--interface", "127.0.0.1", "-H", &forwarded]).status, 303);
    let begun = house.json(&["audit", "list", "--action", "session.begin"]);
    assert_eq!(begun["rows"][0]["details"]["address"], "127.0.0.1", "no proxy of ours: {begun}");
}
